//! What the app is told about the client: written by the gateway, believed only from proxies that
//! the operator trusts.
//!
//! Owns `Forwarded`, `X-Forwarded-*`, `X-Request-Id`, `Bridgehead-Tunnel` and the choice of `Host`.
//! Pure. Place in the path: after routing, on the fields of [`super::normalize::Normal`], when
//! hop-by-hop fields are gone. Invariant: the client's address reaches the app on every request, and
//! no untrusted peer can write it.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config::HostHeader;

const FORWARDED: HeaderName = http::header::FORWARDED;
const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Always on what reaches an app, so that an app can tell tunnelled requests from local ones.
pub const TUNNEL_MARK: HeaderName = HeaderName::from_static("bridgehead-tunnel");

/// The connection a request came on, as far as the app is told.
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// Address of the peer.
    pub peer: IpAddr,
    /// How far the peer's own words about others are believed.
    pub peer_trust: Trust,
    /// The connection is TLS.
    pub tls: bool,
    /// Canonical host and port the client asked for.
    pub authority: &'a str,
    /// Id of this request.
    pub request_id: &'a str,
}

/// Whether a peer is one of the operator's own proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Anybody: what it says about other hops is dropped.
    Nobody,
    /// A configured proxy: its fields are kept and continued.
    Proxy,
}

/// Writes our fields over, or from a trusted proxy behind, what came.
pub fn mark(headers: &mut HeaderMap, hop: &Hop<'_>) {
    match hop.peer_trust {
        Trust::Nobody => overwrite(headers, hop),
        Trust::Proxy => carry_on(headers, hop),
    }
    set(headers, REQUEST_ID, hop.request_id);
    headers.insert(TUNNEL_MARK, HeaderValue::from_static("1"));
}

/// The client behind trusted proxies: the last address of `X-Forwarded-For` that is not itself a
/// trusted proxy. Without one, or from an untrusted peer, the peer.
pub fn client_address(
    headers: &HeaderMap,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut nearest = peer.to_canonical();
    if !is_trusted(nearest) {
        return nearest;
    }
    let lines: Vec<&HeaderValue> = headers.get_all(FOR).iter().collect();
    for line in lines.into_iter().rev() {
        for item in line.as_bytes().rsplit(|b| *b == b',') {
            let address = std::str::from_utf8(item.trim_ascii())
                .ok()
                .and_then(parse_address);
            // Behind something unreadable nothing can be believed.
            let Some(address) = address else {
                return nearest;
            };
            nearest = address.to_canonical();
            if !is_trusted(nearest) {
                return nearest;
            }
        }
    }
    nearest
}

/// A proxy's word that its client speaks TLS; to be believed only from a trusted one.
#[must_use]
pub fn says_https(headers: &HeaderMap) -> bool {
    single(headers, &PROTO).is_some_and(|text| text == "https")
}

/// The `Host` an app sees. `upstream` is what its agent announced, empty if nothing.
#[must_use]
pub fn host_for_app<'a>(policy: &'a HostHeader, upstream: &'a str, client: &'a str) -> &'a str {
    match policy {
        HostHeader::Keep => client,
        HostHeader::Upstream if upstream.is_empty() => client,
        HostHeader::Upstream => upstream,
        HostHeader::Literal(host) => host,
    }
}

fn overwrite(headers: &mut HeaderMap, hop: &Hop<'_>) {
    let foreign: Vec<HeaderName> = (headers.keys())
        .filter(|name| name.as_str().starts_with("x-forwarded-"))
        .cloned()
        .collect();
    for name in foreign {
        headers.remove(name);
    }
    headers.remove(REAL_IP);
    set(headers, FOR, &hop.peer.to_canonical().to_string());
    set(headers, PROTO, scheme(hop));
    set(headers, HOST, hop.authority);
    set(headers, FORWARDED, &element(hop));
}

fn carry_on(headers: &mut HeaderMap, hop: &Hop<'_>) {
    append(headers, FOR, &hop.peer.to_canonical().to_string());
    append(headers, FORWARDED, &element(hop));
    // One plain word each, or ours: a list would leave the choice to the app.
    if !single(headers, &PROTO).is_some_and(|text| matches!(text, "http" | "https")) {
        set(headers, PROTO, scheme(hop));
    }
    if !single(headers, &HOST).is_some_and(|text| !text.is_empty() && !text.contains(',')) {
        set(headers, HOST, hop.authority);
    }
}

