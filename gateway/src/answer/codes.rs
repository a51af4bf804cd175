//! The table of codes, printed: JSON for programs (`/.well-known/bridgehead/codes.json`,
//! `bh-gateway codes --json`) and aligned text for people (`bh-gateway codes`). Owns layout only.

use std::fmt::Write as _;

use bridgehead_protocol::verdict::{Code, Row};
use serde::Serialize;

#[derive(Serialize)]
struct Table {
    codes: Vec<Line>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    code: &'static str,
    status: u16,
    reached: &'static str,
    read: &'static str,
    write: &'static str,
    retry_after: &'static str,
    text: &'static str,
}

impl From<&Row> for Line {
    fn from(row: &Row) -> Self {
        Self {
            code: row.code.as_str(),
            status: row.status,
            reached: row.reached.as_str(),
            read: row.read.as_str(),
            write: row.write.as_str(),
            retry_after: row.retry_after.as_str(),
            text: row.text,
        }
    }
}

fn rows(only: Option<Code>) -> impl Iterator<Item = &'static Row> {
    Code::ALL
        .iter()
        .copied()
        .filter(move |&code| only.is_none_or(|wanted| wanted == code))
        .map(Code::row)
}

/// The table, or one row of it, as JSON: `{"codes": […]}`.
#[must_use]
pub fn codes_json(only: Option<Code>) -> String {
    let table = Table {
        codes: rows(only).map(Line::from).collect(),
    };
    serde_json::to_string_pretty(&table).unwrap_or_default()
}

/// The table for people; for one code its row with what happened and what to do.
#[must_use]
pub fn codes_text(only: Option<Code>) -> String {
    only.map_or_else(table, |code| card(code.row()))
}

fn table() -> String {
    let head = ["CODE", "HTTP", "REACHED", "READ", "WRITE", "RETRY-AFTER"].map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(rows(None).map(cells)).collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let mut padded = String::new();
        for (cell, width) in line.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(padded, "{cell:<width$}  ");
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> [String; 6] {
    [
        row.code.to_string(),
        row.status.to_string(),
        row.reached.to_string(),
        row.read.to_string(),
        row.write.to_string(),
        pause(row),
    ]
}

fn pause(row: &Row) -> String {
    match row.default_retry {
        Some(seconds) => format!("{} ({seconds} s)", row.retry_after),
        None => row.retry_after.to_string(),
    }
}

fn card(row: &Row) -> String {
    format!(
        "{} (HTTP {})\n{}\n{}\n\nreached      {}\nread         {}\nwrite        {}\nretry-after  {}\n",
        row.code,
        row.status,
        row.text,
        row.hint,
        row.reached,
        row.read,
        row.write,
        pause(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_code_in_aligned_columns() {
        let text = codes_text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), Code::ALL.len() + 1);
        let column = lines[0]
            .find("REACHED")
            .expect("the head names its columns");
        for (line, row) in lines[1..].iter().zip(rows(None)) {
            assert!(line.starts_with(row.code.as_str()), "{line}");
            assert!(line[column..].starts_with(row.reached.as_str()), "{line}");
        }
    }

    #[test]
    fn one_code_is_explained() {
        let text = codes_text(Some(Code::BhAppTimeout));
        let row = Code::BhAppTimeout.row();
        assert!(text.starts_with("BH_APP_TIMEOUT (HTTP 504)\n"));
        assert!(text.contains(row.text) && text.contains(row.hint));
        assert!(text.contains("retry-after  never\n"));
        assert!(!text.contains("BH_APP_STARTING"));
    }

    #[test]
    fn the_json_of_one_code_holds_only_that_row() {
        let json: serde_json::Value =
            serde_json::from_str(&codes_json(Some(Code::QueueTimeout))).expect("the table is JSON");
        assert_eq!(json["codes"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["codes"][0]["code"], "QUEUE_TIMEOUT");
    }
}
