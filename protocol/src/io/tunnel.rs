//! A tunnel as its owner sees it: open or accept streams, hear news, drain, close.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::conn::{Conn, Fate, OpenError, Settings, Side, StreamCounts};
use crate::planted::Bug;
use crate::wire::{AppOffer, GoAwayReason, Open, PeerLimits, ReportEntry};
use bytes::BytesMut;

use super::app_stream::AppStream;
use super::carrier::Carrier;
use super::clock::Clock;
use super::driver::Driver;
use super::shared::{CloseReason, Next, Notice, Shared};
use super::stream::TunnelStream;

/// A handle; clones mean the same tunnel. The driver future must be run by the caller.
#[derive(Clone)]
pub struct Tunnel {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

/// Numbers for the admin page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    /// Streams that have not ended.
    pub streams: StreamCounts,
    /// Last measured round trip.
    pub rtt: Option<Duration>,
    /// Bytes received in frames.
    pub bytes_in: u64,
    /// Bytes sent in frames.
    pub bytes_out: u64,
    /// Bytes that its streams held at the last look, at this side.
    pub held: u64,
    /// Streams given up because they held memory without progress.
    pub starved: u64,
}

impl Tunnel {
    /// A tunnel over `carrier`, after the handshake. `leftover` is what was read beyond it.
    ///
    /// The returned future moves the bytes; it ends with the tunnel. Dropping it loses the tunnel
    /// and its streams without a word to the peer.
    pub fn new(
        side: Side,
        settings: Settings,
        peer: PeerLimits,
        carrier: impl Into<Carrier>,
        leftover: BytesMut,
        clock: Clock,
    ) -> (Self, impl Future<Output = CloseReason> + Send) {
        let conn = Conn::new(side, settings, peer, clock.now());
        let shared = Shared::new(conn, clock);
        let driver = Driver::new(Arc::clone(&shared), carrier.into(), leftover);
        (Self { shared }, driver.run())
    }

    /// Gateway: a new stream to an app.
    ///
    /// # Errors
    /// [`OpenError`] if the tunnel takes no new streams; the agent heard nothing.
    pub fn open(&self, open: Open) -> Result<TunnelStream, OpenError> {
        self.open_within(open, u32::MAX)
    }

    /// The same with a bound on what the agent may send unasked, see [`StreamControl::cap`].
    ///
    /// # Errors
    /// As [`Tunnel::open`].
    ///
    /// [`StreamControl::cap`]: super::StreamControl::cap
    pub fn open_within(&self, open: Open, cap: u32) -> Result<TunnelStream, OpenError> {
        let now = self.shared.now();
        let key = self.shared.act(|conn| conn.open_within(now, open, cap))?;
        Ok(TunnelStream::new(Arc::clone(&self.shared), key))
    }

    /// Agent: the next stream the gateway opens; `None` when the tunnel is over. Cancel safe; one waiter.
    pub async fn accept(&self) -> Option<AppStream> {
        let key = poll_fn(|cx| self.shared.lock().poll_incoming(cx)).await?;
        Some(AppStream::new(Arc::clone(&self.shared), key))
    }

    /// The next news of the tunnel; `None` when it is over. Cancel safe; one waiter.
    pub async fn notice(&self) -> Option<Notice> {
        poll_fn(|cx| self.poll_notice(cx)).await
    }

    fn poll_notice(&self, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.shared.lock().poll_notice(cx)
    }

    /// Agent: tells the gateway which apps there are now.
    pub fn announce(&self, apps: Vec<AppOffer>) {
        self.shared.act(|conn| conn.announce(apps));
    }

    /// Says that nothing new is taken; what runs goes on.
    pub fn drain(&self, reason: GoAwayReason, deadline: Duration) {
        self.shared.act(|conn| conn.drain(reason, deadline));
    }

    /// Closes the carrier as soon as no stream lives and one side is going away.
    pub fn close_when_drained(&self) {
        self.shared.lock().drained = true;
        self.shared.act(|_| ());
    }

