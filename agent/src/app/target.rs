//! Where an app listens, as its owner writes it.
//!
//! `3000` · `host:3000` · `http://host:3000` · `h2c://host:50051` · `https://host` · `tcp://host:5432` ·
//! `unix:/path` (HTTP/1.1), `h2c+unix:/path`, `tcp+unix:/path`.
//! Pure: nothing is resolved or dialled here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use bridgehead_protocol::wire::AppKind;

/// Where one app listens and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How the gateway speaks to the app.
    pub kind: AppKind,
    /// The socket.
    pub place: Place,
}

/// The socket of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP port.
    Tcp {
        /// Who listens.
        host: Host,
        /// Port, never 0.
        port: u16,
        /// Whether the agent speaks TLS to it.
        tls: Tls,
    },
    /// A Unix domain socket; only built where the system has them.
    #[cfg(unix)]
    Unix(PathBuf),
}

/// Whether the connection to the app is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Plain bytes.
    No,
    /// TLS, the app's certificate is checked.
    Yes,
}

/// The host part of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address; nothing to resolve.
    Address(IpAddr),
    /// `localhost`: both loopback addresses, never looked up (RFC 6761), because development
    /// servers listen on either one.
    Localhost,
    /// A name, resolved at every connection.
    Name(String),
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address)));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        if text.eq_ignore_ascii_case("localhost") {
            return Some(Self::Localhost);
        }
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let digits_only = text.chars().all(|c| c.is_ascii_digit() || c == '.');
        (!text.is_empty() && text.len() <= 253 && text.chars().all(safe) && !digits_only)
            .then(|| Self::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Localhost => f.write_str("localhost"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// One sentence: what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unix = [
            ("unix:", AppKind::Http1),
            ("h2c+unix:", AppKind::H2c),
            ("tcp+unix:", AppKind::Tcp),
        ];
        for (scheme, kind) in unix {
            if let Some(path) = text.strip_prefix(scheme) {
                return Self::parse_unix(text, path, kind);
            }
        }
        let (kind, tls, default_port, rest) = match text.split_once("://") {
            None => (AppKind::Http1, Tls::No, None, text),
            Some(("http", rest)) => (AppKind::Http1, Tls::No, Some(80), rest),
            Some(("https", rest)) => (AppKind::Http1, Tls::Yes, Some(443), rest),
            Some(("h2c", rest)) => (AppKind::H2c, Tls::No, None, rest),
            Some(("tcp", rest)) => (AppKind::Tcp, Tls::No, None, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "`{text}`: scheme `{scheme}` is unknown; use http, https, h2c, tcp or unix:/path"
                ));
            }
        };
        let authority = match rest.strip_suffix('/').unwrap_or(rest) {
            path if path.contains(['/', '?', '#']) => {
                return Err(format!(
                    "`{text}`: an app is a host and a port, paths pass through unchanged"
                ));
            }
            authority => authority,
        };
        let (host, given_port) = split_port(authority);
        let port = match given_port {
            None => default_port,
            Some(port) => port.parse().ok().filter(|port| *port != 0),
        };
        let Some(port) = port else {
            return Err(format!(
                "`{text}`: a port from 1 to 65535 is missing, as in `http://127.0.0.1:3000`"
            ));
        };
        let host = match host {
            // `3000` and `:3000`; a scheme alone names no app.
            "" => given_port.map(|_| Host::Localhost),
            host => Host::parse(host),
        };
        let Some(host) = host else {
            return Err(format!("`{text}`: the host is not a name or an address"));
        };
        Ok(Self {
            kind,
            place: Place::Tcp { host, port, tls },
        })
    }

    #[cfg(unix)]
    fn parse_unix(text: &str, path: &str, kind: AppKind) -> Result<Self, String> {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('\0') {
            return Err(format!(
                "`{text}`: a path is missing, as in `unix:/run/app.sock`"
            ));
        }
        Ok(Self {
            kind,
            place: Place::Unix(PathBuf::from(path)),
        })
    }

    #[cfg(not(unix))]
    fn parse_unix(text: &str, _path: &str, _kind: AppKind) -> Result<Self, String> {
        Err(format!(
            "`{text}`: this system has no Unix sockets here; give a port"
        ))
    }

    /// True if connecting costs next to nothing: a socket of this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match &self.place {
            Place::Tcp {
                host: Host::Localhost,
                ..
            } => true,
            Place::Tcp {
                host: Host::Address(address),
                ..
            } => address.is_loopback(),
            Place::Tcp {
                host: Host::Name(_),
                ..
            } => false,
            #[cfg(unix)]
            Place::Unix(_) => true,
        }
    }
}

