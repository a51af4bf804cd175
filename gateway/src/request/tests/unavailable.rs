//! The gateway itself cannot serve: it drains, or it failed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bridgehead_protocol::wire::FinalCause;

use crate::ledger::State;
use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);

/// What a draining gateway says.
const DRAINING: &str = "SERVICE_UNAVAILABLE draining not_delivered none";

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_the_gateway_drains_is_refused() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/before").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("done").await;
    assert_eq!(client.answer().await.status, 200);
    world.shutdown.drain();
    client.post("", "late").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.verdict().as_str()), (503, DRAINING));
    assert_eq!(answer.field("retry-after"), Some("5"));
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(
        app.is_left_alone(SECOND).await,
        "the app sees nothing of it"
    );
    client.leave();
    drop(app);
    let refused = "refused/not_delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &["answered/delivered/", refused]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_nothing_is_let_go_soon_after_the_drain_began() {
    let world = World::new().await;
    let mut client = world.client();
    pass(SECOND).await;
    world.shutdown.drain();
    assert!(client.rest().await.is_empty());
    assert!(world.elapsed() < SECOND * 3, "{:?}", world.elapsed());
    world.end([], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_held_exchange_is_told_as_soon_as_the_gateway_drains() {
    let world = World::new().await;
    world.app_was_reached();
    let mut client = world.client();
    client.post("", "held").await;
    pass(SECOND * 2).await;
    world.shutdown.drain();
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.verdict().as_str()), (503, DRAINING));
    assert!(world.elapsed() < SECOND * 3, "{:?}", world.elapsed());
    client.leave();
    let refused = "refused/not_delivered/SERVICE_UNAVAILABLE";
    world.end([], &[refused]).await;
}

/// The app closed a kept connection just as it was used. Nothing was delivered, and the tunnel still stands.
#[tokio::test(start_paused = true)]
async fn a_running_exchange_that_meets_a_stale_connection_is_repeated_at_once_during_a_drain() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/before").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("done").await;
    assert_eq!(client.answer().await.status, 200);
    client.get("/running").await;
    app.begin().await;
    world.shutdown.drain();
    app.end(FinalCause::Stale);
    let mut app = agent.app().await;
    app.request().await;
    app.answer("served").await;
    assert_eq!(client.answer().await.text(), "served");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"; 2]).await;
}

/// The client's body is what the exchange trips over.
#[tokio::test(start_paused = true)]
async fn a_panic_before_the_hand_over_is_answered_as_not_delivered() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, trap) = world.client_with_a_trap();
    client
        .send("POST /x HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 4\r\n\r\n")
        .await;
    let app = agent.accept().await;
    trap.store(true, Ordering::Relaxed);
    client.send("body").await;
    let answer = client.answer().await;
    let told = "SERVICE_UNAVAILABLE internal not_delivered none";
    assert_eq!((answer.status, answer.verdict().as_str()), (503, told));
    assert_eq!(answer.field("retry-after"), Some("5"));
    client.leave();
    drop(app);
    let refused = "refused/not_delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[refused]).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_behind_the_hand_over_is_answered_as_unknown() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, trap) = world.client_with_a_trap();
    client
        .send("POST /x HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut app = agent.app().await;
    app.take_head().await;
    trap.store(true, Ordering::Relaxed);
    client.send("body").await;
    let answer = client.answer().await;
    let told = "SERVICE_UNAVAILABLE internal unknown none";
    assert_eq!((answer.status, answer.verdict().as_str()), (503, told));
    assert_eq!(answer.field("retry-after"), Some("5"));
    client.leave();
    drop(app);
    let failed = "failed/unknown/SERVICE_UNAVAILABLE";
    world.end([agent], &[failed]).await;
}

/// The ledger learns of a try that panicked what its client was told, whatever the client's key.
#[tokio::test(start_paused = true)]
async fn a_panic_behind_the_hand_over_is_no_proof_in_the_ledger() {
    let world = World::new().await;
    let agent = world.agent("a");
    let head = "POST /x HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 4\r\n\
        Bridgehead-Outcome-Key: c2VjcmV0LWNhbmFyeS0xMjM0NQ\r\n\r\n";
    for (said, delivery, state) in [
        (None, "unknown", State::Unknown),
        (
            Some("HTTP/1.1 103 Early Hints\r\n\r\n"),
            "delivered",
            State::Answered,
        ),
    ] {
        let (mut client, trap) = world.client_with_a_trap();
        client.send(head).await;
        let mut app = agent.app().await;
        app.take_head().await;
        if let Some(said) = said {
            app.say(said).await;
            client.head().await.expect("hints");
        }
        trap.store(true, Ordering::Relaxed);
        client.send("body").await;
        let answer = client.answer().await;
        assert_eq!(answer.error()["delivery"], delivery);
        let outcome = world.outcome_of(answer.field("x-request-id").expect("an id"));
        assert_eq!(outcome.map(|outcome| outcome.state), Some(state));
        client.leave();
        drop(app);
    }
    let failed = "SERVICE_UNAVAILABLE";
    let ends = [
        format!("failed/delivered/{failed}"),
        format!("failed/unknown/{failed}"),
    ];
    world
        .end([agent], &ends.each_ref().map(String::as_str))
        .await;
}
