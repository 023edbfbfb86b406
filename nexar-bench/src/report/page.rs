//! The place of the tables in a page that people write.

use super::ReportError;
use std::path::Path;

/// The page with `text` between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`, in place of what is
/// there.
///
/// # Errors
///
/// [`ReportError::Markers`] unless each of these lines is there once, in this order.
pub fn insert(page: &str, name: &str, text: &str) -> Result<String, ReportError> {
    let [begin, end] = ["begin", "end"].map(|place| format!("<!-- {name}:{place} -->"));
    let lines: Vec<_> = page.lines().collect();
    let only = |marker: &str| {
        let mut found = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| **line == marker);
        match (found.next(), found.next()) {
            (Some((i, _)), None) => Some(i),
            _ => None,
        }
    };
    match (only(&begin), only(&end)) {
        (Some(first), Some(last)) if first < last => {
            let parts = [&lines[..=first], &[text.trim()], &lines[last..]].concat();
            Ok(parts.join("\n") + "\n")
        }
        _ => Err(ReportError::Markers { begin, end }),
    }
}

/// How the page refers to a chart: by name where they are in one directory.
pub fn link(page: &Path, chart: &Path) -> String {
    let near = page.parent().and_then(|dir| chart.strip_prefix(dir).ok());
    near.unwrap_or(chart).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "<!-- a:begin -->";
    const END: &str = "<!-- a:end -->";

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = format!(
            "# Page\n\n{BEGIN}\nold\n\nolder\n{END}\n\nMore on `{BEGIN}`.\n<!-- b:begin -->\n"
        );
        let once = insert(&page, "a", "\n| new |\n").unwrap();
        assert_eq!(
            once,
            format!("# Page\n\n{BEGIN}\n| new |\n{END}\n\nMore on `{BEGIN}`.\n<!-- b:begin -->\n")
        );
        assert_eq!(insert(&once, "a", "| new |").unwrap(), once);
    }

    #[test]
    fn a_page_without_its_markers_is_left_alone() {
        for page in [
            String::new(),
            BEGIN.to_owned(),
            "<!-- b:begin -->\n<!-- b:end -->".to_owned(),
            format!("{END}\n{BEGIN}"),
            format!("{BEGIN}\n{END}\n{END}"),
            format!("{BEGIN}\n{BEGIN}\n{END}\n{BEGIN}"),
        ] {
            let error = insert(&page, "a", "text").unwrap_err();
            assert!(error.to_string().contains(BEGIN), "{page}");
        }
    }

    #[test]
    fn the_page_refers_to_a_chart_beside_it_by_name() {
        let page = Path::new("docs/benchmarks.md");
        assert_eq!(link(page, Path::new("docs/a.svg")), "a.svg");
        assert_eq!(link(page, Path::new("/tmp/a.svg")), "/tmp/a.svg");
    }
}
