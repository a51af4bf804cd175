//! The same corridor behind HTTP/2.

use std::future::poll_fn;
use std::time::Duration;

use bridgehead_protocol::wire::{FinalCause, RefusedReason};
use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Method, Request};

use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);

fn request(method: Method, content_type: &str) -> Request<()> {
    let uri = "http://demo.example.com/x";
    let builder = Request::builder().method(method).uri(uri);
    builder
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// Body and trailers of an answer, or the reason why it was cut.
async fn read(body: &mut h2::RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), Option<Reason>> {
    let mut bytes = Vec::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data.map_err(|error| error.reason())?;
        body.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend_from_slice(&data);
    }
    let trailers = poll_fn(|cx| body.poll_trailers(cx)).await;
    Ok((bytes, trailers.map_err(|error| error.reason())?))
}

#[tokio::test(start_paused = true)]
async fn bodies_and_trailers_pass_both_ways() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let (answer, mut up) = client
        .send_request(request(Method::PATCH, "a/b"), false)
        .unwrap();
    up.send_data(Bytes::from_static(b"hello"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    up.send_trailers(trailers).unwrap();
    let mut app = agent.app().await;
    let seen = app.request().await;
    assert_eq!(
        (seen.body.as_slice(), seen.trailers.as_str()),
        (&b"hello"[..], "x-sum: 1\r\n")
    );
    app.say(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Back: 2\r\n\r\n",
    )
    .await;
    let mut body = answer.await.unwrap().into_body();
    let (text, trailers) = read(&mut body).await.unwrap();
    assert_eq!(
        (text.as_slice(), &trailers.unwrap()["x-back"]),
        (&b"ok"[..], &"2".parse::<http::HeaderValue>().unwrap())
    );
    drop((client, up, body, app));
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_is_reset_visibly() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let (answer, _) = client
        .send_request(request(Method::GET, "a/b"), true)
        .unwrap();
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\n\r\nabc").await;
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(read(&mut body).await, Err(Some(Reason::INTERNAL_ERROR)));
    assert_eq!(world.elapsed().as_secs(), 15);
    drop((client, body, app));
    world
        .end([agent], &["aborted/delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_learns_of_a_failure_by_trailers_only() {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let call = request(Method::POST, "application/grpc");
    let (answer, up) = client.send_request(call, false).unwrap();
    agent.accept().await.refuse(RefusedReason::ConnectRefused);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["grpc-status"], "14");
    assert_eq!(answer.headers()["bridgehead-delivery"], "not_delivered");
    assert!(answer.body().is_end_stream());
    // What is logged is what was sent; the code says that it was a failure.
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    let line = world.exchange(id);
    assert_eq!(
        (&line["status"], &line["code"]),
        (&200.into(), &"BH_APP_STARTING".into())
    );
    drop((client, up, answer));
    world
        .end([agent], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_grpc_learns_of_a_failure_as_others_do() {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut web = world.h2().await;
    for content_type in ["application/grpc", "application/grpc-web+proto"] {
        let mut client = world.client();
        client
            .post(&format!("Content-Type: {content_type}\r\n"), "x")
            .await;
        agent.accept().await.refuse(RefusedReason::ConnectRefused);
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.field("grpc-status")), (503, None));
        assert_eq!(
            answer.verdict(),
            "BH_APP_STARTING connect_refused not_delivered none"
        );
        let line = world.exchange(answer.field("x-request-id").unwrap());
        assert_eq!(line["status"], 503);
        client.leave();
    }
    // A head that is no request at all is no call either.
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nContent-Type: application/grpc\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 400);
    let call = request(Method::GET, "application/grpc-web+proto");
    let (answer, _) = web.send_request(call, true).unwrap();
    agent.accept().await.refuse(RefusedReason::ConnectRefused);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["content-type"], "application/json");
    client.leave();
    drop((web, answer));
    let mut outcomes = ["refused/not_delivered/BH_APP_STARTING"; 4];
    outcomes[0] = "refused/not_delivered/BAD_REQUEST";
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_falls_silent_leaves_its_place_in_flight() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let call = request(Method::POST, "application/grpc");
    let (answer, mut up) = client.send_request(call, false).unwrap();
    let mut app = agent.app().await;
    app.take_head().await;
    pass(SECOND * 25).await;
    up.send_data(Bytes::from_static(b"one"), false).unwrap();
    app.take_until("one\r\n").await;
    pass(SECOND * 29).await;
    assert_eq!(world.load(), (1, 0), "each message begins the wait anew");
    pass(SECOND * 2).await;
    assert_eq!(world.load(), (0, 1));
    up.send_data(Bytes::from_static(b"two"), true).unwrap();
    app.take_until("two\r\n0\r\n\r\n").await;
    app.answer("done").await;
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(read(&mut body).await.unwrap().0, b"done");
    drop((client, up, body, app));
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_its_client_resets_cancels_within_a_second() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let (answer, mut up) = client
        .send_request(request(Method::POST, "a/b"), false)
        .unwrap();
    up.send_data(Bytes::from_static(b"hello"), false).unwrap();
    let mut app = agent.app().await;
    app.take_head().await;
    app.take_until("hello\r\n").await;
    let since = world.elapsed();
    up.send_reset(Reason::CANCEL);
    drop(answer);
    app.closed().await;
    assert!(world.elapsed() - since < SECOND);
    app.end(FinalCause::Reset);
    drop((client, up));
    world.end([agent], &["client_left/unknown/"]).await;
}

#[tokio::test(start_paused = true)]
async fn one_stalled_stream_never_slows_another() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.h2().await;
    let (stalled, _) = client
        .send_request(request(Method::GET, "a/b"), true)
        .unwrap();
    let mut first = agent.app().await;
    first.request().await;
    let (quick, _) = client
        .send_request(request(Method::GET, "a/b"), true)
        .unwrap();
    let mut second = agent.app().await;
    second.request().await;
    let flood = tokio::spawn(async move {
        first.answer(&"x".repeat(4_000_000)).await;
        first
    });
    let stalled = stalled.await.unwrap();
    pass(SECOND).await;
    second.answer("quick").await;
    let mut body = quick.await.unwrap().into_body();
    assert_eq!(read(&mut body).await.unwrap().0, b"quick");
    assert!(world.elapsed() <= SECOND * 2, "{:?}", world.elapsed());
    flood.abort();
    drop((client, stalled, body, second));
    world
        .end([agent], &["answered/delivered/", "client_left/delivered/"])
        .await;
}
