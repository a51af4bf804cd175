//! The two windows, in virtual time and with the default lengths.

use std::time::Duration;

use crate::request::testing::{App, World, pass};

const SECOND: Duration = Duration::from_secs(1);

/// The answer to a window comes between it and a second later.
fn assert_after(elapsed: Duration, seconds: u64) {
    let window = Duration::from_secs(seconds);
    assert!(
        elapsed >= window && elapsed <= window + SECOND,
        "{elapsed:?}, not {window:?}"
    );
}

/// Waits in a task of its own until the gateway gives the connection up.
fn until_given_up(mut app: App) -> tokio::task::JoinHandle<App> {
    tokio::spawn(async move {
        app.given_up().await;
        app
    })
}

#[tokio::test(start_paused = true)]
async fn an_exchange_goes_through_and_leaves_nothing() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    let request = app.request().await;
    app.answer("hello").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    assert_eq!(world.exchange(&request.id())["delivery"], "delivered");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_app_is_told_at_thirty_seconds_and_without_a_pause() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    let app = until_given_up(app);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 30);
    assert_eq!(answer.status, 504);
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown all");
    assert_eq!(answer.error()["window"], "first_frame");
    assert!(answer.field("retry-after").is_none(), "{}", answer.head);
    assert!(!answer.text().contains("retryAfter"), "{}", answer.text());
    client.leave();
    drop(app.await.unwrap());
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_window_over_an_app_that_took_nothing_proves_it() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let app = until_given_up(agent.app().await);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 30);
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT first_frame not_delivered none"
    );
    client.leave();
    drop(app.await.unwrap());
    world
        .end([agent], &["refused/not_delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_window_runs_while_the_connection_to_the_app_is_awaited() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let app = until_given_up(agent.accept().await);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 30);
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT first_frame not_delivered none"
    );
    client.leave();
    drop(app.await.unwrap());
    world
        .end([agent], &["refused/not_delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_1xx_of_the_app_restarts_the_first_window_and_does_not_end_it() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    pass(SECOND * 20).await;
    app.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        .await;
    let app = until_given_up(app);
    let hint = client.head().await.unwrap();
    assert!(
        hint.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a>"),
        "{hint}"
    );
    let answer = client.answer().await;
    assert_after(world.elapsed(), 50);
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT first_frame delivered answer_begun"
    );
    client.leave();
    drop(app.await.unwrap());
    world
        .end([agent], &["failed/delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_head_that_come_slowly_are_progress() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    for piece in ["HTTP/1.1 ", "200 OK\r\n", "Content-Length: 0\r\n\r\n"] {
        pass(SECOND * 25).await;
        app.say(piece).await;
    }
    assert_eq!(client.answer().await.status, 200);
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn request_bytes_that_the_app_takes_restart_the_first_window() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "0123456789").await;
    let mut app = agent.app().await;
    app.take_head().await;
    for _ in 0..3 {
        pass(SECOND * 20).await;
        app.take(2).await;
    }
    let app = until_given_up(app);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 90);
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown body");
    client.leave();
    drop(app.await.unwrap());
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_window_waits_while_the_client_uploads() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    let head = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 60001\r\n\r\n";
    client.send(head).await;
    client.send(vec![b'x'; 60_000]).await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.take(60_000).await;
    pass(SECOND * 25).await;
    client.send("y").await;
    pass(SECOND * 25).await;
    app.take(1).await;
    app.answer("late").await;
    assert_eq!(client.answer().await.text(), "late");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_without_its_body_is_held_and_answered_by_the_stall_window() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    pass(SECOND * 10).await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        .await;
    assert!(client.is_left_alone(SECOND * 14).await);
    let app = until_given_up(app);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 25);
    assert_eq!(answer.status, 504);
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT stall delivered answer_begun"
    );
    assert_eq!(answer.error()["window"], "stall");
    assert!(answer.field("retry-after").is_none(), "{}", answer.head);
    client.leave();
    drop(app.await.unwrap());
    world
        .end([agent], &["failed/delivered/BH_APP_TIMEOUT"])
        .await;
}

