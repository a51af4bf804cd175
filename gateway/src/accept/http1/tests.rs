//! One connection against a scripted corridor, in memory with paused time.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::accept::testing::{Scripted, info};
use crate::accept::{Limits, Refusal};
use crate::h1::HeadError;
use crate::request::front::{BodyLength, ClientFault};
use crate::shutdown::{Shutdown, Signal};

struct World {
    client: DuplexStream,
    corridor: Scripted,
    server: JoinHandle<()>,
}

fn start_with(signal: Signal, room: usize) -> World {
    start_after("", signal, room)
}

/// A connection of which `first` was read before.
fn start_after(first: &str, signal: Signal, room: usize) -> World {
    let (client, io) = duplex(room);
    let first = BytesMut::from(first);
    let corridor = Scripted::default();
    let serving = corridor.clone();
    let server = tokio::spawn(async move {
        let limits = Arc::new(Limits::default());
        super::serve(io, first, &info(), &serving, &limits, signal).await;
    });
    World {
        client,
        corridor,
        server,
    }
}

fn start() -> World {
    start_with(Signal::never(), 256 * 1024)
}

impl World {
    async fn write(&mut self, text: &str) {
        let written = self.client.write_all(text.as_bytes()).await;
        written.expect("the server reads");
    }

    /// Everything up to and including `end`.
    async fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut byte = [0];
            let read = self.client.read(&mut byte).await.expect("a read");
            assert_ne!(read, 0, "ended after {text:?}");
            text.push(byte[0] as char);
        }
        text
    }

    /// Everything up to the end of the connection.
    async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        self.client.read_to_end(&mut bytes).await.expect("a read");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Say everything, end our side, and give everything that is answered.
    async fn dialogue(text: &str) -> (String, Scripted) {
        let mut world = start();
        world.write(text).await;
        world.client.shutdown().await.expect("a shutdown");
        let rest = world.rest().await;
        world.server.await.expect("the server ends");
        (rest, world.corridor)
    }
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}")
}

