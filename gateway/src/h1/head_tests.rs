//! Heads: what is accepted, and each way to be refused.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn request(text: &str) -> Result<RawHead, HeadError> {
    request_bytes(text.as_bytes())
}

fn request_bytes(bytes: &[u8]) -> Result<RawHead, HeadError> {
    let (head, len) = parse_request(bytes, &HeadLimits::CLIENT)?.expect("a complete head");
    assert_eq!(len, bytes.len());
    Ok(head)
}

fn with_fields(fields: &str) -> Result<RawHead, HeadError> {
    request(&format!(
        "POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
    ))
}

fn answer(text: &str) -> Result<ResponseHead, HeadError> {
    answer_to(&Method::GET, text)
}

fn answer_to(method: &Method, text: &str) -> Result<ResponseHead, HeadError> {
    let parsed = parse_response(text.as_bytes(), &HeadLimits::APP, method)?;
    Ok(parsed.expect("a complete head").0)
}

#[test]
fn a_plain_request_is_read_as_it_was_sent() {
    let head =
        request("GET /a%2Fb?c=d HTTP/1.1\r\nHost: a.example:8080\r\nX-A: 1 \r\nx-a:2\r\n\r\n")
            .unwrap();
    assert_eq!(head.method, Method::GET);
    assert_eq!(head.target, "/a%2Fb?c=d");
    assert_eq!(head.protocol, ClientProtocol::Http11);
    assert_eq!(head.body, BodyLength::None);
    let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
    assert_eq!(values, ["1", "2"]);
}

#[test]
fn a_head_is_found_in_front_of_other_bytes_and_not_before_it_is_complete() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let head_len = bytes.len() - 4;
    for len in 0..head_len {
        let partial = parse_request(&bytes[..len], &HeadLimits::CLIENT).unwrap();
        assert!(partial.is_none(), "{len} bytes are not a head");
    }
    let (_, len) = parse_request(bytes, &HeadLimits::CLIENT).unwrap().unwrap();
    assert_eq!(len, head_len);
}

#[test]
fn line_ends_and_control_bytes_are_taken_strictly() {
    let host = "Host: a";
    let cases: &[(String, HeadError)] = &[
        (format!("GET / HTTP/1.1\n{host}\n\n"), HeadError::BareLf),
        (format!("GET / HTTP/1.1\r\n{host}\n\r\n"), HeadError::BareLf),
        (format!("GET / HTTP/1.1\r\n{host}\r\n\n"), HeadError::BareLf),
        (format!("GET / HTTP/1.1\r{host}\r\n\r\n"), HeadError::BareCr),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx: a\rb\r\n\r\n"),
            HeadError::BareCr,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\r\n\r\n"),
            HeadError::BareCr,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx: a\0b\r\n\r\n"),
            HeadError::Nul,
        ),
        (
            format!("GET /\0 HTTP/1.1\r\n{host}\r\n\r\n"),
            HeadError::Nul,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx: a\r\n b\r\n\r\n"),
            HeadError::Folding,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\n\tb: c\r\n\r\n"),
            HeadError::Folding,
        ),
        (
            format!("GET / HTTP/1.1\r\n {host}\r\n\r\n"),
            HeadError::Folding,
        ),
        (
            format!("\r\nGET / HTTP/1.1\r\n{host}\r\n\r\n"),
            HeadError::EmptyFirstLine,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx : a\r\n\r\n"),
            HeadError::FieldName,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx\t: a\r\n\r\n"),
            HeadError::FieldName,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\n: a\r\n\r\n"),
            HeadError::FieldName,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nnocolon\r\n\r\n"),
            HeadError::FieldName,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx(y): a\r\n\r\n"),
            HeadError::FieldName,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx: a\x01b\r\n\r\n"),
            HeadError::FieldValue,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}\r\nx: a\x7fb\r\n\r\n"),
            HeadError::FieldValue,
        ),
    ];
    for (text, error) in cases {
        assert_eq!(request(text).unwrap_err(), *error, "{text:?}");
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn a_wrong_request_line_is_refused() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /",
        "G@T / HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /\x7f HTTP/1.1",
    ] {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        let error = request(&text).unwrap_err();
        assert_eq!(error.status() / 100, 4, "{line:?} {error}");
    }
    for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.10"] {
        let text = format!("GET / {version}\r\nHost: a\r\n\r\n");
        assert!(request(&text).is_err(), "{version}");
    }
    assert_eq!(
        request("PRI * HTTP/2.0\r\nHost: a\r\n\r\n").unwrap_err(),
        HeadError::Version
    );
}

