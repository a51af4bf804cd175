//! Hosts, authorities and paths: what is accepted has one spelling, and everybody reads it alike.

use bridgehead_gateway::route::host::{Authority, Host};
use bridgehead_gateway::route::path::{PathPrefix, check_path_and_query, path_of};

use super::{signature, size, variant};

pub(super) const WORDS: &[&[u8]] = &[
    b"demo.example.com",
    b"localhost",
    b"127.0.0.1",
    b"[::1]",
    b"[::ffff:1.2.3.4]",
    b":8080",
    b":0",
    b"@",
    b"%2e",
    b"xn--",
    b"0x7f",
    b"..",
    b"/../",
    b"%2f",
    b"%5c",
    b"..;x",
    b"?",
    b"#",
    b"\\",
    b"\xc3\xa9",
];

pub(super) fn run(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let authority = Authority::parse(&text);
    if let Ok(authority) = &authority {
        let shown = authority.to_string();
        let again = Authority::parse(&shown).expect("a canonical authority is one");
        assert_eq!(*authority, again, "{text:?} has two canonical forms");
        assert_eq!(again.to_string(), shown);
        host(&authority.host);
    }
    let bare = Host::parse(&text);
    if let Ok(bare) = &bare {
        host(bare);
    }
    let path = check_path_and_query(&text);
    if path.is_ok() {
        judged_path(&text);
    }
    let prefix = PathPrefix::parse(&text);
    if let Ok(prefix) = &prefix {
        assert!(path.is_ok() && prefix.matches(&text));
        assert!(prefix.as_str() == "/" || !prefix.matches(&format!("{text}x")));
    }
    signature(&[
        variant(&authority.as_ref().err()),
        variant(&bare.as_ref().err()),
        variant(&path.err()),
        variant(&prefix.err()),
        bare.map_or(0, |h| u64::from(h.is_address()) + 1),
        authority.map_or(0, |a| u64::from(a.port.is_some()) + 1),
        size(text.len()).min(4),
    ])
}

fn host(host: &Host) {
    let text = host.as_str();
    assert!(
        text.bytes().all(
            |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b':' | b'[' | b']')
        ),
        "{text} holds a byte that no canonical host has"
    );
    assert!(!text.ends_with('.') && !text.starts_with('.') && !text.contains(".."));
    // What URL parsers make of it: no other host.
    let url = format!("http://{text}/");
    let parsed: http::Uri = url.parse().expect("a canonical host stands in a URL");
    assert_eq!(parsed.host(), Some(text));
}

/// The most eager reader: decodes once, cuts parameters, resolves.
fn judged_path(text: &str) {
    assert!(text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic()));
    let decoded = path_of(text)
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace("%3b", ";");
    for segment in decoded.split('/') {
        let bare = segment.split(';').next().unwrap_or(segment);
        assert!(bare != "." && bare != "..", "{text} hides {segment}");
    }
}
