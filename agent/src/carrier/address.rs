//! Where the gateway is, as its user writes it:
//! `tls://HOST[:PORT]` · `wss://HOST[:PORT][/path]` · `tcp://…` and `ws://…` (plain).
//!
//! Pure: nothing is resolved here. Owns the rule that plain carriers are for this machine only unless the
//! operator says otherwise, because the token would travel readable.

use std::fmt;
use std::net::IpAddr;

use bridgehead_protocol::io::carrier::upgrade::PATH;
use http::Uri;

/// Port of the gateway's tunnel listener.
const TUNNEL_PORT: u16 = 7000;

/// How the carrier is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// TLS with ALPN `bh/1`.
    Tls,
    /// The same bytes without TLS.
    Tcp,
    /// WebSocket over TLS.
    Wss,
    /// WebSocket without TLS.
    Ws,
}

impl Scheme {
    /// As written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Wss => "wss",
            Self::Ws => "ws",
        }
    }

    /// True if bytes travel readable.
    #[must_use]
    pub fn is_plain(self) -> bool {
        match self {
            Self::Tcp | Self::Ws => true,
            Self::Tls | Self::Wss => false,
        }
    }

    /// True if frames travel in WebSocket messages.
    #[must_use]
    pub fn is_websocket(self) -> bool {
        match self {
            Self::Wss | Self::Ws => true,
            Self::Tls | Self::Tcp => false,
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Tls | Self::Tcp => TUNNEL_PORT,
            Self::Wss => 443,
            Self::Ws => 80,
        }
    }
}

/// Whether the operator allows plain carriers beyond this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plain {
    /// Loopback only.
    #[default]
    LoopbackOnly,
    /// Anywhere (`--insecure-plain`).
    Anywhere,
}

/// Where one gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAddress {
    /// Kind of carrier.
    pub scheme: Scheme,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query of the WebSocket request; unused by the others.
    pub path: String,
}

impl GatewayAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// One sentence: what is wrong and what would be right.
    pub fn parse(text: &str, plain: Plain) -> Result<Self, String> {
        let example = "write for example `tls://gw.example.com:7000` or `wss://gw.example.com`";
        let uri: Uri = text
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not an address; {example}"))?;
        let scheme = match uri.scheme_str() {
            Some("tls") => Scheme::Tls,
            Some("tcp") => Scheme::Tcp,
            Some("wss") => Scheme::Wss,
            Some("ws") => Scheme::Ws,
            Some(other) => return Err(format!("`{text}`: scheme `{other}` is unknown; {example}")),
            None => return Err(format!("`{text}` has no scheme; {example}")),
        };
        let authority = uri.authority().filter(|a| !a.as_str().contains('@'));
        let host = authority
            .map(|a| a.host().trim_matches(['[', ']']).to_ascii_lowercase())
            .unwrap_or_default();
        if host.is_empty() {
            return Err(format!("`{text}` names no host; {example}"));
        }
        // `Authority` lets a port that is no number pass as "no port".
        let has_port = authority.is_some_and(|a| a.as_str().len() > a.host().len());
        let port = match (has_port, uri.port_u16()) {
            (true, Some(port)) if port != 0 => port,
            (true, _) => return Err(format!("`{text}`: the port is not from 1 to 65535")),
            (false, _) => scheme.default_port(),
        };
        let given = uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        let path = match (scheme.is_websocket(), given) {
            (true, "/" | "") => PATH.to_owned(),
            (true, given) => given.to_owned(),
            (false, "/" | "") => String::new(),
            (false, _) => return Err(format!("`{text}`: only ws:// and wss:// have a path")),
        };
        let address = Self {
            scheme,
            host,
            port,
            path,
        };
        if scheme.is_plain() && plain == Plain::LoopbackOnly && !address.is_loopback() {
            return Err(format!(
                "`{text}` would send the token readable; use tls:// or wss://, or say --insecure-plain"
            ));
        }
        Ok(address)
    }

    /// True if the gateway is on this machine by the look of its address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }

    /// The Host header of a request to it: without the scheme's usual port, as every client writes it.
    #[must_use]
    pub fn host_header(&self) -> String {
        let authority = self.authority();
        let port = format!(":{}", self.scheme.default_port());
        if self.port != self.scheme.default_port() {
            return authority;
        }
        authority
            .strip_suffix(&port)
            .unwrap_or(&authority)
            .to_owned()
    }

    /// `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may hold a secret of a proxy in between.
        let path = self.path.split('?').next().unwrap_or_default();
        let path = if path == PATH { "" } else { path };
        write!(f, "{}://{}{path}", self.scheme.as_str(), self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        GatewayAddress::parse(text, Plain::Anywhere)
            .expect(text)
            .to_string()
    }

    #[test]
    fn every_form_is_read_with_its_default_port() {
        assert_eq!(shown("tls://gw.example.com"), "tls://gw.example.com:7000");
        assert_eq!(
            shown("tls://GW.example.com:7443"),
            "tls://gw.example.com:7443"
        );
        assert_eq!(shown("wss://gw.example.com"), "wss://gw.example.com:443");
        assert_eq!(
            shown("wss://gw.example.com:8443/t?k=secret"),
            "wss://gw.example.com:8443/t"
        );
        assert_eq!(shown("ws://gw"), "ws://gw:80");
        assert_eq!(shown("tcp://[2001:db8::1]"), "tcp://[2001:db8::1]:7000");
        let websocket = GatewayAddress::parse("wss://gw", Plain::LoopbackOnly).expect("wss");
        assert_eq!(websocket.path, PATH);
    }

    #[test]
    fn the_usual_port_is_left_out_of_the_host_header() {
        for (text, host) in [
            ("wss://gw.example.com", "gw.example.com"),
            ("wss://gw.example.com:8443", "gw.example.com:8443"),
            ("ws://[::1]", "[::1]"),
            ("ws://gw:8080", "gw:8080"),
        ] {
            let gateway = GatewayAddress::parse(text, Plain::Anywhere).expect(text);
            assert_eq!(gateway.host_header(), host);
        }
    }

    #[test]
    fn a_plain_carrier_leaves_this_machine_only_when_told_to() {
        for text in [
            "tcp://127.0.0.1:7000",
            "ws://localhost:8080",
            "tcp://[::1]:7000",
        ] {
            GatewayAddress::parse(text, Plain::LoopbackOnly).expect(text);
        }
        for text in [
            "tcp://10.0.0.1:7000",
            "ws://gw.example.com",
            "tcp://localhost.example.com",
        ] {
            let said = GatewayAddress::parse(text, Plain::LoopbackOnly).expect_err(text);
            assert!(said.contains("--insecure-plain"), "{said}");
            GatewayAddress::parse(text, Plain::Anywhere).expect(text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_own_text() {
        for text in [
            "",
            "gw.example.com:7000",
            "http://gw",
            "tls://",
            "tls://gw:0",
            "tls://gw:99999",
            "tls://gw:x",
            "tls://gw/path",
            "tls://user@gw",
            "tls://g w",
        ] {
            let said = GatewayAddress::parse(text, Plain::Anywhere).expect_err(text);
            assert!(said.contains(text), "{said}");
        }
    }
}
