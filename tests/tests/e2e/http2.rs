//! HTTP/2 at the edge, by prior knowledge and by ALPN, and to the app; gRPC's shapes; RFC 8441.

use std::net::SocketAddr;
use std::time::Duration;

use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::h2c::{self, Ended, H2};
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{One, one, pattern, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_client_reaches_an_http1_app() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h2().await;
    let host = world.host("demo");
    let answer = client
        .ask(H2::get(&host, "/a?b=c"), b"")
        .await
        .expect("an answer");
    assert_eq!(answer.head.status(), 200);
    assert!(
        answer.text().starts_with("GET /a?b=c\n"),
        "{}",
        answer.text()
    );
    assert!(
        answer.text().contains(&format!("host: {host}\n")),
        "{}",
        answer.text()
    );
    let answer = client
        .ask(H2::head("POST", &host, "/p"), b"hello")
        .await
        .expect("an answer");
    assert!(answer.text().ends_with("\n\nhello"), "{}", answer.text());
    assert_eq!(app.text().matches("POST /p").count(), 1);
}

/// Answers as soon as it has the head, takes nothing more, and hangs up.
async fn curt(mut conn: Conn) {
    if conn.read_head().await.is_some() {
        let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ncurt";
        conn.write(answer).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_no_app_took_do_not_use_up_their_connection() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), curt).await;
    let mut client = world.h2().await;
    let body = vec![7; 48 * 1024];
    // Three times the window of the connection.
    for n in 0..64 {
        let post = H2::head("POST", &world.host("demo"), "/up");
        let asking = client.ask(post, &body);
        let answer = wait::within(wait::SOON, "room for a body", asking).await;
        let answer = answer.unwrap_or_else(|end| panic!("{n}: {end:?}"));
        assert_eq!(
            (answer.head.status().as_u16(), answer.text()),
            (200, "curt".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_offers_http2_and_http1() {
    let app = App::start(app::echo).await;
    let world = setup().tls().start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let addr = world.places.public_tls.expect("a TLS listener");
    let mut two = H2::connect_tls(addr, "demo.localhost", &world.certificate.roots).await;
    let mut request = H2::get("demo.localhost", "/two");
    *request.uri_mut() = "https://demo.localhost/two".parse().expect("a URI");
    let answer = two.ask(request, b"").await.expect("an answer");
    assert!(
        answer.text().starts_with("GET /two\n")
            && answer.text().contains("x-forwarded-proto: https\n")
    );
    let mut one =
        bridgehead_tests::client::H1::connect_tls(addr, "demo.localhost", &world.certificate.roots)
            .await;
    assert!(
        one.ask("GET", "/one", "demo.localhost", &[], b"")
            .await
            .text()
            .starts_with("GET /one\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_share_one_connection() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h2().await;
    let host = world.host("demo");
    let mut waiting = Vec::new();
    for n in 0..50 {
        waiting.push((
            n,
            client.open(H2::get(&host, &format!("/{n}")), true).await.0,
        ));
    }
    for (n, response) in waiting {
        let answer = h2c::answer(response).await.expect("an answer");
        assert!(answer.text().starts_with(&format!("GET /{n}\n")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_passes_both_ways_at_once() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h2().await;
    let body = pattern(0, 8 << 20);
    let answer = client
        .ask(H2::head("POST", &world.host("demo"), "/"), &body)
        .await
        .expect("an answer");
    assert!(
        answer.body.ends_with(&body),
        "{} bytes came back",
        answer.body.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stalled_stream_never_freezes_its_neighbours() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target == "/endless" {
                conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .await;
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                while conn.write(&chunk).await {}
                return;
            }
            conn.answer("quick").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let host = world.host("demo");
    let mut client = world.h2().await;
    let mut stalled = Vec::new();
    for _ in 0..10 {
        let (response, _) = client.open(H2::get(&host, "/endless"), true).await;
        // Held and never read: its window runs dry.
        stalled.push(response.await.expect("a head"));
    }
    for _ in 0..10 {
        let asked = client.ask(H2::get(&host, "/quick"), b"");
        let answer = wait::within(Duration::from_secs(10), "a quick answer", asked)
            .await
            .expect("an answer");
        assert_eq!(answer.text(), "quick");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_an_answer_and_a_late_one_resets_the_stream() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target == "/cut" {
                conn.write("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly this")
                    .await;
                conn.until_closed().await;
                return;
            }
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let host = world.host("demo");
    let mut client = world.h2().await;
    let answer = client
        .ask(H2::get(&host, "/silent"), b"")
        .await
        .expect("an answer");
    assert_eq!(answer.head.status(), 504);
    assert_eq!(answer.header("bridgehead-code"), Some("BH_APP_TIMEOUT"));
    assert_eq!(answer.header("retry-after"), None);
    let answer = client
        .ask(H2::get(&host, "/cut"), b"")
        .await
        .expect("a head");
    assert_eq!(answer.body, b"only this");
    assert_eq!(answer.end, Ended::Reset(h2::Reason::INTERNAL_ERROR));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_closes_the_apps_socket_only() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::silent).await;
    let host = world.host("demo");
    let mut client = world.h2().await;
    let (response, mut send) = client.open(H2::get(&host, "/slow"), true).await;
    app.until_text("GET /slow").await;
    send.send_reset(h2::Reason::CANCEL);
    drop(response);
    app.until("the app's socket closing", |seen| seen[0].ended.is_some())
        .await;
    let (_second, _) = client.open(H2::get(&host, "/again"), true).await;
    app.until_text("GET /again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_over_http2_becomes_an_upgrade_at_the_app() {
    let script = |mut conn: Conn| async move {
        let Some(head) = conn.read_head().await else {
            return;
        };
        let asked = head
            .header("upgrade")
            .is_some_and(|u| u.eq_ignore_ascii_case("websocket"));
        assert!(
            asked && head.header("sec-websocket-key").is_some(),
            "an HTTP/1.1 handshake: {head:?}"
        );
        conn.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        )
        .await;
        conn.write(format!(
            "Sec-WebSocket-Accept: {}\r\n\r\n",
            accept_of(head.header("sec-websocket-key"))
        ))
        .await;
        while let Some(part) = conn.read_some().await {
            conn.write(part).await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut client = world.h2().await;
    let host = world.host("demo");
    // The setting arrives with the first frames of the server.
    client
        .ask(H2::get("nobody.localhost", "/"), b"")
        .await
        .expect("an answer");
    assert!(
        client.extended_connect().await,
        "the server allows extended CONNECT"
    );
    let request = Request::builder()
        .method("CONNECT")
        .uri(format!("http://{host}/chat"))
        .version(Version::HTTP_2)
        .header("sec-websocket-version", "13")
        .extension(h2::ext::Protocol::from_static("websocket"))
        .body(())
        .expect("a request");
    let (response, mut send) = client.open(request, false).await;
    let response = wait::within(wait::SOON, "the handshake", response)
        .await
        .expect("a head");
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    for piece in [&b"one"[..], b"two"] {
        h2c::send_all(&mut send, Bytes::copy_from_slice(piece), false).await;
        let mut got = Vec::new();
        while got.len() < piece.len() {
            let part = wait::within(wait::SOON, "an echo", body.data())
                .await
                .expect("data")
                .expect("no error");
            drop(body.flow_control().release_capacity(part.len()));
            got.extend_from_slice(&part);
        }
        assert_eq!(got, piece);
    }
}

/// `Sec-WebSocket-Accept` for a key; the gateway made the key and checks the answer.
fn accept_of(key: Option<&str>) -> String {
    tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.unwrap_or_default().as_bytes())
}

/// A gRPC-shaped HTTP/2 app: echoes each DATA frame at once, ends with trailers; `/fail` answers trailers only.
async fn grpc_app() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a loopback port");
    let addr = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else {
                    return;
                };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(grpc_call(request, respond));
                }
            });
        }
    });
    (addr, task)
}

async fn grpc_call(request: Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let head = Response::builder()
        .header("content-type", "application/grpc")
        .header("x-te", header(&request, "te"));
    if request.uri().path() == "/fail" {
        let head = head
            .header("grpc-status", "5")
            .header("grpc-message", "no such thing");
        drop(respond.send_response(head.body(()).expect("a head"), true));
        return;
    }
    let Ok(mut send) = respond.send_response(head.body(()).expect("a head"), false) else {
        return;
    };
    let mut body = request.into_body();
    while let Some(Ok(part)) = body.data().await {
        drop(body.flow_control().release_capacity(part.len()));
        h2c::send_all(&mut send, part, false).await;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    trailers.insert("x-sum", "42".parse().expect("a value"));
    drop(send.send_trailers(trailers));
}

fn header(request: &Request<h2::RecvStream>, name: &str) -> String {
    request
        .headers()
        .get(name)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

fn grpc(host: &str, path: &str) -> Request<()> {
    let uri = format!("http://{host}{path}");
    let request = Request::builder()
        .method("POST")
        .uri(uri)
        .version(Version::HTTP_2);
    request
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_streams_both_ways_and_keeps_its_trailers() {
    let (addr, _app) = grpc_app().await;
    let world = setup().app("demo", "protocol = \"h2c\"").start().await;
    let _agent = world
        .join("a1", &[("demo", &format!("h2c://{addr}"))])
        .await;
    let mut client = world.h2().await;
    let host = world.host("demo");
    let (response, mut send) = client.open(grpc(&host, "/echo"), false).await;
    let response = wait::within(wait::SOON, "the head before any message", response)
        .await
        .expect("a head");
    assert_eq!(
        response.headers().get("x-te").expect("te was seen"),
        "trailers"
    );
    let mut body = response.into_body();
    for message in ["first", "second"] {
        h2c::send_all(&mut send, Bytes::from(message), false).await;
        let part = wait::within(wait::SOON, "an echo", body.data())
            .await
            .expect("data")
            .expect("no error");
        drop(body.flow_control().release_capacity(part.len()));
        assert_eq!(part, message.as_bytes());
    }
    h2c::send_all(&mut send, Bytes::new(), true).await;
    send.send_data(Bytes::new(), true)
        .expect("the stream is open");
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.expect("no error").expect("trailers");
    assert_eq!(
        (
            trailers["grpc-status"].as_bytes(),
            trailers["x-sum"].as_bytes()
        ),
        (&b"0"[..], &b"42"[..])
    );

    let failed = client
        .ask(grpc(&host, "/fail"), b"")
        .await
        .expect("an answer");
    assert_eq!(
        (failed.header("grpc-status"), failed.header("grpc-message")),
        (Some("5"), Some("no such thing"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_call_that_fails_gets_a_grpc_status_with_the_verdict() {
    let closed = app::ClosedPort::take();
    let world = quick().app("demo", "protocol = \"h2c\"").start().await;
    let _agent = world
        .join("a1", &[("demo", &format!("h2c://{}", closed.addr()))])
        .await;
    let mut client = world.h2().await;
    let answer = client
        .ask(grpc(&world.host("demo"), "/echo"), b"")
        .await
        .expect("an answer");
    assert_eq!(answer.head.status(), 200);
    assert_eq!(answer.header("grpc-status"), Some("14"), "UNAVAILABLE");
    assert_eq!(answer.header("bridgehead-code"), Some("BH_APP_STARTING"));
    assert_eq!(answer.header("bridgehead-delivery"), Some("not_delivered"));
}
