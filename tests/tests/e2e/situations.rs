//! The five situations that must not look alike, each by its cause, judged against what the app saw.

use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, App, ClosedPort, Conn};
use bridgehead_tests::client::{End, H1};
use bridgehead_tests::world::setup;

use crate::support::{One, Verdict, one, quick};

const REFUSED: Verdict = Verdict::refused(503, "BH_APP_STARTING", "connect_refused").after(2);
const SILENT: Verdict = Verdict::refused(504, "BH_APP_TIMEOUT", "first_frame")
    .unknown("all")
    .window("first_frame");

/// Upper bound of an answer after a window of one second: the window, a second for the counts, and
/// room for a machine that runs other things.
const WINDOW_AND_ROOM: Duration = Duration::from_millis(3500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_port_is_told_as_starting_and_not_delivered() {
    let closed = ClosedPort::take();
    let world = quick().start().await;
    let _agent = world.join("a1", &[("demo", &closed.target())]).await;
    for method in ["GET", "POST"] {
        let body: &[u8] = if method == "POST" { b"a=1" } else { b"" };
        REFUSED.check(&world.ask(method, "/orders", body).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_app_is_told_as_timeout_with_everything_handed_over() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(quick(), app::silent).await;
    for (method, body) in [("GET", &b""[..]), ("POST", &b"a=1"[..])] {
        let begun = Instant::now();
        let answer = world.ask(method, "/slow", body).await;
        let took = begun.elapsed();
        SILENT.check(&answer);
        assert!(
            took >= Duration::from_secs(1),
            "{method} was answered before the window: {took:?}"
        );
        assert!(
            took < WINDOW_AND_ROOM,
            "{method} was answered {took:?} after it was sent"
        );
    }
    let seen = app.seen();
    assert_eq!(seen.len(), 2, "each request reached the app once");
    assert!(
        seen[1].text().ends_with("\r\n\r\na=1"),
        "the app saw the whole POST: {}",
        seen[1].text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_followed_by_silence_is_told_as_timeout_and_delivered() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n")
                .await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let answer = world.get("/").await;
    let stalled = Verdict::refused(504, "BH_APP_TIMEOUT", "stall")
        .delivered()
        .window("stall");
    stalled.check(&answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_after_body_bytes_went_out_breaks_off_visibly() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            let framing = match head.target.as_str() {
                "/length" => "Content-Length: 100\r\n\r\n0123456789",
                _ => "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
            };
            conn.write(format!("HTTP/1.1 200 OK\r\n{framing}")).await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    for target in ["/length", "/chunked"] {
        let answer = world.get(target).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text(), "0123456789", "what came is passed on");
        assert!(
            matches!(answer.end, End::Short | End::Reset),
            "{target} ended {:?}",
            answer.end
        );
    }
    let mut old = world.h1().await;
    old.send(format!(
        "GET /chunked HTTP/1.0\r\nHost: {}\r\n\r\n",
        world.host("demo")
    ))
    .await;
    let answer = old.answer("GET").await;
    assert_eq!(
        answer.end,
        End::Reset,
        "without length or chunks only RST is no clean end"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_closed_before_the_head_leaves_the_outcome_unknown() {
    let script = |mut conn: Conn| async move {
        let Some(head) = conn.read_head().await else {
            return;
        };
        conn.read_body(&head).await;
        if head.target == "/reset" {
            conn.reset();
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(quick(), script).await;
    let closed = Verdict::refused(503, "BH_APP_STARTING", "closed_before_head")
        .unknown("all")
        .after(2);
    closed.check(&world.ask("POST", "/close", b"a=1").await);
    closed.check(&world.ask("POST", "/reset", b"a=1").await);
    assert_eq!(app.seen().len(), 2, "nothing was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_in_mid_request_leaves_the_outcome_unknown() {
    let One {
        world,
        mut agent,
        app,
    } = one(
        quick().section("tunnel", "resume_window = \"0s\""),
        app::silent,
    )
    .await;
    let mut client = world.h1().await;
    client
        .request("POST", "/orders", &world.host("demo"), &[], b"a=1")
        .await;
    app.until_text("a=1").await;
    agent.process.kill();
    let answer = client.answer("POST").await;
    assert_eq!(answer.error("reason"), "tunnel_lost", "{}", answer.text());
    assert_eq!(answer.error("code"), "BH_APP_STARTING");
    assert_eq!(answer.error("delivery"), "unknown");
    assert_eq!(answer.header("retry-after"), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_without_an_agent_is_starting_and_never_not_found() {
    let world = quick().start().await;
    let no_agent = Verdict::refused(503, "BH_APP_STARTING", "no_agent").after(2);
    no_agent.check(&world.get("/").await);
    no_agent.check(&world.ask("POST", "/", b"a=1").await);
    let closed = ClosedPort::take();
    let agent = world.join("a1", &[("demo", &closed.target())]).await;
    REFUSED.check(&world.get("/").await);
    agent.stop();
    world.until_tunnels(0).await;
    no_agent.check(&world.get("/").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apps_own_failure_passes_untouched() {
    let own = "HTTP/1.1 502 Upstream Is Sad\r\nContent-Type: text/plain\r\nRetry-After: 7\r\n\
               Bridgehead-Code: FORGED\r\nBridgehead-Delivery: not_delivered\r\nX-Own: yes\r\nContent-Length: 9\r\n\r\nmy own 5x";
    let script = move |mut conn: Conn| async move {
        while conn.read_head().await.is_some() && conn.write(own).await {}
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let answer = world.get("/").await;
    assert_eq!(
        (answer.status, answer.reason.as_str()),
        (502, "Upstream Is Sad")
    );
    assert_eq!(answer.text(), "my own 5x");
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("x-own"), Some("yes"));
    assert!(!answer.made_by_gateway(), "an app cannot forge a verdict");
    assert_eq!(answer.header("bridgehead-delivery"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_refusals_say_since_when_and_how_often() {
    let closed = ClosedPort::take();
    let world = quick().start().await;
    let _agent = world.join("a1", &[("demo", &closed.target())]).await;
    for _ in 0..3 {
        REFUSED.check(&world.get("/").await);
    }
    let text = world.get("/").await.text();
    assert!(
        text.contains("refused") && text.contains("since"),
        "the answer says for how long: {text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_tried_at_another_agent_at_once() {
    let closed = ClosedPort::take();
    let app = App::start(app::echo).await;
    let world = setup()
        .agent("a1", &["demo"])
        .agent("a2", &["demo"])
        .start()
        .await;
    let _dead = world.join("a1", &[("demo", &closed.target())]).await;
    let _live = world.join("a2", &[("demo", &app.target())]).await;
    for _ in 0..10 {
        let answer = world.ask("POST", "/orders", b"a=1").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(
        app.text().matches("POST /orders").count(),
        10,
        "each POST arrived once"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_of_a_slow_answer_in_time_is_an_answer() {
    let script = |mut conn: Conn| async move {
        while conn.read_head().await.is_some() {
            bridgehead_tests::wait::dawdle(Duration::from_millis(600)).await;
            conn.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
                .await;
            bridgehead_tests::wait::dawdle(Duration::from_millis(600)).await;
            conn.write("ok").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let answer = H1::connect(world.places.public)
        .await
        .ask("GET", "/", &world.host("demo"), &[], b"")
        .await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "ok"),
        "two windows of a second, each kept"
    );
}
