//! Heads of requests and answers: strict syntax, and the one decision about framing.
//!
//! A raw scan ([`super::HeadScan`]) runs first, then `httparse`, then the rules of RFC 9112 §6 in
//! their strict reading. Owns: which bytes are a head and how its body is delimited. Must not:
//! canonicalise, drop or add fields (the caller does, with [`super::fields`]).
//! Invariant: a head that is accepted has exactly one possible body length.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::fields::ConnectionOptions;
use super::scan::HeadScan;
use crate::request::front::{BodyLength, ClientProtocol, RawHead};

/// Most field lines that any limit may allow; the parser's table lies on the stack.
const FIELD_TABLE: usize = 256;

/// Sizes a head may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the whole head, first line and final empty line included.
    pub max_bytes: usize,
    /// Field lines; at most 256 are ever accepted.
    pub max_fields: usize,
    /// Bytes of the request target.
    pub max_target: usize,
}

impl HeadLimits {
    /// What a client may send.
    pub const CLIENT: Self = Self {
        max_bytes: 32 * 1024,
        max_fields: 100,
        max_target: 8 * 1024,
    };
    /// What an app may answer: twice a client's, since apps set long policies and many cookies.
    pub const APP: Self = Self {
        max_bytes: 64 * 1024,
        max_fields: 200,
        max_target: 8 * 1024,
    };
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self::CLIENT
    }
}

/// Why bytes are not an acceptable head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeadError {
    /// LF without CR before it.
    #[error("a line ends with a bare LF")]
    BareLf,
    /// CR without LF after it.
    #[error("a bare CR stands in the head")]
    BareCr,
    /// A NUL byte.
    #[error("a NUL byte stands in the head")]
    Nul,
    /// A field line that starts with a blank (obsolete folding, or a blank before the first field).
    #[error("a field line starts with a blank")]
    Folding,
    /// An empty line where the first line belongs.
    #[error("an empty line stands before the first line")]
    EmptyFirstLine,
    /// Method, target or blanks of the request line are wrong.
    #[error("the request line is malformed")]
    RequestLine,
    /// The status line is wrong.
    #[error("the status line is malformed")]
    StatusLine,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("the HTTP version is not 1.0 or 1.1")]
    Version,
    /// A field name is not a token, or a blank stands before its colon.
    #[error("a field name is malformed")]
    FieldName,
    /// A field value holds a control byte.
    #[error("a field value is malformed")]
    FieldValue,
    /// More bytes than the limit.
    #[error("the head is too large")]
    TooLarge,
    /// More field lines than the limit.
    #[error("the head has too many fields")]
    TooManyFields,
    /// The target is longer than the limit.
    #[error("the request target is too long")]
    UriTooLong,
    /// HTTP/1.1 without `Host`.
    #[error("the Host field is missing")]
    HostMissing,
    /// More than one `Host` line.
    #[error("the Host field is repeated")]
    HostRepeated,
    /// `Host` is empty or holds a byte that no authority has.
    #[error("the Host field is malformed")]
    HostInvalid,
    /// `Content-Length` is not one plain decimal number.
    #[error("the Content-Length field is malformed")]
    LengthInvalid,
    /// More than one `Content-Length` line.
    #[error("the Content-Length field is repeated")]
    LengthRepeated,
    /// `Transfer-Encoding` is not exactly one `chunked`.
    #[error("the Transfer-Encoding field is not exactly one chunked")]
    CodingUnsupported,
    /// Both `Transfer-Encoding` and `Content-Length`.
    #[error("both Transfer-Encoding and Content-Length are given")]
    LengthAndCoding,
    /// `Transfer-Encoding` in a version that has none.
    #[error("Transfer-Encoding is given in an HTTP/1.0 message")]
    CodingInOldVersion,
    /// A body is declared where the message cannot have one (CONNECT; 1xx and 204 answers).
    #[error("a body is declared where none is possible")]
    BodyForbidden,
    /// A 101 answer that does not say what it switches to.
    #[error("a 101 answer without Upgrade")]
    UpgradeMissing,
}