#[test]
fn exactly_one_plausible_host_is_needed() {
    let host = |lines: &str| request(&format!("GET / HTTP/1.1\r\n{lines}\r\n")).map(|_| ());
    assert_eq!(host(""), Err(HeadError::HostMissing));
    assert_eq!(host("Host: a\r\nHost: a\r\n"), Err(HeadError::HostRepeated));
    assert_eq!(host("Host: a\r\nhost: b\r\n"), Err(HeadError::HostRepeated));
    for bad in [
        "", "a,b", "a b", "u@a", "a/b", "a\\b", "a?b", "a#b", "\"a\"",
    ] {
        let found = host(&format!("Host: {bad}\r\n"));
        assert_eq!(found, Err(HeadError::HostInvalid), "{bad}");
    }
    for good in ["a", "a.b:80", "[::1]:443", "127.0.0.1", "a_b.c"] {
        assert_eq!(host(&format!("Host: {good}\r\n")), Ok(()), "{good}");
    }
    let old = request("GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.protocol, ClientProtocol::Http10);
}

#[test]
fn only_one_plain_length_or_one_chunked_frames_a_request() {
    let body = |fields: &str| with_fields(fields).map(|head| head.body);
    assert_eq!(body("Content-Length: 0\r\n"), Ok(BodyLength::Exact(0)));
    assert_eq!(
        body("Content-Length: 18446744073709551615\r\n"),
        Ok(BodyLength::Exact(u64::MAX))
    );
    assert_eq!(
        body("Transfer-Encoding: Chunked\r\n"),
        Ok(BodyLength::Streamed)
    );
    for bad in [
        "",
        "+1",
        "-1",
        "0x10",
        "1,1",
        "1, 1",
        "1 1",
        "1.0",
        "1e3",
        "010",
        "18446744073709551616",
        "\u{661}",
    ] {
        assert_eq!(
            body(&format!("Content-Length: {bad}\r\n")),
            Err(HeadError::LengthInvalid),
            "{bad}"
        );
    }
    assert_eq!(
        body("Content-Length: 1\r\nContent-Length: 1\r\n"),
        Err(HeadError::LengthRepeated)
    );
    assert_eq!(
        body("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        Err(HeadError::LengthAndCoding)
    );
    for bad in [
        "",
        "gzip",
        "gzip, chunked",
        "chunked, chunked",
        "chunked,",
        "xchunked",
        "chunked;q=1",
        "\"chunked\"",
        "identity",
        "\u{b}chunked",
    ] {
        let found = body(&format!("Transfer-Encoding: {bad}\r\n"));
        assert!(
            matches!(
                found,
                Err(HeadError::CodingUnsupported | HeadError::FieldValue)
            ),
            "{bad}"
        );
    }
    assert_eq!(
        body("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        Err(HeadError::CodingUnsupported)
    );
    let old = request("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.unwrap_err(), HeadError::CodingInOldVersion);
    let connect = request("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\n");
    assert_eq!(connect.unwrap_err(), HeadError::BodyForbidden);
}

#[test]
fn each_size_limit_has_its_own_answer() {
    let fields = |n: usize| "x: y\r\n".repeat(n);
    assert!(with_fields(&fields(99)).is_ok());
    let many = with_fields(&fields(100)).unwrap_err();
    assert_eq!((many, many.status()), (HeadError::TooManyFields, 431));

    let value = |n: usize| format!("x: {}\r\n", "v".repeat(n));
    let large = with_fields(&value(32 * 1024)).unwrap_err();
    assert_eq!((large, large.status()), (HeadError::TooLarge, 431));
    assert!(with_fields(&value(31 * 1024)).is_ok());

    let target = |n: usize| {
        request(&format!(
            "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "p".repeat(n)
        ))
    };
    assert!(target(8 * 1024 - 1).is_ok());
    for n in [8 * 1024, 9 * 1024, 40 * 1024] {
        let long = target(n).unwrap_err();
        assert_eq!((long, long.status()), (HeadError::UriTooLong, 414));
    }
}

#[test]
fn a_wrong_byte_is_refused_before_the_head_is_complete() {
    let found = parse_request(b"GET / HTTP/1.1\r\nHost: a\nx", &HeadLimits::CLIENT);
    assert_eq!(found.unwrap_err(), HeadError::BareLf);
}

#[test]
fn an_answer_is_framed_by_the_rules_of_the_standard() {
    use ResponseFraming::{Chunked, Length, None, UntilClose};
    let ok = |fields: &str| answer(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).map(|h| h.framing);
    assert_eq!(ok(""), Ok(UntilClose));
    assert_eq!(ok("Content-Length: 5\r\n"), Ok(Length(5)));
    assert_eq!(ok("Transfer-Encoding: chunked\r\n"), Ok(Chunked));
    assert_eq!(
        ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        Err(HeadError::LengthAndCoding)
    );
    assert_eq!(
        ok("Content-Length: 5\r\nContent-Length: 6\r\n"),
        Err(HeadError::LengthRepeated)
    );
    assert_eq!(
        ok("Content-Length: 5, 5\r\n"),
        Err(HeadError::LengthInvalid)
    );
    assert_eq!(
        ok("Transfer-Encoding: gzip\r\n"),
        Err(HeadError::CodingUnsupported)
    );

    let sized = "Content-Length: 5\r\n";
    let not_modified = answer(&format!("HTTP/1.1 304 Not Modified\r\n{sized}\r\n")).unwrap();
    assert_eq!(not_modified.framing, None);
    let to_head = answer_to(&Method::HEAD, &format!("HTTP/1.1 200 OK\r\n{sized}\r\n")).unwrap();
    assert_eq!(to_head.framing, None);
    assert_eq!(to_head.headers["content-length"], "5");
    let connected = answer_to(&Method::CONNECT, "HTTP/1.1 200 OK\r\n\r\n").unwrap();
    assert_eq!(connected.framing, None);
}

#[test]
fn equal_lengths_of_an_answer_are_joined() {
    let head = answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n").unwrap();
    assert_eq!(head.framing, ResponseFraming::Length(5));
    assert_eq!(head.headers.get_all("content-length").iter().count(), 1);
}

#[test]
fn an_answer_that_cannot_have_a_body_may_not_declare_one() {
    for text in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n\r\n",
    ] {
        assert_eq!(
            answer(text).unwrap_err(),
            HeadError::BodyForbidden,
            "{text}"
        );
    }
    let zero = answer("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(zero.framing, ResponseFraming::None);
}

#[test]
fn a_connection_is_kept_only_if_both_the_version_and_the_framing_allow_it() {
    let keeps = |text: &str| answer(text).unwrap().keep_alive;
    assert!(keeps("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    assert!(!keeps(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n"
    ));
    assert!(!keeps("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(!keeps("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
    assert!(keeps(
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"
    ));
}

#[test]
fn a_switch_of_protocols_is_final_and_names_its_protocol() {
    let head =
        answer("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .unwrap();
    assert!(!head.is_informational && !head.keep_alive);
    assert_eq!(head.upgrade.unwrap(), "websocket");
    assert_eq!(&head.reason[..], b"Switching");
    for fields in ["Upgrade: websocket\r\n", "Connection: upgrade\r\n", ""] {
        let text = format!("HTTP/1.1 101 Switching\r\n{fields}\r\n");
        assert_eq!(answer(&text).unwrap_err(), HeadError::UpgradeMissing);
    }
    let hints = answer("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").unwrap();
    assert!(hints.is_informational);
}

#[test]
fn a_wrong_status_line_is_refused() {
    for line in [
        "HTTP/1.1 99 Low",
        "HTTP/1.1 2000 OK",
        "HTTP/2.0 200 OK",
        "ICY 200 OK",
        "HTTP/1.1",
        "HTTP/1.1 000 Zero",
    ] {
        assert!(answer(&format!("{line}\r\n\r\n")).is_err(), "{line}");
    }
    assert!(answer("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n").is_ok());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic_or_read_beyond_them(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Some((_, len))) = parse_request(&bytes, &HeadLimits::CLIENT) {
            prop_assert!(len <= bytes.len());
        }
        if let Ok(Some((_, len))) = parse_response(&bytes, &HeadLimits::APP, &Method::GET) {
            prop_assert!(len <= bytes.len());
        }
    }

    #[test]
    fn a_head_read_in_pieces_is_the_head_read_at_once(
        text in "(GET|POST) /[a-z\r\n ]{0,8} HTTP/1\\.[01]\r\n(Host: [a-z]{1,4}\r\n|[a-z :\t\r\n\0]{1,12}\r\n|Content-Length: [0-9]{1,3}\r\n){0,5}\r\n",
        cut in 0usize..200,
    ) {
        let bytes = text.as_bytes();
        let cut = cut.min(bytes.len());
        let whole = HeadScan::request().scan(bytes, &HeadLimits::CLIENT);
        let mut scan = HeadScan::request();
        let pieces = match scan.scan(&bytes[..cut], &HeadLimits::CLIENT) {
            Ok(None) => scan.scan(bytes, &HeadLimits::CLIENT),
            early => early,
        };
        prop_assert_eq!(whole, pieces);
    }
}
