//! Connections that serve several exchanges, on both sides: reused, never at the price of a doubled POST.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_tests::app::{self, Conn};
use bridgehead_tests::client::H1;
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use futures_util::future::BoxFuture;

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

/// Keep-alive of an app that serves one connection at a time.
const KEEPS: Duration = Duration::from_secs(4);

/// An app that serves one connection at a time and keeps it for its next request, as a single-threaded
/// server does: the others lie unread in its backlog.
fn one_connection_app() -> impl Fn(Conn) -> BoxFuture<'static, ()> + Send + Sync + 'static {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    move |mut conn: Conn| {
        let turn = Arc::clone(&turn);
        Box::pin(async move {
            let _mine = turn.lock().await;
            while let Ok(Some(head)) = tokio::time::timeout(KEEPS, conn.read_head()).await {
                if conn.read_body(&head).await.is_none() {
                    return;
                }
                conn.answer(&head.target).await;
            }
        })
    }
}

/// Every client asks again as soon as it is answered; every answer is checked.
async fn crowd(world: &World, clients: usize, rounds: usize, methods: &'static [&'static str]) {
    let mut asks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let (addr, host) = (world.places.public, world.host("demo"));
        asks.spawn(async move {
            let mut h1 = H1::connect(addr).await;
            for round in 0..rounds {
                let method = methods[(client + round) % methods.len()];
                let body: &[u8] = if method == "GET" { b"" } else { b"order" };
                let target = format!("/{client}/{round}");
                let answer = h1.ask(method, &target, &host, &[], body).await;
                assert_eq!((answer.status, answer.text()), (200, target));
            }
        });
    }
    wait::within(wait::SOON * 2, "every client being served", asks.join_all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_serves_one_connection_at_a_time_serves_sixteen_clients() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), one_connection_app()).await;
    crowd(&world, 16, 25, &["GET"]).await;
    crowd(&world, 16, 25, &["POST"]).await;
    let orders = app.text().matches("order").count();
    assert_eq!(orders, 16 * 25, "each order arrives once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_serves_one_connection_at_a_time_serves_sixty_four_clients() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), one_connection_app()).await;
    crowd(&world, 64, 10, &["GET", "POST"]).await;
}

/// A kept connection is too old for the POST, but it is the only one the app serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_that_is_too_old_for_a_post_does_not_stand_in_its_way() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), one_connection_app()).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    for target in ["/1", "/2"] {
        let answer = client.ask("POST", target, &host, &[], b"order").await;
        assert_eq!((answer.status, answer.text()), (200, target.to_owned()));
        // Above the second that a kept connection may have been idle for a POST, below what is kept.
        wait::dawdle(Duration::from_millis(1200)).await;
    }
}

/// One exchange that takes its time must not cost the others their kept connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_does_not_keep_others_from_using_kept_connections() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target == "/poll" {
                conn.until_closed().await;
                return;
            }
            conn.answer("quick").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), script).await;
    let host = world.host("demo");
    let mut poll = world.h1().await;
    poll.request("GET", "/poll", &host, &[], b"").await;
    app.until_text("/poll").await;
    let mut client = world.h1().await;
    let begun = std::time::Instant::now();
    let mut asked = 0;
    // Past every moment at which somebody could lose patience with the long poll.
    while begun.elapsed() < Duration::from_millis(2500) {
        client.ask("GET", "/quick", &host, &[], b"").await;
        asked += 1;
    }
    let used = app.seen().len();
    assert!(
        asked > 20 && used <= 6,
        "{asked} quick requests took {used} connections"
    );
}
