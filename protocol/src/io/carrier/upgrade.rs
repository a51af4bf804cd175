//! The HTTP request that turns a connection into a WebSocket, both ends.
//!
//! The agent's end is written here and not with the library's client, which logs whole requests at
//! trace level, and ours carries the token. The gateway's end judges a parsed head; reading and
//! answering it is the front's business.

use std::fmt::Write as _;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use http::header::{
    AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use zeroize::Zeroizing;

use super::{Carrier, CarrierKind};
use crate::handshake::{Token, is_host_header};

/// WebSocket subprotocol of a carrier.
pub const SUBPROTOCOL: &str = "bh.1";

/// Path of the tunnel on a gateway's own host.
pub const PATH: &str = "/.well-known/bridgehead/tunnel";

/// Head of the gateway's answer: longest accepted, and most fields.
const MAX_HEAD: usize = 8 * 1024;
const MAX_FIELDS: usize = 64;

/// Why the agent did not get a WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Host or path cannot stand in a request. The operator's fault.
    #[error("{0:?} cannot stand in a request")]
    Address(String),
    /// The deadline passed.
    #[error("the gateway did not answer the upgrade in time")]
    TimedOut,
    /// The connection failed or ended.
    #[error("the connection failed during the upgrade: {0}")]
    Io(#[from] io::Error),
    /// Something other than 101, as from a proxy or a wrong address.
    #[error("the gateway answered the upgrade with status {0}")]
    Status(u16),
    /// 101, but not for this request.
    #[error("the answer to the upgrade is not that of a gateway: {0}")]
    Answer(&'static str),
}

/// Why the gateway does not upgrade a request. The client's fault; each maps to one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// Not GET.
    #[error("the tunnel is opened with GET")]
    Method,
    /// No `Upgrade: websocket` with `Connection: Upgrade`.
    #[error("the tunnel needs an upgrade to websocket")]
    NoUpgrade,
    /// Another WebSocket version, or none.
    #[error("the tunnel needs WebSocket version 13")]
    Version,
    /// No key of 16 bytes.
    #[error("the WebSocket key is missing or malformed")]
    Key,
    /// The subprotocol is not offered.
    #[error("the tunnel needs WebSocket subprotocol bh.1")]
    Subprotocol,
    /// `Authorization` is repeated or not `Bearer` with a token.
    #[error("the authorization must be one Bearer token")]
    Authorization,
}

impl AcceptError {
    /// HTTP status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::NoUpgrade | Self::Version => 426,
            Self::Key | Self::Subprotocol => 400,
            Self::Authorization => 401,
        }
    }
}

/// A request that may be upgraded.
pub struct Accepted {
    /// Fields of the 101 answer.
    pub headers: HeaderMap,
    /// Token of the request, for [`AwaitHello`](crate::handshake::AwaitHello).
    pub token: Option<Zeroizing<String>>,
}

/// Gateway: judges the head of a request for [`PATH`] on an own host.
///
/// # Errors
/// [`AcceptError`].
pub fn accept(method: &Method, headers: &HeaderMap) -> Result<Accepted, AcceptError> {
    if method != Method::GET {
        return Err(AcceptError::Method);
    }
    if !lists(headers, &CONNECTION, "upgrade") || !lists(headers, &UPGRADE, "websocket") {
        return Err(AcceptError::NoUpgrade);
    }
    if only(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(AcceptError::Version);
    }
    let key = only(headers, &SEC_WEBSOCKET_KEY).ok_or(AcceptError::Key)?;
    if STANDARD
        .decode(key.as_bytes())
        .map_or(0, |bytes| bytes.len())
        != 16
    {
        return Err(AcceptError::Key);
    }
    if !lists(headers, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        return Err(AcceptError::Subprotocol);
    }
    let proof =
        HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| AcceptError::Key)?;
    let mut answer = HeaderMap::with_capacity(4);
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(SEC_WEBSOCKET_ACCEPT, proof);
    answer.insert(
        SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(SUBPROTOCOL),
    );
    Ok(Accepted {
        headers: answer,
        token: bearer(headers)?,
    })
}

