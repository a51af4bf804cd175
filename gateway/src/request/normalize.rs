//! One reading of a request, made before anything is decided about it: refuse, never repair.
//!
//! Owns the rules about targets, hosts, upgrades and field names; the syntax of messages is the
//! codecs' business. Pure. Place in the path: the corridor's first step. Invariant: [`Normal`] is
//! what is routed, judged by policy and forwarded; nobody reads the raw head again.

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Method};

use super::front::{BodyLength, ClientInfo, ClientProtocol, RawHead};
use crate::config::Limits;
use crate::error::Failure;
use crate::h1::fields::{ConnectionOptions, is_ours, strip_hop_by_hop};
use crate::route::host::{Authority, Host, HostError};
use crate::route::path::{check_path_and_query, path_of};
use bridgehead_protocol::verdict::{Code, Reason};

/// Names beside our prefixes whose underscore twin an app could take for the real field: servers of
/// the CGI family turn both `-` and `_` into `_`.
const SENSITIVE: [&str; 6] = [
    "content-length",
    "content-type",
    "proxy-connection",
    "transfer-encoding",
    "x-real-ip",
    "x-request-id",
];

/// Fields that HTTP/2 does not have; a gateway that passed them on would smuggle framing.
const NOT_IN_HTTP2: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Sizes a head may have, whatever protocol brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes of names and values together.
    pub head_size: usize,
    /// Field lines.
    pub head_fields: usize,
    /// Bytes of path and query.
    pub uri_size: usize,
}

impl From<&Limits> for Rules {
    fn from(limits: &Limits) -> Self {
        Self {
            head_size: usize::try_from(limits.head_size).unwrap_or(usize::MAX),
            head_fields: limits.head_fields,
            uri_size: usize::try_from(limits.uri_size).unwrap_or(usize::MAX),
        }
    }
}

/// What a request wants to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A request and its answer.
    Plain,
    /// HTTP/1.1 `Upgrade`; the protocols as offered, `h2c` left out.
    Upgrade(String),
    /// HTTP/2 extended CONNECT (RFC 8441); the protocol.
    ExtendedConnect(String),
}

/// A request as the gateway understands it.
#[derive(Clone, Debug)]
pub struct Normal {
    /// Method.
    pub method: Method,
    /// Canonical host, without the port.
    pub host: Host,
    /// Port as the client wrote it.
    pub port: Option<u16>,
    /// Canonical host and port: what `Host` says if the client's own is kept.
    pub authority: String,
    /// Path and query byte for byte, or `*`.
    pub path_and_query: String,
    /// What the request wants to become.
    pub kind: RequestKind,
    /// The client waits for `100 Continue` before it sends its body.
    pub expect_continue: bool,
    /// The client takes trailers.
    pub te_trailers: bool,
    /// A gRPC call, over HTTP/2.
    pub grpc: bool,
    /// End-to-end fields. Hop-by-hop fields, `Host`, `Content-Length` and `Expect` are gone: the
    /// values above say what they said. `Bridgehead-*` of the client is kept.
    pub headers: HeaderMap,
    /// How the body ends.
    pub body: BodyLength,
    /// Version spoken by the client.
    pub protocol: ClientProtocol,
}

impl Normal {
    /// Path without query: the bytes that are forwarded, as far as routing looks at them.
    #[must_use]
    pub fn path(&self) -> &str {
        path_of(&self.path_and_query)
    }

    /// True for a WebSocket handshake of either protocol.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        match &self.kind {
            RequestKind::Plain => false,
            RequestKind::Upgrade(protocols) => protocols
                .split(',')
                .any(|p| p.trim().eq_ignore_ascii_case("websocket")),
            RequestKind::ExtendedConnect(protocol) => protocol == "websocket",
        }
    }
}

/// Reads a raw head.
///
/// # Errors
/// The failure to answer with, always `not_delivered`: 400, 414, 417, 421, 431 or 501.
pub fn normalize(raw: &RawHead, info: &ClientInfo, rules: &Rules) -> Result<Normal, Failure> {
    check_size(raw, rules)?;
    let target = Target::read(raw)?;
    let authority = authority(raw, target.authority)?;
    check_connection(
        &authority.host,
        target.scheme.or(raw.scheme.as_deref()),
        info,
    )?;
    check_names(raw)?;
    let kind = kind(raw)?;
    let expect_continue = expects_continue(raw)?;
    let te_trailers = te_trailers(raw)?;
    let mut headers = raw.headers.clone();
    strip_hop_by_hop(&mut headers).map_err(|error| bad_request(error.to_string()))?;
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    Ok(Normal {
        method: raw.method.clone(),
        authority: authority.to_string(),
        host: authority.host,
        port: authority.port,
        path_and_query: target.path_and_query,
        body: match &kind {
            RequestKind::ExtendedConnect(_) => BodyLength::Tunnel,
            RequestKind::Plain | RequestKind::Upgrade(_) => raw.body,
        },
        kind,
        expect_continue,
        te_trailers,
        grpc: raw.is_grpc(),
        headers,
        protocol: raw.protocol,
    })
}

