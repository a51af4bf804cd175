//! What stays open: server-sent events, upgrades, WebSocket. Nothing is buffered, nothing is cut.

use std::time::{Duration, Instant};

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use bridgehead_tests::ws::{self, CloseCode, CloseFrame, Message};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpListener;

use crate::support::{One, one, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_arrives_before_the_next_one_is_written() {
    let (ask, asked) = tokio::sync::watch::channel(0);
    let script = move |mut conn: Conn| {
        let mut asked = asked.clone();
        async move {
            if conn.read_head().await.is_none() {
                return;
            }
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for n in 1..=20 {
                if asked.wait_for(|wanted| *wanted >= n).await.is_err() {
                    return;
                }
                let event = format!("data: {n}\n\n");
                conn.write(format!("{:x}\r\n{event}\r\n", event.len()))
                    .await;
            }
            conn.write("0\r\n\r\n").await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    client
        .request(
            "GET",
            "/events",
            &world.host("demo"),
            &[("Accept", "text/event-stream")],
            b"",
        )
        .await;
    let head = wait::within(wait::SOON, "the head before any event", client.read_head())
        .await
        .expect("a head");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for n in 1..=20 {
        ask.send_replace(n);
        let event = wait::within(wait::SOON, "an event", client.read_chunk())
            .await
            .expect("a chunk");
        assert_eq!(String::from_utf8_lossy(&event), format!("data: {n}\n\n"));
    }
    assert_eq!(client.read_chunk().await.expect("the last chunk"), b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_event_stream_outlives_the_ordinary_windows() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
                .await;
            wait::dawdle(Duration::from_secs(3)).await;
            conn.write("data: 2\n\n").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let answer = world.get("/events").await;
    assert_eq!(
        answer.text(),
        "data: 1\n\ndata: 2\n\n",
        "the stall window of a second is not for streams"
    );
}

/// An app that upgrades to a protocol of its own and then echoes, upper case.
async fn shouting(mut conn: Conn) {
    let Some(head) = conn.read_head().await else {
        return;
    };
    if head.header("upgrade") != Some("shout") {
        conn.answer("no upgrade").await;
        return;
    }
    // Bytes glued to the 101: what a server says first must not be lost.
    conn.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\nHELLO ",
    )
    .await;
    while let Some(part) = conn.read_some().await {
        conn.write(String::from_utf8_lossy(&part).to_uppercase())
            .await;
    }
    conn.write("BYE").await;
}

const UPGRADE: [(&str, &str); 2] = [("Connection", "Upgrade"), ("Upgrade", "shout")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_upgrade_becomes_a_pipe_and_half_close_passes() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), shouting).await;
    let mut client = world.h1().await;
    client
        .request("GET", "/", &world.host("demo"), &UPGRADE, b"")
        .await;
    let head = client.read_head().await.expect("a head");
    assert_eq!((head.status, head.header("upgrade")), (101, Some("shout")));
    assert_eq!(
        client.read_exact(6).await.expect("the glued bytes"),
        b"HELLO "
    );
    client.send("abc").await;
    assert_eq!(client.read_exact(3).await.expect("an echo"), b"ABC");
    assert!(
        wait::nothing_for(Duration::from_millis(2500), client.read_some()).await,
        "no window runs after 101"
    );
    client.half_close().await;
    let (rest, _) = wait::within(wait::SOON, "the end", client.read_to_end()).await;
    assert_eq!(rest, b"BYE", "the last words come after the client's FIN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_is_declined_is_an_ordinary_answer() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), shouting).await;
    let mut client = world.h1().await;
    let fields = [("Connection", "Upgrade"), ("Upgrade", "whisper")];
    client
        .request("GET", "/", &world.host("demo"), &fields, b"")
        .await;
    client.send("GET /smuggled HTTP/1.1\r\n").await;
    let answer = client.answer("GET").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "no upgrade"));
    assert!(
        !app.text().contains("smuggled"),
        "bytes before a 101 are the next request or nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_to_http2_is_not_passed_on() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), shouting).await;
    let fields = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABk"),
    ];
    let answer = world
        .h1()
        .await
        .ask("GET", "/", &world.host("demo"), &fields, b"")
        .await;
    assert_ne!(answer.status, 101);
    assert!(!app.text().to_ascii_lowercase().contains("h2c"));
}