/// Agent: asks for the WebSocket on a connection that stands. `host` is the authority of the
/// gateway's URL, `path` as a rule [`PATH`].
///
/// # Errors
/// [`ConnectError`].
pub async fn connect<S>(
    mut io: S,
    host: &str,
    path: &str,
    token: &Token,
    kind: CarrierKind,
    until: Instant,
) -> Result<Carrier, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let key = STANDARD.encode(rand::random::<[u8; 16]>());
    let request = request(host, path, &key, token)?;
    let upgraded = async {
        io.write_all(request.as_bytes()).await?;
        io.flush().await?;
        answer(&mut io, &key).await
    };
    let leftover = timeout_at(until, upgraded)
        .await
        .map_err(|_| ConnectError::TimedOut)??;
    Ok(Carrier::ws_client(io, &leftover, kind).await)
}

fn request(
    host: &str,
    path: &str,
    key: &str,
    token: &Token,
) -> Result<Zeroizing<String>, ConnectError> {
    if host.is_empty() || !is_host_header(host) {
        return Err(ConnectError::Address(host.to_owned()));
    }
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConnectError::Address(path.to_owned()));
    }
    let token = token.reveal();
    // Room for all of it at once: growing would leave copies of the token behind.
    let mut text = Zeroizing::new(String::with_capacity(
        512 + host.len() + path.len() + token.len(),
    ));
    write!(
        text,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\nAuthorization: Bearer {token}\r\n\
         User-Agent: bh-agent/{}\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .map_err(|_| ConnectError::Address(host.to_owned()))?;
    Ok(text)
}

/// Reads the answer; what follows its head is returned.
async fn answer<S: AsyncRead + Unpin>(io: &mut S, key: &str) -> Result<BytesMut, ConnectError> {
    let mut buf = BytesMut::with_capacity(1024);
    loop {
        if io.read_buf(&mut buf).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(length) = check_answer(&buf, key)? {
            return Ok(buf.split_off(length));
        }
        if buf.len() >= MAX_HEAD {
            return Err(ConnectError::Answer("its head is too long"));
        }
    }
}

/// Length of a right answer's head; `None` if it is not all there.
fn check_answer(bytes: &[u8], key: &str) -> Result<Option<usize>, ConnectError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let status = head
        .parse(bytes)
        .map_err(|_| ConnectError::Answer("it is not HTTP"))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let code = head.code.unwrap_or_default();
    if code != 101 {
        return Err(ConnectError::Status(code));
    }
    let field = |name: HeaderName| {
        let mut values = head
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name.as_str()));
        let first = values.next().map(|field| field.value);
        if values.next().is_some() { None } else { first }
    };
    let is = |name, wanted: &str| {
        field(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted.as_bytes()))
    };
    if !is(CONNECTION, "upgrade") || !is(UPGRADE, "websocket") {
        return Err(ConnectError::Answer("it does not upgrade to websocket"));
    }
    if field(SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(ConnectError::Answer("its proof is not that of our key"));
    }
    if field(SEC_WEBSOCKET_PROTOCOL) != Some(SUBPROTOCOL.as_bytes()) {
        return Err(ConnectError::Answer("it does not speak bh.1"));
    }
    Ok(Some(length))
}

fn bearer(headers: &HeaderMap) -> Result<Option<Zeroizing<String>>, AcceptError> {
    if !headers.contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    let value = only(headers, &AUTHORIZATION).ok_or(AcceptError::Authorization)?;
    let text = value.to_str().map_err(|_| AcceptError::Authorization)?;
    let (scheme, token) = text.split_once(' ').ok_or(AcceptError::Authorization)?;
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(AcceptError::Authorization);
    }
    Ok(Some(Zeroizing::new(token.to_owned())))
}

/// The value of a field that stands there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        None
    } else {
        Some(first)
    }
}

/// True if a comma-separated field names `wanted`, in any case.
fn lists(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests;