fn bad_request(detail: impl Into<String>) -> Failure {
    Failure::refused(Code::BadRequest, Reason::BadRequest).with_detail(detail)
}

fn bad_host(error: HostError) -> Failure {
    bad_request(format!("the host {error}"))
}

fn check_size(raw: &RawHead, rules: &Rules) -> Result<(), Failure> {
    if raw.target.len() > rules.uri_size {
        return Err(Failure::refused(Code::UriTooLong, Reason::UriLimit)
            .with_detail(format!("the limit uri_size is {} bytes", rules.uri_size)));
    }
    if raw.headers.len() > rules.head_fields {
        return Err(Failure::refused(Code::HeadTooLarge, Reason::HeadLimit)
            .with_detail(format!("the limit head_fields is {}", rules.head_fields)));
    }
    // `: ` and CRLF, as the line would be in HTTP/1.
    let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let size: usize = raw.headers.iter().map(line).sum();
    if size > rules.head_size {
        return Err(Failure::refused(Code::HeadTooLarge, Reason::HeadLimit)
            .with_detail(format!("the limit head_size is {} bytes", rules.head_size)));
    }
    Ok(())
}

/// The request target, taken apart; nothing in it is decoded.
struct Target<'r> {
    /// From the absolute form.
    scheme: Option<&'r str>,
    /// From the absolute form.
    authority: Option<&'r str>,
    path_and_query: String,
}

impl<'r> Target<'r> {
    fn read(raw: &'r RawHead) -> Result<Self, Failure> {
        let text = raw.target.as_str();
        if raw.method == Method::CONNECT && raw.connect_protocol.is_none() {
            return Err(Failure::refused(Code::UpgradeUnsupported, Reason::Upgrade)
                .with_detail("CONNECT is served only with a :protocol (RFC 8441)"));
        }
        if raw.connect_protocol.is_some() && raw.method != Method::CONNECT {
            return Err(bad_request(":protocol without CONNECT"));
        }
        if text == "*" {
            return match raw.method == Method::OPTIONS {
                true => Ok(Self::origin("*")),
                false => Err(bad_request("only OPTIONS may ask for *")),
            };
        }
        if text.starts_with('/') {
            check_path(text)?;
            return Ok(Self::origin(text));
        }
        match raw.protocol {
            ClientProtocol::Http10 | ClientProtocol::Http11 => Self::absolute(text, &raw.method),
            ClientProtocol::Http2 => Err(bad_request("the path does not begin with /")),
        }
    }

    fn origin(text: &str) -> Self {
        Self {
            scheme: None,
            authority: None,
            path_and_query: text.to_owned(),
        }
    }

    fn absolute(text: &'r str, method: &Method) -> Result<Self, Failure> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| bad_request("the request target is neither a path nor a URL"))?;
        let http = scheme.eq_ignore_ascii_case("http");
        if !http && !scheme.eq_ignore_ascii_case("https") {
            return Err(bad_request(
                "the scheme of the request target is not http or https",
            ));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path_and_query = match path {
            // RFC 9112, 3.2.4: an absolute target without a path means the server as a whole.
            "" if *method == Method::OPTIONS => "*".to_owned(),
            "" => "/".to_owned(),
            _ if path.starts_with('?') => format!("/{path}"),
            _ => path.to_owned(),
        };
        if path_and_query != "*" {
            check_path(&path_and_query)?;
        }
        Ok(Self {
            scheme: Some(if http { "http" } else { "https" }),
            authority: Some(authority),
            path_and_query,
        })
    }
}

fn check_path(text: &str) -> Result<(), Failure> {
    check_path_and_query(text).map_err(|error| bad_request(format!("the path {error}")))
}

/// The one host of a request: every place that names one must name the same.
fn authority(raw: &RawHead, from_target: Option<&str>) -> Result<Authority, Failure> {
    let mut fields = raw.headers.get_all(header::HOST).iter();
    let field = fields.next().map(field_text).transpose()?;
    if fields.next().is_some() {
        return Err(bad_request("there are several Host fields"));
    }
    // HTTP/2 may do with `:authority` alone; HTTP/1.1 needs its Host beside any target.
    if field.is_none() && raw.protocol == ClientProtocol::Http11 {
        return Err(bad_request("the Host field is missing"));
    }
    let mut found: Option<Authority> = None;
    for text in [from_target, raw.authority.as_deref(), field]
        .into_iter()
        .flatten()
    {
        let named = Authority::parse(text).map_err(bad_host)?;
        if found.as_ref().is_some_and(|first| *first != named) {
            return Err(bad_request("the request names two different hosts"));
        }
        found = Some(named);
    }
    found.ok_or_else(|| bad_request("the request names no host"))
}

fn field_text(value: &HeaderValue) -> Result<&str, Failure> {
    value.to_str().map_err(|_| bad_host(HostError::NotAscii))
}

/// A host belongs to the connection whose certificate the client checked, and to its scheme.
/// Browsers that coalesce HTTP/2 connections open another one on 421.
fn check_connection(host: &Host, scheme: Option<&str>, info: &ClientInfo) -> Result<(), Failure> {
    if !info.tls {
        return Ok(());
    }
    let misdirected =
        |detail| Err(Failure::refused(Code::Misdirected, Reason::WrongHost).with_detail(detail));
    if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("https")) {
        return misdirected("the request says http on a TLS connection");
    }
    match &info.sni {
        Some(name) if !name.eq_ignore_ascii_case(host.as_str()) => {
            misdirected("the host is not the one this TLS connection was made for")
        }
        _ => Ok(()),
    }
}

