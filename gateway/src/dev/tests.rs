//! The demo app as a client on the same machine sees it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::DemoApp;

async fn started() -> SocketAddr {
    let app = DemoApp::bind().await.expect("a free port");
    let addr = app.addr();
    assert_eq!(app.url(), format!("http://{addr}"));
    tokio::spawn(app.run(std::future::pending()));
    addr
}

async fn sent(addr: SocketAddr, line: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("{line} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n{length}\r\n");
    stream.write_all(head.as_bytes()).await.expect("taken");
    stream.write_all(body).await.expect("taken");
    stream
}

/// Everything until the app closes. A reset counts as closing.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What came before a reset is kept in `bytes`.
    let _ = stream.read_to_end(&mut bytes).await;
    bytes
}

async fn ask(addr: SocketAddr, line: &str, body: &[u8]) -> Vec<u8> {
    rest(&mut sent(addr, line, body).await).await
}

/// Head and body of a whole answer.
fn parts(answer: &[u8]) -> (String, &[u8]) {
    let end = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    (head, &answer[end + 4..])
}

/// Read until `mark` has come.
async fn until(stream: &mut TcpStream, mark: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains(mark) {
        let count = stream.read(&mut buffer).await.expect("readable");
        assert!(count > 0, "closed before `{mark}`: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

#[tokio::test]
async fn every_link_of_the_index_leads_to_a_page() {
    let addr = started().await;
    let index = ask(addr, "GET /", b"").await;
    let (head, body) = parts(&index);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let body = String::from_utf8_lossy(body);
    let links = body.split("href=\"").chain(body.split("action=\"")).skip(1);
    let paths: BTreeSet<&str> = links
        .filter_map(|rest| rest.strip_prefix('/')?.split(['"', '?']).next())
        .collect();
    assert!(paths.len() > 14, "{paths:?}");
    for path in paths.difference(&BTreeSet::from(["silent", "sse", "half"])) {
        let answer = ask(addr, &format!("GET /{path}?s=0&bytes=1"), b"").await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 404"), "/{path}: {answer}");
    }
}

#[tokio::test]
async fn a_body_comes_back_and_a_bare_request_shows_its_head() {
    let addr = started().await;
    let answer = ask(addr, "PUT /echo", b"round trip").await;
    assert_eq!(parts(&answer).1, b"round trip");
    let answer = ask(addr, "GET /echo?x=1", b"").await;
    let shown = String::from_utf8_lossy(parts(&answer).1).into_owned();
    assert!(shown.starts_with("GET /echo?x=1\n"), "{shown}");
    assert!(shown.contains("host: demo\n"), "{shown}");
}

#[tokio::test]
async fn a_slow_page_takes_its_time() {
    let addr = started().await;
    let begun = tokio::time::Instant::now();
    let answer = ask(addr, "GET /slow?s=1", b"").await;
    assert_eq!(parts(&answer).1, b"Answered after 1 s.\n");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_silent_page_says_nothing_and_ends_with_its_client() {
    let addr = started().await;
    let mut stream = sent(addr, "GET /silent", b"").await;
    stream.shutdown().await.expect("closed for writing");
    assert_eq!(rest(&mut stream).await, b"");
}

#[tokio::test]
async fn a_half_answer_promises_more_than_it_sends() {
    let addr = started().await;
    let mut stream = sent(addr, "GET /half", b"").await;
    let head = until(&mut stream, "\r\n\r\n").await.to_lowercase();
    assert!(
        head.contains("content-length: 1000\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let mut stream = sent(addr, "GET /half?after=40", b"").await;
    let text = until(&mut stream, "the quick brown fox jumps over it\n\nthe q").await;
    assert!(
        text.to_lowercase().contains("content-length: 1040\r\n"),
        "{text}"
    );
}

#[tokio::test]
async fn a_dropped_request_gets_no_byte() {
    let addr = started().await;
    assert_eq!(ask(addr, "GET /close", b"").await, b"");
    assert_eq!(ask(addr, "POST /close", b"body").await, b"");
}

#[tokio::test]
async fn a_cut_answer_ends_in_mid_body() {
    let addr = started().await;
    let answer = ask(addr, "GET /cut", b"").await;
    let (head, body) = parts(&answer);
    assert!(head.contains("content-length: 1000"), "{head}");
    assert_eq!(body.len(), 500);
}

#[tokio::test]
async fn a_garbled_answer_is_no_http() {
    let addr = started().await;
    let answer = ask(addr, "GET /garbage", b"").await;
    assert!(answer.starts_with(b"\x16\x03\x01"), "{answer:?}");
}

#[tokio::test]
async fn the_first_event_comes_at_once() {
    let addr = started().await;
    let mut stream = sent(addr, "GET /sse", b"").await;
    let text = until(&mut stream, "data: event 0\n\n").await.to_lowercase();
    assert!(text.contains("content-type: text/event-stream"), "{text}");
}

#[tokio::test]
async fn a_websocket_greets_echoes_and_closes_with_the_clients_code() {
    let addr = started().await;
    let stream = TcpStream::connect(addr).await.expect("it listens");
    let (mut socket, _) = tokio_tungstenite::client_async("ws://demo/ws", stream)
        .await
        .expect("a handshake");
    let greeting = socket.next().await.expect("open").expect("sound");
    assert_eq!(greeting, Message::text("hello from the demo app"));
    let large = Message::binary(vec![7; 100_000]);
    socket.send(large.clone()).await.expect("sent");
    assert_eq!(socket.next().await.expect("open").expect("sound"), large);
    let goodbye = CloseFrame {
        code: CloseCode::from(4404),
        reason: "enough".into(),
    };
    socket.close(Some(goodbye.clone())).await.expect("sent");
    let last = socket.next().await.expect("open").expect("sound");
    assert_eq!(last, Message::Close(Some(goodbye)));
}

#[tokio::test]
async fn a_handshake_without_a_key_is_refused() {
    let addr = started().await;
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let head =
        "GET /ws HTTP/1.1\r\nHost: demo\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("taken");
    let text = until(&mut stream, "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

#[tokio::test]
async fn the_apps_own_failure_is_an_ordinary_answer() {
    let addr = started().await;
    let answer = ask(addr, "GET /status/502", b"").await;
    let (head, body) = parts(&answer);
    assert!(head.starts_with("http/1.1 502"), "{head}");
    assert_eq!(body, b"The demo app itself answered 502.\n");
    for wrong in ["/status/99", "/status/100", "/status/x", "/nothing"] {
        let answer = ask(addr, &format!("GET {wrong}"), b"").await;
        assert!(parts(&answer).0.starts_with("http/1.1 404"), "{wrong}");
    }
}

#[tokio::test]
async fn an_upload_is_counted_and_hashed() {
    let addr = started().await;
    let body = vec![b'x'; 1 << 20];
    let answer = ask(addr, "POST /upload", &body).await;
    let expected = format!("1048576 bytes, blake3 {}\n", blake3::hash(&body).to_hex());
    assert_eq!(String::from_utf8_lossy(parts(&answer).1), expected);
}

#[tokio::test]
async fn a_big_answer_has_exactly_the_length_asked_for() {
    let addr = started().await;
    for length in [0, 1, 65_536, 65_537, 3_000_000] {
        let answer = ask(addr, &format!("GET /big?bytes={length}"), b"").await;
        let (head, body) = parts(&answer);
        assert!(
            head.contains(&format!("content-length: {length}")),
            "{head}"
        );
        assert_eq!(body.len(), length);
    }
}

/// Both ways down: nobody listens for the whole pause, then the same port answers again.
async fn comes_back(addr: SocketAddr) {
    let refused = std::net::TcpStream::connect(addr).expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(30)).await;
    tokio::time::resume();
    let mut tries = 0;
    while std::net::TcpStream::connect(addr).is_err() {
        tries += 1;
        assert!(tries < 10_000, "it stays down");
        tokio::task::yield_now().await;
    }
    let answer = ask(addr, "GET /hello", b"").await;
    assert_eq!(parts(&answer).1, b"Hello from the demo app.\n");
}

#[tokio::test]
async fn a_restart_answers_closes_idle_connections_and_comes_back() {
    let addr = started().await;
    let mut idle = TcpStream::connect(addr).await.expect("it listens");
    let head = b"GET /hello HTTP/1.1\r\nHost: demo\r\n\r\n";
    idle.write_all(head).await.expect("taken");
    until(&mut idle, "demo app.\n").await;
    let answer = ask(addr, "POST /restart?s=30", b"").await;
    assert!(parts(&answer).0.starts_with("http/1.1 202"));
    assert_eq!(rest(&mut idle).await, b"", "closed without a byte");
    comes_back(addr).await;
}

#[tokio::test]
async fn a_crash_takes_its_own_request_along_and_comes_back() {
    let addr = started().await;
    let mut other = sent(addr, "GET /silent", b"").await;
    assert_eq!(ask(addr, "POST /crash?s=30", b"").await, b"");
    assert_eq!(rest(&mut other).await, b"");
    comes_back(addr).await;
}

#[tokio::test]
async fn following_a_link_takes_nothing_down() {
    let addr = started().await;
    for path in ["/restart", "/crash"] {
        let answer = ask(addr, &format!("GET {path}?s=30"), b"").await;
        assert!(parts(&answer).0.starts_with("http/1.1 405"));
    }
    assert!(std::net::TcpStream::connect(addr).is_ok());
}

#[tokio::test]
async fn the_app_ends_with_every_connection_when_told() {
    let app = DemoApp::bind().await.expect("a free port");
    let addr = app.addr();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(app.run(async {
        // A dropped sender stops it as well.
        let _ = stopped.await;
    }));
    let mut open = sent(addr, "GET /sse", b"").await;
    until(&mut open, "event 0").await;
    stop.send(()).expect("running");
    running.await.expect("no panic").expect("an orderly end");
    rest(&mut open).await;
    assert!(TcpStream::connect(addr).await.is_err());
}
