//! What is wrong with a configuration: one line each, naming what, where and how to mend it.
//!
//! Owns the error values and the search for the key somebody meant. Must not read files or decide
//! what is valid. Place in the path: filled by [`super::section`] and by whoever reads through it,
//! printed by the command lines.

use std::fmt;

/// One mistake. Its `Display` is a single line: `file:line: path: what, how to mend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File it was found in; empty for settings that did not come from a file.
    pub file: String,
    /// Line, counted from 1, where known.
    pub line: Option<usize>,
    /// Key path, such as `[[app]].hosts`; empty for mistakes of the whole file.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// How to mend it.
    pub mend: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&self.file)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", Printable(&self.path))?;
        }
        write_sentence(f, &self.what, &self.mend)
    }
}

/// `what, mend`, or `what` alone where there is no cure to name.
fn write_sentence(f: &mut fmt::Formatter<'_>, what: &str, mend: &str) -> fmt::Result {
    write!(f, "{}", Printable(what))?;
    match mend.is_empty() {
        true => Ok(()),
        false => write!(f, ", {}", Printable(mend)),
    }
}

/// A quoted key of the file may hold a line end or an escape sequence; the message stays one line.
struct Printable<'t>(&'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

/// Every mistake of one configuration, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Sorted by line; mistakes without a line come last.
    #[must_use]
    pub fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
        Self(errors)
    }

    /// One mistake of the file as a whole.
    #[must_use]
    pub fn whole_file(file: &str, what: String, mend: &str) -> Self {
        Self(vec![ConfigError {
            file: file.to_owned(),
            line: None,
            path: String::new(),
            what,
            mend: mend.to_owned(),
        }])
    }

    /// The mistakes.
    #[must_use]
    pub fn as_slice(&self) -> &[ConfigError] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A value that is not what its key wants; the reader adds file, line and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub what: String,
    /// How to mend it; may be empty.
    pub mend: String,
}

impl Fault {
    /// What is wrong, and how to mend it.
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            mend: mend.into(),
        }
    }
}

/// What is wrong and how to mend it, as one sentence; for a value that stands in no file.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_sentence(f, &self.what, &self.mend)
    }
}

/// The known key nearest to `unknown`, if it is near enough to be a slip of the fingers.
#[must_use]
pub fn nearest<'k>(unknown: &str, known: &[&'k str]) -> Option<&'k str> {
    // A third of the letters wrong is a slip; more is another word.
    let limit = unknown.len().max(3) / 3;
    known
        .iter()
        .map(|key| (distance(unknown, key), *key))
        .filter(|(steps, _)| *steps <= limit)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, key)| key)
}

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<u8>, Vec<u8>) = (left.into(), right.into());
    let mut before_last = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1; right.len() + 1];
        for (j, b) in right.iter().enumerate() {
            let replace = last[j] + usize::from(a != b);
            row[j + 1] = replace.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b;
            if swapped {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_key_that_was_meant() {
        let known = ["first_frame_window", "stall_window", "hold", "hosts"];
        assert_eq!(
            nearest("first_frame_windw", &known),
            Some("first_frame_window")
        );
        assert_eq!(nearest("stal_window", &known), Some("stall_window"));
        assert_eq!(nearest("hlod", &known), Some("hold"));
        assert_eq!(nearest("host", &known), Some("hosts"));
        assert_eq!(nearest("certificate", &known), None);
    }

    #[test]
    fn the_distance_counts_single_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("abc", "axc"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn an_error_is_one_line_that_says_what_where_and_how_to_mend() {
        let error = ConfigError {
            file: "gateway.toml".into(),
            line: Some(7),
            path: "[[app]].hold".into(),
            what: "\"10\" has no unit".into(),
            mend: "write 10s".into(),
        };
        assert_eq!(
            error.to_string(),
            "gateway.toml:7: [[app]].hold: \"10\" has no unit, write 10s"
        );
        let drawing = ConfigError {
            path: "a\nb\u{1b}[2J".into(),
            ..error
        };
        let text = drawing.to_string();
        assert!(text.contains("a\\nb\\u{1b}[2J: "), "{text}");
    }
}
