//! The tables as source and as a page.

use crate::constants::Known;
use nexar_bench::report::{self, ReportError};
use nexar_collectives::tune::{self, Hosts, Line};
use std::fmt::Write;

/// The tables, by where the ranks are.
pub(crate) type Tables = [(Hosts, Vec<Line>); 2];

/// The command that writes the same tables again, one piece a line.
fn command(constants: &Known) -> Vec<String> {
    let mut pieces = vec!["cargo run --release -p nexar-bench --bin nexar-tune -- --write".into()];
    pieces.extend(constants.options());
    pieces
}

/// The source file with the tables.
pub(crate) fn source(constants: &Known, tables: &Tables) -> String {
    let mut text = String::from("//! The tables, written by nexar-tune:\n//!\n//! ```text\n");
    for (i, piece) in command(constants).iter().enumerate() {
        let indent = if i == 0 { "" } else { "    " };
        let next = if i + 1 == command(constants).len() {
            ""
        } else {
            " \\"
        };
        _ = writeln!(text, "//! {indent}{piece}{next}");
    }
    text.push_str("//! ```\n\nuse super::{ANY, KIB, MIB, Rule, rule};\nuse nexar_core::{Algorithm, Collective};\n");
    for (hosts, lines) in tables {
        let (name, about) = match hosts {
            Hosts::One => ("ONE_HOST", "For ranks of one host."),
            Hosts::Several => ("SEVERAL_HOSTS", "For ranks on several hosts."),
        };
        _ = write!(
            text,
            "\n/// {about}\n#[rustfmt::skip]\npub(super) const {name}: &[Rule] = {{\n    \
             use Algorithm::*;\n    use Collective::*;\n    &[\n        \
             //   collective     world      up to      algorithm          segment    lookahead\n"
        );
        for (i, line) in lines.iter().enumerate() {
            if i > 0 && lines[i - 1].collective != line.collective {
                text.push('\n');
            }
            text.push_str(&source_line(*hosts, line));
        }
        text.push_str("    ]\n};\n");
    }
    text
}

fn source_line(hosts: Hosts, line: &Line) -> String {
    let any = |number: usize| match number {
        usize::MAX => "ANY".to_owned(),
        number => number.to_string(),
    };
    let world = format!("{}..={},", line.world.start(), any(*line.world.end()));
    let measured = match tune::is_measured(hosts, line) {
        true => " // measured",
        false => "",
    };
    let collective = format!("{:?},", line.collective);
    let algorithm = format!("{:?},", line.algorithm);
    let size = |bytes| match size(bytes, " * KIB,", " * MIB,") {
        one if one.starts_with("1 * ") => one["1 * ".len()..].to_owned(),
        other => other,
    };
    let (bytes, segment) = (size(line.bytes), size(line.segment));
    format!(
        "        rule({collective:<14} {world:<10} {bytes:<10} {algorithm:<18} {segment:<10} {}),{measured}\n",
        line.lookahead
    )
}

/// Bytes in the largest unit that is whole.
fn size(bytes: usize, kib: &str, mib: &str) -> String {
    let comma = if kib.ends_with(',') { "," } else { "" };
    match bytes {
        usize::MAX => format!("ANY{comma}"),
        bytes if bytes % (1 << 20) == 0 => format!("{}{mib}", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}{kib}", bytes >> 10),
        bytes => format!("{bytes}{comma}"),
    }
}

/// A table as Markdown.
pub(crate) fn markdown(hosts: Hosts, lines: &[Line]) -> String {
    let title = match hosts {
        Hosts::One => "Ranks of one host",
        Hosts::Several => "Ranks on several hosts",
    };
    let mut text = format!(
        "{title}:\n\n| collective | world | size | algorithm | segment | lookahead |\n|---|---|---|---|---|---|\n"
    );
    for (i, line) in lines.iter().enumerate() {
        let goes_on =
            i > 0 && lines[i - 1].collective == line.collective && lines[i - 1].world == line.world;
        let world = match line.world.clone().into_inner() {
            (_, usize::MAX) if *line.world.start() <= 1 => "any".to_owned(),
            (start, usize::MAX) => format!("{start} and more"),
            (1, end) => format!("up to {end}"),
            (start, end) if start == end => end.to_string(),
            (start, end) => format!("{start} to {end}"),
        };
        let bytes = match line.bytes {
            usize::MAX if goes_on => "above".to_owned(),
            usize::MAX => "any".to_owned(),
            bytes => format!("up to {}", bytes_for_people(bytes)),
        };
        let measured = if tune::is_measured(hosts, line) {
            ", measured"
        } else {
            ""
        };
        _ = writeln!(
            text,
            "| {} | {world} | {bytes} | `{}`{measured} | {} | {} |",
            line.collective.name(),
            line.algorithm.name(),
            bytes_for_people(line.segment),
            line.lookahead
        );
    }
    text.push('\n');
    text
}

fn bytes_for_people(bytes: usize) -> String {
    match size(bytes, " KiB", " MiB") {
        plain if plain.ends_with('B') => plain,
        plain => plain + " B",
    }
}

/// The page with the tables and their command in place of what is between its markers.
pub(crate) fn insert(
    page: &str,
    constants: &Known,
    tables: &Tables,
) -> Result<String, ReportError> {
    let mut text = String::new();
    for (hosts, lines) in tables {
        text.push_str(&markdown(*hosts, lines));
    }
    _ = write!(
        text,
        "Written by\n\n```text\n{}\n```\n",
        command(constants).join(" \\\n    ")
    );
    report::insert(page, "algorithms", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_whole_unit() {
        assert_eq!(size(96 << 10, " * KIB,", " * MIB,"), "96 * KIB,");
        assert_eq!(size(4 << 20, " * KIB,", " * MIB,"), "4 * MIB,");
        assert_eq!(size(usize::MAX, " * KIB,", " * MIB,"), "ANY,");
        assert_eq!(bytes_for_people(8), "8 B");
        assert_eq!(bytes_for_people(64 << 10), "64 KiB");
    }

    /// Whoever changes the tables by hand is told here.
    #[test]
    fn the_source_and_the_page_have_the_tables_that_calls_use() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}"));
        let page = read("docs/algorithms.md").unwrap();
        let source = read("nexar-collectives/src/schedule/table/data.rs").unwrap();
        for hosts in [Hosts::One, Hosts::Several] {
            let lines = tune::table(hosts);
            assert!(page.contains(&markdown(hosts, &lines)), "{hosts:?}");
            for line in &lines {
                assert!(source.contains(&source_line(hosts, line)), "{line:?}");
            }
        }
    }
}