/// Splits `host:port`; a lone number is a port, a bracketed address keeps its colons.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    if !authority.is_empty() && authority.chars().all(|c| c.is_ascii_digit()) {
        return ("", Some(authority));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port, tls } => {
                let scheme = match (self.kind, tls) {
                    (AppKind::Http1, Tls::No) => "http",
                    (AppKind::Http1, Tls::Yes) => "https",
                    (AppKind::H2c, _) => "h2c",
                    (AppKind::Tcp, _) => "tcp",
                };
                write!(f, "{scheme}://{host}:{port}")
            }
            #[cfg(unix)]
            Place::Unix(path) => {
                let scheme = match self.kind {
                    AppKind::Http1 => "unix",
                    AppKind::H2c => "h2c+unix",
                    AppKind::Tcp => "tcp+unix",
                };
                write!(f, "{scheme}:{}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Target::parse(text).expect(text).to_string()
    }

    #[test]
    fn every_form_of_the_grammar_is_read() {
        assert_eq!(shown("3000"), "http://localhost:3000");
        assert_eq!(shown(":3000"), "http://localhost:3000");
        assert_eq!(shown("127.0.0.1:3000"), "http://127.0.0.1:3000");
        assert_eq!(shown("http://127.0.0.1:3000/"), "http://127.0.0.1:3000");
        assert_eq!(shown("http://App.internal"), "http://app.internal:80");
        assert_eq!(shown("https://[::1]"), "https://[::1]:443");
        assert_eq!(
            shown("https://[2001:db8::1]:8443"),
            "https://[2001:db8::1]:8443"
        );
        assert_eq!(shown("h2c://localhost:50051"), "h2c://localhost:50051");
        assert_eq!(shown("tcp://db:5432"), "tcp://db:5432");
        assert_eq!(
            Target::parse("tcp://db:5432").expect("tcp").kind,
            AppKind::Tcp
        );
        assert_eq!(Target::parse("h2c://db:1").expect("h2c").kind, AppKind::H2c);
    }

    #[cfg(unix)]
    #[test]
    fn a_unix_socket_is_a_path() {
        assert_eq!(shown("unix:/run/app.sock"), "unix:/run/app.sock");
        assert_eq!(shown("unix:///run/app.sock"), "unix:/run/app.sock");
        assert_eq!(shown("h2c+unix:/run/app.sock"), "h2c+unix:/run/app.sock");
        assert_eq!(shown("tcp+unix:/run/app.sock"), "tcp+unix:/run/app.sock");
        assert!(Target::parse("unix:").is_err());
    }

    #[test]
    fn what_is_no_target_is_refused_with_its_own_text() {
        for text in [
            "",
            "0",
            "70000",
            "http://",
            "http://host:0",
            "http://host:x",
            "ftp://host:21",
            "http://host:80/path",
            "http://host:80?q",
            "h2c://host",
            "tcp://host",
            "http://a b:80",
            "http://[::1:80",
            "http://user@host:80",
            "http://::1:80",
            "http://1.2.3:80",
            "host",
        ] {
            let said = Target::parse(text).expect_err(text);
            assert!(said.contains(text), "{said}");
        }
    }

    #[test]
    fn a_printed_target_reads_back_as_itself() {
        for text in ["3000", "https://[::1]", "h2c://x:1", "tcp://1.2.3.4:5"] {
            let target = Target::parse(text).expect(text);
            assert_eq!(Target::parse(&target.to_string()), Ok(target));
        }
    }

    #[test]
    fn only_sockets_of_this_machine_are_local() {
        assert!(Target::parse("3000").expect("port").is_local());
        assert!(Target::parse("[::1]:3000").expect("v6").is_local());
        assert!(!Target::parse("app:3000").expect("name").is_local());
        assert!(!Target::parse("10.0.0.1:3000").expect("address").is_local());
    }
}
