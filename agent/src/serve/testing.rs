//! A tunnel in memory with a scripted app behind it: the world of the tests of this room.
//!
//! Owns no rules; time is tokio's, paused by the tests.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bridgehead_protocol::conn::{Counted, Ended, Settings, Side};
use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::io::{FailedWrite, Tunnel, TunnelStream};
use bridgehead_protocol::wire::{AppKind, Begin, Open, PeerLimits};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{AbortHandle, JoinHandle};

use super::copy::{Connection, Copy};

/// Virtual time in which everything that can happen has happened (consumption is told after 20 ms).
const A_MOMENT: Duration = Duration::from_millis(50);

/// Virtual time after which a test waits in vain; it fails then instead of hanging.
const IN_VAIN: Duration = Duration::from_secs(200);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(IN_VAIN, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} never came"),
    }
}

/// Lets everything happen that can.
pub(super) async fn a_moment() {
    tokio::time::sleep(A_MOMENT).await;
}

/// What the app does next on its side of the socket.
enum Says {
    Bytes(Bytes),
    End,
    Reset,
}

#[derive(Default)]
struct AppState {
    took: Vec<u8>,
    /// Bytes the app's kernel still accepts.
    room: usize,
    write_error: Option<io::ErrorKind>,
    /// An encrypted session: a failed write may have gone out, news show only by reading.
    session: bool,
    /// The runtime does not know yet that there is something to read.
    unnoticed: u32,
    /// Bytes stay above the kernel until flushed.
    buffers: bool,
    flushed: usize,
    flush_waits: bool,
    /// Refuses to finish a shutdown at once.
    slow_shutdown: u32,
    says: VecDeque<Says>,
    told_end: bool,
    abrupt: bool,
    gone: bool,
    waits: Vec<Waker>,
}

/// The app: what it took, what it says, how its connection ended.
#[derive(Clone, Default)]
pub(super) struct App(Arc<Mutex<AppState>>);

impl App {
    fn state(&self) -> MutexGuard<'_, AppState> {
        self.0.lock().expect("no test holds it and panics")
    }

    fn change(&self, change: impl FnOnce(&mut AppState)) {
        let mut state = self.state();
        change(&mut state);
        let waits = std::mem::take(&mut state.waits);
        drop(state);
        waits.into_iter().for_each(Waker::wake);
    }

    /// Accepts `count` more bytes.
    pub(super) fn takes(&self, count: usize) {
        self.change(|s| s.room += count);
    }

    pub(super) fn says(&self, text: impl Into<Bytes>) {
        let bytes = text.into();
        self.change(|s| s.says.push_back(Says::Bytes(bytes)));
    }

    pub(super) fn ends(&self) {
        self.change(|s| s.says.push_back(Says::End));
    }

    pub(super) fn resets(&self) {
        self.change(|s| s.says.push_back(Says::Reset));
    }

    /// Every write fails from now on.
    pub(super) fn refuses_bytes(&self, kind: io::ErrorKind) {
        self.change(|s| s.write_error = Some(kind));
    }

    pub(super) fn is_behind_a_session(&self) {
        self.change(|s| s.session = true);
    }

    /// What waits is noticed only at the `polls`th look.
    pub(super) fn goes_unnoticed(&self, polls: u32) {
        self.change(|s| s.unnoticed = polls);
    }

    /// Bytes stay above the kernel, which takes none of them now.
    pub(super) fn buffers_until_flushed(&self) {
        self.change(|s| (s.buffers, s.flush_waits) = (true, true));
    }

    pub(super) fn lets_flush(&self) {
        self.change(|s| s.flush_waits = false);
    }

    pub(super) fn shuts_down_slowly(&self, polls: u32) {
        self.change(|s| s.slow_shutdown = polls);
    }

    /// What reached the app.
    pub(super) fn saw(&self) -> Vec<u8> {
        let state = self.state();
        if state.buffers {
            state.took[..state.flushed].to_vec()
        } else {
            state.took.clone()
        }
    }

    /// Bytes its socket accepted.
    pub(super) fn took(&self) -> u64 {
        self.state().took.len() as u64
    }

    /// The app was told that nothing more comes.
    pub(super) fn was_told_the_end(&self) -> bool {
        self.state().told_end
    }

    /// How its connection ended: `None` while it stands, `Some(true)` if abruptly.
    pub(super) fn closed_abruptly(&self) -> Option<bool> {
        let state = self.state();
        state.gone.then_some(state.abrupt)
    }
}

