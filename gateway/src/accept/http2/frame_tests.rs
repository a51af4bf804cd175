//! One connection against hand-made frames, for which the client half of `h2` is too polite.

use std::time::Duration;

use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::tests::serve;
use crate::accept::testing::Scripted;
use crate::shutdown::{Shutdown, Signal};

/// A client made of bare frames.
struct Raw {
    io: DuplexStream,
    corridor: Scripted,
    server: JoinHandle<()>,
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len())
        .expect("a short frame")
        .to_be_bytes();
    let mut bytes = vec![0, len[0], len[1], kind, flags, 0, 0, 0, stream];
    bytes.extend_from_slice(payload);
    bytes
}

/// Literal fields without indexing.
fn hpack(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a short text"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

impl Raw {
    async fn start() -> Self {
        Self::start_with(Signal::never()).await
    }

    async fn start_with(signal: Signal) -> Self {
        let (mut io, corridor, server) = serve(signal);
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .expect("a write");
        io.write_all(&frame(4, 0, 0, b"")).await.expect("a write");
        Self {
            io,
            corridor,
            server,
        }
    }

    async fn request(&mut self, path: &str, flags: u8, extra: &[(&str, &str)]) {
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a.example"),
            (":path", path),
        ];
        fields.extend_from_slice(extra);
        let head = frame(HEADERS, END_HEADERS | flags, 1, &hpack(&fields));
        self.io.write_all(&head).await.expect("a write");
    }

    /// The first thing that happens to the stream: the kind of a frame, with the code of a reset;
    /// `None` if the connection was cut.
    async fn outcome(&mut self) -> Option<(u8, Option<u32>)> {
        loop {
            let mut head = [0; 9];
            self.io.read_exact(&mut head).await.ok()?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; len];
            self.io.read_exact(&mut payload).await.ok()?;
            let code = |p: &[u8]| Some(u32::from_be_bytes(p.try_into().expect("a code")));
            match (head[3], head[8]) {
                (_, 0) | (WINDOW_UPDATE, _) => {}
                (RST_STREAM, _) => return Some((RST_STREAM, code(&payload))),
                (kind, _) => return Some((kind, None)),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_change_its_meaning_in_http_1_is_a_stream_error() {
    for extra in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("te", "trailers, chunked"),
        ("X-Upper", "1"),
        ("x:y", "1"),
        ("x y", "1"),
        ("x", "a\r\nb: c"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x", " padded"),
        ("x", "padded\t"),
        ("host", "b.example"),
        ("content-length", "+0"),
        ("content-length", "00"),
        ("content-length", "0, 0"),
        (":path", "/twice"),
    ] {
        let mut raw = Raw::start().await;
        raw.request("/echo", END_STREAM, &[extra]).await;
        // Names and values that HPACK itself refuses cost the connection.
        let reset = (RST_STREAM, Some(Reason::PROTOCOL_ERROR.into()));
        let outcome = raw.outcome().await;
        assert!(outcome.is_none_or(|o| o == reset), "{extra:?} {outcome:?}");
        assert!(raw.corridor.seen().is_empty(), "{extra:?}");
    }
    let mut raw = Raw::start().await;
    raw.request(
        "/echo",
        END_STREAM,
        &[("te", "trailers"), ("content-length", "0")],
    )
    .await;
    assert_eq!(raw.outcome().await, Some((HEADERS, None)));
}

#[tokio::test(start_paused = true)]
async fn a_length_that_the_body_does_not_keep_is_a_stream_error() {
    for (length, data) in [("5", "abc"), ("1", "abc")] {
        let mut raw = Raw::start().await;
        raw.request("/echo", 0, &[("content-length", length)]).await;
        let body = frame(DATA, END_STREAM, 1, data.as_bytes());
        raw.io.write_all(&body).await.expect("a write");
        let refused = raw.outcome().await;
        assert_eq!(
            refused,
            Some((RST_STREAM, Some(Reason::PROTOCOL_ERROR.into())))
        );
        for seen in raw.corridor.seen() {
            assert!(seen.fault.is_some(), "no complete body");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_cut() {
    let mut raw = Raw::start().await;
    let begun = Instant::now();
    raw.request("/events", 0, &[]).await;
    raw.server.await.expect("the connection ends");
    assert!((30..=31).contains(&begun.elapsed().as_secs()));
    assert!(raw.corridor.seen()[0].left);
}

#[tokio::test(start_paused = true)]
async fn a_connect_without_an_authority_is_a_stream_error() {
    let mut raw = Raw::start().await;
    let head = frame(HEADERS, END_HEADERS, 1, &hpack(&[(":method", "CONNECT")]));
    raw.io.write_all(&head).await.expect("a write");
    let reset = (RST_STREAM, Some(Reason::PROTOCOL_ERROR.into()));
    assert_eq!(raw.outcome().await, Some(reset));
    assert!(raw.corridor.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_is_heard_for_a_second_after_its_error_so_that_it_learns_why() {
    for stays in [true, false] {
        let mut raw = Raw::start().await;
        let begun = Instant::now();
        let idle = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
        raw.io.write_all(&idle).await.expect("a write");
        assert_eq!(raw.outcome().await, None, "our side ends");
        let more = raw.io.write_all(&[0; 10_000]).await;
        assert!(more.is_ok(), "what is under way is taken");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let limit = if stays {
            super::LINGER
        } else {
            raw.io.shutdown().await.expect("an end");
            Duration::ZERO
        };
        raw.server.await.expect("the connection ends");
        assert!(begun.elapsed() <= limit + Duration::from_millis(5));
        assert!(begun.elapsed() >= limit);
    }
}

/// A client that asks for nothing and answers the keep-alive pings alone. Tells what it heard last, and when
/// the connection was over.
async fn idle_client(mut raw: Raw) -> (Option<Vec<u8>>, Duration) {
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    /// The ping by which `h2` learns that its GOAWAY arrived.
    const SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];
    let begun = Instant::now();
    let mut goodbye = None;
    loop {
        let mut head = [0; 9];
        if raw.io.read_exact(&mut head).await.is_err() {
            break;
        }
        let mut payload = vec![0; usize::from(head[2])];
        raw.io.read_exact(&mut payload).await.expect("a payload");
        match (head[3], head[4]) {
            (PING, 0) if payload != SHUTDOWN => {
                let pong = frame(PING, 1, 0, &payload);
                raw.io.write_all(&pong).await.expect("a write");
            }
            (GOAWAY, _) => goodbye = Some(payload),
            _ => {}
        }
    }
    drop(raw.io);
    raw.server.await.expect("the connection ends");
    (goodbye, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_that_does_not_agree_to_the_end_is_told_it_and_closed() {
    let (goodbye, lasted) = idle_client(Raw::start().await).await;
    assert!(lasted < Duration::from_secs(60 + 5), "{lasted:?}");
    let nothing_was_begun = [0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(goodbye.as_deref(), Some(&nothing_was_begun[..]));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_agree_does_not_hold_a_drain_up() {
    let shutdown = Shutdown::new();
    let raw = Raw::start_with(shutdown.signal()).await;
    shutdown.drain();
    let (_, lasted) = idle_client(raw).await;
    assert!(lasted < Duration::from_secs(5), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_stops_halfway_ends_with_the_next_ping() {
    let mut raw = Raw::start().await;
    let half = frame(HEADERS, END_STREAM, 1, &hpack(&[(":method", "GET")]));
    raw.io.write_all(&half).await.expect("a write");
    let begun = Instant::now();
    let mut taken = Vec::new();
    // Whatever it says to the end; a pong would be an error between two parts of a head.
    let _end = raw.io.read_to_end(&mut taken).await;
    let lasted = begun.elapsed();
    assert!(lasted < Duration::from_secs(20 + 10 + 2), "{lasted:?}");
}
