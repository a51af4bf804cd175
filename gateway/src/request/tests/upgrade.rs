//! Exchanges that become byte pipes: WebSocket over HTTP/1 and by extended CONNECT over HTTP/2.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use http::{Method, Request};

use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);
const ASK: &str = "GET /ws HTTP/1.1\r\nHost: demo.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn bytes_glued_to_either_head_arrive_and_the_clients_wait_for_the_switch() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(format!("{ASK}client first")).await;
    let mut app = agent.app().await;
    let head = app.take_head().await;
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    assert!(app.is_left_alone(SECOND).await, "bytes before the switch");
    app.say(format!("{SWITCH}server first")).await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(
        head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
        "{head}"
    );
    assert_eq!(client.bytes(12).await, b"server first");
    assert_eq!(app.take(12).await, b"client first");
    assert_eq!(world.load(), (0, 1));
    // No window runs in a pipe.
    pass(SECOND * 7000).await;
    app.say("!").await;
    assert_eq!(client.bytes(1).await, b"!");
    client.half_close().await;
    app.fin().await;
    app.say("bye").await;
    app.close();
    assert_eq!(client.rest().await, b"bye");
    assert!(!client.was_reset());
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_ends_a_pipe_ends_it_for_the_client_as_it_did() {
    for reset in [false, true] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.send(ASK).await;
        let mut app = agent.app().await;
        app.take_head().await;
        app.say(format!("{SWITCH}x")).await;
        client.head().await.unwrap();
        let outcome = if reset {
            app.reset();
            "aborted/delivered/BH_APP_BROKEN"
        } else {
            app.close();
            "answered/delivered/"
        };
        assert_eq!(client.rest().await, b"x");
        assert_eq!(client.was_reset(), reset);
        world.end([agent], &[outcome]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_refused_upgrade_is_the_next_request() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(ASK).await;
    client.get("/next").await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        .await;
    assert_eq!(client.answer().await.text(), "no");
    app.closed().await;
    drop(app);
    let mut app = agent.app().await;
    assert!(app.request().await.head.starts_with("GET /next "));
    app.answer("next").await;
    assert_eq!(client.answer().await.text(), "next");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"; 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_not_answered_runs_out_the_first_window() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(ASK).await;
    let mut app = agent.app().await;
    app.take_head().await;
    let answer = client.answer().await;
    assert_eq!(world.elapsed().as_secs(), 30);
    assert_eq!(answer.status, 504);
    assert!(
        answer
            .verdict()
            .starts_with("BH_APP_TIMEOUT first_frame unknown")
    );
    drop(app);
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

/// The accept value for the key in `head`.
fn accept(head: &str) -> String {
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-key: "));
    tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.unwrap().as_bytes())
}

fn connect() -> Request<()> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://demo.example.com/ws")
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    request
}

/// The next bytes; `None` at the end.
async fn more(body: &mut h2::RecvStream) -> Option<Bytes> {
    loop {
        let data = poll_fn(|cx| body.poll_data(cx)).await?.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        if !data.is_empty() {
            return Some(data);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_websocket_over_http_2_becomes_an_upgrade_for_the_app() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    pass(SECOND).await;
    let (answer, mut up) = client.send_request(connect(), false).unwrap();
    up.send_data(Bytes::from_static(b"client first"), false)
        .unwrap();
    let mut app = agent.app().await;
    let head = app.take_head().await;
    assert!(head.starts_with("GET /ws HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(app.is_left_alone(SECOND).await, "bytes before the switch");
    let accept = accept(&head);
    app.say(format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\nserver first"
    ))
    .await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut down = answer.into_body();
    assert_eq!(more(&mut down).await.unwrap(), "server first");
    assert_eq!(app.take(12).await, b"client first");
    up.send_data(Bytes::new(), true).unwrap();
    app.fin().await;
    app.close();
    assert!(more(&mut down).await.is_none());
    drop((client, up, down));
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_websocket_that_the_app_did_not_understand_is_broken() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    pass(SECOND).await;
    let (answer, up) = client.send_request(connect(), false).unwrap();
    let mut app = agent.app().await;
    app.take_head().await;
    app.say(SWITCH).await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["bridgehead-code"], "BH_APP_BROKEN");
    app.closed().await;
    drop((app, client, up, answer));
    world
        .end([agent], &["failed/delivered/BH_APP_BROKEN"])
        .await;
}
