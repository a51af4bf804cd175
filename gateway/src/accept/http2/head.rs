//! From a stream's request to a [`RawHead`], or the reason why there is none.
//!
//! The downgrade to HTTP/1 happens behind us, so everything that could mean something else there is
//! refused here: a host beside the authority that differs, blanks around values, a repeated length.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, request};

use crate::accept::Refusal;
use crate::h1::{HeadError, HeadLimits};
use crate::request::front::{BodyLength, ClientProtocol, RawHead};

/// A stream that carries no acceptable request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Well formed, but beyond a limit: answered.
    Refused(Refusal),
    /// Malformed: a stream error, nothing reaches the app.
    Malformed,
}

/// `ended` says that the stream ended with its head.
pub(super) fn read(
    parts: request::Parts,
    ended: bool,
    limits: &HeadLimits,
) -> Result<RawHead, Unfit> {
    let mut headers = parts.headers;
    // Cookie crumbs count one by one.
    if headers.len() > limits.max_fields {
        return Err(Unfit::Refused(Refusal::Head(HeadError::TooManyFields)));
    }
    let target = match parts.uri.path_and_query() {
        Some(path) => path.as_str().to_owned(),
        None => String::new(),
    };
    if target.len() > limits.max_target {
        return Err(Unfit::Refused(Refusal::Head(HeadError::UriTooLong)));
    }
    if headers.values().any(|value| padded(value.as_bytes())) {
        return Err(Unfit::Malformed);
    }
    let authority = parts.uri.authority().map(|a| a.as_str().to_owned());
    check_host(&headers, authority.as_deref())?;
    let connect_protocol = parts
        .extensions
        .get::<h2::ext::Protocol>()
        .map(|protocol| protocol.as_str().to_owned());
    // A tunnel to nowhere (RFC 9113 §8.5); `h2` has checked that it names neither scheme nor path.
    if parts.method == Method::CONNECT && connect_protocol.is_none() && authority.is_none() {
        return Err(Unfit::Malformed);
    }
    let body = body_length(&headers, &parts.method, ended)?;
    join_cookies(&mut headers);
    Ok(RawHead {
        method: parts.method,
        target,
        authority,
        scheme: parts.uri.scheme_str().map(str::to_owned),
        connect_protocol,
        headers,
        body,
        protocol: ClientProtocol::Http2,
    })
}

/// Blanks around a value, which HTTP/1 would take for its own.
pub(super) fn padded(value: &[u8]) -> bool {
    let blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    blank(value.first()) || blank(value.last())
}

fn check_host(headers: &HeaderMap, authority: Option<&str>) -> Result<(), Unfit> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Unfit::Malformed);
    }
    match (host, authority) {
        (Some(host), Some(authority))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
        {
            Err(Unfit::Malformed)
        }
        _ => Ok(()),
    }
}

/// `h2` has checked that the number is one and that the body keeps to it.
fn body_length(headers: &HeaderMap, method: &Method, ended: bool) -> Result<BodyLength, Unfit> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = match lengths.next() {
        Some(length) => {
            let digits = length.to_str().map_err(|_| Unfit::Malformed)?;
            let canonical = |n: &u64| n.to_string() == digits;
            let length = digits.parse().ok().filter(canonical);
            Some(length.ok_or(Unfit::Malformed)?)
        }
        None => None,
    };
    if lengths.next().is_some() {
        return Err(Unfit::Malformed);
    }
    match (method == Method::CONNECT, length, ended) {
        (true, None, _) => Ok(BodyLength::Tunnel),
        (true, Some(_), _) => Err(Unfit::Malformed),
        (false, Some(length), _) => Ok(BodyLength::Exact(length)),
        (false, None, true) => Ok(BodyLength::None),
        (false, None, false) => Ok(BodyLength::Streamed),
    }
}

/// HTTP/2 may send a cookie in crumbs; behind us it must be one field again (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if crumbs.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}
