//! Streams of one connection against a scripted corridor, with the client half of `h2`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::accept::testing::{Scripted, info};
use crate::accept::{Limits, Refusal};
use crate::h1::HeadError;
use crate::request::front::{BodyLength, ClientFault, ClientProtocol};
use crate::shutdown::{Shutdown, Signal};

pub(super) fn serve(signal: Signal) -> (DuplexStream, Scripted, JoinHandle<()>) {
    let (client, io) = duplex(64 * 1024);
    let corridor = Scripted::default();
    let serving = corridor.clone();
    let server = tokio::spawn(async move {
        let limits = Arc::new(Limits::default());
        super::serve(io, &info(), &serving, &limits, signal).await;
    });
    (client, corridor, server)
}

struct World {
    client: SendRequest<Bytes>,
    corridor: Scripted,
    server: JoinHandle<()>,
}

async fn start_with(signal: Signal) -> World {
    let (io, corridor, server) = serve(signal);
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1024 * 1024);
    let (client, connection) = builder.handshake(io).await.expect("a handshake");
    tokio::spawn(connection);
    World {
        client: client.ready().await.expect("a connection"),
        corridor,
        server,
    }
}

async fn start() -> World {
    start_with(Signal::never()).await
}

fn request(method: Method, path: &str) -> Request<()> {
    let uri = format!("https://a.example{path}");
    let built = Request::builder().method(method).uri(uri).body(());
    built.expect("a request")
}

impl World {
    async fn open(&mut self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        let mut client = self
            .client
            .clone()
            .ready()
            .await
            .expect("room for a stream");
        client.send_request(request, false).expect("a stream")
    }

    async fn send(&mut self, request: Request<()>, body: &[u8]) -> Result<Answered, Reason> {
        let (response, mut stream) = self.open(request).await;
        if stream
            .send_data(Bytes::copy_from_slice(body), true)
            .is_err()
        {
            return Err(Reason::CANCEL);
        }
        answered(response.await).await
    }

    async fn fetch(&mut self, path: &str) -> Result<Answered, Reason> {
        self.send(request(Method::GET, path), b"").await
    }
}

struct Answered {
    head: Response<()>,
    body: Vec<u8>,
    trailers: Option<http::HeaderMap>,
}

fn reason(error: &h2::Error) -> Reason {
    error.reason().expect("a stream error")
}

