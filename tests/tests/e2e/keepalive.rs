//! Connections that serve several exchanges, on both sides: reused, never at the price of a doubled POST.

use std::time::Duration;

use bridgehead_tests::app::{self, Conn};
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::{One, one, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_connection_serves_many_exchanges_over_one_app_connection() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    for n in 0..20 {
        let answer = client.ask("GET", &format!("/{n}"), &host, &[], b"").await;
        assert!(answer.text().starts_with(&format!("GET /{n}\n")));
    }
    // An agent has two tunnels, and each keeps its own connections.
    let used = app.seen().len();
    assert!(used <= 2, "20 requests took {used} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_sent_in_one_go_are_answered_in_order() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    let all: String = (0..5)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        .collect();
    client.send(all).await;
    for n in 0..5 {
        assert!(
            client
                .answer("GET")
                .await
                .text()
                .starts_with(&format!("GET /{n}\n"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_to_close_is_closed() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let answer = client
        .ask(
            "GET",
            "/",
            &world.host("demo"),
            &[("Connection", "close")],
            b"",
        )
        .await;
    assert_eq!(answer.status, 200);
    let (rest, _) = wait::within(wait::SOON, "the connection's end", client.read_to_end()).await;
    assert!(rest.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_client_without_keep_alive_is_served_and_closed() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    client
        .send(format!(
            "GET /old HTTP/1.0\r\nHost: {}\r\n\r\n",
            world.host("demo")
        ))
        .await;
    let answer = client.answer("GET").await;
    assert!(answer.text().starts_with("GET /old\n"));
    assert_eq!(
        answer.header("transfer-encoding"),
        None,
        "1.0 knows no chunks"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_closes_each_connection_serves_every_request_once() {
    let script = |mut conn: Conn| async move {
        if let Some(head) = conn.read_head().await {
            let Some((body, _)) = conn.read_body(&head).await else {
                return;
            };
            let body = String::from_utf8_lossy(&body).into_owned();
            conn.write(format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), script).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    for n in 0..20 {
        let body = format!("order-{n};");
        assert_eq!(
            client
                .ask("POST", "/", &host, &[], body.as_bytes())
                .await
                .text(),
            body
        );
    }
    let text = app.text();
    for n in 0..20 {
        assert_eq!(
            text.matches(&format!("order-{n};")).count(),
            1,
            "order {n} arrived exactly once"
        );
    }
}

/// The app answers once per connection with keep-alive, then closes without a word: the classic race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_app_connection_never_doubles_a_post() {
    let script = |mut conn: Conn| async move {
        if let Some(head) = conn.read_head().await
            && conn.read_body(&head).await.is_some()
        {
            conn.answer("done").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(quick(), script).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    for n in 0..30 {
        let body = format!("order-{n};");
        let answer = client.ask("POST", "/", &host, &[], body.as_bytes()).await;
        let arrived = app.text().matches(&body).count();
        assert!(arrived <= 1, "order {n} arrived {arrived} times");
        if answer.status == 200 {
            assert_eq!(arrived, 1, "order {n} was answered");
        } else if answer.error("delivery") == "not_delivered" {
            assert_eq!(arrived, 0, "order {n} was told as not delivered");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_app_connection_is_let_go_within_seconds() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    assert_eq!(world.get("/").await.status, 200);
    app.until("the idle connection ending", |seen| {
        seen.iter().all(|s| s.ended.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_serves_one_connection_at_a_time_serves_many_clients() {
    // The listener's backlog queues the others, as with a single-threaded server.
    let turn = std::sync::Arc::new(tokio::sync::Mutex::new(()));
    let script = move |mut conn: Conn| {
        let turn = turn.clone();
        async move {
            let _mine = turn.lock().await;
            while let Some(head) = conn.read_head().await {
                if conn.read_body(&head).await.is_none() {
                    return;
                }
                conn.answer("mine").await;
            }
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (addr, host) = (world.places.public, world.host("demo"));
        asks.spawn(async move {
            bridgehead_tests::client::ask(addr, "GET", "/", &host)
                .await
                .text()
        });
    }
    let all = wait::within(
        Duration::from_secs(25),
        "every client being served",
        asks.join_all(),
    )
    .await;
    assert_eq!(all, ["mine"; 4]);
}
