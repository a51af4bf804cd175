//! Heads between the corridor and an HTTP/2 app: pseudo-fields, and what HTTP/2 cannot say. Pure.

use bytes::Bytes;
use h2::ext::Protocol;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};

use crate::request::app::{AnswerLength, AppFault, RequestHead};
use crate::request::front::BodyLength;

/// The one protocol that extended CONNECT is used for.
pub(super) const WEBSOCKET: &str = "websocket";

/// The request for the app: `:authority` for `host`, `:scheme` http, CONNECT for a WebSocket.
///
/// # Errors
/// What HTTP/2, or this app, cannot be asked. Nothing was sent.
pub(super) fn request(head: &RequestHead) -> Result<Request<()>, AppFault> {
    let unspeakable = AppFault::Unspeakable;
    let mut headers = head.headers.clone();
    let host = headers.remove(header::HOST).unwrap_or_else(empty);
    let authority = Authority::from_maybe_shared(Bytes::copy_from_slice(host.as_bytes()))
        .map_err(|_| unspeakable("the host has no form in HTTP/2"))?;
    let path = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(head.target.as_bytes()))
        .map_err(|_| unspeakable("the path has no form in HTTP/2"))?;
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|_| unspeakable("the target has no form in HTTP/2"))?;
    hide(&mut headers);
    if head.te_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if head.expect_continue {
        headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
    }
    if let BodyLength::Exact(length) = head.body {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    if let Some(protocols) = &head.upgrade {
        if !is_websocket(protocols) {
            return Err(AppFault::NoUpgrade(
                "over HTTP/2 an app can be asked for a WebSocket only",
            ));
        }
        *request.method_mut() = Method::CONNECT;
        request
            .extensions_mut()
            .insert(Protocol::from_static(WEBSOCKET));
        if headers.remove(header::SEC_WEBSOCKET_KEY).is_none() {
            return Err(unspeakable("a WebSocket handshake without a key"));
        }
        headers.remove(header::CONTENT_LENGTH);
    }
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Requests of many clients share a connection's compression; credentials stay out of its table
/// (RFC 7541 §7.1.3).
fn hide(headers: &mut HeaderMap) {
    for name in [header::AUTHORIZATION, header::COOKIE] {
        if let header::Entry::Occupied(mut field) = headers.entry(name) {
            field.iter_mut().for_each(|value| value.set_sensitive(true));
        }
    }
}

fn empty() -> HeaderValue {
    HeaderValue::from_static("")
}

fn is_websocket(protocols: &HeaderValue) -> bool {
    protocols.to_str().is_ok_and(|p| {
        p.split(',')
            .any(|p| p.trim().eq_ignore_ascii_case(WEBSOCKET))
    })
}

/// What an HTTP/1 app would answer to the WebSocket key of `headers` (RFC 6455 §4.2.2).
pub(super) fn accept(headers: &HeaderMap) -> Option<HeaderValue> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
    HeaderValue::from_str(&accept).ok()
}

/// How an answer is delimited that does not end with its head. The codec holds the body to it.
pub(super) fn length(headers: &HeaderMap) -> Result<AnswerLength, AppFault> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(AnswerLength::Streamed);
    };
    let number = length.to_str().ok().and_then(|text| text.parse().ok());
    match (number, lengths.next()) {
        (Some(number), None) => Ok(AnswerLength::Exact(number)),
        _ => Err(AppFault::BadHttp("a length that is no number")),
    }
}