/// A WebSocket app: speaks first, echoes, closes with 4404 when told to.
async fn ws_app() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a loopback port");
    let addr = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
                    return;
                };
                let _ = socket.send(Message::text("welcome")).await;
                while let Some(Ok(message)) = socket.next().await {
                    if message.to_text().is_ok_and(|t| t == "leave") {
                        let frame = CloseFrame {
                            code: CloseCode::from(4404),
                            reason: "no such room".into(),
                        };
                        let _ = socket.close(Some(frame)).await;
                    } else if message.is_text() || message.is_binary() {
                        let _ = socket.send(message).await;
                    }
                }
            });
        }
    });
    (addr, task)
}

async fn ws_world() -> (
    World,
    bridgehead_tests::world::Agent,
    tokio::task::JoinHandle<()>,
) {
    let (addr, task) = ws_app().await;
    let world = quick().start().await;
    let agent = world
        .join("a1", &[("demo", &format!("http://{addr}"))])
        .await;
    (world, agent, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_carries_text_binary_and_close_codes_unchanged() {
    let (world, _agent, _app) = ws_world().await;
    let connected = ws::connect(world.places.public, &world.host("demo"), "/chat").await;
    let (mut socket, _) = connected.expect("the handshake passes");
    let next = wait::within(wait::SOON, "the first message", socket.next()).await;
    assert_eq!(
        next.expect("a message").expect("no error"),
        Message::text("welcome"),
        "the server may speak first"
    );
    let large = vec![7u8; 300_000];
    for message in [
        Message::text("héllo"),
        Message::binary(vec![0, 255, 128]),
        Message::text(""),
        Message::binary(large),
    ] {
        socket.send(message.clone()).await.expect("it is sent");
        let next = wait::within(wait::SOON, "an echo", socket.next()).await;
        assert_eq!(next.expect("a message").expect("no error"), message);
    }
    socket
        .send(Message::text("leave"))
        .await
        .expect("it is sent");
    let close = wait::within(wait::SOON, "the close", socket.next())
        .await
        .expect("a message")
        .expect("no error");
    let Message::Close(Some(frame)) = close else {
        panic!("{close:?} is no close")
    };
    assert_eq!(
        (u16::from(frame.code), frame.reason.as_str()),
        (4404, "no such room")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_websocket_outlives_every_window() {
    let (world, _agent, _app) = ws_world().await;
    let connected = ws::connect(world.places.public, &world.host("demo"), "/chat").await;
    let (mut socket, _) = connected.expect("the handshake passes");
    assert!(socket.next().await.is_some());
    let quiet = wait::nothing_for(Duration::from_secs(3), socket.next()).await;
    assert!(quiet, "three windows of silence change nothing");
    socket
        .send(Message::text("still here"))
        .await
        .expect("it is sent");
    assert_eq!(
        socket.next().await.expect("a message").expect("no error"),
        Message::text("still here")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_drops_its_websocket_closes_the_apps() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\n",
            )
            .await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    client
        .request("GET", "/", &world.host("demo"), &UPGRADE, b"")
        .await;
    assert_eq!(client.read_head().await.expect("a head").status, 101);
    let left = Instant::now();
    drop(client);
    let seen = app
        .until("the app's socket closing", |seen| seen[0].ended.is_some())
        .await;
    let took = seen[0]
        .ended
        .expect("it ended")
        .0
        .saturating_duration_since(left);
    assert!(
        took < Duration::from_millis(2500),
        "the app learnt it after {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_websocket_handshake_gets_the_verdict_as_json() {
    let world = quick().start().await;
    let refused = ws::connect(world.places.public, &world.host("demo"), "/chat").await;
    let Err(ws::Error::Http(answer)) = refused else {
        panic!("{refused:?} is no HTTP answer")
    };
    assert_eq!(answer.status(), 503);
    let body = answer.body().as_deref().unwrap_or_default();
    assert!(body.is_empty() || String::from_utf8_lossy(body).contains("BH_APP_STARTING"));
    assert_eq!(
        answer
            .headers()
            .get("bridgehead-delivery")
            .expect("a verdict"),
        "not_delivered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_app_double_serves_as_its_own_control() {
    // What these tests say about the tunnel means nothing if the double itself is wrong.
    let app = App::start(shouting).await;
    let mut client = bridgehead_tests::client::H1::connect(app.addr()).await;
    client.request("GET", "/", "direct", &UPGRADE, b"").await;
    assert_eq!(client.read_head().await.expect("a head").status, 101);
    assert_eq!(
        client.read_exact(6).await.expect("the glued bytes"),
        b"HELLO "
    );
}
