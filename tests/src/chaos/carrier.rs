//! The port of a chaos carrier: accepts, counts time, hands connections to `link`.
//!
//! Owns the clock of the rules and the listener, which is really closed while a rule says `down`.
//! Invariant: everything it started ends with it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::decision::Admission;
use super::engine::Engine;
use super::link;
use super::script::Script;
use super::tally::Tally;
use super::tls::Tls;

/// Connections waiting to be accepted; the same as the gateway's.
const BACKLOG: i32 = 1024;

/// Pause before a port that is taken is tried again.
const REBIND: Duration = Duration::from_millis(20);

/// What a carrier is made of.
pub struct Setup {
    /// Where agents dial; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The gateway's tunnel listener, `HOST:PORT`, resolved for each connection.
    pub to: String,
    /// The faults.
    pub script: Script,
    /// Seed of all draws.
    pub seed: u64,
    /// TLS, if it is to be ended here.
    pub tls: Option<Tls>,
}

/// What the tasks of a carrier share.
pub(super) struct Shared {
    engine: Mutex<Engine>,
    started: Instant,
    /// Rises with everything that a waiting task may have to look at.
    changed: watch::Sender<u64>,
    pub(super) to: Mutex<String>,
    pub(super) tls: Option<Tls>,
}

impl Shared {
    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn announce(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn target(&self) -> String {
        self.to
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A running carrier. Dropped, it closes its port and resets what it carries.
pub struct Carrier {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Carrier {
    /// Listens and carries.
    ///
    /// # Errors
    /// The port is taken or may not be used.
    pub async fn start(setup: Setup) -> std::io::Result<Self> {
        let listener = listen(setup.listen)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(Engine::new(setup.script, setup.seed)),
            started: Instant::now(),
            changed: watch::Sender::new(0),
            to: Mutex::new(setup.to),
            tls: setup.tls,
        });
        let task = tokio::spawn(serve(Arc::clone(&shared), listener, addr));
        Ok(Self { addr, shared, task })
    }

    /// Where agents dial.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What has happened so far.
    pub fn tally(&self) -> Tally {
        self.shared.engine().tally().clone()
    }

    /// Connections that stand.
    pub fn standing(&self) -> usize {
        self.shared.engine().standing()
    }

    /// Puts another script in the place of the one that runs; what is connected stays so.
    pub fn load(&self, script: Script) {
        let now = self.shared.now();
        self.shared.engine().load(script, now);
        self.shared.announce();
    }

    /// Passes new connections on to another address.
    pub fn point_at(&self, to: &str) {
        to.clone_into(
            &mut self
                .shared
                .to
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Waits until `wanted` holds for what has happened.
    pub async fn until(&self, wanted: impl Fn(&Tally) -> bool) {
        let mut changes = self.shared.changes();
        while !wanted(self.shared.engine().tally()) {
            // The sender lives as long as this carrier.
            drop(changes.changed().await);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts while the rules say so, and lets their time pass.
async fn serve(shared: Arc<Shared>, first: TcpListener, addr: SocketAddr) {
    let mut listener = Some(first);
    let mut links = JoinSet::new();
    loop {
        while links.try_join_next().is_some() {}
        let (open, due) = {
            let mut engine = shared.engine();
            engine.tick(shared.now());
            (engine.listens(), engine.next_tick())
        };
        shared.announce();
        match (open, listener.is_some()) {
            (false, true) => listener = None,
            (true, false) => listener = listen(addr).ok(),
            _ => {}
        }
        let again = (open && listener.is_none()).then(|| shared.now() + REBIND);
        tokio::select! {
            biased;
            () = until(&shared, due.into_iter().chain(again).min()) => {}
            stream = accept(listener.as_ref()) => {
                if let Some(stream) = stream {
                    links.spawn(admit(Arc::clone(&shared), stream));
                }
            }
            // Another script: its times differ.
            _ = loaded(&shared, due) => {}
        }
    }
}

/// Ends when the next tick is no longer the one waited for.
async fn loaded(shared: &Shared, due: Option<Duration>) {
    let mut changes = shared.changes();
    while shared.engine().next_tick() == due {
        drop(changes.changed().await);
    }
}

async fn until(shared: &Shared, due: Option<Duration>) {
    match due {
        Some(due) => crate::wait::dawdle(due.saturating_sub(shared.now())).await,
        None => std::future::pending().await,
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        // An error is of that one connection, or passes (too many descriptors).
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn admit(shared: Arc<Shared>, stream: TcpStream) {
    let now = shared.now();
    let admission = shared.engine().open(now);
    shared.announce();
    match admission {
        Admission::Refuse => drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
        Admission::Carry(id) => link::carry(shared, id, stream).await,
    }
}

/// A listener whose port can be taken again while old connections of it linger.
fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
