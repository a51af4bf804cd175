//! Names of apps and agents: one syntax, checked once.
//!
//! Pure values. Invariant: an [`AppName`] is a valid DNS label in lower case, so it can stand in
//! front of the public domain.

use std::fmt;

use super::error::Fault;

/// Longest app name; with the domain behind it the host stays far below DNS limits.
const MAX_APP_NAME: usize = 40;
/// Longest agent or key id.
const MAX_ID: usize = 64;

/// Name of an app: `[a-z0-9-]{1,40}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppName(Box<str>);

impl AppName {
    /// Parses a name; `None` unless it matches `[a-z0-9-]{1,40}`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let valid = (1..=MAX_APP_NAME).contains(&text.len()) && text.bytes().all(name_byte);
        valid.then(|| Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        Self::new(text).ok_or_else(|| {
            Fault::new(
                format!("\"{text}\" is not an app name"),
                "use 1 to 40 of a-z, 0-9 and -",
            )
        })
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for AppName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Which apps an agent may serve: a name, or the beginning of names and a star (`shop-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppPattern {
    stem: Box<str>,
    open: bool,
}

impl AppPattern {
    /// The pattern of every name.
    #[must_use]
    pub fn any() -> Self {
        Self {
            stem: "".into(),
            open: true,
        }
    }

    /// True if an agent with this pattern may serve `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self.open {
            true => name.starts_with(&*self.stem),
            false => name == &*self.stem,
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        let open = stem.len() < text.len();
        let fits = stem.len() <= MAX_APP_NAME && (open || !stem.is_empty());
        if !fits || !stem.bytes().all(name_byte) {
            return Err(Fault::new(
                format!("\"{text}\" is not an app name or pattern"),
                "write for example demo, shop-* or *",
            ));
        }
        Ok(Self {
            stem: stem.into(),
            open,
        })
    }
}

impl fmt::Display for AppPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stem, if self.open { "*" } else { "" })
    }
}

/// Id of an agent or of a token key: `[A-Za-z0-9._-]{1,64}`.
pub(super) fn parse_id(text: &str) -> Result<String, Fault> {
    let byte_fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if !(1..=MAX_ID).contains(&text.len()) || !text.bytes().all(byte_fits) {
        return Err(Fault::new(
            format!("\"{text}\" is not an id"),
            "use 1 to 64 letters, digits, dots, underscores and hyphens",
        ));
    }
    Ok(text.to_owned())
}

fn name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_app_name_is_a_short_lower_case_label() {
        for good in ["a", "demo", "shop-7", &"x".repeat(40)] {
            assert_eq!(AppName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Demo", "a.b", "a_b", "é", "a b", &"x".repeat(41)] {
            assert!(AppName::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_covers_its_name_or_everything_behind_its_stem() {
        let exact = AppPattern::parse("demo").unwrap();
        assert!(exact.matches("demo") && !exact.matches("demo-2"));
        let open = AppPattern::parse("shop-*").unwrap();
        assert!(open.matches("shop-") && open.matches("shop-7") && !open.matches("shop"));
        assert!(AppPattern::parse("*").unwrap().matches("anything"));
        assert_eq!(open.to_string(), "shop-*");
        for bad in ["", "*x", "a*b", "a**", "Shop-*"] {
            assert!(AppPattern::parse(bad).is_err(), "{bad:?}");
        }
    }
}
