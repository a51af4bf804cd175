//! Clients that leave, send too much, too slowly or nonsense, wait to be asked, or are answered early.

use std::time::Duration;

use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_cancels_within_a_second() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    let request = app.request().await;
    pass(SECOND * 5).await;
    client.leave();
    app.closed().await;
    assert!(world.elapsed() <= SECOND * 6, "{:?}", world.elapsed());
    app.end(FinalCause::Reset);
    pass(SECOND).await;
    let seen = world.exchange(&request.id());
    assert_eq!(
        (&seen["aborted"], &seen["stage"]),
        (&"client".into(), &"all".into())
    );
    world.end([agent], &["client_left/unknown/"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_leaving_client_had_delivered_is_known_from_the_counts() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.begin().await;
    client.leave();
    app.closed().await;
    app.end(FinalCause::Reset);
    world.end([agent], &["client_left/not_delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_connection_is_awaited_is_forgotten() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.accept().await;
    client.leave();
    app.closed().await;
    app.refuse(RefusedReason::Expired);
    world.end([agent], &["client_left/not_delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_its_answer_cancels() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/events").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        .await;
    client.head().await.unwrap();
    client.leave();
    app.closed().await;
    assert!(world.elapsed() <= SECOND, "{:?}", world.elapsed());
    drop(app);
    world.end([agent], &["client_left/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_ends_before_its_length_never_looks_whole_to_the_app() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await;
    let mut app = agent.app().await;
    app.take_until("abc\r\n").await;
    client.half_close().await;
    app.cut().await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.verdict(), "BAD_REQUEST bad_request unknown body");
    client.leave();
    world.end([agent], &["failed/unknown/BAD_REQUEST"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_turns_bad_is_cut_and_judged_by_what_was_taken() {
    for (taken, words, outcome) in [
        (0, "not_delivered none", "refused/not_delivered/BAD_REQUEST"),
        (9, "unknown part_of_head", "failed/unknown/BAD_REQUEST"),
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client
            .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .await;
        let mut app = agent.app().await;
        app.take(taken).await;
        client.send("zz\r\n").await;
        app.cut().await;
        let answer = client.answer().await;
        assert_eq!(answer.verdict(), format!("BAD_REQUEST bad_request {words}"));
        assert_eq!(client.rest().await, b"", "what follows is not trusted");
        world.end([agent], &[outcome]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_routes_limit_is_told_with_the_limit() {
    let world = World::with("max_body = \"10B\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "0123456789!").await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.verdict(),
        "BODY_TOO_LARGE body_limit not_delivered none"
    );
    assert!(
        answer.text().contains("max_body is 10 bytes"),
        "{}",
        answer.text()
    );
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n")
        .await;
    let mut app = agent.app().await;
    app.take_until("01234567\r\n").await;
    client.send("8\r\n89abcdef\r\n0\r\n\r\n").await;
    app.cut().await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.verdict(), "BODY_TOO_LARGE body_limit unknown body");
    client.leave();
    let outcomes = [
        "failed/unknown/BODY_TOO_LARGE",
        "refused/not_delivered/BODY_TOO_LARGE",
    ];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_uploading_is_told_so_by_what_was_taken() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 50000\r\n\r\n")
        .await;
    client.send(vec![b'x'; 40_000]).await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.take(40_000).await;
    app.cut().await;
    let answer = client.answer().await;
    assert_eq!(world.elapsed().as_secs(), 30);
    assert_eq!(answer.status, 408);
    assert_eq!(
        answer.verdict(),
        "CLIENT_TIMEOUT client_timeout unknown body"
    );
    client.leave();
    world.end([agent], &["failed/unknown/CLIENT_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_answered_although_its_body_was_not_read() {
    let world = World::new().await;
    let mut client = world.client_with_room(2048);
    let head = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 1000000\r\n\r\n";
    client.send(head).await;
    client.send(vec![b'x'; 1000]).await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    assert_eq!(answer.field("connection"), Some("close"));
    // What it still sends is taken for a while, so that no reset eats the answer.
    client.send(vec![b'x'; 100_000]).await;
    client.leave();
    world
        .end([], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

/// A client that waits to be asked for its body.
const EXPECTS: &str = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_body_is_held_until_the_app_asks_for_it() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(EXPECTS).await;
    let mut app = agent.accept().await;
    assert!(client.is_left_alone(SECOND).await, "nobody asked for it");
    app.open();
    let head = app.take_head().await;
    assert!(head.contains("expect: 100-continue\r\n"), "{head}");
    assert!(client.is_left_alone(SECOND / 2).await);
    app.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(
        client.head().await.unwrap(),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    client.send("hello").await;
    assert_eq!(app.take(5).await, b"hello");
    app.answer("ok").await;
    assert_eq!(client.answer().await.text(), "ok");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_does_not_ask_gets_the_body_after_a_second() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(EXPECTS).await;
    let mut app = agent.app().await;
    app.take_head().await;
    assert_eq!(
        client.head().await.unwrap(),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    assert_eq!(
        world.elapsed().as_millis() / 100,
        10,
        "{:?}",
        world.elapsed()
    );
    client.send("hello").await;
    app.take(5).await;
    app.answer("ok").await;
    assert_eq!(client.answer().await.text(), "ok");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_place_of_the_question_goes_out_and_the_body_stays() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(EXPECTS).await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        .await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    app.closed().await;
    drop(app);
    client.leave();
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_to_be_asked_learns_of_a_failure_at_once() {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(EXPECTS).await;
    agent.accept().await.refuse(RefusedReason::ConnectRefused);
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    client.leave();
    world
        .end([agent], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_early_answer_goes_out_while_the_upload_goes_on_and_drops_the_connection() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    let head = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}3\r\nabc\r\n")).await;
    let mut app = agent.app().await;
    app.take_until("abc\r\n").await;
    app.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nABC\r\n")
        .await;
    let early = client.head().await.unwrap();
    assert!(early.starts_with("HTTP/1.1 200"), "{early}");
    assert_eq!(client.bytes(8).await, b"3\r\nABC\r\n");
    client.send("3\r\ndef\r\n").await;
    app.take_until("def\r\n").await;
    app.say("3\r\nDEF\r\n0\r\n\r\n").await;
    assert_eq!(client.bytes(8 + 5).await, b"3\r\nDEF\r\n0\r\n\r\n");
    app.closed().await;
    drop(app);
    client.leave();
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_answers_before_it_took_the_request_loses_its_connection() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.answer("early").await;
    assert_eq!(client.answer().await.text(), "early");
    app.closed().await;
    drop(app);
    client.leave();
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_turns_bad_behind_a_complete_answer_changes_nothing() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client_with_room(100);
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.answer(&"x".repeat(1000)).await;
    pass(SECOND).await;
    client.send("zz\r\n").await;
    let answer = client.answer().await;
    assert!(answer.whole && answer.status == 200, "{answer:?}");
    app.closed().await;
    drop(app);
    client.leave();
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_refuses_an_upload_and_closes_is_heard() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client_with_room(4096);
    let uploading = tokio::spawn(async move {
        let head = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 9000000\r\n\r\n";
        client.send(head).await;
        client.send(vec![b'x'; 3000]).await;
        client
    });
    let mut app = agent.app().await;
    app.take_head().await;
    app.say("HTTP/1.1 413 Payload Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        .await;
    app.close();
    let mut client = uploading.await.unwrap();
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
    client.leave();
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ended_its_side_still_gets_its_answer() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    client.half_close().await;
    let mut app = agent.app().await;
    app.request().await;
    pass(SECOND * 5).await;
    app.answer("late").await;
    assert_eq!(client.answer().await.text(), "late");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order_over_one_connection() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/1").await;
    client.get("/2").await;
    let mut app = agent.app().await;
    for path in ["/1", "/2"] {
        let request = app.request().await;
        assert!(
            request.head.starts_with(&format!("GET {path} ")),
            "{}",
            request.head
        );
        app.answer(path).await;
        assert_eq!(client.answer().await.text(), path);
    }
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"; 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_beyond_a_limit_is_told_with_the_limit() {
    let world = World::new().await;
    let fields = "X-A: 1\r\n".repeat(101);
    let large = format!("X-A: {}\r\n", "x".repeat(40_000));
    for (target, fields, status, limit) in [
        (
            "x".repeat(9000),
            String::new(),
            414,
            "uri_size is 8192 bytes",
        ),
        (String::new(), fields, 431, "head_fields is 100"),
        (String::new(), large, 431, "head_size is 32768 bytes"),
    ] {
        let mut client = world.client();
        let request = format!("GET /{target} HTTP/1.1\r\nHost: demo.example.com\r\n{fields}\r\n");
        client.send(request).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status);
        assert!(answer.text().contains(limit), "{}", answer.text());
        assert_eq!(answer.error()["delivery"], "not_delivered");
        client.leave();
    }
    let outcomes = [
        "refused/not_delivered/HEAD_TOO_LARGE",
        "refused/not_delivered/HEAD_TOO_LARGE",
        "refused/not_delivered/URI_TOO_LONG",
    ];
    world.end([], &outcomes).await;
}