#[tokio::test(start_paused = true)]
async fn exchanges_follow_each_other_on_one_connection() {
    let mut world = start();
    for body in ["one", "two!", ""] {
        let length = format!("Content-Length: {}\r\n", body.len());
        world.write(&post("/echo", &length, body)).await;
        let answer = world.until(&format!("\r\n\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(!answer.contains("connection"), "{answer}");
    }
    assert_eq!(world.corridor.seen().len(), 3);
    let zero = world.corridor.seen()[2].head.clone().expect("a head");
    assert_eq!(zero.body, BodyLength::Exact(0));
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let text = post("/echo", "Content-Length: 3\r\n", "one")
        + &post(
            "/echo",
            "Transfer-Encoding: chunked\r\n",
            "3\r\ntwo\r\n0\r\n\r\n",
        )
        + &post(
            "/echo",
            "Connection: close\r\nContent-Length: 5\r\n",
            "three",
        );
    let (answers, _) = World::dialogue(&text).await;
    let order: Vec<usize> = ["one", "two", "three"]
        .iter()
        .map(|word| answers.find(word).expect("an answer"))
        .collect();
    assert!(order.is_sorted(), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3);
    assert!(answers.contains("connection: close"));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_no_head_is_refused_once_and_the_connection_closes() {
    for (text, error) in [
        ("GET / HTTP/1.1\r\n\r\n", HeadError::HostMissing),
        ("GET / HTTP/1.1\nHost: a\n\n", HeadError::BareLf),
        ("G\0T / HTTP/1.1\r\n", HeadError::Nul),
    ] {
        let follow_up = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
        let (answer, corridor) = World::dialogue(&format!("{text}{follow_up}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(
            *corridor.refused.lock().expect("a lock"),
            [Refusal::Head(error)]
        );
        assert!(corridor.seen().is_empty(), "nothing is forwarded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_told_and_an_idle_connection_is_closed_silently() {
    let mut world = start();
    let begun = Instant::now();
    world.write("GET / HT").await;
    let answer = world.rest().await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(begun.elapsed().as_secs(), 10);

    let mut world = start();
    let begun = Instant::now();
    assert_eq!(world.rest().await, "");
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert!(world.corridor.refused.lock().expect("a lock").is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_byte_at_a_time_is_still_a_request() {
    let mut world = start();
    let text = post(
        "/echo",
        "Transfer-Encoding: chunked\r\n",
        "3\r\nabc\r\n0\r\n\r\n",
    );
    for byte in text.bytes() {
        world.client.write_all(&[byte]).await.expect("a write");
        tokio::task::yield_now().await;
    }
    assert!(world.until("abc").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_is_told_to_continue_when_its_body_is_wanted() {
    let mut world = start();
    let fields = "Expect: 100-continue\r\nContent-Length: 3\r\n";
    world.write(&post("/echo", fields, "")).await;
    assert_eq!(
        world.until("\r\n\r\n").await,
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    world.write("abc").await;
    assert!(world.until("abc").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_whose_body_is_not_wanted_gets_the_answer_alone() {
    let mut world = start();
    let fields = "Expect: 100-continue\r\nContent-Length: 3\r\n";
    world.write(&post("/early", fields, "")).await;
    let answer = world.rest().await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stops_is_too_slow_after_its_idle_limit() {
    let mut world = start();
    let begun = Instant::now();
    world
        .write(&post(
            "/echo",
            "Content-Length: 99999\r\n",
            &"x".repeat(50_000),
        ))
        .await;
    let answer = world.rest().await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((30..=32).contains(&begun.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn no_field_lifts_the_limits_of_an_upload() {
    for fields in [
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
        "Connection: upgrade\r\n",
        "Content-Type: application/grpc\r\n",
        "Content-Type: application/grpc-web+proto\r\n",
    ] {
        let mut world = start();
        let begun = Instant::now();
        let fields = format!("{fields}Content-Length: 10\r\n");
        world.write(&post("/echo", &fields, "")).await;
        let answer = timeout(Duration::from_secs(60), world.rest()).await;
        let answer = answer.unwrap_or_else(|_| panic!("nothing ends {fields}"));
        assert!(answer.starts_with("HTTP/1.1 408 "), "{fields}: {answer}");
        assert!((10..=12).contains(&begun.elapsed().as_secs()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_trickles_is_too_slow_after_its_grace() {
    let mut world = start();
    let begun = Instant::now();
    world
        .write(&post("/echo", "Content-Length: 99999\r\n", ""))
        .await;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let trickle = async {
        loop {
            second.tick().await;
            if world.client.write_all(b"x").await.is_err() {
                return;
            }
        }
    };
    let _ends_with_the_server = timeout(Duration::from_secs(20), trickle).await;
    let seen = world.corridor.seen();
    assert_eq!(seen[0].fault, Some(ClientFault::TooSlow));
    assert!(begun.elapsed().as_secs() <= 20);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_turns_bad_midway_is_no_complete_body() {
    let text = post(
        "/echo",
        "Transfer-Encoding: chunked\r\n",
        "3\r\nabc\r\nzz\r\n0\r\n\r\n",
    );
    let (answer, corridor) = World::dialogue(&text).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(matches!(
        corridor.seen()[0].fault,
        Some(ClientFault::Malformed(_))
    ));
    assert_eq!(answer.matches("HTTP/1.1").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_cut_short_by_the_client_is_malformed_and_still_answered() {
    let (answer, corridor) = World::dialogue(&post("/echo", "Content-Length: 9\r\n", "abc")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(matches!(
        corridor.seen()[0].fault,
        Some(ClientFault::Malformed(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn trailers_pass_both_ways_without_the_forbidden_ones() {
    let body = "1\r\nx\r\n0\r\nX-In: 5\r\nHost: b\r\n\r\n";
    let (answer, corridor) =
        World::dialogue(&post("/trailers", "Transfer-Encoding: chunked\r\n", body)).await;
    let trailers = corridor.seen()[0].trailers.clone().expect("trailers");
    assert_eq!(trailers.len(), 1);
    assert_eq!(trailers["x-in"], "5");
    assert!(
        answer.ends_with("3\r\none\r\n0\r\nx-sum: 1\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn hints_come_before_the_answer_and_never_to_an_old_client() {
    let (answer, _) = World::dialogue("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(
        answer
            .matches("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
            .count(),
        2
    );
    let (answer, _) = World::dialogue("GET /hints HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_unknown_length_is_chunked_or_ends_with_the_connection() {
    let mut world = start();
    world
        .write("GET /streamed HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    let answer = world.until("\r\n0\r\n\r\n").await;
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    assert!(
        answer.ends_with("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        "{answer}"
    );

    let (answer, _) = World::dialogue("GET /streamed HTTP/1.0\r\n\r\n").await;
    assert!(
        answer.contains("connection: close") && answer.ends_with("\r\n\r\nonetwo"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_client_keeps_its_connection_only_if_it_asks() {
    let mut world = start();
    let keep = "GET /ignore HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    world.write(keep).await;
    assert!(
        world
            .until("ignored")
            .await
            .contains("connection: keep-alive")
    );
    world.write("GET /ignore HTTP/1.0\r\n\r\n").await;
    assert!(world.rest().await.contains("connection: close"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_no_body() {
    let text = "HEAD /early HTTP/1.1\r\nHost: a\r\n\r\nGET /ignore HTTP/1.1\r\nHost: a\r\n\r\n";
    let (answer, corridor) = World::dialogue(text).await;
    assert!(!answer.contains("too much"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nignored"), "{answer}");
    assert_eq!(
        corridor.seen()[0].head.clone().expect("a head").method,
        Method::HEAD
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_never_ends_cleanly() {
    for path in ["/broken-stream", "/forgotten"] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (answer, _) = World::dialogue(&text).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains("0\r\n\r\n"), "{path}: {answer}");
    }
    let (answer, _) = World::dialogue("GET /broken-length HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(
        answer.contains("content-length: 10") && answer.ends_with("half"),
        "{answer}"
    );
    let (answer, _) = World::dialogue("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(answer, "");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_an_unread_body_is_read_before_the_connection_closes() {
    let mut world = start();
    world
        .write(&post("/early", "Content-Length: 99999\r\n", "x"))
        .await;
    let answer = world.until("too much").await;
    assert!(answer.contains("connection: close"), "{answer}");
    let begun = Instant::now();
    world.write(&"y".repeat(50_000)).await;
    assert_eq!(world.rest().await, "", "our side is closed");
    world.server.await.expect("the server ends");
    assert_eq!(
        begun.elapsed().as_secs(),
        5,
        "the rest is discarded for a while"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_already_here_does_not_cost_the_connection() {
    let mut world = start();
    world
        .write(&post("/ignore", "Content-Length: 3\r\n", "abc"))
        .await;
    world.until("ignored").await;
    world
        .write(&post("/echo", "Content-Length: 3\r\n", "def"))
        .await;
    world.until("def").await;
}

#[tokio::test(start_paused = true)]
async fn bytes_behind_an_upgrade_wait_for_the_switch() {
    let mut world = start();
    let upgrade = "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";
    world.write(&format!("{upgrade}early ")).await;
    let head = world.until("\r\n\r\n").await;
    assert!(
        head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{head}"
    );
    assert!(
        head.contains("upgrade: test\r\nconnection: upgrade\r\n"),
        "{head}"
    );
    assert_eq!(world.until("early ").await, "hello early ");
    world.write("late").await;
    world.client.shutdown().await.expect("a shutdown");
    assert_eq!(world.rest().await, "late", "the half-close is passed on");
}

#[tokio::test(start_paused = true)]
async fn bytes_behind_a_refused_upgrade_are_the_next_request() {
    let upgrade = "GET /ignore HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";
    let next = post("/echo", "Content-Length: 4\r\n", "next");
    let (answer, corridor) = World::dialogue(&format!("{upgrade}{next}")).await;
    assert!(
        answer.contains("ignored") && answer.ends_with("next"),
        "{answer}"
    );
    assert!(corridor.seen()[0].body.is_empty());
}

#[tokio::test(start_paused = true)]
async fn both_directions_flow_at_once() {
    let mut world = start();
    world
        .write(&post("/stream-echo", "Transfer-Encoding: chunked\r\n", ""))
        .await;
    world.until("\r\n\r\n").await;
    for word in ["ping", "pong"] {
        world.write(&format!("4\r\n{word}\r\n")).await;
        assert_eq!(world.until(word).await.trim_start(), format!("4\r\n{word}"));
    }
    world.write("0\r\n\r\n").await;
    assert_eq!(world.until("0\r\n\r\n").await, "\r\n0\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_gone_after_the_stall_limit() {
    let mut world = start_with(Signal::never(), 1024);
    let begun = Instant::now();
    world.write("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").await;
    world.server.await.expect("the server ends");
    assert!((30..=31).contains(&begun.elapsed().as_secs()));
    assert!(world.corridor.seen()[0].left);
}

#[tokio::test(start_paused = true)]
async fn draining_closes_idle_connections_and_finishes_busy_ones() {
    let shutdown = Shutdown::new();
    let mut idle = start_with(shutdown.signal(), 1024);
    let mut busy = start_with(shutdown.signal(), 1024);
    busy.write(&post("/echo", "Content-Length: 3\r\n", "a"))
        .await;
    tokio::task::yield_now().await;
    shutdown.drain();
    assert_eq!(idle.rest().await, "");
    busy.write("bc").await;
    let answer = busy.rest().await;
    assert!(
        answer.contains("connection: close") && answer.ends_with("abc"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_is_gone_within_a_second() {
    for path in ["/late", "/events"] {
        let mut world = start();
        let begun = Instant::now();
        world
            .write(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        if path == "/events" {
            world.until("event\r\n").await;
        }
        drop(world.client);
        world.server.await.expect("the server ends");
        assert!(world.corridor.seen()[0].left, "{path}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_during_a_drain_is_gone_as_well() {
    let shutdown = Shutdown::new();
    shutdown.drain();
    // A drain closes silent connections, so the request is there from the beginning.
    let text = "GET /events HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut world = start_after(text, shutdown.signal(), 1024);
    let begun = Instant::now();
    world.until("event\r\n").await;
    drop(world.client);
    world.server.await.expect("the server ends");
    assert!(world.corridor.seen()[0].left);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_ends_its_side_gets_its_late_answer() {
    let (answer, _) = World::dialogue("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let expected = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(
        answer.starts_with(expected) && answer.ends_with("late"),
        "{answer}"
    );
    let (answer, _) = World::dialogue("GET /late HTTP/1.0\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n"),
        "an old client gets no 1xx: {answer}"
    );
}
