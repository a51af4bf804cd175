//! Both ends against each other, and each against a peer that is none.

use std::time::Duration;

use http::HeaderMap;
use tokio::io::duplex;

use super::*;
use crate::io::shake::deadline;

fn token() -> Token {
    Token::generate("k1", &[7; 32]).expect("a token")
}

/// Reads a request head as the front would.
async fn read_request(io: &mut (impl AsyncRead + Unpin)) -> (Method, String, HeaderMap) {
    let mut buf = BytesMut::new();
    loop {
        io.read_buf(&mut buf).await.expect("bytes");
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Request::new(&mut fields);
        if head.parse(&buf).expect("HTTP").is_partial() {
            continue;
        }
        let mut headers = HeaderMap::new();
        for field in head.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_bytes(field.value).expect("a value"));
        }
        let method = head.method.expect("a method").parse().expect("a method");
        return (method, head.path.expect("a path").to_owned(), headers);
    }
}

async fn answer_with(text: &str) -> Result<Carrier, ConnectError> {
    let (near, mut far) = duplex(64 * 1024);
    far.write_all(text.as_bytes()).await.expect("room");
    let until = deadline(Duration::from_secs(5));
    connect(near, "gw.test", PATH, &token(), CarrierKind::Ws, until).await
}

#[tokio::test(start_paused = true)]
async fn an_agent_gets_its_carrier_and_the_gateway_its_token() {
    let (near, mut far) = duplex(64 * 1024);
    let gateway = async {
        let (method, path, headers) = read_request(&mut far).await;
        assert_eq!(path, PATH);
        assert_eq!(headers[http::header::HOST], "gw.test:8443");
        let accepted = accept(&method, &headers).expect("accepted");
        let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in &accepted.headers {
            text += &format!("{name}: {}\r\n", value.to_str().expect("text"));
        }
        text += "\r\n";
        far.write_all(text.as_bytes()).await.expect("room");
        (
            accepted.token,
            Carrier::ws_server(far, &[], CarrierKind::Wss).await,
        )
    };
    let until = deadline(Duration::from_secs(5));
    let token = token();
    let agent = connect(near, "gw.test:8443", PATH, &token, CarrierKind::Wss, until);
    let ((shown, mut gateway), agent) = tokio::join!(gateway, agent);
    let mut agent = agent.expect("a carrier");
    assert_eq!(shown.expect("a token").as_str(), token.reveal());
    assert_eq!(
        (agent.kind(), gateway.kind()),
        (CarrierKind::Wss, CarrierKind::Wss)
    );

    let mut frame = BytesMut::new();
    crate::wire::encode(&crate::wire::Frame::Ping([5; 8]), &mut frame);
    agent.write_all(&frame).await.expect("room");
    let mut read = vec![0; frame.len()];
    gateway.read_exact(&mut read).await.expect("bytes");
    assert_eq!(read, frame);
}

#[tokio::test(start_paused = true)]
async fn an_answer_other_than_ours_is_an_error_that_says_what_it_is() {
    let error = answer_with("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
    assert!(matches!(error, Err(ConnectError::Status(403))), "{error:?}");
    let error = answer_with("SSH-2.0-OpenSSH\r\n").await;
    assert!(matches!(error, Err(ConnectError::Answer(_))), "{error:?}");
    // Right in all but the proof: a cache or a replay.
    let replay = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Protocol: bh.1\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let error = answer_with(replay).await;
    assert!(
        matches!(error, Err(ConnectError::Answer(text)) if text.contains("proof")),
        "{error:?}"
    );
    let endless = format!(
        "HTTP/1.1 101 Switching Protocols\r\nX: {}",
        "x".repeat(2 * MAX_HEAD)
    );
    let error = answer_with(&endless).await;
    assert!(
        matches!(error, Err(ConnectError::Answer(text)) if text.contains("long")),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_answer_is_given_up() {
    let (near, _far) = duplex(64 * 1024);
    let until = deadline(Duration::from_secs(5));
    let error = connect(near, "gw.test", PATH, &token(), CarrierKind::Ws, until).await;
    assert!(matches!(error, Err(ConnectError::TimedOut)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_would_break_the_request_is_not_sent() {
    for (host, path) in [
        ("", "/"),
        ("a\r\nX: y", "/"),
        ("gw", "no-slash"),
        ("gw", "/a b"),
    ] {
        let (near, _far) = duplex(1024);
        let until = deadline(Duration::from_secs(5));
        let error = connect(near, host, path, &token(), CarrierKind::Ws, until).await;
        assert!(matches!(error, Err(ConnectError::Address(_))), "{error:?}");
    }
}

fn good() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (CONNECTION, "keep-alive, Upgrade"),
        (UPGRADE, "websocket"),
        (SEC_WEBSOCKET_VERSION, "13"),
        (SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        (SEC_WEBSOCKET_PROTOCOL, "bh.2, bh.1"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

#[test]
fn the_proof_is_that_of_the_standard() {
    let accepted = accept(&Method::GET, &good()).expect("accepted");
    assert_eq!(
        accepted.headers[SEC_WEBSOCKET_ACCEPT],
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
    assert_eq!(accepted.headers[SEC_WEBSOCKET_PROTOCOL], "bh.1");
    assert!(accepted.token.is_none());
}

#[test]
fn a_request_that_lacks_something_is_refused_with_its_status() {
    let with = |name: HeaderName, value: &'static str| {
        let mut headers = good();
        headers.insert(name, HeaderValue::from_static(value));
        accept(&Method::GET, &headers).err()
    };
    assert_eq!(with(CONNECTION, "close"), Some(AcceptError::NoUpgrade));
    assert_eq!(with(UPGRADE, "h2c"), Some(AcceptError::NoUpgrade));
    assert_eq!(with(SEC_WEBSOCKET_VERSION, "8"), Some(AcceptError::Version));
    assert_eq!(with(SEC_WEBSOCKET_KEY, "short"), Some(AcceptError::Key));
    assert_eq!(
        with(SEC_WEBSOCKET_PROTOCOL, "bh.2"),
        Some(AcceptError::Subprotocol)
    );
    assert_eq!(
        with(AUTHORIZATION, "Basic abc"),
        Some(AcceptError::Authorization)
    );
    assert_eq!(
        with(AUTHORIZATION, "Bearer "),
        Some(AcceptError::Authorization)
    );
    assert_eq!(
        accept(&Method::POST, &good()).err(),
        Some(AcceptError::Method)
    );

    let mut twice = good();
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer b"));
    assert_eq!(
        accept(&Method::GET, &twice).err(),
        Some(AcceptError::Authorization)
    );
    assert_eq!(AcceptError::Authorization.status(), 401);
}
