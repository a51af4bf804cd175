//! What a driver knows of a carrier that is lost: which frames it never took.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::io::carrier::{Carrier, CarrierKind};

const TAKES: u8 = 0;
const STUCK: u8 = 1;
const BROKEN: u8 = 2;

/// A connection whose writes go through, stand still, or fail.
struct Brittle {
    pipe: DuplexStream,
    mood: Arc<AtomicU8>,
}

impl AsyncRead for Brittle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buf)
    }
}

impl AsyncWrite for Brittle {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.mood.load(Ordering::Relaxed) {
            TAKES => Pin::new(&mut self.pipe).poll_write(cx, bytes),
            // Whoever stands still is asked again by the driver's own timer.
            STUCK => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A tunnel with an opened stream, whose gateway writes to a brittle carrier of this kind.
async fn brittle(kind: CarrierKind) -> (World, TunnelStream, AppStream, Arc<AtomicU8>) {
    let settings = Settings {
        resume_window: Duration::from_secs(20),
        ..Settings::default()
    };
    let mood = Arc::new(AtomicU8::new(TAKES));
    let (near, far) = duplex(64 * 1024);
    let near = Brittle {
        pipe: near,
        mood: Arc::clone(&mood),
    };
    let (clock, peer, empty) = (Clock::start(), limits(settings), BytesMut::new);
    let carrier = Carrier::new(near, kind);
    let (gateway, one) = Tunnel::new(Side::Gateway, settings, peer, carrier, empty(), clock);
    let (agent, two) = Tunnel::new(Side::Agent, settings, peer, far, empty(), clock);
    let world = World {
        gateway,
        agent,
        gateway_driver: tokio::spawn(one),
        agent_driver: tokio::spawn(two),
    };
    let (stream, app) = world.opened().await;
    (world, stream, app, mood)
}

fn ask(stream: &mut TunnelStream) {
    stream.control().begin(begin());
    assert_eq!(stream.write(&mut Bytes::from_static(b"question")), 8);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_plain_tcp_refused_emitted_nothing() {
    let (world, mut stream, _app, mood) = brittle(CarrierKind::Tcp).await;
    mood.store(BROKEN, Ordering::Relaxed);
    ask(&mut stream);
    a_moment().await;
    assert!(world.gateway.is_suspended());
    assert_eq!(stream.control().view().emitted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_of_a_carrier_with_buffers_of_its_own_counts_whole() {
    for kind in [CarrierKind::Tls, CarrierKind::Wss, CarrierKind::Ws] {
        let (world, mut stream, _app, mood) = brittle(kind).await;
        mood.store(BROKEN, Ordering::Relaxed);
        ask(&mut stream);
        a_moment().await;
        assert!(world.gateway.is_suspended());
        assert_eq!(stream.control().view().emitted, 8, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_stands_before_a_carrier_that_takes_nothing_stays_here_when_the_tunnel_is_closed() {
    let (world, mut stream, _app, mood) = brittle(CarrierKind::Tls).await;
    mood.store(STUCK, Ordering::Relaxed);
    ask(&mut stream);
    a_moment().await;
    assert_eq!(stream.control().view().emitted, 8);
    world.gateway.close();
    assert_eq!(world.gateway_driver.await.unwrap(), CloseReason::Closed);
    let view = stream.control().view();
    assert_eq!((view.ended, view.emitted), (Some(Ended::Lost), 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_carrier_never_took_reaches_the_app_once_over_the_next() {
    let (world, mut stream, app, mood) = brittle(CarrierKind::Tcp).await;
    mood.store(BROKEN, Ordering::Relaxed);
    ask(&mut stream);
    a_moment().await;
    let (near, far) = duplex(64 * 1024);
    world.agent.resume(far, BytesMut::new());
    world.gateway.resume(near, BytesMut::new());
    let mut socket = Vec::new();
    let mut told = Vec::new();
    while told.len() < 2 {
        let next = poll_fn(|cx| app.poll_outgoing(cx, &mut socket, FailedWrite::TookNothing));
        let next = next.await.unwrap();
        if matches!(next, Outgoing::Begin { .. }) {
            app.begun();
        }
        told.push(next);
    }
    assert!(matches!(
        told[..],
        [Outgoing::Begin { .. }, Outgoing::Wrote(8)]
    ));
    assert_eq!(socket, b"question");
    assert_eq!(stream.control().view().emitted, 8);
}