async fn answered(response: Result<Response<RecvStream>, h2::Error>) -> Result<Answered, Reason> {
    let (parts, mut recv) = response.map_err(|e| reason(&e))?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = recv.data().await {
        let data = data.map_err(|e| reason(&e))?;
        recv.flow_control()
            .release_capacity(data.len())
            .expect("a stream");
        body.extend_from_slice(&data);
    }
    let trailers = recv.trailers().await.map_err(|e| reason(&e))?;
    Ok(Answered {
        head: Response::from_parts(parts, ()),
        body,
        trailers,
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_becomes_one_exchange_with_its_length_and_target() {
    let mut world = start().await;
    let mut post = request(Method::POST, "/echo?a=%20b");
    post.headers_mut()
        .insert("content-length", "4".parse().expect("a value"));
    for crumb in ["a=1", "b=2"] {
        post.headers_mut()
            .append("cookie", crumb.parse().expect("a value"));
    }
    let answer = world.send(post, b"text").await.expect("an answer");
    assert_eq!(answer.body, b"text");
    assert_eq!(answer.head.headers()["content-length"], "4");
    let seen = world.corridor.seen()[0].head.clone().expect("a head");
    assert_eq!(seen.target, "/echo?a=%20b");
    assert_eq!(seen.authority.as_deref(), Some("a.example"));
    assert_eq!(seen.scheme.as_deref(), Some("https"));
    assert_eq!(seen.body, BodyLength::Exact(4));
    assert_eq!(seen.protocol, ClientProtocol::Http2);
    let cookies: Vec<_> = seen.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_length_is_streamed_and_an_ended_head_has_none() {
    let mut world = start().await;
    let big = vec![b'x'; 300_000];
    let answer = world.send(request(Method::PUT, "/echo"), &big).await;
    assert_eq!(answer.expect("an answer").body, big);
    let mut client = world.client.clone();
    let (response, _) = client
        .send_request(request(Method::GET, "/echo"), true)
        .expect("a stream");
    assert!(
        answered(response.await)
            .await
            .expect("an answer")
            .body
            .is_empty()
    );
    let lengths: Vec<BodyLength> = world
        .corridor
        .seen()
        .iter()
        .map(|s| s.head.clone().expect("a head").body)
        .collect();
    assert_eq!(lengths, [BodyLength::Streamed, BodyLength::None]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_head_are_answered_and_lies_about_the_host_are_stream_errors() {
    let mut world = start().await;
    let long = format!("/{}", "p".repeat(9000));
    let answer = world.fetch(&long).await.expect("an answer");
    assert_eq!(answer.head.status(), 414);

    let mut many = request(Method::GET, "/echo");
    for _ in 0..101 {
        many.headers_mut()
            .append("cookie", "a=1".parse().expect("a value"));
    }
    assert_eq!(
        world
            .send(many, b"")
            .await
            .expect("an answer")
            .head
            .status(),
        431
    );
    let refused = world.corridor.refused.lock().expect("a lock").clone();
    let expected = [HeadError::UriTooLong, HeadError::TooManyFields].map(Refusal::Head);
    assert_eq!(refused, expected);

    for host in ["b.example", "a.example:80"] {
        let mut lie = request(Method::GET, "/echo");
        lie.headers_mut()
            .insert("host", host.parse().expect("a value"));
        assert_eq!(
            world.send(lie, b"").await.err(),
            Some(Reason::PROTOCOL_ERROR)
        );
    }
    let mut same = request(Method::GET, "/echo");
    same.headers_mut()
        .insert("host", "A.example".parse().expect("a value"));
    assert!(
        world.send(same, b"").await.is_ok(),
        "the connection lives on"
    );
    assert_eq!(world.corridor.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn trailers_pass_both_ways_without_the_forbidden_ones() {
    let mut world = start().await;
    let (response, mut stream) = world.open(request(Method::POST, "/trailers")).await;
    stream
        .send_data(Bytes::from_static(b"x"), false)
        .expect("a stream");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-in", "5".parse().expect("a value"));
    trailers.insert("authorization", "me".parse().expect("a value"));
    stream.send_trailers(trailers).expect("a stream");
    let answer = answered(response.await).await.expect("an answer");
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(
        (trailers.len(), &trailers["x-sum"]),
        (1, &"1".parse().expect("a value"))
    );
    let seen = world.corridor.seen()[0].trailers.clone().expect("trailers");
    assert_eq!(
        seen.keys().map(|k| k.as_str()).collect::<Vec<_>>(),
        ["x-in"]
    );
}

#[tokio::test(start_paused = true)]
async fn hints_come_before_the_answer() {
    let mut world = start().await;
    let (mut response, _stream) = world.open(request(Method::GET, "/hints")).await;
    let hint = poll_fn(|cx| response.poll_informational(cx)).await;
    let hint = hint.expect("a hint").expect("no error");
    assert_eq!(hint.status(), 103);
    assert_eq!(
        answered(response.await).await.expect("an answer").body,
        b"ok"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_is_told_to_continue_when_its_body_is_wanted() {
    let mut world = start().await;
    let mut post = request(Method::POST, "/echo");
    post.headers_mut()
        .insert("expect", "100-continue".parse().expect("a value"));
    let (mut response, mut stream) = world.open(post).await;
    let hint = poll_fn(|cx| response.poll_informational(cx)).await;
    assert_eq!(hint.expect("a hint").expect("no error").status(), 100);
    stream
        .send_data(Bytes::from_static(b"abc"), true)
        .expect("a stream");
    assert_eq!(
        answered(response.await).await.expect("an answer").body,
        b"abc"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_ended_is_reset() {
    let mut world = start().await;
    for path in ["/broken-length", "/broken-stream", "/forgotten", "/silent"] {
        let end = world.fetch(path).await.err();
        assert_eq!(end, Some(Reason::INTERNAL_ERROR), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_an_answer_that_breaks_at_once_arrives_before_its_reset() {
    let mut world = start().await;
    for path in ["/broken-length", "/broken-stream", "/forgotten"] {
        let (response, _stream) = world.open(request(Method::GET, path)).await;
        let answer = response.await.expect("a head");
        assert_eq!(answer.status(), 200, "{path}");
        let mut body = answer.into_body();
        let end = loop {
            match body.data().await {
                Some(Ok(piece)) => assert_eq!(piece, b"half"[..]),
                Some(Err(error)) => break error.reason(),
                None => panic!("{path} looks whole"),
            }
        };
        assert_eq!(end, Some(Reason::INTERNAL_ERROR), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_its_fields_and_no_body() {
    let mut world = start().await;
    let answer = world.send(request(Method::HEAD, "/ignore"), b"").await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.head.headers()["content-length"], "7");
    assert!(answer.body.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_early_answer_is_whole_and_the_unread_body_is_waved_off() {
    let mut world = start().await;
    let (response, mut stream) = world.open(request(Method::POST, "/early")).await;
    let answer = answered(response.await).await.expect("an answer");
    assert_eq!(
        (answer.head.status().as_u16(), &answer.body[..]),
        (413, &b"too much"[..])
    );
    let reset = poll_fn(|cx| stream.poll_reset(cx)).await;
    assert_eq!(reset.expect("a reset"), Reason::NO_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_reset_stream_is_a_client_that_left() {
    let mut world = start().await;
    for path in ["/late", "/events"] {
        let begun = Instant::now();
        let (mut response, mut stream) = world.open(request(Method::GET, path)).await;
        if path == "/events" {
            (&mut response).await.expect("a head");
        }
        // The request is on its way before it is taken back.
        tokio::task::yield_now().await;
        world.fetch("/ignore").await.expect("an answer");
        stream.send_reset(Reason::CANCEL);
        world.fetch("/ignore").await.expect("an answer");
        assert!(begun.elapsed() < Duration::from_secs(1), "{path}");
        let seen = world.corridor.seen();
        let of_path = seen
            .iter()
            .find(|s| s.head.as_ref().is_some_and(|h| h.target == path));
        assert!(of_path.expect("an exchange").left, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_of_one_stream_does_not_slow_the_others() {
    let mut world = start().await;
    let begun = Instant::now();
    let (response, _stream) = world.open(request(Method::GET, "/huge")).await;
    let mut unread = response.await.expect("a head").into_body();
    let (_late, mut upload) = world.open(request(Method::POST, "/late")).await;
    upload
        .send_data(Bytes::from(vec![1; 60_000]), false)
        .expect("a stream");
    let big = vec![b'x'; 500_000];
    for _ in 0..3 {
        let answer = world.send(request(Method::POST, "/echo"), &big).await;
        assert_eq!(answer.expect("an answer").body.len(), big.len());
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    // Nobody reads it: after the stall limit it is gone.
    let end = loop {
        match timeout(Duration::from_secs(60), unread.data())
            .await
            .expect("an end")
        {
            Some(Ok(_)) => {}
            Some(Err(error)) => break reason(&error),
            None => panic!("a stalled answer ended cleanly"),
        }
    };
    assert_eq!(end, Reason::CANCEL);
    assert!((30..=31).contains(&begun.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stops_is_too_slow() {
    let mut world = start().await;
    let (response, _stream) = world.open(request(Method::POST, "/echo")).await;
    let answer = answered(response.await).await.expect("an answer");
    assert_eq!(answer.head.status(), 408);
    assert_eq!(world.corridor.seen()[0].fault, Some(ClientFault::TooSlow));
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_grpc_may_fall_silent_and_one_of_grpc_web_may_not() {
    let mut world = start().await;
    let call = |content_type: &str| {
        let mut request = request(Method::POST, "/echo");
        let value = content_type.parse().expect("a value");
        request.headers_mut().insert("content-type", value);
        request
    };
    let (grpc, mut up) = world.open(call("application/grpc+proto")).await;
    let (web, _stream) = world.open(call("application/grpc-web+proto")).await;
    let answer = answered(web.await).await.expect("an answer");
    assert_eq!(answer.head.status(), 408);
    tokio::time::sleep(Duration::from_secs(300)).await;
    up.send_data(Bytes::from_static(b"late"), true)
        .expect("a stream");
    let answer = answered(grpc.await).await.expect("an answer");
    assert_eq!(
        (answer.head.status(), answer.body),
        (200.try_into().expect("a status"), b"late".to_vec())
    );
}

#[tokio::test(start_paused = true)]
async fn an_extended_connect_is_a_pipe_once_it_is_answered() {
    let mut world = start().await;
    let mut connect = request(Method::CONNECT, "/tunnel");
    connect
        .extensions_mut()
        .insert(h2::ext::Protocol::from_static("websocket"));
    let (response, mut stream) = world.open(connect).await;
    stream
        .send_data(Bytes::from_static(b"early "), false)
        .expect("a stream");
    let response = response.await.expect("a head");
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("upgrade"));
    stream
        .send_data(Bytes::from_static(b"late"), true)
        .expect("a stream");
    let answer = answered(Ok(response)).await.expect("an end");
    assert_eq!(answer.body, b"hello early late");
    let seen = world.corridor.seen()[0].head.clone().expect("a head");
    assert_eq!(seen.connect_protocol.as_deref(), Some("websocket"));
    assert_eq!(seen.body, BodyLength::Tunnel);
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_open_streams_and_takes_no_new_ones() {
    let shutdown = Shutdown::new();
    let mut world = start_with(shutdown.signal()).await;
    let (response, mut stream) = world.open(request(Method::POST, "/echo")).await;
    stream
        .send_data(Bytes::from_static(b"be"), false)
        .expect("a stream");
    world.fetch("/ignore").await.expect("an answer");
    shutdown.drain();
    stream
        .send_data(Bytes::from_static(b"fore"), true)
        .expect("a stream");
    assert_eq!(
        answered(response.await).await.expect("an answer").body,
        b"before"
    );
    world.server.await.expect("the connection ends");
    assert!(world.client.ready().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let mut world = start().await;
    world.fetch("/ignore").await.expect("an answer");
    let begun = Instant::now();
    world.server.await.expect("the connection ends");
    assert_eq!(begun.elapsed().as_secs(), 60);
}
