//! Messages going out: heads, chunk framing and trailers, written into a buffer.
//!
//! Writes what it is given: field names as the map holds them (lower case), values byte for byte.
//! Framing fields are the caller's business; nothing is added here.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, Method, StatusCode};

/// Append a request head in HTTP/1.1. `target` is written as it is.
pub fn request_head(out: &mut BytesMut, method: &Method, target: &str, headers: &HeaderMap) {
    out.reserve(head_size(headers) + method.as_str().len() + target.len());
    out.put_slice(method.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(target.as_bytes());
    out.put_slice(b" HTTP/1.1\r\n");
    fields(out, headers);
}

/// Append an answer's head in HTTP/1.1 (also to HTTP/1.0 clients, as RFC 9110 §6.2 has it).
/// Without `reason`, or if it holds a control byte, the usual phrase is written.
pub fn response_head(
    out: &mut BytesMut,
    status: StatusCode,
    reason: Option<&[u8]>,
    headers: &HeaderMap,
) {
    let usual = status.canonical_reason().unwrap_or_default().as_bytes();
    let printable = |phrase: &&[u8]| phrase.iter().all(|b| !b.is_ascii_control() || *b == b'\t');
    let reason = reason.filter(printable).unwrap_or(usual);
    out.reserve(head_size(headers) + reason.len());
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(reason);
    out.put_slice(b"\r\n");
    fields(out, headers);
}

/// Append the line before a chunk of `len` bytes. A zero length would end the body, so it writes
/// nothing; [`chunk_end`] then writes nothing either.
pub fn chunk_header(out: &mut BytesMut, len: usize) {
    if len > 0 {
        // Writing to a growing buffer cannot fail.
        let _written = write!(out, "{len:x}\r\n");
    }
}

/// Append what follows the data of a chunk of `len` bytes.
pub fn chunk_end(out: &mut BytesMut, len: usize) {
    if len > 0 {
        out.put_slice(b"\r\n");
    }
}

/// Append the last chunk without trailers.
pub fn last_chunk(out: &mut BytesMut) {
    out.put_slice(b"0\r\n\r\n");
}

/// Append the last chunk and `trailers`.
pub fn last_chunk_with(out: &mut BytesMut, trailers: &HeaderMap) {
    out.put_slice(b"0\r\n");
    fields(out, trailers);
}

fn fields(out: &mut BytesMut, headers: &HeaderMap) {
    for (name, value) in headers {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
}

/// Bytes of the fields and a first line without its variable parts.
fn head_size(headers: &HeaderMap) -> usize {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + 4
    };
    headers.iter().map(field).sum::<usize>() + 32
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn values_are_written_byte_for_byte() {
        let mut headers = HeaderMap::new();
        headers.append(
            "x-raw",
            HeaderValue::from_bytes(b"caf\xe9 \t=;").expect("a value"),
        );
        headers.append("x-raw", HeaderValue::from_static(""));
        let mut out = BytesMut::new();
        request_head(&mut out, &Method::PATCH, "/a?b=%20c", &headers);
        assert_eq!(
            &out[..],
            b"PATCH /a?b=%20c HTTP/1.1\r\nx-raw: caf\xe9 \t=;\r\nx-raw: \r\n\r\n"
        );
    }

    #[test]
    fn an_unusual_reason_phrase_is_kept_and_a_harmful_one_is_not() {
        let mut out = BytesMut::new();
        response_head(
            &mut out,
            StatusCode::OK,
            Some(b"Alles gut"),
            &HeaderMap::new(),
        );
        assert_eq!(&out[..], b"HTTP/1.1 200 Alles gut\r\n\r\n");
        out.clear();
        response_head(
            &mut out,
            StatusCode::OK,
            Some(b"a\r\nx: y"),
            &HeaderMap::new(),
        );
        assert_eq!(&out[..], b"HTTP/1.1 200 OK\r\n\r\n");
    }

    #[test]
    fn an_empty_chunk_does_not_end_the_body() {
        let mut out = BytesMut::new();
        chunk_header(&mut out, 0);
        chunk_end(&mut out, 0);
        assert!(out.is_empty());
        chunk_header(&mut out, 31);
        assert_eq!(&out[..], b"1f\r\n");
    }

    #[test]
    fn trailers_follow_the_last_chunk() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("7"));
        let mut out = BytesMut::new();
        last_chunk_with(&mut out, &trailers);
        assert_eq!(&out[..], b"0\r\nx-sum: 7\r\n\r\n");
    }
}
