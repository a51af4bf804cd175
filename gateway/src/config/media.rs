//! Content types in the configuration: whole, or up to a star at the end.

use std::sync::Arc;

use bridgehead_protocol::config::Fault;

/// A list of content types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypes(Arc<[Box<str>]>);

impl MediaTypes {
    /// A list; each item as [`parse`] answers it.
    #[must_use]
    pub fn new(types: Vec<Box<str>>) -> Self {
        Self(types.into())
    }

    /// True if the list has `essence`, a content type without its parameters, in any case.
    #[must_use]
    pub fn has(&self, essence: &str) -> bool {
        self.0.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => essence
                .get(..start.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
            None => essence.eq_ignore_ascii_case(known),
        })
    }

    /// The items.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// One item: `type/subtype`, or its beginning and a star.
pub(super) fn parse(text: &str) -> Result<Box<str>, Fault> {
    let token = |text: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "!#$&^_.+-".contains(c);
        !text.is_empty() && text.chars().all(known)
    };
    let plain = text.strip_suffix('*').unwrap_or(text);
    let starred = plain.len() < text.len();
    let fits = plain
        .split_once('/')
        .is_some_and(|(kind, sub)| token(kind) && (token(sub) || (starred && sub.is_empty())));
    if fits {
        return Ok(text.to_ascii_lowercase().into());
    }
    Err(Fault::new(
        format!("{text:?} is no content type"),
        "write for example \"text/event-stream\" or \"application/x-*\"",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(types: &[&str]) -> MediaTypes {
        MediaTypes::new(types.iter().map(|t| parse(t).expect("a type")).collect())
    }

    #[test]
    fn a_type_is_known_whole_or_by_its_beginning_in_any_case() {
        let types = list(&["text/event-stream", "application/X-*", "video/*"]);
        for known in ["Text/Event-Stream", "application/x-ndjson", "VIDEO/mp4"] {
            assert!(types.has(known), "{known}");
        }
        for other in ["text/event-stream2", "application/json", "video", "", "é"] {
            assert!(!types.has(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_type_is_an_error() {
        for wrong in [
            "", "*", "text", "text/", "/plain", "*/*", "text/a b", "text/*x", "a/b;q=1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
