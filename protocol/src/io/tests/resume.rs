//! A driver from one carrier to the next: cut anywhere, replaced while it stands, waited for, given up.

use tokio::io::{ReadHalf, WriteHalf, split};

use super::*;
use crate::io::carrier::{Carrier, CarrierEnd};

const WINDOW: Duration = Duration::from_secs(20);
const TOTAL: usize = 9_000;

fn lasting() -> Settings {
    Settings {
        resume_window: WINDOW,
        ..Settings::default()
    }
}

fn pattern() -> Vec<u8> {
    (0..TOTAL).map(|at| (at * 7 % 251) as u8).collect()
}

/// Copies up to `limit` bytes, then stops for good.
async fn pass(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut limit: usize,
) -> bool {
    let mut buffer = vec![0; 512];
    while limit > 0 {
        let most = buffer.len().min(limit);
        match from.read(&mut buffer[..most]).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => {
                limit -= count;
                if to.write_all(&buffer[..count]).await.is_err() {
                    return false;
                }
            }
        }
    }
    true
}

/// Two ends of a connection that breaks once so many bytes have gone down, or up.
fn breaking(down: usize, up: usize) -> (DuplexStream, DuplexStream) {
    let (near, near_end) = duplex(4 * 1024);
    let (far, far_end) = duplex(4 * 1024);
    tokio::spawn(async move {
        let (near_read, near_write) = split(near_end);
        let (far_read, far_write) = split(far_end);
        tokio::select! {
            _ = pass(near_read, far_write, down) => {}
            _ = pass(far_read, near_write, up) => {}
        }
    });
    (near, far)
}

fn over(pipe: (DuplexStream, DuplexStream), settings: Settings) -> World {
    let (clock, peer, empty) = (Clock::start(), limits(settings), BytesMut::new);
    let (gateway, one) = Tunnel::new(Side::Gateway, settings, peer, pipe.0, empty(), clock);
    let (agent, two) = Tunnel::new(Side::Agent, settings, peer, pipe.1, empty(), clock);
    World {
        gateway,
        agent,
        gateway_driver: tokio::spawn(one),
        agent_driver: tokio::spawn(two),
    }
}

fn standing() -> World {
    over(duplex(64 * 1024), lasting())
}

impl World {
    /// Both sides go on over this connection, the agent first, as after a handshake. Answers the end
    /// of the gateway's carrier.
    fn go_on(&self, pipe: (DuplexStream, DuplexStream)) -> CarrierEnd {
        self.gateway.suspend();
        self.agent.resume(pipe.1, BytesMut::new());
        let mut carrier = Carrier::from(pipe.0);
        let end = carrier.watch();
        self.gateway.resume(carrier, BytesMut::new());
        end
    }

    async fn until(&self, wanted: fn(&Notice) -> bool) {
        while let Some(notice) = self.gateway.notice().await {
            if wanted(&notice) {
                return;
            }
        }
        panic!("the tunnel ended first");
    }
}

/// The app's side of a stream that says everything back. Answers what it was told.
async fn echo(app: AppStream) -> Vec<u8> {
    app.opened();
    let mut told = Vec::new();
    let mut said = 0;
    loop {
        let mut sink = Vec::new();
        let outgoing = poll_fn(|cx| {
            while said < told.len() {
                let Poll::Ready(room) = app.poll_room(cx) else {
                    break;
                };
                let part = &told[said..told.len().min(said + room)];
                app.pass_on(Bytes::copy_from_slice(part));
                said += part.len();
            }
            app.poll_outgoing(cx, &mut sink, FailedWrite::TookNothing)
        });
        match outgoing.await.unwrap() {
            Outgoing::Wrote(_) => told.extend_from_slice(&sink),
            Outgoing::Begin { .. } => app.begun(),
            Outgoing::Fin if said == told.len() => break,
            // The rest goes out as room comes.
            Outgoing::Fin => a_moment().await,
            Outgoing::Fenced { .. } | Outgoing::Closed { .. } => panic!("nobody gave it up"),
        }
    }
    app.finish();
    app.conclude(FinalCause::AppClosed);
    told
}

/// Sends the pattern and reads it back.
async fn ask(mut stream: TunnelStream) -> Vec<u8> {
    stream.control().begin(begin());
    let mut left = Bytes::from(pattern());
    let mut heard = Vec::new();
    while heard.len() < TOTAL {
        let part = poll_fn(|cx| {
            while !left.is_empty() && stream.poll_writable(cx).is_ready() {
                stream.write(&mut left);
                if left.is_empty() {
                    stream.finish();
                }
            }
            stream.poll_read(cx, 4096)
        });
        match part.await {
            Ok(Some(bytes)) => heard.extend_from_slice(&bytes),
            other => panic!("after {} bytes: {other:?}", heard.len()),
        }
    }
    heard
}