/// The agent's end of the app's connection.
pub(super) struct Socket(App);

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.change(|s| s.gone = true);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.unnoticed > 0 {
            state.unnoticed -= 1;
            state.waits.push(cx.waker().clone());
            return Poll::Pending;
        }
        match state.says.front_mut() {
            None => {
                state.waits.push(cx.waker().clone());
                return Poll::Pending;
            }
            Some(Says::End) => {}
            Some(Says::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Says::Bytes(bytes)) => {
                buf.put_slice(&bytes.split_to(buf.remaining().min(bytes.len())));
                if bytes.is_empty() {
                    state.says.pop_front();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.state();
        if let Some(kind) = state.write_error {
            return Poll::Ready(Err(kind.into()));
        }
        let count = buf.len().min(state.room);
        if count == 0 {
            state.waits.push(cx.waker().clone());
            return Poll::Pending;
        }
        state.room -= count;
        state.took.extend_from_slice(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.flush_waits {
            state.waits.push(cx.waker().clone());
            return Poll::Pending;
        }
        state.flushed = state.took.len();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.slow_shutdown > 0 {
            state.slow_shutdown -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        state.told_end = true;
        Poll::Ready(Ok(()))
    }
}

impl Connection for Socket {
    fn abrupt(&self) {
        self.0.state().abrupt = true;
    }

    fn has_news(&self) -> bool {
        let state = self.0.state();
        !state.session && !state.says.is_empty()
    }

    fn has_unread(&self) -> bool {
        let state = self.0.state();
        state.session && !state.says.is_empty()
    }

    fn failed_write(&self) -> FailedWrite {
        if self.0.state().session {
            FailedWrite::MayHaveTaken
        } else {
            FailedWrite::TookNothing
        }
    }
}

/// A tunnel in memory.
pub(super) struct World {
    pub(super) gateway: Tunnel,
    pub(super) agent: Tunnel,
    gateway_driver: AbortHandle,
}

/// A stream that stands, seen from everywhere.
pub(super) struct Stream {
    pub(super) gateway: TunnelStream,
    pub(super) app: App,
    /// The agent's task.
    pub(super) serving: JoinHandle<()>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> Self {
        let limits = PeerLimits {
            max_streams: settings.max_streams,
            initial_credit: settings.initial_window,
            linger: settings.linger,
        };
        let (here, there) = tokio::io::duplex(64 * 1024);
        let clock = Clock::start();
        let empty = BytesMut::new;
        let (gateway, driver) = Tunnel::new(Side::Gateway, settings, limits, here, empty(), clock);
        let gateway_driver = tokio::spawn(driver).abort_handle();
        let (agent, driver) = Tunnel::new(Side::Agent, settings, limits, there, empty(), clock);
        tokio::spawn(driver);
        Self {
            gateway,
            agent,
            gateway_driver,
        }
    }

    /// The gateway is gone without a word.
    pub(super) fn lose(&self) {
        self.gateway_driver.abort();
    }

    /// A stream of `kind` whose app accepts whatever comes.
    pub(super) async fn stream(&self, kind: AppKind) -> Stream {
        let stream = self.stuck_stream(kind).await;
        stream.app.takes(usize::MAX / 2);
        stream
    }

    /// A stream of `kind` whose app accepts nothing yet.
    pub(super) async fn stuck_stream(&self, kind: AppKind) -> Stream {
        let gateway = self.gateway.open(open(kind)).expect("a stream");
        let at_agent = self.agent.accept().await.expect("a stream");
        at_agent.opened();
        let app = App::default();
        let socket = Socket(app.clone());
        let serving = tokio::spawn(async move {
            Copy::new(at_agent, socket, kind).run().await;
        });
        poll_fn(|cx| gateway.control().poll_opened(cx))
            .await
            .expect("opened");
        Stream {
            gateway,
            app,
            serving,
        }
    }
}

pub(super) fn open(kind: AppKind) -> Open {
    Open {
        app: "demo".into(),
        kind,
        remaining: Duration::from_secs(30),
        credit: 0,
        client: None,
    }
}

impl Stream {
    /// An exchange begins with `text`; answers its start. Nothing was read beyond `expect_read`.
    pub(super) fn begin(&mut self, expect_read: u64, text: &[u8]) -> u64 {
        self.begin_within(Duration::from_secs(30), expect_read, text)
    }

    pub(super) fn begin_within(
        &mut self,
        remaining: Duration,
        expect_read: u64,
        text: &[u8],
    ) -> u64 {
        let start = self.gateway.control().begin(Begin {
            request: 1,
            remaining,
            expect_read: Some(expect_read),
        });
        self.write(text);
        start
    }

    pub(super) fn write(&mut self, text: &[u8]) {
        let mut bytes = Bytes::copy_from_slice(text);
        assert_eq!(self.gateway.write(&mut bytes), text.len(), "there is room");
    }

    /// An exchange from its first to its last byte; the connection is then kept.
    pub(super) async fn exchange(&mut self) {
        self.begin(0, b"GET /1");
        a_moment().await;
        self.app.says("answer 1");
        assert_eq!(self.read().await.as_deref(), Some(&b"answer 1"[..]));
    }

    /// The next bytes of the app, `None` at its orderly end or when the stream has ended.
    pub(super) async fn read(&mut self) -> Option<Bytes> {
        in_time(
            "bytes",
            poll_fn(|cx| self.gateway.poll_read(cx, usize::MAX)),
        )
        .await
        .ok()
        .flatten()
    }

    pub(super) async fn ended(&self) -> Ended {
        in_time(
            "an end",
            poll_fn(|cx| self.gateway.control().poll_ended(cx)),
        )
        .await
    }

    /// Fences, and waits for the counts.
    pub(super) async fn fence(&self, linger: bool) -> Counted {
        self.gateway.control().fence(linger);
        in_time(
            "a count",
            poll_fn(|cx| self.gateway.control().poll_counted(cx)),
        )
        .await
        .expect("counts before the end")
    }
}
