//! Answers of the app: what passes untouched, and what is broken and never leaks into another.

use std::time::Duration;

use crate::request::testing::{Answer, World, pass};

const SECOND: Duration = Duration::from_secs(1);

/// Says `said` to a request made with `method` and closes if told so; the client's answer, and proof
/// that the next exchange gets its own answer over a fresh connection.
async fn broken(method: &str, said: &str) -> Answer {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send(format!(
            "{method} /1 HTTP/1.1\r\nHost: demo.example.com\r\n\r\n"
        ))
        .await;
    let mut app = agent.app().await;
    app.request().await;
    app.say(said).await;
    let answer = client.answer().await;
    app.closed().await;
    drop(app);
    let mut other = world.client();
    other.get("/2").await;
    let mut fresh = agent.app().await;
    assert!(fresh.request().await.head.starts_with("GET /2 "));
    fresh.answer("mine").await;
    assert_eq!(other.answer().await.text(), "mine");
    assert!(world.elapsed() < SECOND, "{:?}", world.elapsed());
    drop(fresh);
    client.leave();
    other.leave();
    let outcomes = ["answered/delivered/", "failed/delivered/BH_APP_BROKEN"];
    world.end([agent], &outcomes).await;
    answer
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_is_told_as_broken_and_its_connection_is_dropped() {
    let storm = "HTTP/1.1 102 Processing\r\n\r\n".repeat(17);
    for said in [
        // Something behind a complete answer, be it another answer.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx",
        "HTTP/1.1 204 No Content\r\n\r\nx",
        "HTTP/1.1 304 Not Modified\r\n\r\nx",
        // No HTTP at all, or not enough of it.
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 2OO OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        &storm,
    ] {
        let answer = broken("GET", said).await;
        assert_eq!(answer.status, 502, "{said:?}");
        assert_eq!(
            answer.verdict(),
            "BH_APP_BROKEN bad_http delivered answer_begun",
            "{said:?}"
        );
        assert!(answer.field("retry-after").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_on_the_answer_to_head_is_broken() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("HEAD / HTTP/1.1\r\nHost: demo.example.com\r\n\r\n")
        .await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(
        head.contains("bridgehead-code: BH_APP_BROKEN\r\n"),
        "{head}"
    );
    app.closed().await;
    drop(app);
    client.leave();
    world
        .end([agent], &["failed/delivered/BH_APP_BROKEN"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_after_its_first_byte_is_cut() {
    for (first, then, close) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "zz\r\n",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "de",
            false,
        ),
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.get("/x").await;
        let mut app = agent.app().await;
        app.request().await;
        app.say(first).await;
        pass(Duration::from_millis(10)).await;
        app.say(then).await;
        let open = if close {
            app.close();
            None
        } else {
            Some(app)
        };
        let answer = client.answer().await;
        if let Some(mut app) = open {
            app.closed().await;
        }
        assert_eq!((answer.status, answer.whole), (200, false), "{first:?}");
        assert_eq!(answer.text(), "abc");
        client.leave();
        world
            .end([agent], &["aborted/delivered/BH_APP_BROKEN"])
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_end_is_the_end_of_its_connection_ends_cleanly_only_after_a_fin() {
    for (version, reset) in [("1.1", false), ("1.1", true), ("1.0", false), ("1.0", true)] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client
            .send(format!(
                "GET / HTTP/{version}\r\nHost: demo.example.com\r\n\r\n"
            ))
            .await;
        let mut app = agent.app().await;
        app.request().await;
        app.say("HTTP/1.1 200 OK\r\n\r\nabc").await;
        let outcome = if reset {
            app.reset();
            "aborted/delivered/BH_APP_BROKEN"
        } else {
            app.close();
            "answered/delivered/"
        };
        let answer = client.answer().await;
        assert_eq!(
            (answer.text().as_str(), answer.whole),
            ("abc", !reset),
            "{version}"
        );
        client.leave();
        world.end([agent], &[outcome]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_apps_own_failure_passes_untouched() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say(
        "HTTP/1.1 502 My Fault\r\nContent-Length: 4\r\nX-Own: 1\r\nBridgehead-Code: BH_APP_STARTING\r\n\
         Bridgehead-Delivery: not_delivered\r\nRetry-After: 7\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\noops",
    )
    .await;
    let answer = client.answer().await;
    assert!(
        answer.head.starts_with("HTTP/1.1 502 My Fault\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(answer.text(), "oops");
    assert_eq!(
        (answer.field("x-own"), answer.field("retry-after")),
        (Some("1"), Some("7"))
    );
    for name in ["bridgehead-code", "bridgehead-delivery", "x-hop"] {
        assert_eq!(answer.field(name), None, "{}", answer.head);
    }
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn trailers_pass_to_the_client_and_never_forge_a_verdict() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("GET / HTTP/1.1\r\nHost: demo.example.com\r\nTE: trailers\r\nConnection: te\r\n\r\n")
        .await;
    let mut app = agent.app().await;
    assert_eq!(app.request().await.field("te"), Some("trailers"));
    app.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nBridgehead-Delivery: not_delivered\r\n\r\n")
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.text().as_str(), answer.trailers.as_str()),
        ("ok", "x-sum: 1\n")
    );
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn lengths_survive_as_they_were_said() {
    for (request, length) in [
        (
            "PUT / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 0\r\n\r\n",
            Some("0"),
        ),
        ("GET / HTTP/1.1\r\nHost: demo.example.com\r\n\r\n", None),
        (
            "POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 3\r\n\r\nabc",
            Some("3"),
        ),
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.send(request).await;
        let mut app = agent.app().await;
        let seen = app.request().await;
        assert_eq!(seen.field("content-length"), length);
        assert_eq!(seen.field("transfer-encoding"), None);
        app.answer("").await;
        let answer = client.answer().await;
        assert_eq!(answer.field("content-length"), Some("0"));
        client.leave();
        drop(app);
        world.end([agent], &["answered/delivered/"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_a_length_arrives_whole() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("PATCH / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await;
    let mut app = agent.app().await;
    app.take_until("abc\r\n").await;
    client.send("2\r\nde\r\n0\r\n\r\n").await;
    assert_eq!(app.take_until("0\r\n\r\n").await, "2\r\nde\r\n0\r\n\r\n");
    app.answer("ok").await;
    assert_eq!(client.answer().await.text(), "ok");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_client_sees_no_informational_answer() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("GET / HTTP/1.0\r\nHost: demo.example.com\r\n\r\n")
        .await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 103 Early Hints\r\n\r\n").await;
    app.answer("ok").await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_in_the_words_of_who_asked() {
    let world = World::new().await;
    let mut client = world.client();
    client
        .send("GET / HTTP/1.1\r\nHost: demo.example.com\r\nAccept: text/html\r\nAccept-Language: ru\r\n\r\n")
        .await;
    let page = client.answer().await;
    assert!(
        page.field("content-type").unwrap().starts_with("text/html"),
        "{}",
        page.head
    );
    assert_eq!(page.field("bridgehead-delivery"), Some("not_delivered"));
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nOrigin: https://o.example\r\nContent-Length: 0\r\n\r\n")
        .await;
    let json = client.answer().await;
    assert_eq!(
        json.field("access-control-allow-origin"),
        Some("https://o.example")
    );
    assert_eq!(json.field("cache-control"), Some("no-store"));
    assert_eq!(
        json.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    client
        .send("OPTIONS / HTTP/1.1\r\nHost: demo.example.com\r\nOrigin: https://o.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
        .await;
    let preflight = client.answer().await;
    assert!(preflight.status < 300, "{}", preflight.head);
    assert_eq!(
        preflight.field("access-control-allow-origin"),
        Some("https://o.example")
    );
    client.leave();
    let outcomes = ["refused/not_delivered/BH_APP_STARTING"; 3];
    world.end([], &outcomes).await;
}
