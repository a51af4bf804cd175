//! Names of apps and agents: one syntax, checked once.
//!
//! Pure values. Invariant: an [`AppName`] is a valid DNS label in lower case, so it can stand in
//! front of the public domain.

use std::fmt;

use bridgehead_protocol::handshake::{AppPattern, is_agent_id, is_app_name};

use bridgehead_protocol::config::Fault;

/// Name of an app: `[a-z0-9-]{1,40}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppName(Box<str>);

impl AppName {
    /// Parses a name; `None` unless it matches `[a-z0-9-]{1,40}`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        is_app_name(text).then(|| Self(text.into()))
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

/// Which apps an agent may serve.
pub(super) fn parse_pattern(text: &str) -> Result<AppPattern, Fault> {
    AppPattern::parse(text).ok_or_else(|| {
        Fault::new(
            format!("\"{text}\" is not an app name or pattern"),
            "write for example demo, shop-* or *",
        )
    })
}

/// Id of an agent, of a token key or of this node: `[A-Za-z0-9._-]{1,64}`.
pub(super) fn parse_id(text: &str) -> Result<String, Fault> {
    match is_agent_id(text) {
        true => Ok(text.to_owned()),
        false => Err(Fault::new(
            format!("\"{text}\" is not an id"),
            "use 1 to 64 letters, digits, dots, underscores and hyphens",
        )),
    }
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
}
