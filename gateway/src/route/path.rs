//! The one judge of paths: what it lets pass is routed and forwarded byte for byte.
//!
//! Owns the refusal of paths that routing and app could read differently, and [`PathPrefix`]. Must
//! not change a byte. Place in the path: `request::normalize` asks about clients' paths, `config`
//! about the operator's prefixes, `route::table` matches one against the other.

use std::fmt;

/// Why a path is refused. The text completes the sentence "the path …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Does not begin with a slash.
    #[error("does not begin with /")]
    NotRooted,
    /// Control characters, blanks or bytes outside ASCII.
    #[error("contains a control character, a blank or a byte outside ASCII")]
    Bytes,
    /// A fragment, which never belongs into a request.
    #[error("contains a fragment")]
    Fragment,
    /// A backslash, which some apps take for a slash.
    #[error("contains a backslash")]
    Backslash,
    /// `.` or `..` as a segment, plain or encoded: the app would serve another path than was routed.
    #[error("contains a dot segment")]
    DotSegment,
    /// Only for prefixes of the configuration.
    #[error("contains a query")]
    Query,
    /// Only for prefixes of the configuration.
    #[error("ends with a slash or contains an empty segment")]
    EmptySegment,
    /// Only for prefixes of the configuration: two spellings of a prefix would be two routes.
    #[error("is percent-encoded")]
    Percent,
}

/// Judges a path and its query as a client sent them.
///
/// # Errors
/// [`PathError`] for everything that two parsers could read differently.
pub fn check_path_and_query(text: &str) -> Result<(), PathError> {
    check_bytes(text)?;
    let path = path_of(text);
    if !path.starts_with('/') {
        return Err(PathError::NotRooted);
    }
    if path.contains('\\') {
        return Err(PathError::Backslash);
    }
    match segments_as_apps_see_them(path).any(is_dot_segment) {
        true => Err(PathError::DotSegment),
        false => Ok(()),
    }
}

/// The part before the first question mark.
#[must_use]
pub fn path_of(path_and_query: &str) -> &str {
    match path_and_query.split_once('?') {
        Some((path, _)) => path,
        None => path_and_query,
    }
}

fn check_bytes(text: &str) -> Result<(), PathError> {
    for byte in text.bytes() {
        match byte {
            0..=0x20 | 0x7f.. => return Err(PathError::Bytes),
            b'#' => return Err(PathError::Fragment),
            _ => {}
        }
    }
    Ok(())
}

/// Segments between slashes, where `%2F` and `%5C` count as slashes too: many apps decode before
/// they split.
fn segments_as_apps_see_them(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let text = rest?;
        let bytes = text.as_bytes();
        for at in 0..bytes.len() {
            let width = match &bytes[at..] {
                [b'/', ..] => 1,
                [b'%', b'2', b'f' | b'F', ..] | [b'%', b'5', b'c' | b'C', ..] => 3,
                _ => continue,
            };
            rest = Some(&text[at + width..]);
            return Some(&text[..at]);
        }
        rest = None;
        Some(text)
    })
}

/// `.`, `..` and their encoded spellings, also with path parameters behind (`..;x`), which servlet
/// containers cut off before they resolve.
fn is_dot_segment(segment: &str) -> bool {
    let mut dots = 0;
    let mut rest = segment.as_bytes();
    loop {
        rest = match rest {
            [b'.', tail @ ..] => tail,
            [b'%', b'2', b'e' | b'E', tail @ ..] => tail,
            [] | [b';', ..] | [b'%', b'3', b'b' | b'B', ..] => return (1..=2).contains(&dots),
            _ => return false,
        };
        dots += 1;
    }
}

/// A path prefix of a route. It matches whole segments: `/api` matches `/api` and `/api/x`, not
/// `/apix`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPrefix(Box<str>);

