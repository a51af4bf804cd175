//! A client that leaves: the app learns it within a second, and nobody else notices.

use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, Conn, Seen};
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::{One, one};

/// The promise, and room for a machine that runs other things.
const SOON: Duration = Duration::from_millis(2500);

#[track_caller]
fn closed_in_time(seen: &[Seen], left: Instant) {
    let (ended, _) = seen[0].ended.expect("the app's connection ended");
    let took = ended.saturating_duration_since(left);
    assert!(took <= SOON, "the app learnt it after {took:?}");
}

fn ended(seen: &[Seen]) -> bool {
    seen.first().is_some_and(|s| s.ended.is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_waiting_closes_the_apps_socket() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::silent).await;
    let mut client = world.h1().await;
    client
        .request("POST", "/slow", &world.host("demo"), &[], b"a=1")
        .await;
    app.until_text("a=1").await;
    let left = Instant::now();
    reset(client);
    closed_in_time(&app.until("the app's socket closing", ended).await, left);
}

/// Leaves with RST, as a browser does that closes a tab with unread bytes.
fn reset(client: bridgehead_tests::client::H1) {
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_stream_closes_the_apps_socket() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                .await;
            conn.write("data: 1\n\n").await;
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
        .request("GET", "/events", &world.host("demo"), &[], b"")
        .await;
    assert_eq!(client.read_head().await.expect("a head").status, 200);
    let left = Instant::now();
    reset(client);
    closed_in_time(&app.until("the app's socket closing", ended).await, left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_in_mid_upload_never_makes_the_request_complete() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::silent).await;
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/up",
            &world.host("demo"),
            &[("Transfer-Encoding", "chunked")],
            b"3\r\nabc\r\n",
        )
        .await;
    app.until_text("abc").await;
    let left = Instant::now();
    reset(client);
    let seen = app.until("the app's socket closing", ended).await;
    closed_in_time(&seen, left);
    assert!(
        !seen[0].text().contains("\r\n0\r\n\r\n"),
        "the app must not take it for whole: {}",
        seen[0].text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_exchange_leaves_nothing_behind() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::silent).await;
    for _ in 0..20 {
        let mut client = world.h1().await;
        client
            .request("GET", "/slow", &world.host("demo"), &[], b"")
            .await;
        reset(client);
    }
    let idle = || async {
        let metrics = world.metrics().await;
        let busy = metrics.sum("in_flight", &[]) + metrics.sum("streams", &[]);
        (busy == 0.0).then_some(())
    };
    wait::until(wait::SOON, "gauges coming back to zero", idle).await;
    app.until("every connection ending", |seen| {
        seen.iter().all(|s| s.ended.is_some())
    })
    .await;
}
