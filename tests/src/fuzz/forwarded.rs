//! What an app is told about its client: nothing that an untrusted peer wrote, always an address.

use std::net::IpAddr;

use bridgehead_gateway::request::forwarded::{Hop, Trust, client_address, mark};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::feed::Feed;
use super::{signature, size};

pub(super) const WORDS: &[&[u8]] = &[
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"forwarded",
    b"x-real-ip",
    b"x-request-id",
    b"bridgehead-tunnel",
    b"6.6.6.6, 192.0.2.7",
    b"10.0.0.2",
    b"10.0.0.1:8080",
    b"[2001:db8::1]:443",
    b"::ffff:10.0.0.1",
    b"unknown",
    b"for=6.6.6.6;proto=https",
    b", ",
    b"https",
];

const NAMES: [&str; 8] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "forwarded",
    "x-real-ip",
    "x-request-id",
    "bridgehead-tunnel",
];

const PEERS: [&str; 5] = [
    "192.0.2.1",
    "10.0.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::9",
    "::1",
];

/// A word that only the client says; it must not come out of an untrusted hop.
const CANARY: &str = "666.canary";

fn ours(address: IpAddr) -> bool {
    address.to_string().starts_with("10.")
}

pub(super) fn run(data: &[u8]) -> u64 {
    let mut feed = Feed::new(data);
    let peer: IpAddr = feed.pick(&PEERS).parse().expect("an address");
    let trusted = feed.flag();
    let mut headers = HeaderMap::new();
    while !feed.is_empty() {
        let name = HeaderName::from_static(feed.pick(&NAMES));
        let mut value = feed.bytes(64).to_vec();
        if !trusted {
            value.extend_from_slice(CANARY.as_bytes());
        }
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.append(name, value);
        }
    }
    let client = client_address(&headers, peer, ours);
    assert_eq!(client, client.to_canonical());
    if !ours(peer.to_canonical()) {
        assert_eq!(client, peer.to_canonical(), "a stranger names the client");
    }
    let before = headers.len();
    let hop = Hop {
        peer,
        peer_trust: if trusted { Trust::Proxy } else { Trust::Nobody },
        tls: false,
        authority: "demo.example.com",
        request_id: "the-id",
    };
    mark(&mut headers, &hop);
    let lines = |name: &str| headers.get_all(name).iter().count();
    for name in [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
    ] {
        assert_eq!(lines(name), 1, "{name} is one line");
    }
    let last = |name: &str| {
        let value = headers.get(name).expect("it is there").as_bytes();
        String::from_utf8_lossy(value.rsplit(|b| *b == b',').next().unwrap_or_default())
            .trim()
            .to_owned()
    };
    assert_eq!(last("x-forwarded-for"), peer.to_canonical().to_string());
    assert!(last("forwarded").starts_with("for="));
    assert_eq!(headers["x-request-id"], "the-id");
    assert_eq!(headers["bridgehead-tunnel"], "1");
    let proto = headers["x-forwarded-proto"].as_bytes();
    assert!(proto == b"http" || proto == b"https");
    if !trusted {
        assert!(!headers.contains_key("x-real-ip"));
        let said = headers.values().any(|v| {
            v.as_bytes()
                .windows(CANARY.len())
                .any(|w| w == CANARY.as_bytes())
        });
        assert!(
            !said,
            "an untrusted peer's words reach the app: {headers:?}"
        );
    }
    let kept = headers.len();
    signature(&[
        u64::from(trusted),
        size(before),
        kept as u64,
        u64::from(client == peer.to_canonical()),
        u64::from(client.is_ipv6()),
        size(headers["forwarded"].len()),
    ])
}