impl PathPrefix {
    /// The prefix of every path.
    #[must_use]
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Parses a prefix of the configuration.
    ///
    /// # Errors
    /// [`PathError`] unless it is `/` or plain segments without a slash at the end.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        check_path_and_query(text)?;
        if text.contains('?') {
            return Err(PathError::Query);
        }
        if text.contains('%') {
            return Err(PathError::Percent);
        }
        if text != "/" && text.split('/').skip(1).any(str::is_empty) {
            return Err(PathError::EmptySegment);
        }
        Ok(Self(text.into()))
    }

    /// The prefix as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if `path` (without query) is the prefix or lies below it. `*`, the path of
    /// `OPTIONS *`, lies below `/` only.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if &*self.0 == "/" {
            return true;
        }
        match path.strip_prefix(&*self.0) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathPrefix({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_paths_pass_whatever_their_spelling() {
        for path in [
            "/",
            "/a/b?c=d",
            "//double//slash/",
            "/a%20b/%C3%A9",
            "/.well-known/x",
            "/..a/a../...",
            "/a;v=1/b",
            "/q?x=/../y\\z",
            "/100%",
            "/a%2Fb",
            "/%2e%2e%2e",
        ] {
            assert_eq!(check_path_and_query(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn dot_segments_are_refused_in_every_spelling() {
        for path in [
            "/.",
            "/..",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/%2e",
            "/a%2f..%2fb",
            "/a%5c..%5Cb",
            "/a/..;x=1/b",
            "/a/..%3Bx/b",
            "/a/.;/b?q",
        ] {
            assert_eq!(
                check_path_and_query(path),
                Err(PathError::DotSegment),
                "{path}"
            );
        }
    }

    #[test]
    fn bytes_that_parsers_disagree_about_are_refused() {
        assert_eq!(check_path_and_query(""), Err(PathError::NotRooted));
        assert_eq!(check_path_and_query("a"), Err(PathError::NotRooted));
        assert_eq!(check_path_and_query("?a"), Err(PathError::NotRooted));
        assert_eq!(check_path_and_query("/a#b"), Err(PathError::Fragment));
        assert_eq!(check_path_and_query("/a?b#c"), Err(PathError::Fragment));
        assert_eq!(check_path_and_query("/a\\b"), Err(PathError::Backslash));
        for path in ["/a b", "/a\tb", "/a\u{7f}", "/é", "/a\r\n", "/a?b\0"] {
            assert_eq!(
                check_path_and_query(path),
                Err(PathError::Bytes),
                "{path:?}"
            );
        }
    }

    #[test]
    fn a_prefix_matches_whole_segments_only() {
        let api = PathPrefix::parse("/api").unwrap();
        assert!(api.matches("/api") && api.matches("/api/") && api.matches("/api/x"));
        assert!(
            !api.matches("/apix") && !api.matches("/") && !api.matches("/API") && !api.matches("*")
        );
        assert!(PathPrefix::root().matches("/anything") && PathPrefix::root().matches("*"));
    }

    #[test]
    fn a_prefix_has_one_spelling() {
        assert_eq!(PathPrefix::parse("/api/"), Err(PathError::EmptySegment));
        assert_eq!(PathPrefix::parse("//api"), Err(PathError::EmptySegment));
        assert_eq!(PathPrefix::parse("/a?b"), Err(PathError::Query));
        assert_eq!(PathPrefix::parse("/%61"), Err(PathError::Percent));
        assert_eq!(PathPrefix::parse("/a/../b"), Err(PathError::DotSegment));
        assert_eq!(PathPrefix::parse("api"), Err(PathError::NotRooted));
    }

    proptest! {
        #[test]
        fn an_accepted_path_resolves_to_itself(path in "/([a.%2eEfF/;5cC3b]|%2e|%2f|\\.\\.){0,12}") {
            if check_path_and_query(&path).is_ok() {
                // The most eager reader: decode, cut parameters, then look for dots.
                let decoded = path
                    .replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/")
                    .replace("%5c", "/").replace("%5C", "/").replace("%3b", ";").replace("%3B", ";");
                for segment in decoded.split('/') {
                    let bare = segment.split(';').next().unwrap_or(segment);
                    prop_assert!(bare != "." && bare != "..", "{path} hides {segment}");
                }
            }
        }
    }
}
