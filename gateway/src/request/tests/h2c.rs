//! An app of HTTP/2 in the corridor, frame by frame: what counts as its progress and as evidence.

use std::time::Duration;

use bridgehead_protocol::io::Outgoing;
use bridgehead_protocol::wire::{AppKind, FinalCause};

use crate::request::testing::{Agent, App, World, pass};

const SECOND: Duration = Duration::from_secs(1);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// `:status: 200` of the static table.
const OK: &[u8] = &[0x88];
/// `:status: 103` as a literal.
const EARLY_HINTS: &[u8] = &[0x08, 3, b'1', b'0', b'3'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Kind, flags, stream and length of the next frame, which is taken whole.
async fn next(app: &mut App) -> (u8, u8, u32, usize) {
    let head = app.take(9).await;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    app.take(length).await;
    let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
    (head[3], head[4], stream, length)
}

async fn world() -> (World, Agent) {
    let world = World::with("protocol = \"h2c\"\nhold = \"0s\"").await;
    let agent = world.agent("a");
    (world, agent)
}

/// The next connection; the app takes what comes before a request, and greets.
async fn connect(agent: &Agent) -> App {
    let mut app = agent.app().await;
    assert_eq!(app.open.kind, AppKind::H2c);
    assert_eq!(app.take(24).await, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(next(&mut app).await.0, SETTINGS);
    assert_eq!(next(&mut app).await.0, WINDOW_UPDATE);
    app.say(frame(SETTINGS, 0, 0, &[])).await;
    app
}

/// The app takes a request to its end, and what the connection owes for its greeting.
async fn take(app: &mut App) {
    let mut acknowledged = false;
    let mut whole = false;
    while !(acknowledged && whole) {
        let (kind, flags, ..) = next(app).await;
        acknowledged |= kind == SETTINGS && flags == ACK;
        whole |= matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_the_first_request_is_no_part_of_it() {
    for (taken, verdict) in [
        (0, "not_delivered none"),
        (1, "unknown part_of_head"),
        (usize::MAX, "unknown all"),
    ] {
        let (world, agent) = world().await;
        let mut client = world.client();
        client.get("/").await;
        let mut app = connect(&agent).await;
        match taken {
            usize::MAX => {
                let (kind, flags, stream, _) = next(&mut app).await;
                assert_eq!((kind, stream), (HEADERS, 1));
                assert_eq!(flags, END_HEADERS | END_STREAM);
            }
            count => drop(app.take(count).await),
        }
        app.reset();
        let answer = client.answer().await;
        assert_eq!(
            answer.verdict(),
            format!("BH_APP_STARTING closed_before_head {verdict}")
        );
    }
}

/// A client's request, the app's first words, then a ping of the app every five seconds for as long
/// as the window of 30 seconds runs. Answers the verdict.
async fn verdict_after_pings(post: bool, said: &[u8]) -> String {
    let (world, agent) = world().await;
    let mut client = world.client();
    if post {
        // The last byte of the body stays with the client's side for ever.
        client
            .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 100000\r\n\r\n")
            .await;
        client.send(vec![b'x'; 100_000]).await;
    } else {
        client.get("/").await;
    }
    let mut app = connect(&agent).await;
    if post {
        // The app's window is shut after 64 KiB less one.
        let mut body = 0;
        while body < 65_535 {
            let (kind, _, _, length) = next(&mut app).await;
            body += if kind == DATA { length } else { 0 };
        }
    } else {
        take(&mut app).await;
    }
    app.say(said).await;
    for _ in 0..5 {
        pass(5 * SECOND).await;
        app.say(frame(PING, 0, 0, &[7; 8])).await;
        while next(&mut app).await != (PING, ACK, 0, 8) {}
    }
    if post {
        app.cut().await;
    } else {
        assert_eq!(app.given_up().await, Outgoing::Fenced { linger: true });
        app.end(FinalCause::LingerOver);
    }
    let answer = client.answer().await;
    let elapsed = world.elapsed();
    assert!((30 * SECOND..32 * SECOND).contains(&elapsed), "{elapsed:?}");
    answer.verdict()
}

#[tokio::test(start_paused = true)]
async fn pings_are_no_progress() {
    assert_eq!(
        verdict_after_pings(false, &[]).await,
        "BH_APP_TIMEOUT first_frame unknown all"
    );
    assert_eq!(
        verdict_after_pings(true, &[]).await,
        "BH_APP_TIMEOUT first_frame unknown body"
    );
    let early = frame(HEADERS, END_HEADERS, 1, EARLY_HINTS);
    assert_eq!(
        verdict_after_pings(false, &early).await,
        "BH_APP_TIMEOUT first_frame delivered answer_begun"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_crosses_a_farewell_and_was_not_written_goes_to_a_fresh_connection() {
    let (world, agent) = world().await;
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = connect(&agent).await;
    take(&mut app).await;
    app.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, OK))
        .await;
    assert_eq!(client.answer().await.status, 200);
    client.post("", "again").await;
    // The agent has the request, the app has not.
    let begin = app.begin().await;
    assert_eq!(begin.expect_read, None);
    app.say(frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]))
        .await;
    app.cut().await;
    let mut app = connect(&agent).await;
    take(&mut app).await;
    app.say(frame(HEADERS, END_HEADERS, 1, OK)).await;
    app.say(frame(DATA, END_STREAM, 1, b"done")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "done"));
    app.close();
    client.leave();
    let outcomes = ["answered/delivered/", "answered/delivered/"];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_unknown_and_says_what_the_app_said() {
    let (world, agent) = world().await;
    let mut client = world.client();
    client.get("/").await;
    let mut app = connect(&agent).await;
    take(&mut app).await;
    app.say(frame(RST_STREAM, 0, 1, &[0, 0, 0, 7])).await;
    app.cut().await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING closed_before_head unknown all"
    );
    assert!(
        answer.text().contains("REFUSED_STREAM"),
        "{}",
        answer.text()
    );
    client.leave();
    world
        .end([agent], &["failed/unknown/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_app_of_another_protocol_is_named_as_such() {
    let (world, agent) = world().await;
    let mut client = world.client();
    client.get("/").await;
    let mut app = agent.app().await;
    app.take(24).await;
    app.say("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        .await;
    app.closed().await;
    app.end(FinalCause::Reset);
    let answer = client.answer().await;
    assert!(
        answer.text().contains("it does not speak HTTP/2"),
        "{}",
        answer.text()
    );
    assert!(
        !answer.verdict().contains(" delivered"),
        "{}",
        answer.verdict()
    );
}
