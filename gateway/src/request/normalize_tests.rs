//! Tests of the one reading of a request.
#![allow(clippy::unwrap_used)]

use bridgehead_protocol::verdict::Delivery;
use proptest::prelude::*;

use super::*;

fn info() -> ClientInfo {
    ClientInfo {
        peer: "192.0.2.1:5000".parse().unwrap(),
        announced: false,
        local: "198.51.100.1:8080".parse().unwrap(),
        tls: false,
        sni: None,
        certified: false,
        allowance: None,
        connection: 1,
    }
}

fn tls(sni: Option<&str>) -> ClientInfo {
    ClientInfo {
        tls: true,
        sni: sni.map(str::to_owned),
        ..info()
    }
}

fn h1(method: &str, target: &str, fields: &[(&str, &str)]) -> RawHead {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    RawHead {
        method: method.parse().unwrap(),
        target: target.to_owned(),
        authority: None,
        scheme: None,
        connect_protocol: None,
        headers,
        body: BodyLength::None,
        protocol: ClientProtocol::Http11,
    }
}

fn h2(method: &str, path: &str, authority: &str, fields: &[(&str, &str)]) -> RawHead {
    RawHead {
        authority: Some(authority.to_owned()),
        scheme: Some("https".to_owned()),
        protocol: ClientProtocol::Http2,
        ..h1(method, path, fields)
    }
}

fn rules() -> Rules {
    Rules::from(&Limits::default())
}

fn read(raw: &RawHead) -> Result<Normal, Failure> {
    normalize(raw, &info(), &rules())
}

/// The status a request is refused with; also checks what every refusal has in common.
fn refused(raw: &RawHead, info: &ClientInfo) -> u16 {
    let failure = normalize(raw, info, &rules()).expect_err(&raw.target);
    assert_eq!(failure.delivery, Delivery::NotDelivered);
    assert!(failure.detail.is_some(), "a refusal says why");
    failure.http_status()
}

#[test]
fn a_plain_request_keeps_its_bytes_and_lowers_its_host() {
    let raw = h1(
        "GET",
        "/A%20b/%7Ec?x=../y",
        &[("host", "Demo.Example.com:8080"), ("accept", "*/*")],
    );
    let normal = read(&raw).unwrap();
    assert_eq!(normal.host.as_str(), "demo.example.com");
    assert_eq!(normal.port, Some(8080));
    assert_eq!(normal.authority, "demo.example.com:8080");
    assert_eq!(normal.path_and_query, "/A%20b/%7Ec?x=../y");
    assert_eq!(normal.path(), "/A%20b/%7Ec");
    assert_eq!(normal.kind, RequestKind::Plain);
    assert!(!normal.headers.contains_key("host") && normal.headers.contains_key("accept"));
}

#[test]
fn an_absolute_target_must_name_the_host_of_the_host_field() {
    let with = |target: &str, host: &str| read(&h1("GET", target, &[("host", host)]));
    let normal = with("http://Example.com/a?b", "example.com").unwrap();
    assert_eq!(
        (normal.authority.as_str(), normal.path_and_query.as_str()),
        ("example.com", "/a?b")
    );
    assert_eq!(
        with("HTTP://example.com", "example.com")
            .unwrap()
            .path_and_query,
        "/"
    );
    assert_eq!(
        with("http://example.com?q", "example.com")
            .unwrap()
            .path_and_query,
        "/?q"
    );
    for (target, host) in [
        ("http://other.com/", "example.com"),
        ("http://example.com:80/", "example.com"),
        ("http://user@example.com/", "example.com"),
        ("http:///a", "example.com"),
        ("http://example.com/../a", "example.com"),
        ("http://example.com#f", "example.com"),
        ("http://example.com\\@other.com/", "example.com"),
        ("ftp://example.com/", "example.com"),
        ("example.com:80", "example.com"),
        ("example.com/a", "example.com"),
        ("//example.com", ""),
    ] {
        let raw = h1("GET", target, &[("host", host)]);
        assert_eq!(refused(&raw, &info()), 400, "{target}");
    }
}

