//! The gateway's grace is over: what runs is given up and told, and nothing cut ends cleanly.

use std::time::Duration;

use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use crate::request::testing::{HOST, World, pass};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_silent_app_is_told_with_its_counts_when_the_grace_is_over() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.request().await;
    world.shutdown.drain();
    pass(SECOND).await;
    world.shared.end();
    app.closed().await;
    app.end(FinalCause::Reset);
    let answer = client.answer().await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.verdict(), "SERVICE_UNAVAILABLE draining unknown all");
    assert_eq!(answer.field("retry-after"), Some("5"));
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(world.elapsed() <= SECOND * 2, "{:?}", world.elapsed());
    client.leave();
    let outcome = "failed/unknown/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_of_which_the_app_took_nothing_is_told_so_when_the_grace_is_over() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut waiting, mut begun) = (world.client(), world.client());
    // One waits for its connection to stand, the other for the app to take its first byte.
    waiting.post("", "hello").await;
    let mut unopened = agent.accept().await;
    begun.get("/x").await;
    let mut app = agent.app().await;
    app.begin().await;
    world.shutdown.drain();
    world.shared.end();
    unopened.closed().await;
    unopened.refuse(RefusedReason::Expired);
    app.closed().await;
    app.end(FinalCause::Reset);
    for client in [&mut waiting, &mut begun] {
        let answer = client.answer().await;
        let told = "SERVICE_UNAVAILABLE draining not_delivered none";
        assert_eq!((answer.status, answer.verdict().as_str()), (503, told));
    }
    drop((waiting, begun));
    let refused = "refused/not_delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[refused, refused]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_runs_is_broken_visibly_when_the_grace_is_over() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send(format!("GET /events HTTP/1.0\r\nHost: {HOST}\r\n\r\n"))
        .await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n")
        .await;
    let head = client.head().await.expect("an answer");
    assert!(
        !head.contains("content-length") && !head.contains("chunked"),
        "{head}"
    );
    assert_eq!(client.bytes(5).await, b"event");
    world.shutdown.drain();
    world.shared.end();
    app.closed().await;
    app.end(FinalCause::Reset);
    assert!(client.rest().await.is_empty());
    assert!(client.was_reset(), "a close would be the end of the answer");
    let outcome = "aborted/delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_bytes_is_reset_and_told_when_the_grace_is_over() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.tcp();
    let mut app = agent.app().await;
    client.send("get").await;
    assert_eq!(app.take(3).await, b"get");
    app.say("half of").await;
    assert_eq!(client.bytes(7).await, b"half of");
    world.shutdown.drain();
    world.shared.end();
    app.closed().await;
    app.end(FinalCause::Reset);
    assert!(client.rest().await.is_empty());
    assert!(client.was_reset());
    let outcome = "aborted/delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_bytes_that_waits_for_its_app_ends_with_the_grace() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.tcp();
    let mut app = agent.accept().await;
    world.shutdown.drain();
    world.shared.end();
    app.closed().await;
    app.refuse(RefusedReason::Expired);
    assert!(client.rest().await.is_empty());
    assert!(client.was_reset());
    let outcome = "aborted/not_delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}