impl HeadError {
    /// Status that tells a client about this fault. Meaningful for requests only: the same fault in
    /// an app's answer is `BH_APP_BROKEN`.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::TooLarge | Self::TooManyFields => 431,
            Self::UriTooLong => 414,
            Self::Version => 505,
            Self::BareLf
            | Self::BareCr
            | Self::Nul
            | Self::Folding
            | Self::EmptyFirstLine
            | Self::RequestLine
            | Self::StatusLine
            | Self::FieldName
            | Self::FieldValue
            | Self::HostMissing
            | Self::HostRepeated
            | Self::HostInvalid
            | Self::LengthInvalid
            | Self::LengthRepeated
            | Self::CodingUnsupported
            | Self::LengthAndCoding
            | Self::CodingInOldVersion
            | Self::BodyForbidden
            | Self::UpgradeMissing => 400,
        }
    }
}

/// How an answer's body is delimited on the app's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body: 1xx, 204, 304, answers to HEAD, 2xx to CONNECT (whose bytes are then a tunnel).
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunked.
    Chunked,
    /// Until the app closes its side; a reset is then a broken answer, only a FIN is its end.
    UntilClose,
}

/// Head of an app's answer. Any byte that follows an answer whose framing is [`ResponseFraming::None`]
/// on the same connection is unasked for: the app is broken.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// Status.
    pub status: StatusCode,
    /// Reason phrase as sent; empty if there was none.
    pub reason: Bytes,
    /// Field lines in order, nothing removed (equal `Content-Length` lines are joined to one).
    pub headers: HeaderMap,
    /// HTTP/1.1 rather than 1.0.
    pub version_11: bool,
    /// How the body is delimited.
    pub framing: ResponseFraming,
    /// The connection may serve another exchange after this one.
    pub keep_alive: bool,
    /// A 1xx other than 101: another head follows.
    pub is_informational: bool,
    /// What a 101 switches to (value of `Upgrade`).
    pub upgrade: Option<HeaderValue>,
}

/// Parse a request head at the front of `buf`; `None` if it is not complete yet. Also gives how many
/// bytes it takes. Callers that read piece by piece keep a [`HeadScan`] and call [`request_head`].
///
/// # Errors
/// Any breach of RFC 9112 syntax or framing, or of `limits`.
pub fn parse_request(
    buf: &[u8],
    limits: &HeadLimits,
) -> Result<Option<(RawHead, usize)>, HeadError> {
    let Some(len) = HeadScan::request().scan(buf, limits)? else {
        return Ok(None);
    };
    let head = request_head(Bytes::copy_from_slice(&buf[..len]), limits)?;
    Ok(Some((head, len)))
}

/// Parse a response head at the front of `buf`; `None` if it is not complete yet. `request_method`
/// is the method that is being answered.
///
/// # Errors
/// As [`parse_request`]; every one means that the app is broken.
pub fn parse_response(
    buf: &[u8],
    limits: &HeadLimits,
    request_method: &Method,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let Some(len) = HeadScan::response().scan(buf, limits)? else {
        return Ok(None);
    };
    let head = response_head(Bytes::copy_from_slice(&buf[..len]), limits, request_method)?;
    Ok(Some((head, len)))
}