#[test]
fn every_doubtful_host_is_a_bad_request() {
    for host in [
        "",
        "a@b",
        "a, b",
        "a b",
        "a%2e",
        "a.",
        "b\u{fc}cher.de",
        "a:",
        "a:080",
        "127.1",
        "::1",
    ] {
        assert_eq!(
            refused(&h1("GET", "/", &[("host", host)]), &info()),
            400,
            "{host:?}"
        );
    }
    let twice = h1("GET", "/", &[("host", "a"), ("host", "a")]);
    assert_eq!(refused(&twice, &info()), 400);
    assert_eq!(refused(&h1("GET", "/", &[]), &info()), 400);
}

#[test]
fn http2_needs_one_host_in_both_of_its_places() {
    assert_eq!(
        read(&h2("GET", "/", "Example.com", &[]))
            .unwrap()
            .host
            .as_str(),
        "example.com"
    );
    assert!(read(&h2("GET", "/", "example.com", &[("host", "EXAMPLE.com")])).is_ok());
    assert_eq!(
        refused(&h2("GET", "/", "a.com", &[("host", "b.com")]), &info()),
        400
    );
    assert_eq!(
        refused(&h2("GET", "http://a.com/", "a.com", &[]), &info()),
        400
    );
    assert_eq!(refused(&h2("GET", "", "a.com", &[]), &info()), 400);
    let bare = RawHead {
        authority: None,
        ..h2("GET", "/", "", &[("host", "a.com")])
    };
    assert_eq!(read(&bare).unwrap().host.as_str(), "a.com");
    let nameless = RawHead {
        authority: None,
        ..h2("GET", "/", "", &[])
    };
    assert_eq!(refused(&nameless, &info()), 400);
}

#[test]
fn http2_refuses_the_fields_of_another_framing() {
    for (name, value) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        assert_eq!(
            refused(&h2("GET", "/", "a.com", &[(name, value)]), &info()),
            400,
            "{name}"
        );
    }
    assert!(
        read(&h2("GET", "/", "a.com", &[("te", "trailers")]))
            .unwrap()
            .te_trailers
    );
}

#[test]
fn a_host_that_is_not_the_connections_is_misdirected() {
    let raw = h1("GET", "/", &[("host", "a.example.com")]);
    assert!(normalize(&raw, &tls(Some("a.example.com")), &rules()).is_ok());
    assert!(normalize(&raw, &tls(None), &rules()).is_ok());
    assert_eq!(refused(&raw, &tls(Some("b.example.com"))), 421);
    let coalesced = h2("GET", "/", "b.example.com", &[]);
    assert_eq!(refused(&coalesced, &tls(Some("a.example.com"))), 421);
    let plain_scheme = RawHead {
        scheme: Some("http".into()),
        ..h2("GET", "/", "a.com", &[])
    };
    assert_eq!(refused(&plain_scheme, &tls(Some("a.com"))), 421);
    let absolute = h1("GET", "http://a.com/", &[("host", "a.com")]);
    assert_eq!(refused(&absolute, &tls(Some("a.com"))), 421);
}

#[test]
fn connect_is_served_with_a_protocol_only() {
    assert_eq!(
        refused(
            &h1("CONNECT", "a.com:443", &[("host", "a.com:443")]),
            &info()
        ),
        501
    );
    assert_eq!(refused(&h2("CONNECT", "", "a.com:443", &[]), &info()), 501);
    let socket = RawHead {
        connect_protocol: Some("websocket".into()),
        ..h2("CONNECT", "/chat", "a.com", &[])
    };
    let normal = read(&socket).unwrap();
    assert_eq!(
        normal.kind,
        RequestKind::ExtendedConnect("websocket".into())
    );
    assert_eq!(normal.body, BodyLength::Tunnel);
    assert!(normal.is_websocket());
    let odd = RawHead {
        method: Method::GET,
        ..socket
    };
    assert_eq!(refused(&odd, &info()), 400);
}