#[tokio::test(start_paused = true)]
async fn a_carrier_may_be_cut_at_any_byte_and_nothing_is_lost_or_doubled() {
    for at in (1..TOTAL + 400).step_by(97) {
        // The second connection breaks as well, elsewhere.
        let world = over(breaking(at, usize::MAX), lasting());
        let stream = world.gateway.open(open()).unwrap();
        let asked = tokio::spawn(ask(stream));
        let agent = world.agent.clone();
        let app = tokio::spawn(async move { echo(agent.accept().await.unwrap()).await });
        let bring = async {
            world.until(|n| *n == Notice::Suspended).await;
            let mut end = world.go_on(breaking(usize::MAX, at));
            end.ended().await;
            drop(world.go_on(duplex(64 * 1024)));
            std::future::pending::<()>().await;
        };
        let both = async { (asked.await.unwrap(), app.await.unwrap()) };
        let (heard, told) = tokio::select! {
            biased;
            done = tokio::time::timeout(WINDOW, both) => done.unwrap(),
            () = bring => unreachable!(),
        };
        assert_eq!(told, pattern(), "cut after {at}");
        assert_eq!(heard, pattern(), "cut after {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_still_stands_is_replaced_and_dropped() {
    let world = standing();
    let (mut stream, app) = world.opened().await;
    let (near, far) = duplex(64 * 1024);
    let mut first = Carrier::from(near);
    let mut end = first.watch();
    world.agent.resume(far, BytesMut::new());
    world.gateway.resume(first, BytesMut::new());
    world.until(|n| matches!(n, Notice::Resumed { .. })).await;
    assert!(!world.gateway.is_suspended());
    let mut next = world.go_on(duplex(64 * 1024));
    end.ended().await;
    world.until(|n| matches!(n, Notice::Resumed { .. })).await;
    stream.control().begin(begin());
    stream.write(&mut Bytes::from_static(b"still here"));
    let asked = tokio::spawn(echo(app));
    stream.finish();
    let heard = poll_fn(|cx| stream.poll_read(cx, 100)).await.unwrap();
    assert_eq!(heard.unwrap(), "still here");
    assert_eq!(asked.await.unwrap(), b"still here");
    let stands = tokio::time::timeout(A_MOMENT, next.ended()).await;
    stands.expect_err("the latest carrier stands");
}

#[tokio::test(start_paused = true)]
async fn of_two_carriers_handed_in_at_once_the_later_one_counts() {
    let world = standing();
    let (mut stale, _nobody) = {
        let (near, far) = duplex(1024);
        let mut carrier = Carrier::from(near);
        let end = carrier.watch();
        world.gateway.resume(carrier, BytesMut::new());
        (end, far)
    };
    let (near, far) = duplex(64 * 1024);
    world.gateway.resume(near, BytesMut::new());
    world.agent.resume(far, BytesMut::new());
    stale.ended().await;
    world.until(|n| matches!(n, Notice::Resumed { .. })).await;
    let (_stream, _app) = world.opened().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_old_carrier_brought_and_nobody_took_is_dropped_with_it() {
    let settings = lasting();
    let (here, mut peer) = duplex(1024);
    let peer_limits = limits(settings);
    let (gateway, driver) = Tunnel::new(
        Side::Gateway,
        settings,
        peer_limits,
        here,
        BytesMut::new(),
        Clock::start(),
    );
    let driver = tokio::spawn(driver);
    a_moment().await;
    // The beginning of a frame that a decoder would wait on for ever, or take for something else.
    peer.write_all(&[0, 255, 0]).await.unwrap();
    a_moment().await;
    gateway.suspend();
    // Frames of the old epoch after the suspension: nothing of them may count.
    let mut late = BytesMut::new();
    encode(
        &Frame::Apps {
            revision: 9,
            apps: vec![],
        },
        &mut late,
    );
    drop(peer.write_all(&late).await);
    let (near, far) = duplex(64 * 1024);
    gateway.resume(near, BytesMut::new());
    let mut world = Scripted {
        gateway,
        driver,
        peer: far,
    };
    let said = world.heard().await;
    assert!(matches!(said[0], Frame::Resume(_)), "{said:?}");
    world
        .says(Frame::Resume(crate::wire::Resume {
            highest_open: 0,
            streams: vec![],
            more: false,
        }))
        .await;
    let mut news = Vec::new();
    while !matches!(news.last(), Some(Notice::Resumed { .. })) {
        news.push(world.gateway.notice().await.unwrap());
    }
    assert_eq!(
        news,
        [Notice::Suspended, Notice::Resumed { resent: 0 }],
        "no list of apps came"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_read_beyond_the_handshake_is_taken_first() {
    let settings = lasting();
    let (here, _peer) = duplex(1024);
    let clock = Clock::start();
    let (gateway, driver) = Tunnel::new(
        Side::Gateway,
        settings,
        limits(settings),
        here,
        BytesMut::new(),
        clock,
    );
    tokio::spawn(driver);
    gateway.suspend();
    let mut leftover = BytesMut::new();
    encode(
        &Frame::Resume(crate::wire::Resume {
            highest_open: 0,
            streams: vec![],
            more: false,
        }),
        &mut leftover,
    );
    let (near, _far) = duplex(1024);
    gateway.resume(near, leftover);
    a_moment().await;
    assert!(!gateway.is_suspended());
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_goes_on_waiting_while_there_is_no_carrier() {
    let world = standing();
    let (mut stream, app) = world.opened().await;
    let unanswered = world.gateway.open(open()).unwrap();
    world.gateway.suspend();
    world.agent.suspend();
    fill(&mut stream).await;
    let reader = tokio::spawn(async move {
        let read = poll_fn(|cx| stream.poll_read(cx, 100)).await;
        (stream, read)
    });
    // Most of the window; a driver that spun would not let the paused clock get there.
    tokio::time::sleep(WINDOW - Duration::from_secs(2)).await;
    assert!(!reader.is_finished());
    assert!(world.gateway.is_suspended() && world.agent.is_suspended());
    assert!(unanswered.control().view().ended.is_none());
    app.pass_on(Bytes::from_static(b"at last"));
    drop(world.go_on(duplex(64 * 1024)));
    let (_stream, read) = reader.await.unwrap();
    assert_eq!(read.unwrap().unwrap(), "at last");
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_to_which_no_carrier_comes_lapses_on_both_sides() {
    let world = standing();
    let (stream, app) = world.opened().await;
    let unsent = {
        world.gateway.suspend();
        world.gateway.open(open()).unwrap()
    };
    let began = Instant::now();
    assert_eq!(world.gateway.closed().await, CloseReason::Lapsed);
    assert_eq!(world.agent.closed().await, CloseReason::Lapsed);
    let lasted = began.elapsed();
    assert!(
        lasted >= WINDOW && lasted < WINDOW + Duration::from_secs(1),
        "{lasted:?}"
    );
    assert_eq!(ended(&stream).await, Ended::Lost);
    assert_eq!(ended(&unsent).await, Ended::NotOpened);
    poll_fn(|cx| app.poll_closed(cx)).await;
    drop(app);
    assert_eq!(world.agent.take_fates().len(), 1);
    // A carrier that comes now is dropped.
    let (near, _far) = duplex(1024);
    let mut carrier = Carrier::from(near);
    let mut end = carrier.watch();
    world.gateway.resume(carrier, BytesMut::new());
    end.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_is_closed_while_it_waits_ends_at_once() {
    let world = standing();
    let (stream, _app) = world.opened().await;
    world.gateway.suspend();
    a_moment().await;
    let began = Instant::now();
    world.gateway.close();
    assert_eq!(world.gateway.closed().await, CloseReason::Closed);
    assert_eq!(ended(&stream).await, Ended::Lost);
    assert!(began.elapsed() < A_MOMENT);
}

#[tokio::test(start_paused = true)]
async fn a_drained_tunnel_does_not_wait_for_a_carrier() {
    let world = standing();
    world.gateway.suspend();
    world.gateway.drain(GoAwayReason::Draining, WINDOW);
    world.gateway.close_when_drained();
    let began = Instant::now();
    assert_eq!(world.gateway.closed().await, CloseReason::Drained);
    assert!(began.elapsed() < A_MOMENT);
}

#[tokio::test(start_paused = true)]
async fn a_breach_ends_the_tunnel_although_it_could_wait() {
    let settings = lasting();
    let (here, mut peer) = duplex(1024);
    let (gateway, driver) = Tunnel::new(
        Side::Gateway,
        settings,
        limits(settings),
        here,
        BytesMut::new(),
        Clock::start(),
    );
    tokio::spawn(driver);
    peer.write_all(&[0; 64]).await.unwrap();
    assert!(matches!(gateway.closed().await, CloseReason::Breach(_)));
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_in_six_seconds_and_the_tunnel_waits_on() {
    let settings = lasting();
    let (here, peer) = duplex(64 * 1024);
    let mut carrier = Carrier::from(here);
    let mut end = carrier.watch();
    let (gateway, driver) = Tunnel::new(
        Side::Gateway,
        settings,
        limits(settings),
        carrier,
        BytesMut::new(),
        Clock::start(),
    );
    tokio::spawn(driver);
    let began = Instant::now();
    end.ended().await;
    assert!(began.elapsed() <= Duration::from_millis(6_002));
    assert!(gateway.is_suspended() && !gateway.is_over());
    drop(peer);
    assert_eq!(gateway.closed().await, CloseReason::Lapsed);
    assert!(began.elapsed() >= WINDOW + Duration::from_secs(6));
}
