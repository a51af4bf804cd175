//! Fields that belong to one connection and must not travel on, and fields that may not be trailers.
//!
//! Owns the lists. Removal starts with the names in the peer's own `Connection` field; that list may
//! not name a field on which routing, identity or framing rests (a client could otherwise delete
//! what a proxy in front of us or we ourselves have set). Our own fields are added after removal.

use http::header::{self, HeaderMap, HeaderName};

/// Fields that never pass to the next hop. `Trailer` stays: trailers are forwarded.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Fields that a `Connection` list cannot name, beside ours.
const PROTECTED: [&str; 7] = [
    "host",
    "cookie",
    "set-cookie",
    "authorization",
    "content-length",
    "x-real-ip",
    "x-request-id",
];

/// Beginnings of names that belong to us; a `Connection` list cannot name them either.
const OURS: [&str; 3] = ["bridgehead-", "x-forwarded", "forwarded"];

/// Fields that frame, route, authenticate, modify or describe the message, and so mean nothing good
/// after its body (RFC 9110 §6.5.1), and those by which we tell an app who is asking.
const NOT_TRAILERS: [&str; 33] = [
    "accept-encoding",
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "www-authenticate",
    "x-real-ip",
    "x-request-id",
];

/// What a `Connection` field asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `close`.
    pub close: bool,
    /// `keep-alive`.
    pub keep_alive: bool,
    /// `upgrade`.
    pub upgrade: bool,
}

impl ConnectionOptions {
    /// The options named in `headers`.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut options = Self::default();
        for token in connection_tokens(headers) {
            options.close |= token.eq_ignore_ascii_case(b"close");
            options.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            options.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
        options
    }
}

/// A `Connection` list that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FieldError {
    /// It names a field that it may not remove.
    #[error("the Connection field names a protected field")]
    Protected,
    /// It holds something that is not a field name.
    #[error("the Connection field is malformed")]
    Malformed,
}

/// Remove every field that belongs to the connection: those its `Connection` field lists, then the
/// fixed ones. `content-length` stays (the caller owns framing). Nothing is removed on an error.
/// Lines of one name keep their order; the order of different names may change.
///
/// # Errors
/// A list that names a protected field, or that is no list of names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) -> Result<(), FieldError> {
    let mut listed = Vec::new();
    for token in connection_tokens(headers) {
        let name = HeaderName::from_bytes(token).map_err(|_| FieldError::Malformed)?;
        if is_protected(&name) {
            return Err(FieldError::Protected);
        }
        listed.push(name);
    }
    for name in listed {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    Ok(())
}

/// The same for an answer. A list that names an end-to-end field is the app's mistake: the field
/// stays, the list goes, because whoever reads it next would follow it.
pub fn strip_hop_by_hop_leniently(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = connection_tokens(headers)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !is_protected(name))
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// True if `name` begins with a prefix that only we may set on a forwarded request.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    OURS.iter().any(|prefix| name.starts_with(prefix))
}

/// True if `name` may not stand in a trailer section. An underscore counts as a hyphen: servers of
/// the CGI family merge trailers into the same variables.
#[must_use]
pub fn is_forbidden_trailer(name: &HeaderName) -> bool {
    let forbidden =
        |name: &str| NOT_TRAILERS.contains(&name) || HOP_BY_HOP.contains(&name) || is_ours(name);
    let name = name.as_str();
    forbidden(name) || (name.contains('_') && forbidden(&name.replace('_', "-")))
}

/// Drop the fields that may not stand in a trailer section.
pub fn strip_forbidden_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| is_forbidden_trailer(name))
        .cloned()
        .collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

fn is_protected(name: &HeaderName) -> bool {
    let name = name.as_str();
    PROTECTED.contains(&name) || is_ours(name)
}

/// Names in every `Connection` line; empty list members are skipped (RFC 9110 §5.6.1).
fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&b| b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for &(name, value) in fields {
            map.append(name, http::HeaderValue::from_static(value));
        }
        map
    }

    /// Names in the order of the alphabet: removal does not keep the order of different names.
    fn names(map: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_connection_list_goes_first_and_then_the_fixed_names() {
        let mut fields = map(&[
            ("connection", "close, X-Private,,"),
            ("connection", "Upgrade"),
            ("x-private", "1"),
            ("x-public", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("content-length", "3"),
        ]);
        assert_eq!(strip_hop_by_hop(&mut fields), Ok(()));
        assert_eq!(names(&fields), ["content-length", "trailer", "x-public"]);
    }

    #[test]
    fn the_connection_list_cannot_name_what_identity_or_framing_rests_on() {
        for name in [
            "Host",
            "cookie",
            "Authorization",
            "Content-Length",
            "Bridgehead-Request",
            "X-Forwarded-For",
            "Forwarded",
            "X-Request-Id",
            "X-Real-Ip",
        ] {
            let mut fields = map(&[("x-other", "1")]);
            let list = format!("close, {name}");
            fields.insert("connection", list.parse().expect("a field value"));
            let before = fields.clone();
            assert_eq!(strip_hop_by_hop(&mut fields), Err(FieldError::Protected));
            assert_eq!(fields, before, "{name}: an error changes nothing");
        }
    }

    #[test]
    fn a_connection_list_that_is_no_list_of_names_is_refused() {
        let mut fields = map(&[("connection", "clo se")]);
        assert_eq!(strip_hop_by_hop(&mut fields), Err(FieldError::Malformed));
    }

    #[test]
    fn an_answer_s_list_goes_even_where_it_is_not_followed() {
        let mut fields = map(&[
            ("connection", "close, Set-Cookie, X-Private, clo se"),
            ("set-cookie", "a=b"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
        ]);
        strip_hop_by_hop_leniently(&mut fields);
        assert_eq!(names(&fields), ["set-cookie"]);
    }

    #[test]
    fn connection_options_are_read_without_regard_to_case() {
        let options = ConnectionOptions::of(&map(&[("connection", "Keep-Alive, UPGRADE")]));
        assert!(options.keep_alive && options.upgrade && !options.close);
    }

    #[test]
    fn forbidden_trailers_are_dropped_and_others_stay() {
        let mut trailers = map(&[
            ("content-length", "5"),
            ("grpc-status", "0"),
            ("host", "evil"),
            ("bridgehead-verdict", "lie"),
            ("x_real_ip", "6.6.6.6"),
            ("content_length", "5"),
            ("range", "bytes=0-"),
            ("x_sum", "2"),
            ("x-sum", "1"),
        ]);
        strip_forbidden_trailers(&mut trailers);
        assert_eq!(names(&trailers), ["grpc-status", "x-sum", "x_sum"]);
    }
}