/// Parse the complete request head `head`, whose end a [`HeadScan`] has found.
///
/// # Errors
/// As [`parse_request`].
pub fn request_head(head: Bytes, limits: &HeadLimits) -> Result<RawHead, HeadError> {
    let mut table = [const { MaybeUninit::uninit() }; FIELD_TABLE];
    let mut parsed = httparse::Request::new(&mut []);
    let done = parsed
        .parse_with_uninit_headers(&head, &mut table)
        .map_err(|e| match fault(e, HeadError::RequestLine) {
            HeadError::Version if !names_a_version(&head) => HeadError::RequestLine,
            error => error,
        })?;
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::RequestLine);
    };
    if done != httparse::Status::Complete(head.len()) {
        return Err(HeadError::RequestLine);
    }
    if target.len() > limits.max_target {
        return Err(HeadError::UriTooLong);
    }
    if !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(HeadError::RequestLine);
    }
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::RequestLine)?;
    let headers = field_map(&head, parsed.headers)?;
    let version_11 = minor == 1;
    check_host(&headers, version_11)?;
    let body = request_body(&headers, version_11)?;
    if method == Method::CONNECT && body != BodyLength::None {
        return Err(HeadError::BodyForbidden);
    }
    Ok(RawHead {
        method,
        target: target.to_owned(),
        authority: None,
        scheme: None,
        connect_protocol: None,
        headers,
        body,
        protocol: match version_11 {
            true => ClientProtocol::Http11,
            false => ClientProtocol::Http10,
        },
    })
}

/// Parse the complete response head `head`, whose end a [`HeadScan`] has found.
///
/// # Errors
/// As [`parse_response`].
pub fn response_head(
    head: Bytes,
    limits: &HeadLimits,
    request_method: &Method,
) -> Result<ResponseHead, HeadError> {
    debug_assert!(head.len() <= limits.max_bytes);
    let mut table = [const { MaybeUninit::uninit() }; FIELD_TABLE];
    let mut parsed = httparse::Response::new(&mut []);
    let done = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, &head, &mut table)
        .map_err(|e| fault(e, HeadError::StatusLine))?;
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HeadError::StatusLine);
    };
    if done != httparse::Status::Complete(head.len()) {
        return Err(HeadError::StatusLine);
    }
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::StatusLine)?;
    let reason = Bytes::copy_from_slice(parsed.reason.unwrap_or_default().as_bytes());
    let mut headers = field_map(&head, parsed.headers)?;
    let version_11 = minor == 1;
    let framing = response_framing(&mut headers, status, version_11, request_method)?;
    let options = ConnectionOptions::of(&headers);
    let upgrade = match status {
        StatusCode::SWITCHING_PROTOCOLS => Some(switched_to(&headers, &options)?),
        _ => None,
    };
    let persistent = match version_11 {
        true => !options.close,
        false => options.keep_alive && !options.close,
    };
    Ok(ResponseHead {
        status,
        reason,
        headers,
        version_11,
        framing,
        keep_alive: persistent && framing != ResponseFraming::UntilClose && upgrade.is_none(),
        is_informational: status.is_informational() && upgrade.is_none(),
        upgrade,
    })
}

/// Parse a complete trailer section (field lines and the empty line).
pub(super) fn trailer_section(section: Bytes) -> Result<HeaderMap, HeadError> {
    let mut table = [httparse::EMPTY_HEADER; FIELD_TABLE];
    match httparse::parse_headers(&section, &mut table)
        .map_err(|e| fault(e, HeadError::FieldName))?
    {
        httparse::Status::Complete((len, fields)) if len == section.len() => {
            field_map(&section, fields)
        }
        _ => Err(HeadError::FieldName),
    }
}

fn fault(error: httparse::Error, first_line: HeadError) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version => HeadError::Version,
        httparse::Error::Status => HeadError::StatusLine,
        httparse::Error::NewLine | httparse::Error::Token => first_line,
    }
}

/// True if the request line has three words and the last is some version of HTTP; otherwise a
/// parser's complaint about the version is really one about the line.
fn names_a_version(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    match words[..] {
        [_, _, version] => matches!(
            version,
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']
        ),
        _ => false,
    }
}

/// The fields as a map; values are slices of `head`, so one allocation carries them all.
fn field_map(head: &Bytes, fields: &[httparse::Header<'_>]) -> Result<HeaderMap, HeadError> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name =
            HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::FieldName)?;
        let value = match field.value {
            [] => HeaderValue::from_static(""),
            value => HeaderValue::from_maybe_shared(head.slice_ref(value))
                .map_err(|_| HeadError::FieldValue)?,
        };
        map.try_append(name, value)
            .map_err(|_| HeadError::TooManyFields)?;
    }
    Ok(map)
}

