//! Tunnels in memory under paused time: who is woken, who never waits, when a tunnel ends.

#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::clock::Clock;
use super::*;
use crate::conn::{Ended, Settings, Side};
use crate::wire::{
    AppKind, Begin, FinalCause, Frame, GoAwayReason, Limits, Open, PeerLimits, RefusedReason,
    ResetCode, StreamId, decode, encode,
};

mod order;
mod resume;
mod streams;
mod untaken;

/// Virtual time in which everything that can happen has happened (consumption is told after 20 ms).
const A_MOMENT: Duration = Duration::from_millis(50);

async fn a_moment() {
    tokio::time::sleep(A_MOMENT).await;
}

fn limits(settings: Settings) -> PeerLimits {
    PeerLimits {
        max_streams: settings.max_streams,
        initial_credit: settings.initial_window,
        linger: settings.linger,
    }
}

fn open() -> Open {
    Open {
        app: "demo".into(),
        kind: AppKind::Tcp,
        remaining: Duration::from_secs(30),
        credit: 0,
        client: None,
    }
}

fn begin() -> Begin {
    Begin {
        request: 1,
        remaining: Duration::from_secs(30),
        expect_read: None,
    }
}

/// Two tunnels' ends with their drivers.
struct World {
    gateway: Tunnel,
    agent: Tunnel,
    gateway_driver: JoinHandle<CloseReason>,
    agent_driver: JoinHandle<CloseReason>,
}

fn world() -> World {
    world_by(Clock::start())
}

/// The same with a clock of the agent's own.
fn world_by(agents: Clock) -> World {
    let settings = Settings::default();
    let (here, there) = duplex(64 * 1024);
    let clock = Clock::start();
    let empty = BytesMut::new;
    let peer = limits(settings);
    let (gateway, driver) = Tunnel::new(Side::Gateway, settings, peer, here, empty(), clock);
    let gateway_driver = tokio::spawn(driver);
    let (agent, driver) = Tunnel::new(Side::Agent, settings, peer, there, empty(), agents);
    let agent_driver = tokio::spawn(driver);
    World {
        gateway,
        agent,
        gateway_driver,
        agent_driver,
    }
}

impl World {
    async fn opened(&self) -> (TunnelStream, AppStream) {
        let stream = self.gateway.open(open()).unwrap();
        let app = self.agent.accept().await.unwrap();
        app.opened();
        poll_fn(|cx| stream.control().poll_opened(cx))
            .await
            .unwrap();
        (stream, app)
    }
}

/// A gateway's end whose peer is the test itself, frame by frame.
struct Scripted {
    gateway: Tunnel,
    driver: JoinHandle<CloseReason>,
    peer: DuplexStream,
}

fn scripted(pipe: usize) -> Scripted {
    let settings = Settings::default();
    let (here, peer) = duplex(pipe);
    let limits = limits(settings);
    let (gateway, driver) = Tunnel::new(
        Side::Gateway,
        settings,
        limits,
        here,
        BytesMut::new(),
        Clock::start(),
    );
    Scripted {
        gateway,
        driver: tokio::spawn(driver),
        peer,
    }
}

impl Scripted {
    async fn says(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        encode(&frame, &mut bytes);
        self.peer.write_all(&bytes).await.unwrap();
    }

    /// Frames that are there after a moment.
    async fn heard(&mut self) -> Vec<Frame> {
        a_moment().await;
        let mut bytes = BytesMut::with_capacity(1 << 20);
        let mut read = |cx: &mut Context<'_>| {
            while let Poll::Ready(Ok(1..)) = pin!(self.peer.read_buf(&mut bytes)).poll(cx) {}
            Poll::Ready(())
        };
        poll_fn(&mut read).await;
        std::iter::from_fn(|| decode(&mut bytes, &Limits::default()).unwrap()).collect()
    }

    async fn opens(&mut self, number: u32) -> TunnelStream {
        let stream = self.gateway.open(open()).unwrap();
        a_moment().await;
        self.says(Frame::Opened {
            stream: StreamId(number),
            credit: 256 * 1024,
        })
        .await;
        poll_fn(|cx| stream.control().poll_opened(cx))
            .await
            .unwrap();
        stream
    }
}

