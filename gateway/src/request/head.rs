//! Heads on their way through: what the app is asked, what the client is answered. Pure.
//!
//! Hop-by-hop fields end here in both directions and framing is written anew; an answer loses only
//! those and `Bridgehead-*`, so that the presence of one proves an answer made by the gateway.

use base64::Engine as _;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use super::app::{AnswerLength, AppHead, RequestHead};
use super::front::{AnswerBody, AnswerHead, BodyLength};
use super::normalize::{Normal, RequestKind};
use super::windows::Started;
use crate::config::MediaTypes;
use crate::h1::fields;

/// How the content types of gRPC begin.
const GRPC: &str = "application/grpc";

/// What an exchange may become, and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The client asked for an upgrade.
    pub upgrade: bool,
    /// RFC 8441: the client's CONNECT is answered with 200 where the app says 101; the value that
    /// `Sec-WebSocket-Accept` must have.
    pub extended_connect: Option<HeaderValue>,
    /// The client waits for 100 before it sends its body.
    pub expect_continue: bool,
    /// A gRPC call: its client may fall silent.
    pub grpc: bool,
}

impl Shape {
    /// The client's bytes wait for a protocol switch.
    #[must_use]
    pub const fn switches(&self) -> bool {
        self.upgrade || self.extended_connect.is_some()
    }
}

/// The head for the app and the shape of the exchange. `headers` are the end-to-end fields with
/// ours already in them; `key` are 16 random bytes for a WebSocket key.
#[must_use]
pub fn request(
    normal: &Normal,
    mut headers: HeaderMap,
    host: &str,
    key: [u8; 16],
) -> (RequestHead, Shape) {
    if let Ok(host) = HeaderValue::from_str(host) {
        headers.insert(header::HOST, host);
    }
    let mut shape = Shape {
        expect_continue: normal.expect_continue,
        grpc: normal.grpc,
        ..Shape::default()
    };
    let mut method = normal.method.clone();
    let mut body = normal.body;
    let mut upgrade = None;
    match &normal.kind {
        RequestKind::Plain => {}
        RequestKind::Upgrade(protocols) => {
            upgrade = HeaderValue::from_str(protocols).ok();
            shape.upgrade = upgrade.is_some();
        }
        RequestKind::ExtendedConnect(protocol) => {
            method = Method::GET;
            body = BodyLength::None;
            upgrade = HeaderValue::from_str(protocol).ok();
            let key = base64::engine::general_purpose::STANDARD.encode(key);
            shape.extended_connect = HeaderValue::from_str(&accept_of(&key)).ok();
            if let Ok(key) = HeaderValue::from_str(&key) {
                headers.insert(header::SEC_WEBSOCKET_KEY, key);
            }
        }
    }
    let head = RequestHead {
        method,
        target: normal.path_and_query.clone(),
        headers,
        body,
        upgrade,
        te_trailers: normal.te_trailers,
        expect_continue: normal.expect_continue,
    };
    (head, shape)
}

/// `Sec-WebSocket-Accept` for a key (RFC 6455 §4.2.2).
fn accept_of(key: &str) -> String {
    tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes())
}

/// Fields of a 1xx on its way to the client.
#[must_use]
pub fn informational(mut headers: HeaderMap) -> HeaderMap {
    strip(&mut headers);
    headers
}

/// Trailers of an answer on their way to the client.
#[must_use]
pub fn trailers(mut trailers: HeaderMap) -> HeaderMap {
    strip_ours(&mut trailers);
    trailers
}

/// How the stall window treats an answer. `streaming` are the route's streaming types.
#[must_use]
pub fn started(head: &AppHead, streaming: &MediaTypes) -> Started {
    if head.length == AnswerLength::Pipe {
        return Started::Endless;
    }
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let start = essence.get(..GRPC.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(GRPC)) {
        Started::Endless
    } else if streaming.has(essence) {
        Started::Streaming
    } else {
        Started::Plain
    }
}

/// The answer's head for the client.
///
/// # Errors
/// What the app broke: a protocol switch that nobody asked for, or one that does not prove it
/// understood the WebSocket.
pub fn answer(app: AppHead, method: &Method, shape: &Shape) -> Result<AnswerHead, &'static str> {
    let mut headers = app.headers;
    let accept = headers.remove(header::SEC_WEBSOCKET_ACCEPT);
    strip(&mut headers);
    if app.length == AnswerLength::Pipe {
        return switched(app.status, app.reason, headers, app.upgrade, accept, shape);
    }
    if shape.extended_connect.is_some() && app.status.is_success() {
        return Err("a success that did not switch protocols");
    }
    if let Some(accept) = accept {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    let body = match app.length {
        _ if *method == Method::HEAD => AnswerBody::Empty,
        AnswerLength::None | AnswerLength::Pipe => AnswerBody::Empty,
        AnswerLength::Exact(n) => AnswerBody::Exact(n),
        AnswerLength::Streamed => AnswerBody::Streamed,
    };
    let reason = reason(app.status, app.reason);
    Ok(AnswerHead {
        status: app.status,
        reason_phrase: reason,
        headers,
        body,
        close: false,
    })
}

fn switched(
    status: StatusCode,
    phrase: bytes::Bytes,
    mut headers: HeaderMap,
    upgrade: Option<HeaderValue>,
    accept: Option<HeaderValue>,
    shape: &Shape,
) -> Result<AnswerHead, &'static str> {
    if let Some(expected) = &shape.extended_connect {
        if accept.as_ref() != Some(expected) {
            return Err("a WebSocket answer with the wrong accept key");
        }
        let body = AnswerBody::Tunnel;
        return Ok(AnswerHead {
            status: StatusCode::OK,
            reason_phrase: None,
            headers,
            body,
            close: false,
        });
    }
    let Some(upgrade) = upgrade.filter(|_| shape.upgrade) else {
        return Err("a protocol switch that was not asked for");
    };
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgrade);
    if let Some(accept) = accept {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    let reason_phrase = reason(status, phrase);
    Ok(AnswerHead {
        status,
        reason_phrase,
        headers,
        body: AnswerBody::Tunnel,
        close: false,
    })
}

/// The app's own phrase, where it is not the usual one.
fn reason(status: StatusCode, phrase: bytes::Bytes) -> Option<bytes::Bytes> {
    let usual = status.canonical_reason().unwrap_or_default();
    (phrase != usual.as_bytes() && !phrase.is_empty()).then_some(phrase)
}

/// Hop-by-hop fields and `Bridgehead-*`.
fn strip(headers: &mut HeaderMap) {
    fields::strip_hop_by_hop_leniently(headers);
    strip_ours(headers);
}

/// Only the gateway says these.
fn strip_ours(headers: &mut HeaderMap) {
    let ours: Vec<header::HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("bridgehead-"))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}