/// An answer of which `head` and a byte went out is cut; what the client saw of it.
async fn cut(request: &str, head: &str) -> (crate::request::testing::Answer, bool) {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.send(request).await;
    let mut app = agent.app().await;
    app.request().await;
    app.say(head).await;
    let app = until_given_up(app);
    let answer = client.answer().await;
    assert_after(world.elapsed(), 15);
    let reset = client.was_reset();
    assert_eq!(client.rest().await, b"", "the connection ends");
    drop(app.await.unwrap());
    world
        .end([agent], &["aborted/delivered/BH_APP_TIMEOUT"])
        .await;
    (answer, reset)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_after_its_first_byte_is_cut_visibly() {
    let (now, old) = (
        "GET / HTTP/1.1\r\nHost: demo.example.com\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: demo.example.com\r\n\r\n",
    );
    let exact = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    for (request, head) in [(now, exact), (now, chunked), (old, exact)] {
        let (answer, _) = cut(request, head).await;
        assert_eq!(
            (answer.status, answer.text().as_str(), answer.whole),
            (200, "x", false)
        );
    }
    let (answer, reset) = cut(old, chunked).await;
    assert_eq!((answer.text().as_str(), reset), ("x", true));
}

#[tokio::test(start_paused = true)]
async fn heads_with_nothing_behind_them_are_not_held() {
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client
            .send(format!(
                "{method} / HTTP/1.1\r\nHost: demo.example.com\r\n\r\n"
            ))
            .await;
        let mut app = agent.app().await;
        app.request().await;
        app.say(head).await;
        let seen = client.head().await.unwrap();
        assert!(seen.starts_with(&head[..15]), "{seen}");
        assert!(world.elapsed() < SECOND, "{:?}", world.elapsed());
        client.leave();
        drop(app);
        world.end([agent], &["answered/delivered/"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_type_goes_out_at_once_and_may_be_silent_for_five_minutes() {
    for kind in [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "multipart/x-mixed-replace; boundary=b",
        "application/x-ndjson",
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.get("/events").await;
        let mut app = agent.app().await;
        app.request().await;
        app.say(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"))
            .await;
        let head = client.head().await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(world.elapsed() < SECOND, "{:?}", world.elapsed());
        assert_eq!(world.load(), (0, 1));
        pass(SECOND * 299).await;
        app.say("data: 1\n\n").await;
        assert_eq!(client.bytes(3).await, b"9\r\n");
        let app = until_given_up(app);
        client.rest().await;
        assert_after(world.elapsed(), 599);
        drop(app.await.unwrap());
        world
            .end([agent], &["aborted/delivered/BH_APP_TIMEOUT"])
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_answer_may_be_silent_for_ever() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.head().await.unwrap();
    pass(SECOND * 3600).await;
    app.say("1\r\nx\r\n0\r\n\r\n").await;
    assert_eq!(client.bytes(6 + 5).await, b"1\r\nx\r\n0\r\n\r\n");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_stall_window_waits_while_the_client_reads_slowly() {
    // More than fits anywhere on the way, and less than the gateway queues for a client.
    for size in [200_000, 40_000] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client_with_room(1024);
        client.get("/x").await;
        let mut app = agent.app().await;
        app.request().await;
        let body = "x".repeat(size);
        let said = tokio::spawn(async move {
            app.answer(&body).await;
            app
        });
        client.bytes(100).await;
        pass(SECOND * 28).await;
        let rest = client.bytes(size).await;
        assert!(rest.len() >= size - 100, "only {} of {size}", rest.len());
        client.leave();
        drop(said.await.unwrap());
        world.end([agent], &["answered/delivered/"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_byte_that_comes_while_the_counts_are_awaited_counts() {
    let world = World::new().await;
    let agent = world.agent_behind("a", Duration::from_millis(100));
    let mut client = world.client();
    client.post("", "x").await;
    let mut app = agent.app().await;
    app.request().await;
    // The fence is on its way by then and has not arrived.
    let due = SECOND * 30 + Duration::from_millis(250);
    pass(due.saturating_sub(world.elapsed())).await;
    let before = world.elapsed();
    app.say("HTTP/1.1 200 OK\r\n").await;
    let answer = client.answer().await;
    assert!(before > SECOND * 30, "{before:?}");
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT first_frame delivered answer_begun"
    );
    client.leave();
    drop(app);
    world
        .end([agent], &["failed/delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_route_has_windows_of_its_own() {
    let world = World::with("first_frame_window = \"2s\"\nstall_window = \"1s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    let app = until_given_up(app);
    client.answer().await;
    assert_after(world.elapsed(), 2);
    drop(app.await.unwrap());
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_took_the_whole_request_is_not_stopped_by_the_window() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.request().await;
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown all");
    let fenced = app.given_up().await;
    let lingers = bridgehead_protocol::io::Outgoing::Fenced { linger: true };
    assert_eq!(fenced, lingers);
    let patience = tokio::time::timeout(SECOND * 40, app.closed()).await;
    assert!(patience.is_err(), "the gateway closed the app's connection");
    app.answer("late").await;
    app.close();
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_did_not_take_the_whole_request_is_closed() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.take_head().await;
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown head");
    app.cut().await;
    assert_after(world.elapsed(), 30);
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}