async fn ended(stream: &TunnelStream) -> Ended {
    poll_fn(|cx| stream.control().poll_ended(cx)).await
}

/// Fills a stream until it takes nothing more, also after a moment.
async fn fill(stream: &mut TunnelStream) {
    loop {
        let took = poll_fn(|cx| {
            let mut took = 0;
            while stream.poll_writable(cx).is_ready() {
                took += stream.write(&mut Bytes::from(vec![7; 16 * 1024]));
            }
            Poll::Ready(took)
        });
        if took.await == 0 {
            return;
        }
        a_moment().await;
    }
}

// ---- ends ----------------------------------------------------------------------------------

/// One waiter of each kind at the gateway, each on a stream of its own.
async fn gateway_waiters(world: &World) -> Vec<JoinHandle<()>> {
    let unanswered = world.gateway.open(open()).unwrap();
    let unaccepted = world.agent.accept().await.unwrap();
    let mut apps = vec![unaccepted];
    let mut streams = Vec::new();
    for _ in 0..6 {
        let (stream, app) = world.opened().await;
        streams.push(stream);
        apps.push(app);
    }
    let mut next = || streams.pop().unwrap();
    let (took, counted, closing, over) = (next(), next(), next(), next());
    let (mut reading, mut writing) = (next(), next());
    counted.control().fence(true);
    // An agent that is there but whose app takes nothing: its streams stay as they are.
    let held = tokio::spawn(async move {
        let _apps = apps;
        std::future::pending::<()>().await;
    });
    fill(&mut writing).await;
    let counted = counted.control().clone();
    vec![
        tokio::spawn(async move {
            let opened = poll_fn(|cx| unanswered.control().poll_opened(cx)).await;
            opened.unwrap_err();
        }),
        tokio::spawn(async move {
            let control = took.control();
            assert_eq!(poll_fn(|cx| control.poll_took(cx, 0)).await, 0);
        }),
        tokio::spawn(async move {
            // Answered by its count, then only by the end.
            poll_fn(|cx| counted.poll_ended(cx)).await;
        }),
        tokio::spawn(async move { poll_fn(|cx| closing.control().poll_closing(cx)).await }),
        tokio::spawn(async move {
            ended(&over).await;
        }),
        tokio::spawn(async move {
            let read = poll_fn(|cx| reading.poll_read(cx, 100)).await;
            read.unwrap_err();
        }),
        tokio::spawn(async move {
            let writable = poll_fn(|cx| writing.poll_writable(cx)).await;
            writable.unwrap_err();
            drop(held);
        }),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_tunnel_wakes_everyone_who_waits_at_the_gateway() {
    let world = world();
    let mut waiters = gateway_waiters(&world).await;
    let (news, over) = (world.gateway.clone(), world.gateway.clone());
    waiters.push(tokio::spawn(async move {
        assert_eq!(news.notice().await, None);
    }));
    waiters.push(tokio::spawn(async move {
        assert!(matches!(over.closed().await, CloseReason::Carrier(_)));
    }));
    a_moment().await;
    assert!(waiters.iter().all(|w| !w.is_finished()), "all wait");
    let lost_at = Instant::now();
    world.agent_driver.abort();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(lost_at.elapsed() < A_MOMENT);
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_tunnel_wakes_everyone_who_waits_at_the_agent() {
    let world = world();
    let (mut one, two) = (world.opened().await, world.opened().await);
    let (three, four) = (world.opened().await, world.opened().await);
    fill(&mut one.0).await;
    for _ in 0..64 {
        poll_fn(|cx| {
            while let Poll::Ready(room) = two.1.poll_room(cx) {
                two.1.pass_on(Bytes::from(vec![7; room]));
            }
            Poll::Ready(())
        })
        .await;
        a_moment().await;
    }
    let agent = world.agent.clone();
    let over = world.agent.clone();
    let waiters = vec![
        tokio::spawn(async move { assert!(agent.accept().await.is_none()) }),
        tokio::spawn(async move {
            over.closed().await;
        }),
        tokio::spawn(async move {
            poll_fn(|cx| three.1.poll_given_up(cx)).await;
        }),
        tokio::spawn(async move { poll_fn(|cx| four.1.poll_closed(cx)).await }),
        tokio::spawn(async move {
            // A socket that takes nothing: only news of the stream can wake this.
            let (mut socket, _full) = duplex(1);
            let outgoing = poll_fn(|cx| {
                loop {
                    let outgoing = one
                        .1
                        .poll_outgoing(cx, &mut socket, FailedWrite::TookNothing);
                    match outgoing {
                        Poll::Ready(Ok(Outgoing::Wrote(_))) => {}
                        outgoing => return outgoing,
                    }
                }
            });
            assert_eq!(outgoing.await.unwrap(), Outgoing::Closed { idle: false });
        }),
        tokio::spawn(async move {
            let woken = poll_fn(|cx| match two.1.poll_room(cx) {
                Poll::Pending if two.1.poll_closed(cx).is_pending() => Poll::Pending,
                _ => Poll::Ready(()),
            });
            woken.await;
        }),
    ];
    a_moment().await;
    assert!(waiters.iter().all(|w| !w.is_finished()), "all wait");
    world.gateway_driver.abort();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_driver_ends_its_own_side_too() {
    let world = world();
    let (stream, _app) = world.opened().await;
    let (news, over) = (world.gateway.clone(), world.gateway.clone());
    world.gateway_driver.abort();
    assert_eq!(ended(&stream).await, Ended::Lost);
    assert_eq!(news.notice().await, None);
    assert_eq!(over.closed().await, CloseReason::Closed);
    assert!(world.gateway.open(open()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_noticed_within_six_seconds() {
    let world = scripted(64 * 1024);
    let began = Instant::now();
    assert_eq!(world.gateway.closed().await, CloseReason::Silent);
    let lasted = began.elapsed();
    assert!(
        lasted <= Duration::from_millis(6_002),
        "{lasted:?} is too long"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_breaks_the_protocol_loses_its_tunnel_and_hears_why() {
    let mut world = scripted(64 * 1024);
    let stream = world.opens(1).await;
    world.says(Frame::Done(Vec::new())).await;
    assert!(matches!(
        world.driver.await.unwrap(),
        CloseReason::Breach(_)
    ));
    assert_eq!(ended(&stream).await, Ended::Lost);
    let mut rest = Vec::new();
    world.peer.read_to_end(&mut rest).await.unwrap();
    let mut rest = BytesMut::from(&rest[..]);
    let heard: Vec<_> =
        std::iter::from_fn(|| decode(&mut rest, &Limits::default()).unwrap()).collect();
    assert!(matches!(
        heard.last(),
        Some(Frame::GoAway {
            reason: GoAwayReason::ProtocolError,
            ..
        })
    ));
}

#[tokio::test(start_paused = true)]
async fn what_was_not_emitted_when_the_peer_ended_was_never_opened() {
    let world = scripted(64 * 1024);
    a_moment().await;
    drop(world.peer);
    let mut stream = world.gateway.open(open()).unwrap();
    stream.control().begin(begin());
    stream.write(&mut Bytes::from_static(b"POST"));
    assert_eq!(ended(&stream).await, Ended::NotOpened);
    assert_eq!(stream.control().view().emitted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_drained_tunnel_closes_when_its_last_stream_ends() {
    let world = world();
    let (stream, app) = world.opened().await;
    world
        .agent
        .drain(GoAwayReason::Draining, Duration::from_secs(30));
    world.agent.close_when_drained();
    a_moment().await;
    assert!(!world.agent_driver.is_finished(), "a stream runs");
    assert!(world.gateway.open(open()).is_err());
    app.conclude(FinalCause::AppClosed);
    assert_eq!(world.agent_driver.await.unwrap(), CloseReason::Drained);
    assert_eq!(world.gateway_driver.await.unwrap(), CloseReason::Drained);
    assert!(matches!(ended(&stream).await, Ended::Final { .. }));
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_peer_that_reads_nothing() {
    let mut world = scripted(1024);
    let mut stream = world.opens(1).await;
    fill(&mut stream).await;
    a_moment().await;
    let began = Instant::now();
    world.gateway.close();
    assert_eq!(world.driver.await.unwrap(), CloseReason::Closed);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(ended(&stream).await, Ended::Lost);
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_stream_that_never_ends() {
    let world = world();
    let (mut stream, app) = world.opened().await;
    tokio::spawn(async move {
        let mut sink = tokio::io::sink();
        poll_fn(|cx| {
            loop {
                let out = app.poll_outgoing(cx, &mut sink, FailedWrite::TookNothing);
                if !matches!(out, Poll::Ready(Ok(Outgoing::Wrote(_)))) {
                    return out.map(drop);
                }
            }
        })
        .await;
    });
    let writing = tokio::spawn(async move {
        while poll_fn(|cx| stream.poll_writable(cx)).await.is_ok() {
            stream.write(&mut Bytes::from(vec![7; 64 * 1024]));
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(world.gateway.stats().bytes_out > 1_000_000, "it runs");
    world.gateway.close();
    assert_eq!(world.gateway_driver.await.unwrap(), CloseReason::Closed);
    writing.await.unwrap();
}

// ---- who never waits -----------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_is_still_heard_and_ends_by_its_silence() {
    let mut world = scripted(4096);
    let mut stream = world.opens(1).await;
    fill(&mut stream).await;
    a_moment().await;
    let data = |n: u8| Frame::Data {
        stream: StreamId(1),
        bytes: Bytes::from(vec![n; 1000]),
        fin: false,
    };
    for n in 0..100 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.says(data(n)).await;
        let read = poll_fn(|cx| stream.poll_read(cx, 5000)).await.unwrap();
        assert_eq!(read.unwrap(), vec![n; 1000]);
    }
    let silent_since = Instant::now();
    assert_eq!(world.gateway.closed().await, CloseReason::Silent);
    assert!(silent_since.elapsed() <= Duration::from_millis(6_002));
}

#[tokio::test(start_paused = true)]
async fn a_small_exchange_waits_behind_no_more_than_the_outbox() {
    let mut world = scripted(1024);
    let mut bulk = world.opens(1).await;
    // The carrier is full and the outbox too; a second bulk stream has its turn waiting.
    fill(&mut bulk).await;
    let mut other = world.gateway.open(open()).unwrap();
    fill(&mut other).await;
    let mut small = world.gateway.open(open()).unwrap();
    small.control().begin(begin());
    small.write(&mut Bytes::from_static(b"GET /small"));
    let mut before = 0;
    let mut seen = BytesMut::new();
    loop {
        world.peer.read_buf(&mut seen).await.unwrap();
        while let Some(frame) = decode(&mut seen, &Limits::default()).unwrap() {
            match frame {
                Frame::Data { bytes, .. } if bytes == "GET /small" => {
                    let bound = 1024 + 64 * 1024 + 3 * 16 * 1024;
                    assert!(before <= bound, "{before} bytes went before it");
                    return;
                }
                Frame::Data { bytes, .. } => before += bytes.len(),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_dropped_before_its_open_was_emitted_is_never_heard_of() {
    let mut world = scripted(64 * 1024);
    world.heard().await;
    let mut stream = world.gateway.open(open()).unwrap();
    stream.control().begin(begin());
    stream.write(&mut Bytes::from_static(b"POST"));
    drop(stream);
    assert_eq!(world.heard().await, Vec::new());
}

#[tokio::test(start_paused = true)]
async fn opens_and_drops_in_a_storm_leave_no_stream_and_no_backlog() {
    let world = world();
    for _ in 0..5000 {
        let stream = world.gateway.open(open()).unwrap();
        if let Ok(Some(app)) =
            tokio::time::timeout(Duration::from_micros(1), world.agent.accept()).await
        {
            app.refuse(RefusedReason::Limit, 0);
        }
        drop(stream);
    }
    a_moment().await;
    while let Ok(Some(app)) =
        tokio::time::timeout(Duration::from_micros(1), world.agent.accept()).await
    {
        app.refuse(RefusedReason::Limit, 0);
    }
    a_moment().await;
    assert_eq!(world.gateway.stats().streams.total(), 0);
    assert_eq!(world.agent.stats().streams.total(), 0);
}
