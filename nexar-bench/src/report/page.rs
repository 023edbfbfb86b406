//! The place of the tables in a page that people write.

use super::ReportError;

const BEGIN: &str = "<!-- transports:begin -->";
const END: &str = "<!-- transports:end -->";

/// The page with `text` between the lines `<!-- transports:begin -->` and `<!-- transports:end -->`, in
/// place of what is there.
///
/// # Errors
///
/// [`ReportError::Markers`] unless each of these lines is there once, in this order.
pub fn insert(page: &str, text: &str) -> Result<String, ReportError> {
    let lines: Vec<_> = page.lines().collect();
    let only = |marker| {
        let mut found = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| **line == marker);
        match (found.next(), found.next()) {
            (Some((i, _)), None) => Some(i),
            _ => None,
        }
    };
    match (only(BEGIN), only(END)) {
        (Some(begin), Some(end)) if begin < end => {
            let parts = [&lines[..=begin], &[text.trim()], &lines[end..]].concat();
            Ok(parts.join("\n") + "\n")
        }
        _ => Err(ReportError::Markers {
            begin: BEGIN,
            end: END,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = format!("# Page\n\n{BEGIN}\nold\n\nolder\n{END}\n\nMore on `{BEGIN}`.\n");
        let once = insert(&page, "\n| new |\n").unwrap();
        assert_eq!(
            once,
            format!("# Page\n\n{BEGIN}\n| new |\n{END}\n\nMore on `{BEGIN}`.\n")
        );
        assert_eq!(insert(&once, "| new |").unwrap(), once);
    }

    #[test]
    fn a_page_without_its_markers_is_left_alone() {
        for page in [
            String::new(),
            BEGIN.to_owned(),
            format!("{END}\n{BEGIN}"),
            format!("{BEGIN}\n{END}\n{END}"),
            format!("{BEGIN}\n{BEGIN}\n{END}\n{BEGIN}"),
        ] {
            let error = insert(&page, "text").unwrap_err();
            assert!(error.to_string().contains(BEGIN), "{page}");
        }
    }
}
