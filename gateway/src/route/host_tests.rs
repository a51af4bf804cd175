//! Tests of the host canonicaliser.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

#[test]
fn a_name_is_lowered_and_nothing_else_is_changed() {
    assert_eq!(
        Host::parse("Demo.Example.COM").unwrap().as_str(),
        "demo.example.com"
    );
    assert_eq!(
        Host::parse("xn--Bcher-kva.example").unwrap().as_str(),
        "xn--bcher-kva.example"
    );
}

#[test]
fn addresses_of_both_kinds_are_hosts() {
    assert!(Host::parse("127.0.0.1").unwrap().is_address());
    assert_eq!(Host::parse("[::1]").unwrap().as_str(), "[::1]");
    assert_eq!(
        Host::parse("[2001:DB8:0::1]").unwrap().as_str(),
        "[2001:db8::1]"
    );
    assert!(!Host::parse("localhost").unwrap().is_address());
}

#[test]
fn every_ambiguous_spelling_is_refused_by_its_name() {
    let cases = [
        ("", HostError::Empty),
        ("user@example.com", HostError::UserInfo),
        ("a.com,b.com", HostError::List),
        ("a.com b.com", HostError::List),
        ("a%2ecom", HostError::Percent),
        ("[fe80::1%25eth0]", HostError::Percent),
        ("bücher.example", HostError::NotAscii),
        ("example.com.", HostError::TrailingDot),
        (".example.com", HostError::Malformed),
        ("a..b", HostError::Malformed),
        ("::1", HostError::Malformed),
        ("[::1", HostError::Malformed),
        ("[127.0.0.1]", HostError::Malformed),
        ("a/b", HostError::Malformed),
        ("a\\b", HostError::Malformed),
        ("a\u{0}b", HostError::Malformed),
        ("*.example.com", HostError::Malformed),
        ("127.1", HostError::NotIpv4),
        ("0x7f.1", HostError::NotIpv4),
        ("2130706433", HostError::NotIpv4),
        ("127.0.0.0x1", HostError::NotIpv4),
        ("256.0.0.1", HostError::NotIpv4),
    ];
    for (text, expected) in cases {
        assert_eq!(Host::parse(text), Err(expected), "{text:?}");
    }
}

#[test]
fn a_port_is_kept_only_in_its_shortest_form() {
    let authority = Authority::parse("Demo.localhost:8080").unwrap();
    assert_eq!(authority.port, Some(8080));
    assert_eq!(authority.to_string(), "demo.localhost:8080");
    assert_eq!(
        Authority::parse("[::1]:443").unwrap().to_string(),
        "[::1]:443"
    );
    assert_eq!(Authority::parse("example.com").unwrap().port, None);
    for bad in [
        "a:",
        "a:0",
        "a:080",
        "a:65536",
        "a:+80",
        "a:8a",
        "[::1]:",
        "a:99999999999",
    ] {
        assert_eq!(Authority::parse(bad), Err(HostError::Port), "{bad:?}");
    }
    for bad in ["a:80:80", "[::1]80", "[::1]x:80"] {
        assert_eq!(Authority::parse(bad), Err(HostError::Malformed), "{bad:?}");
    }
}

#[test]
fn only_one_label_in_front_of_the_domain_names_an_app() {
    let domain = Host::parse("example.com").unwrap();
    let label = |text: &str| {
        Host::parse(text)
            .unwrap()
            .label_under(&domain)
            .map(str::to_owned)
    };
    assert_eq!(label("demo.example.com").as_deref(), Some("demo"));
    assert_eq!(label("example.com"), None);
    assert_eq!(label("a.b.example.com"), None);
    assert_eq!(label("evilexample.com"), None);
    assert_eq!(label("demo.example.org"), None);
}

proptest! {
    #[test]
    fn parsing_what_was_parsed_changes_nothing(text in "[a-zA-Z0-9._:\\[\\]@%, \\-]{0,40}") {
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(host.as_str()).unwrap(), host);
        }
        if let Ok(authority) = Authority::parse(&text) {
            prop_assert_eq!(Authority::parse(&authority.to_string()).unwrap(), authority);
        }
    }

    #[test]
    fn an_accepted_name_differs_from_its_source_only_in_case(text in "\\PC{0,30}") {
        if let Ok(host) = Host::parse(&text)
            && !text.starts_with('[')
        {
            prop_assert!(host.as_str().eq_ignore_ascii_case(&text));
            prop_assert!(!host.as_str().bytes().any(|b| b.is_ascii_uppercase()));
        }
    }

    #[test]
    fn ipv6_literals_parse_to_the_address_they_name(bits: u128) {
        let address = Ipv6Addr::from(bits);
        let host = Host::parse(&format!("[{address}]")).unwrap();
        let expected = format!("[{address}]");
        prop_assert_eq!(host.as_str(), expected.as_str());
    }
}
