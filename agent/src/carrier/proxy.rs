//! The way to the gateway through an HTTP proxy (`CONNECT`).
//!
//! Owns which proxy is used for which host (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`, or `--proxy`) and the
//! CONNECT exchange. Must not read one byte beyond the proxy's answer: the next one is the gateway's.
//! Hosts of this machine are never proxied.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::address::GatewayAddress;

/// Longest answer head taken from a proxy, bytes.
const HEAD_LIMIT: usize = 8 * 1024;

/// One proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `user:password` as base64, if the proxy wants one.
    credentials: Option<String>,
}

impl fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl ProxyAddress {
    /// Reads `[http://][user:password@]host[:port]`.
    ///
    /// # Errors
    /// One sentence that does not repeat the text: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "the proxy is not of the form http://[user:password@]host:port".to_owned();
        let text = text.trim();
        let with_scheme = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri: Uri = with_scheme.parse().map_err(|_| wrong())?;
        if uri.scheme_str() != Some("http") {
            return Err("only http:// proxies are supported".to_owned());
        }
        let authority = uri.authority().ok_or_else(wrong)?;
        let credentials = match authority.as_str().rsplit_once('@') {
            Some((user, _)) => Some(STANDARD.encode(percent_decode(user).ok_or_else(wrong)?)),
            None => None,
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(80),
            credentials,
        })
    }
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail.get(2..)?;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

/// Which proxy leads where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    encrypted: Option<ProxyAddress>,
    plain: Option<ProxyAddress>,
    direct: Vec<String>,
}

impl Proxies {
    /// No proxy at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// This one for every gateway that is not on this machine.
    #[must_use]
    pub fn all(proxy: ProxyAddress) -> Self {
        Self {
            encrypted: Some(proxy.clone()),
            plain: Some(proxy),
            direct: Vec::new(),
        }
    }

    /// What the environment says: `HTTPS_PROXY` for encrypted carriers, `HTTP_PROXY` for plain ones (lower
    /// case only, as a CGI server lets clients set the other), `NO_PROXY`.
    ///
    /// # Errors
    /// Names the variable that holds no proxy.
    pub fn from_environment(look: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let proxy = |names: &[&str]| {
            let found = names
                .iter()
                .find_map(|name| Some((*name, look(name).filter(|text| !text.is_empty())?)));
            found
                .map(|(name, text)| {
                    ProxyAddress::parse(&text).map_err(|what| format!("{name}: {what}"))
                })
                .transpose()
        };
        let direct = look("NO_PROXY")
            .or_else(|| look("no_proxy"))
            .unwrap_or_default();
        Ok(Self {
            encrypted: proxy(&["HTTPS_PROXY", "https_proxy"])?,
            plain: proxy(&["http_proxy"])?,
            direct: direct
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase())
                .filter(|n| !n.is_empty())
                .collect(),
        })
    }

    /// The proxy that leads to this gateway, if one does.
    #[must_use]
    pub fn towards(&self, gateway: &GatewayAddress) -> Option<&ProxyAddress> {
        let proxy = if gateway.scheme.is_plain() {
            &self.plain
        } else {
            &self.encrypted
        };
        proxy
            .as_ref()
            .filter(|_| !gateway.is_loopback() && !self.is_direct(&gateway.host))
    }

    /// `*`, the host itself, or a domain it is in; an address stands for itself.
    fn is_direct(&self, host: &str) -> bool {
        let is_address = host.parse::<IpAddr>().is_ok();
        self.direct.iter().any(|entry| {
            let domain = entry.trim_start_matches('.');
            let inside = || {
                host.strip_suffix(domain)
                    .is_some_and(|before| before.ends_with('.'))
            };
            entry == "*" || host == domain || (!is_address && inside())
        })
    }
}

/// Asks the proxy for a connection to the gateway.
///
/// Reads byte by byte up to the end of the proxy's head: whatever follows belongs to the gateway.
///
/// # Errors
/// The proxy's status line if it refuses; what the system said if the connection broke.
pub async fn connect_through<S>(
    stream: &mut S,
    proxy: &ProxyAddress,
    gateway: &GatewayAddress,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let target = gateway.authority();
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(credentials) = &proxy.credentials {
        request.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_LIMIT {
            return Err(io::Error::other(format!(
                "proxy {proxy} sent no end of its answer's head"
            )));
        }
        head.push(stream.read_u8().await?);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1));
    match status {
        Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
        _ => Err(io::Error::other(format!("proxy {proxy} refused: {line}"))),
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