fn check_host(headers: &HeaderMap, version_11: bool) -> Result<(), HeadError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let Some(host) = hosts.next() else {
        return match version_11 {
            true => Err(HeadError::HostMissing),
            false => Ok(()),
        };
    };
    if hosts.next().is_some() {
        return Err(HeadError::HostRepeated);
    }
    let plausible = |b: &u8| b.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(b);
    match !host.is_empty() && host.as_bytes().iter().all(plausible) {
        true => Ok(()),
        false => Err(HeadError::HostInvalid),
    }
}

fn request_body(headers: &HeaderMap, version_11: bool) -> Result<BodyLength, HeadError> {
    if is_chunked(headers, version_11)? {
        return Ok(BodyLength::Streamed);
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(BodyLength::None);
    };
    if lengths.next().is_some() {
        return Err(HeadError::LengthRepeated);
    }
    Ok(BodyLength::Exact(decimal(length)?))
}

/// RFC 9112 §6.3 for an answer, in order.
fn response_framing(
    headers: &mut HeaderMap,
    status: StatusCode,
    version_11: bool,
    request_method: &Method,
) -> Result<ResponseFraming, HeadError> {
    let chunked = is_chunked(headers, version_11)?;
    let length = answer_length(headers)?;
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        // A declared body would be read as the next answer by anyone who believes it.
        return match chunked || length.is_some_and(|n| n > 0) {
            true => Err(HeadError::BodyForbidden),
            false => Ok(ResponseFraming::None),
        };
    }
    let bodiless = status == StatusCode::NOT_MODIFIED
        || request_method == Method::HEAD
        || (request_method == Method::CONNECT && status.is_success());
    if bodiless {
        return Ok(ResponseFraming::None);
    }
    if chunked {
        return Ok(ResponseFraming::Chunked);
    }
    Ok(length.map_or(ResponseFraming::UntilClose, ResponseFraming::Length))
}

/// The declared length of an answer. Lines that say the same are joined (RFC 9110 §8.6 allows it,
/// and some frameworks write the field twice); lines that differ are refused.
fn answer_length(headers: &mut HeaderMap) -> Result<Option<u64>, HeadError> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    let length = decimal(first)?;
    let mut repeated = false;
    for line in lines {
        if decimal(line)? != length {
            return Err(HeadError::LengthRepeated);
        }
        repeated = true;
    }
    if repeated {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(Some(length))
}

/// True for exactly one `Transfer-Encoding: chunked`, false without the field, an error otherwise.
fn is_chunked(headers: &HeaderMap, version_11: bool) -> Result<bool, HeadError> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Ok(false);
    };
    if !version_11 {
        return Err(HeadError::CodingInOldVersion);
    }
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(HeadError::CodingUnsupported);
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(HeadError::LengthAndCoding);
    }
    Ok(true)
}

/// A plain decimal number: no sign, list, blank or overflow, and no leading zero (an app that reads
/// `010` as octal would see another end of the message than we do).
fn decimal(value: &HeaderValue) -> Result<u64, HeadError> {
    let bytes = value.as_bytes();
    let plain = match bytes {
        [] => false,
        [b'0', _, ..] => false,
        _ => bytes.iter().all(u8::is_ascii_digit),
    };
    if !plain {
        return Err(HeadError::LengthInvalid);
    }
    bytes
        .iter()
        .try_fold(0u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .ok_or(HeadError::LengthInvalid)
}

fn switched_to(headers: &HeaderMap, options: &ConnectionOptions) -> Result<HeaderValue, HeadError> {
    match headers.get(header::UPGRADE) {
        Some(protocol) if options.upgrade && !protocol.is_empty() => Ok(protocol.clone()),
        _ => Err(HeadError::UpgradeMissing),
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
