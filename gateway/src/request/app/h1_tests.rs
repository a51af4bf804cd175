//! What counts as an answer: the agent's side is the test itself, frame by frame.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, Settings, Side};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::wire::{
    AppKind, FinalCause, Frame, Limits, Open, PeerLimits, StreamId, decode, encode,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const STREAM: StreamId = StreamId(1);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The agent's end of the carrier.
struct Agent {
    carrier: DuplexStream,
}

impl Agent {
    async fn says(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        encode(&frame, &mut bytes);
        self.carrier.write_all(&bytes).await.expect("a carrier");
        // Virtual time in which it has arrived.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn passes_on(&mut self, bytes: &'static [u8]) {
        self.says(Frame::Data {
            stream: STREAM,
            bytes: Bytes::from_static(bytes),
            fin: false,
        })
        .await;
    }

    async fn took(&mut self, consumed: u64) {
        self.says(Frame::Credit {
            stream: STREAM,
            limit: 0,
            consumed,
        })
        .await;
    }

    /// The mark of the next exchange.
    async fn begin(&mut self) -> Begin {
        let mut bytes = BytesMut::new();
        loop {
            while let Some(frame) = decode(&mut bytes, &Limits::default()).expect("frames") {
                if let Frame::Begin(_, begin) = frame {
                    return begin;
                }
            }
            self.carrier.read_buf(&mut bytes).await.expect("a carrier");
        }
    }
}

async fn opened() -> (TunnelStream, Agent) {
    let settings = Settings::default();
    let limits = PeerLimits {
        max_streams: 10,
        initial_credit: 1 << 16,
        linger: settings.linger,
    };
    let (here, carrier) = duplex(1 << 20);
    let (clock, empty) = (Clock::start(), BytesMut::new());
    let (tunnel, driver) = Tunnel::new(Side::Gateway, settings, limits, here, empty, clock);
    drop(tokio::spawn(driver));
    let open = Open {
        app: "demo".into(),
        kind: AppKind::Http1,
        remaining: Duration::from_secs(5),
        credit: 0,
        client: None,
    };
    let stream = tunnel.open(open).expect("a stream");
    let mut agent = Agent { carrier };
    tokio::time::sleep(Duration::from_millis(1)).await;
    agent
        .says(Frame::Opened {
            stream: STREAM,
            credit: 1 << 16,
        })
        .await;
    (stream, agent)
}

fn ask(stream: TunnelStream) -> Http1Exchange {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, http::HeaderValue::from_static("demo"));
    let head = RequestHead {
        method: Method::GET,
        target: "/".into(),
        headers,
        body: BodyLength::None,
        upgrade: None,
        te_trailers: false,
        expect_continue: false,
    };
    Http1Exchange::begin(stream, head, 1, Duration::from_secs(30))
}

async fn event(exchange: &mut Http1Exchange) -> Result<AppEvent, AppFault> {
    poll_fn(|cx| exchange.poll_event(cx)).await
}

async fn is_silent(exchange: &mut Http1Exchange) -> bool {
    poll_fn(|cx| Poll::Ready(exchange.poll_event(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn bytes_are_no_answer_before_the_agent_said_that_it_wrote_some_of_the_request() {
    let (stream, mut agent) = opened().await;
    let mut exchange = ask(stream);
    assert!(is_silent(&mut exchange).await);
    agent.passes_on(ANSWER).await;
    assert!(is_silent(&mut exchange).await);
    assert_eq!(exchange.offsets().answer, 0);
    agent.took(1).await;
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
    assert_eq!(exchange.offsets().answer, ANSWER.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_stale_connection_are_no_answer() {
    let (stream, mut agent) = opened().await;
    let mut exchange = ask(stream);
    agent.passes_on(ANSWER).await;
    let stale = Frame::Final {
        stream: STREAM,
        written: 0,
        read: ANSWER.len() as u64,
        cause: FinalCause::Stale,
    };
    agent.says(stale).await;
    let fault = event(&mut exchange).await.expect_err("no answer");
    assert!(matches!(
        fault,
        AppFault::Ended(Ended::Final {
            cause: FinalCause::Stale,
            ..
        })
    ));
    assert_eq!(exchange.offsets().answer, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_consumption_only_the_terminal_tells_is_an_answer() {
    let (stream, mut agent) = opened().await;
    let mut exchange = ask(stream);
    assert!(is_silent(&mut exchange).await);
    agent.passes_on(ANSWER).await;
    let closed = Frame::Final {
        stream: STREAM,
        written: 5,
        read: ANSWER.len() as u64,
        cause: FinalCause::AppClosed,
    };
    agent.says(closed).await;
    assert!(matches!(event(&mut exchange).await, Ok(AppEvent::Head(_))));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_nobody_read_are_left_out_of_what_the_agent_must_have_read() {
    let (stream, mut agent) = opened().await;
    agent.passes_on(b"a leftover").await;
    let _exchange = ask(stream);
    assert_eq!(agent.begin().await.expect_read, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_lost_before_the_agent_said_anything_leaves_no_answer() {
    let (stream, mut agent) = opened().await;
    let mut exchange = ask(stream);
    assert!(is_silent(&mut exchange).await);
    agent.passes_on(ANSWER).await;
    drop(agent);
    let fault = event(&mut exchange).await.expect_err("no answer");
    assert_eq!(fault, AppFault::Ended(Ended::Lost));
    assert_eq!(exchange.offsets().answer, 0);
}
