//! Request heads: one reading, whatever the cuts; and what is forwarded is read by the same parser as
//! the same request.

use std::net::SocketAddr;

use bridgehead_gateway::h1::{
    HeadError, HeadLimits, HeadScan, encode, parse_request, parse_response,
};
use bridgehead_gateway::request::front::{BodyLength, ClientInfo, RawHead};
use bridgehead_gateway::request::normalize::{Normal, RequestKind, Rules, normalize};
use bytes::BytesMut;
use http::{HeaderValue, Method, header};

use super::{signature, size, variant};

pub(super) const WORDS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"POST /c?a=b HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"GET http://demo.example.com/c HTTP/1.0\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 101 x\r\n",
    b"HTTP/1.0 204\r\n",
    b"Host: demo.example.com\r\n",
    b"Host: demo.example.com:8080\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close, x-a\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"Upgrade: h2c\r\n",
    b"TE: trailers\r\n",
    b"Expect: 100-continue\r\n",
    b"X_Forwarded_For: 1\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b", ",
    b"chunked",
    b"../",
    b"%2e",
];

const RULES: Rules = Rules {
    head_size: 32 * 1024,
    head_fields: 100,
    uri_size: 8 * 1024,
};

fn info() -> ClientInfo {
    ClientInfo {
        peer: SocketAddr::from(([192, 0, 2, 1], 1)),
        announced: false,
        local: SocketAddr::from(([192, 0, 2, 2], 80)),
        tls: false,
        sni: None,
        certified: false,
        allowance: None,
        connection: 1,
    }
}

/// The scanner, fed `step` bytes at a time.
fn scan(data: &[u8], step: usize) -> Result<Option<usize>, HeadError> {
    let mut scan = HeadScan::request();
    let mut have = 0;
    while have < data.len() {
        have = (have + step).min(data.len());
        if let Some(len) = scan.scan(&data[..have], &HeadLimits::CLIENT)? {
            return Ok(Some(len));
        }
    }
    Ok(None)
}

pub(super) fn run(data: &[u8]) -> u64 {
    let step = usize::from(data.first().copied().unwrap_or(0)) % 7 + 1;
    assert_eq!(
        scan(data, step),
        scan(data, data.len().max(1)),
        "cuts of {step} bytes change where the head ends"
    );
    let answer = parse_response(data, &HeadLimits::APP, &Method::GET);
    if let Ok(Some((head, len))) = &answer {
        assert!(*len <= data.len());
        assert!(head.is_informational || head.status.as_u16() >= 200 || head.upgrade.is_some());
    }
    let parsed = parse_request(data, &HeadLimits::CLIENT);
    let read = match &parsed {
        Ok(Some((head, len))) => accepted(head, &data[..*len]),
        Ok(None) => 1,
        Err(error) => variant(error),
    };
    signature(&[read, variant(&answer.err())])
}

/// An accepted head: no byte in it that could mean something else, one body, and after
/// normalisation one meaning.
fn accepted(head: &RawHead, bytes: &[u8]) -> u64 {
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' => assert!(at > 0 && bytes[at - 1] == b'\r', "a bare LF passes"),
            b'\r' => assert_eq!(bytes.get(at + 1), Some(&b'\n'), "a bare CR passes"),
            0 => panic!("a NUL passes"),
            _ => {}
        }
    }
    let codings = head
        .headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .count();
    let lengths = head.headers.get_all(header::CONTENT_LENGTH).iter().count();
    match head.body {
        BodyLength::None => assert_eq!((codings, lengths), (0, 0)),
        BodyLength::Exact(_) => assert_eq!((codings, lengths), (0, 1)),
        BodyLength::Streamed => assert_eq!((codings, lengths), (1, 0)),
        BodyLength::Tunnel => panic!("HTTP/1 heads declare no tunnel"),
    }
    match normalize(head, &info(), &RULES) {
        Ok(normal) => forwarded(&normal),
        Err(failure) => {
            let detail = failure.detail.unwrap_or_default();
            assert!(!detail.contains(['\r', '\n', '\0']), "{detail:?}");
            signature(&[2, variant(&detail)])
        }
    }
}

/// Said again in HTTP/1, it is read as the same request.
fn forwarded(normal: &Normal) -> u64 {
    let mut headers = normal.headers.clone();
    let host = HeaderValue::from_str(&normal.authority).expect("an authority is a field value");
    headers.insert(header::HOST, host);
    match normal.body {
        BodyLength::Exact(n) => drop(headers.insert(header::CONTENT_LENGTH, n.into())),
        BodyLength::Streamed => {
            let chunked = HeaderValue::from_static("chunked");
            headers.insert(header::TRANSFER_ENCODING, chunked);
        }
        BodyLength::None | BodyLength::Tunnel => {}
    }
    let mut out = BytesMut::new();
    encode::request_head(&mut out, &normal.method, &normal.path_and_query, &headers);
    let roomy = HeadLimits {
        max_bytes: 128 * 1024,
        max_fields: 120,
        max_target: 8 * 1024,
    };
    let (again, len) = parse_request(&out, &roomy)
        .expect("what is forwarded is well formed")
        .expect("and complete");
    assert_eq!(len, out.len(), "nothing stands behind the head");
    let twice = normalize(&again, &info(), &RULES).expect("and is accepted again");
    assert_eq!(
        (
            &twice.method,
            &twice.host,
            &twice.path_and_query,
            twice.body,
            &twice.headers
        ),
        (
            &normal.method,
            &normal.host,
            &normal.path_and_query,
            normal.body,
            &normal.headers
        ),
        "a second reading differs"
    );
    for name in [
        "connection",
        "transfer-encoding",
        "te",
        "upgrade",
        "keep-alive",
        "content-length",
    ] {
        assert!(!normal.headers.contains_key(name), "{name} is left");
    }
    signature(&[
        3,
        variant(&normal.body),
        u64::from(normal.kind != RequestKind::Plain),
        u64::from(normal.expect_continue),
        u64::from(normal.te_trailers),
        size(normal.headers.len()),
    ])
}
