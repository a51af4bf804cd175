//! What one client may have of an app's places, and that it is in nobody else's way.

use bridgehead_tests::app::Conn;

use super::{Gated, admission, check_within, demo, until};
use crate::support::{One, Verdict, neighbour, one};

/// Sends as much as is taken.
async fn endless(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        if head.target != "/endless" {
            conn.answer("quick").await;
            continue;
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 40);
        let piece = "x".repeat(64 * 1024);
        let mut going = conn.write(&head).await;
        while going {
            going = conn.write(&piece).await;
        }
        return;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_holds_all_it_may_unread_is_in_nobody_elses_way() {
    let setup = demo("in_flight = 4\nqueue = 4\nclient_share = \"50%\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, endless).await;
    let host = world.host("demo");
    let before = world.metrics().await;
    let mut greedy = Vec::new();
    for waiting in [0, 0, 1, 2] {
        let mut client = world.h1().await;
        client.request("GET", "/endless", &host, &[], b"").await;
        greedy.push(client);
        until(&world, "queue_depth", waiting).await;
        until(&world, "in_flight", (greedy.len() as u64).min(2)).await;
    }
    let mut more = world.h1().await;
    let refused = more.ask("GET", "/more", &host, &[], b"").await;
    let verdict = Verdict::refused(503, "QUEUE_OVERFLOW", "queue_full");
    check_within(verdict, &refused, 1..=30);
    let message = refused.error("message");
    assert!(
        message.contains("client_share lets one client take 2 of queue"),
        "{message}"
    );

    // While it holds on, another one is served at once: nobody it would have to wait for.
    let mut other = neighbour(&world).await;
    for _ in 0..50 {
        let answer = other.ask("POST", "/other", &host, &[], b"x").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "quick"));
    }
    let shown = admission(&world).await;
    assert_eq!(shown["client_share"], 50);
    assert_eq!(
        (&shown["clients_at_share"], &shown["queued"]),
        (&1.into(), &2.into())
    );
    let after = world.metrics().await;
    let waited = [("app", "demo")];
    assert_eq!(
        after.sum("queue_wait_seconds_count", &waited),
        0.0,
        "nobody's wait is over"
    );
    let bites = after.moved(&before, |name| name.contains("client_share_total"));
    let bites: Vec<f64> = bites.into_values().collect();
    assert_eq!(bites, [2.0, 1.0], "two wait, one was refused");
    assert!(!app.text().contains("/more"));

    // Its own places go on to those of its own that wait.
    drop(greedy.drain(..2));
    until(&world, "queue_depth", 0).await;
    until(&world, "in_flight", 2).await;
    drop(greedy);
    until(&world, "in_flight", 0).await;
    assert_eq!(admission(&world).await["clients_at_share"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_behind_a_trusted_proxy_have_shares_of_their_own_and_one_that_waits_in_vain_is_told_why()
 {
    let shares = "in_flight = 2\nclient_share = \"50%\"\nqueue_wait = \"300ms\"";
    let setup = demo(shares).section("public", "trusted_proxies = [\"127.0.0.1\"]");
    let gated = Gated::start(setup).await;
    let host = gated.world().host("demo");
    let from = |address: &'static str| [("X-Forwarded-For", address)];
    let mut first = gated.world().h1().await;
    first
        .request("POST", "/first", &host, &from("192.0.2.1"), b"x")
        .await;
    gated.one.app.until_text("/first").await;
    let mut again = gated.world().h1().await;
    let late = again
        .ask("POST", "/late", &host, &from("192.0.2.1"), b"x")
        .await;
    Verdict::refused(504, "QUEUE_TIMEOUT", "queue_wait")
        .after(10)
        .check(&late);
    assert!(late.error("message").contains("client_share"), "{late:?}");
    let mut second = gated.world().h1().await;
    second
        .request("POST", "/second", &host, &from("192.0.2.2"), b"x")
        .await;
    gated.one.app.until_text("/second").await;
    gated.let_go(9);
    assert_eq!(first.answer("POST").await.text(), "/first");
    assert_eq!(second.answer("POST").await.text(), "/second");
    assert!(!gated.one.app.text().contains("/late"));
}