    /// Closes the carrier now; live streams are lost.
    pub fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.act(|_| ());
    }

    /// Gateway: writes nothing more of any stream, and closes the carrier once every stream was counted,
    /// or after `within`. Without a carrier nothing can be counted: closed now.
    pub fn close_after_counts(&self, within: Duration) {
        self.close_when(within, Conn::fence_all);
    }

    /// Closes after `end` has done to every stream what ends it, and each has ended, or after `within`.
    fn close_when(&self, within: Duration, end: impl FnOnce(&mut Conn)) {
        if self.is_suspended() {
            return self.close();
        }
        let at = self.shared.now() + within;
        self.shared.lock().closes = Some(at);
        self.shared.act(end);
        self.close_when_drained();
    }

    /// Agent: ends every stream, and closes the carrier once the gateway has acknowledged each end, or after
    /// `within`. Without a carrier nothing can be told: closed now.
    pub fn close_after_ends(&self, within: Duration) {
        self.close_when(within, Conn::stop_all);
    }

    /// Stops reading and writing the carrier, which is believed dead or about to be replaced; its
    /// unread bytes are dropped. The tunnel waits for [`Tunnel::resume`].
    pub fn suspend(&self) {
        let now = self.shared.now();
        // One that was handed in and not begun is older than the one that is about to come.
        let waiting = self.shared.lock().next.take();
        drop(waiting);
        self.shared.act(|conn| conn.suspend(now));
    }

    /// Goes on over `carrier`, whose handshake is done; `leftover` is what was read beyond it.
    /// An old carrier that still stands is suspended first. A tunnel that is over drops the carrier.
    ///
    /// The carrier is one value with all that its layers have read, decrypted or taken apart already
    /// (TLS session, WebSocket messages), so nothing is lost whoever polls it next. The driver may
    /// live on another worker than the one that accepted it: the socket stays registered with the
    /// reactor of that worker, whose readiness wakes the driver's task across threads. That is right
    /// as long as the accepting worker lives, and workers end together; it costs a wake-up between
    /// threads where a socket of its own worker costs none, until the tunnel is replaced.
    pub fn resume(&self, carrier: impl Into<Carrier>, leftover: BytesMut) {
        let next = Next {
            carrier: carrier.into(),
            leftover,
        };
        let earlier = {
            let mut state = self.shared.lock();
            if state.over {
                Some(next)
            } else {
                state.next.replace(next)
            }
        };
        // Closing a connection is no work for under the lock.
        drop(earlier);
        self.shared.act(|_| ());
    }

    /// True if it outlives its carriers; one that does not is lost with the first.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.shared
            .look(|conn| !conn.settings().resume_window.is_zero())
    }

    /// True from the cut of the carrier until both sides have stated their offsets over the next.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.shared.look(Conn::is_suspended)
    }

    /// True once it is over, or about to be: nothing can be resumed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.over || state.closing || state.conn.failure().is_some()
    }

    /// Agent, after the end: terminals the gateway has not acknowledged, for a later report.
    #[must_use]
    pub fn take_fates(&self) -> Vec<Fate> {
        self.shared.act(Conn::take_fates)
    }

    /// Agent: tells terminals of tunnels that were lost.
    pub fn report(&self, entries: Vec<ReportEntry>) {
        self.shared.act(|conn| conn.report(entries));
    }

    /// Waits for the end of the tunnel. Cancel safe.
    pub async fn closed(&self) -> CloseReason {
        let mut closed = self.shared.closed.subscribe();
        let reason = closed
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|r| r.clone());
        reason.unwrap_or(CloseReason::Closed)
    }

    /// True while streams may be opened.
    #[must_use]
    pub fn is_accepting(&self) -> bool {
        self.shared.look(|conn| {
            let deaf = Bug::GoAwayIgnored.bites() && conn.failure().is_none();
            !conn.takes_no_streams() || deaf
        })
    }

    /// Numbers for people.
    #[must_use]
    pub fn stats(&self) -> TunnelStats {
        let state = self.shared.lock();
        TunnelStats {
            streams: state.conn.stream_counts(),
            rtt: state.conn.rtt(),
            bytes_in: state.bytes_in,
            bytes_out: state.bytes_out,
            held: state.conn.held_bytes(),
            starved: state.conn.starved_streams(),
        }
    }
}