fn check_names(raw: &RawHead) -> Result<(), Failure> {
    for name in raw.headers.keys() {
        let name = name.as_str();
        if name.contains('_') {
            let twin = name.replace('_', "-");
            if is_ours(&twin) || SENSITIVE.contains(&twin.as_str()) {
                return Err(bad_request(format!(
                    "the field {name} could be taken for {twin}"
                )));
            }
        }
        if raw.protocol == ClientProtocol::Http2 && NOT_IN_HTTP2.contains(&name) {
            return Err(bad_request(format!(
                "the field {name} does not exist in HTTP/2"
            )));
        }
    }
    Ok(())
}

fn kind(raw: &RawHead) -> Result<RequestKind, Failure> {
    if let Some(protocol) = &raw.connect_protocol {
        if !is_token(protocol) {
            return Err(bad_request("the :protocol is not a token"));
        }
        return Ok(RequestKind::ExtendedConnect(protocol.clone()));
    }
    // HTTP/1.0 has no upgrades. One with a body may be ignored (RFC 9110, 7.8); we do, because the
    // client's next bytes would have two meanings.
    let bodyless = matches!(raw.body, BodyLength::None | BodyLength::Exact(0));
    if raw.protocol != ClientProtocol::Http11 || !bodyless {
        return Ok(RequestKind::Plain);
    }
    if !ConnectionOptions::of(&raw.headers).upgrade {
        return Ok(RequestKind::Plain);
    }
    let mut protocols = Vec::new();
    for value in raw.headers.get_all(header::UPGRADE) {
        let text = value
            .to_str()
            .map_err(|_| bad_request("the Upgrade field is malformed"))?;
        for protocol in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if !protocol.split('/').all(is_token) {
                return Err(bad_request("the Upgrade field is malformed"));
            }
            // To h2c the client's bytes would be a second, unchecked connection.
            if !protocol.eq_ignore_ascii_case("h2c") {
                protocols.push(protocol);
            }
        }
    }
    match protocols.is_empty() {
        true => Ok(RequestKind::Plain),
        false => Ok(RequestKind::Upgrade(protocols.join(", "))),
    }
}

/// True where a client may fall silent in the middle of what it sends: what becomes a byte pipe, and
/// gRPC. The limits on uploads let nobody else off, whatever its fields say.
#[must_use]
pub fn may_fall_silent(raw: &RawHead) -> bool {
    match kind(raw) {
        Ok(RequestKind::Upgrade(_) | RequestKind::ExtendedConnect(_)) => true,
        Ok(RequestKind::Plain) | Err(_) => raw.is_grpc(),
    }
}

fn is_token(text: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(tchar)
}

fn expects_continue(raw: &RawHead) -> Result<bool, Failure> {
    let mut expected = false;
    for value in raw.headers.get_all(header::EXPECT) {
        if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(
                bad_request("the only expectation that is met is 100-continue").with_status(417),
            );
        }
        expected = true;
    }
    let has_body = !matches!(raw.body, BodyLength::None | BodyLength::Exact(0));
    Ok(expected && has_body && raw.protocol != ClientProtocol::Http10)
}

fn te_trailers(raw: &RawHead) -> Result<bool, Failure> {
    let mut trailers = false;
    for value in raw.headers.get_all(header::TE) {
        let only_trailers = value.as_bytes().eq_ignore_ascii_case(b"trailers");
        if raw.protocol == ClientProtocol::Http2 && !only_trailers {
            return Err(bad_request("TE in HTTP/2 may only say trailers"));
        }
        let mut codings = value
            .as_bytes()
            .split(|b| *b == b',')
            .map(<[u8]>::trim_ascii);
        trailers |= codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    }
    Ok(trailers)
}

#[cfg(test)]
#[path = "normalize_tests.rs"]
mod tests;