fn scheme(hop: &Hop<'_>) -> &'static str {
    match hop.tls {
        true => "https",
        false => "http",
    }
}

/// One element of `Forwarded` (RFC 7239). A host has no character that needs an escape.
fn element(hop: &Hop<'_>) -> String {
    let node = match hop.peer.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    format!(
        "for={node};host=\"{}\";proto={}",
        hop.authority,
        scheme(hop)
    )
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(first)
}

/// All lines of `name` joined to one, and `item` behind them.
fn append(headers: &mut HeaderMap, name: HeaderName, item: &str) {
    let mut joined: Vec<u8> = Vec::new();
    for line in headers.get_all(&name) {
        joined.extend_from_slice(line.as_bytes());
        joined.extend_from_slice(b", ");
    }
    joined.extend_from_slice(item.as_bytes());
    match HeaderValue::from_bytes(&joined) {
        Ok(value) => drop(headers.insert(name, value)),
        // Parts that were valid stay valid when joined; still, never let the old value stand alone.
        Err(_) => set(headers, name, item),
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    // Addresses, hosts and ids are visible ASCII; anything else must not reach the app as a field.
    match HeaderValue::from_str(text) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    }
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn hop(peer: &str, peer_trust: Trust) -> Hop<'static> {
        Hop {
            peer: peer.parse().unwrap(),
            peer_trust,
            tls: true,
            authority: "demo.example.com:8443",
            request_id: "0198-id",
        }
    }

    fn lines<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
        headers
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap())
            .collect()
    }

    const LIES: [(&str, &str); 9] = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-host", "evil, worse"),
        ("x-forwarded-port", "1"),
        ("x-real-ip", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-request-id", "mine"),
        ("bridgehead-tunnel", "0"),
    ];

    #[test]
    fn nothing_an_untrusted_peer_says_about_addresses_reaches_the_app() {
        let mut map = headers(&LIES);
        mark(&mut map, &hop("192.0.2.1", Trust::Nobody));
        assert_eq!(lines(&map, "x-forwarded-for"), ["192.0.2.1"]);
        assert_eq!(lines(&map, "x-forwarded-proto"), ["https"]);
        assert_eq!(lines(&map, "x-forwarded-host"), ["demo.example.com:8443"]);
        assert_eq!(
            lines(&map, "forwarded"),
            ["for=192.0.2.1;host=\"demo.example.com:8443\";proto=https"]
        );
        assert_eq!(lines(&map, "x-request-id"), ["0198-id"]);
        assert_eq!(lines(&map, "bridgehead-tunnel"), ["1"]);
        assert_eq!(map.len(), 6, "{map:?}");
    }

    #[test]
    fn only_one_plain_word_says_that_a_client_speaks_tls() {
        let says = |words: &[&'static str]| {
            let lines: Vec<_> = words
                .iter()
                .map(|word| ("x-forwarded-proto", *word))
                .collect();
            says_https(&headers(&lines))
        };
        assert!(says(&["https"]));
        for other in [
            &[][..],
            &["http"],
            &["HTTPS"],
            &["https, http"],
            &["https", "http"],
        ] {
            assert!(!says(other), "{other:?}");
        }
    }

    #[test]
    fn a_trusted_proxy_is_continued_and_its_doubtful_words_are_replaced() {
        let mut map = headers(&LIES);
        mark(&mut map, &hop("::ffff:10.0.0.1", Trust::Proxy));
        assert_eq!(
            lines(&map, "x-forwarded-for"),
            ["6.6.6.6, 7.7.7.7, 10.0.0.1"]
        );
        assert_eq!(lines(&map, "x-forwarded-proto"), ["https"]);
        assert_eq!(lines(&map, "x-forwarded-host"), ["demo.example.com:8443"]);
        assert_eq!(lines(&map, "x-forwarded-port"), ["1"]);
        assert!(lines(&map, "forwarded")[0].starts_with("for=6.6.6.6, for=10.0.0.1;"));
        assert_eq!(lines(&map, "x-request-id"), ["0198-id"]);
        let mut clear = headers(&[
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "site.org"),
        ]);
        mark(&mut clear, &hop("fd00::1", Trust::Proxy));
        assert_eq!(lines(&clear, "x-forwarded-proto"), ["http"]);
        assert_eq!(lines(&clear, "x-forwarded-host"), ["site.org"]);
        assert_eq!(lines(&clear, "x-forwarded-for"), ["fd00::1"]);
        assert!(lines(&clear, "forwarded")[0].starts_with("for=\"[fd00::1]\";"));
    }

    #[test]
    fn the_client_is_the_nearest_hop_that_is_not_ours() {
        let ours = |address: IpAddr| address.to_string().starts_with("10.");
        let client = |peer: &str, fields: &[(&'static str, &'static str)]| {
            client_address(&headers(fields), peer.parse().unwrap(), ours).to_string()
        };
        let chain = [
            ("x-forwarded-for", "6.6.6.6, 192.0.2.7"),
            ("x-forwarded-for", "10.0.0.2"),
        ];
        assert_eq!(client("10.0.0.1", &chain), "192.0.2.7");
        assert_eq!(client("192.0.2.1", &chain), "192.0.2.1");
        assert_eq!(client("::ffff:10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(
            client("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, unknown")]),
            "10.0.0.1"
        );
        assert_eq!(
            client("10.0.0.1", &[("x-forwarded-for", "192.0.2.7:4711")]),
            "192.0.2.7"
        );
        assert_eq!(
            client("10.0.0.1", &[("x-forwarded-for", "[2001:db8::1]")]),
            "2001:db8::1"
        );
    }

    #[test]
    fn the_policy_chooses_the_host() {
        let literal = HostHeader::Literal("shop.internal".into());
        assert_eq!(host_for_app(&HostHeader::Keep, "up", "client"), "client");
        assert_eq!(host_for_app(&HostHeader::Upstream, "up", "client"), "up");
        assert_eq!(host_for_app(&HostHeader::Upstream, "", "client"), "client");
        assert_eq!(host_for_app(&literal, "up", "client"), "shop.internal");
    }
}