#[test]
fn the_asterisk_belongs_to_options() {
    assert_eq!(
        read(&h1("OPTIONS", "*", &[("host", "a")])).unwrap().path(),
        "*"
    );
    let whole = h1("OPTIONS", "http://a", &[("host", "a")]);
    assert_eq!(read(&whole).unwrap().path_and_query, "*");
    assert_eq!(refused(&h1("GET", "*", &[("host", "a")]), &info()), 400);
}

#[test]
fn paths_that_app_and_routing_could_read_differently_are_refused() {
    for target in [
        "/a/../b",
        "/%2e%2E/b",
        "/a/.",
        "/a#b",
        "/a\\b",
        "/a\u{7f}",
        "/\u{e9}",
        "/a b",
    ] {
        assert_eq!(
            refused(&h1("GET", target, &[("host", "a")]), &info()),
            400,
            "{target:?}"
        );
    }
}

#[test]
fn an_upgrade_keeps_its_protocols_without_h2c() {
    let upgrade = |value: &str| {
        let fields = [
            ("host", "a"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", value),
        ];
        read(&h1("GET", "/", &fields)).map(|normal| normal.kind)
    };
    assert_eq!(
        upgrade("websocket").unwrap(),
        RequestKind::Upgrade("websocket".into())
    );
    assert_eq!(
        upgrade("H2C, foo/2").unwrap(),
        RequestKind::Upgrade("foo/2".into())
    );
    assert_eq!(upgrade("h2c").unwrap(), RequestKind::Plain);
    assert_eq!(upgrade("web socket").unwrap_err().http_status(), 400);
    let unnamed = h1("GET", "/", &[("host", "a"), ("upgrade", "websocket")]);
    assert_eq!(read(&unnamed).unwrap().kind, RequestKind::Plain);
    let fields = [
        ("host", "a"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
    ];
    let old = RawHead {
        protocol: ClientProtocol::Http10,
        ..h1("GET", "/", &fields)
    };
    assert_eq!(read(&old).unwrap().kind, RequestKind::Plain);
    let with_body = RawHead {
        body: BodyLength::Exact(1),
        ..h1("POST", "/", &fields)
    };
    assert_eq!(read(&with_body).unwrap().kind, RequestKind::Plain);
}

#[test]
fn hop_by_hop_fields_are_gone_and_the_list_cannot_name_ours() {
    let fields = [
        ("host", "a"),
        ("connection", "close, x-mine"),
        ("x-mine", "1"),
        ("te", "trailers, gzip;q=0.5"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABk"),
        ("transfer-encoding", "chunked"),
        ("cookie", "c"),
        ("bridgehead-outcome-key", "k"),
    ];
    let normal = read(&h1("GET", "/", &fields)).unwrap();
    let mut left: Vec<&str> = normal.headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["bridgehead-outcome-key", "cookie"]);
    assert!(normal.te_trailers);
    let protected = h1(
        "GET",
        "/",
        &[("host", "a"), ("connection", "x-forwarded-for")],
    );
    assert_eq!(refused(&protected, &info()), 400);
}

#[test]
fn underscore_twins_of_our_fields_are_refused() {
    for name in [
        "x_forwarded_for",
        "x-forwarded_proto",
        "bridgehead_tunnel",
        "x_request_id",
        "content_length",
        "transfer_encoding",
    ] {
        assert_eq!(
            refused(&h1("GET", "/", &[("host", "a"), (name, "1")]), &info()),
            400,
            "{name}"
        );
    }
    assert!(read(&h1("GET", "/", &[("host", "a"), ("my_field", "1")])).is_ok());
}

#[test]
fn the_only_expectation_is_100_continue() {
    let post = |expect: &str, body| RawHead {
        body,
        ..h1("POST", "/", &[("host", "a"), ("expect", expect)])
    };
    let normal = read(&post("100-Continue", BodyLength::Exact(5))).unwrap();
    assert!(normal.expect_continue && !normal.headers.contains_key("expect"));
    assert!(
        !read(&post("100-continue", BodyLength::None))
            .unwrap()
            .expect_continue
    );
    assert_eq!(refused(&post("200-ok", BodyLength::Exact(5)), &info()), 417);
    let old = RawHead {
        protocol: ClientProtocol::Http10,
        ..post("100-continue", BodyLength::Exact(5))
    };
    assert!(!read(&old).unwrap().expect_continue);
}

#[test]
fn grpc_is_known_by_its_content_type() {
    let grpc = |value: &str| {
        read(&h2("POST", "/s/m", "a", &[("content-type", value)]))
            .unwrap()
            .grpc
    };
    assert!(grpc("application/grpc") && grpc("application/grpc+proto") && grpc("Application/gRPC"));
    assert!(!grpc("application/json") && !grpc("application/gr"));
    assert!(!grpc("application/grpc-web") && !grpc("application/grpc-web+proto"));
    let old = h1(
        "POST",
        "/s/m",
        &[("host", "a"), ("content-type", "application/grpc")],
    );
    assert!(!read(&old).unwrap().grpc);
}

#[test]
fn only_what_becomes_a_pipe_and_grpc_may_fall_silent() {
    let upgrade = [("host", "a"), ("connection", "upgrade"), ("upgrade", "x")];
    let with = |body| RawHead {
        body,
        ..h1("POST", "/", &upgrade)
    };
    assert!(may_fall_silent(&with(BodyLength::None)));
    assert!(!may_fall_silent(&with(BodyLength::Exact(10))));
    assert!(!may_fall_silent(&with(BodyLength::Streamed)));
    assert!(!may_fall_silent(&h1("POST", "/", &upgrade[..2])));
    assert!(!may_fall_silent(&h1("CONNECT", "a:1", &[("host", "a:1")])));
    let typed = [("content-type", "application/grpc")];
    assert!(may_fall_silent(&h2("POST", "/s/m", "a", &typed)));
    assert!(!may_fall_silent(&h1("POST", "/s/m", &typed)));
    let connect = RawHead {
        connect_protocol: Some("websocket".into()),
        ..h2("CONNECT", "/", "a", &[])
    };
    assert!(may_fall_silent(&connect));
}

#[test]
fn each_limit_of_the_head_is_named() {
    let tight = Rules {
        head_size: 40,
        head_fields: 2,
        uri_size: 5,
    };
    let said = |raw: &RawHead| {
        let failure = normalize(raw, &info(), &tight).unwrap_err();
        (failure.http_status(), failure.detail.unwrap())
    };
    let (status, detail) = said(&h1("GET", "/12345", &[("host", "a")]));
    assert!(status == 414 && detail.contains("uri_size"));
    let (status, detail) = said(&h1(
        "GET",
        "/",
        &[("host", "a"), ("cookie", "a"), ("cookie", "b")],
    ));
    assert!(status == 431 && detail.contains("head_fields"));
    let (status, detail) = said(&h1("GET", "/", &[("host", "a"), ("x", &"v".repeat(40))]));
    assert!(status == 431 && detail.contains("head_size"));
}

proptest! {
    #[test]
    fn what_is_routed_is_what_is_forwarded(
        target in "(/|http://)[a-zA-Z0-9.%/?:@#;\\\\-]{0,24}",
        host in "[a-zA-Z0-9.:@%-]{0,12}",
    ) {
        let raw = h1("GET", &target, &[("host", &host)]);
        if let Ok(normal) = read(&raw) {
            prop_assert!(normal.path_and_query.starts_with(normal.path()));
            prop_assert!(target.ends_with(normal.path_and_query.trim_start_matches('/')));
            prop_assert!(normal.authority.eq_ignore_ascii_case(&host));
            let again = Authority::parse(&normal.authority).unwrap();
            prop_assert_eq!((&again.host, again.port), (&normal.host, normal.port));
            // A second gateway behind this one reads the same.
            let hop = h1("GET", &normal.path_and_query, &[("host", &normal.authority)]);
            let second = read(&hop).unwrap();
            prop_assert_eq!(second.path_and_query, normal.path_and_query);
            prop_assert_eq!(second.host, normal.host);
        }
    }
}
