//! The one canonicaliser for host names: what it returns is used for routing, policy and forwarding.
//!
//! Owns [`Host`] and [`Authority`]. Must not repair: a spelling that two parsers could read
//! differently (userinfo, lists, percent signs, a trailing dot, Unicode, look-alike IPv4) is an
//! error. Place in the path: called by `request::normalize` for clients and by `config` for the
//! operator's hosts, so that both sides of a comparison went through the same function.
//! Invariant: `parse(x.as_str()) == x` for every value that exists.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest name that DNS can carry, in bytes (RFC 1035 without the root dot).
const MAX_NAME: usize = 253;
/// Longest label, in bytes.
const MAX_LABEL: usize = 63;

/// Why a host is refused. The text completes the sentence "the host …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// `user@host` or `user:pass@host`.
    #[error("carries user information")]
    UserInfo,
    /// A comma, a blank or a semicolon: more than one host, or a list.
    #[error("is a list")]
    List,
    /// Percent-encoding, or an IPv6 zone.
    #[error("is percent-encoded")]
    Percent,
    /// Bytes outside ASCII; internationalised names must come as punycode (`xn--…`).
    #[error("is not ASCII (write an international name as punycode, xn--…)")]
    NotAscii,
    /// Ends with the root dot, which some parsers drop and some keep.
    #[error("ends with a dot")]
    TrailingDot,
    /// Not a name, an IPv4 or a bracketed IPv6 address.
    #[error("is not a valid name or address")]
    Malformed,
    /// Looks like an IPv4 address but is not in the usual four decimal parts.
    #[error("ends in a number but is not a dotted IPv4 address")]
    NotIpv4,
    /// The part after the colon is not a port in its shortest decimal form.
    #[error("has a bad port")]
    Port,
}

/// A canonical host: a lower-case name, a dotted IPv4 address, or an IPv6 address in brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Box<str>);

impl Host {
    /// Parses a host without a port.
    ///
    /// # Errors
    /// [`HostError`] for everything that is not exactly one host.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        refuse_foreign_bytes(text)?;
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(HostError::Malformed)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| HostError::Malformed)?;
            return Ok(Self(format!("[{address}]").into()));
        }
        parse_name(text)
    }

    /// Canonical text, as it stands in a `Host` field without a port.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for an IPv4 or IPv6 literal.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.0.starts_with('[') || self.0.parse::<Ipv4Addr>().is_ok()
    }

    /// The single label in front of `domain`: `demo` for `demo.example.com` under `example.com`.
    /// `None` for the domain itself, deeper names, and everything outside.
    #[must_use]
    pub fn label_under(&self, domain: &Host) -> Option<&str> {
        let label = self.0.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        (!label.is_empty() && !label.contains('.')).then_some(label)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.0)
    }
}

/// A host and the port written beside it, if any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// Canonical host.
    pub host: Host,
    /// Port as written; a default port stays absent or present as it came.
    pub port: Option<u16>,
}

impl Authority {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`.
    ///
    /// # Errors
    /// [`HostError`] for everything that is not exactly one host with at most one port; a port must
    /// be 1–65535 without leading zeros, so that text and value say the same.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        refuse_foreign_bytes(text)?;
        let (host, port) = split_port(text)?;
        Ok(Self {
            host: Host::parse(host)?,
            port: port.map(parse_port).transpose()?,
        })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

/// Names the most telling mistake first; what is left is ASCII without separators of lists.
fn refuse_foreign_bytes(text: &str) -> Result<(), HostError> {
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    for byte in text.bytes() {
        match byte {
            b'@' => return Err(HostError::UserInfo),
            b',' | b';' | b' ' | b'\t' => return Err(HostError::List),
            b'%' => return Err(HostError::Percent),
            0x80.. => return Err(HostError::NotAscii),
            0..=0x20 | 0x7f => return Err(HostError::Malformed),
            _ => {}
        }
    }
    Ok(())
}

fn split_port(text: &str) -> Result<(&str, Option<&str>), HostError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(HostError::Malformed)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(HostError::Malformed),
        };
    }
    match text.split_once(':') {
        // A second colon is an IPv6 address without its brackets.
        Some((_, port)) if port.contains(':') => Err(HostError::Malformed),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn parse_port(text: &str) -> Result<u16, HostError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    if !digits || text.starts_with('0') {
        return Err(HostError::Port);
    }
    text.parse().map_err(|_| HostError::Port)
}

fn parse_name(text: &str) -> Result<Host, HostError> {
    if text.ends_with('.') {
        return Err(HostError::TrailingDot);
    }
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.len() > MAX_NAME || !text.split('.').all(label_is_valid) {
        return Err(HostError::Malformed);
    }
    // `127.1`, `0x7f.1` and `2130706433` are addresses to some resolvers and names to others.
    let last = text.rsplit('.').next().unwrap_or(text);
    if looks_numeric(last) && text.parse::<Ipv4Addr>().is_err() {
        return Err(HostError::NotIpv4);
    }
    Ok(Host(text.to_ascii_lowercase().into()))
}

fn label_is_valid(label: &str) -> bool {
    let length_fits = (1..=MAX_LABEL).contains(&label.len());
    // An underscore is outside the host syntax but common in real names.
    length_fits
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn looks_numeric(label: &str) -> bool {
    let lower = label.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|b| b.is_ascii_hexdigit()),
        None => lower.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
