//! Listener and connections of the demo app, with orderly restarts and crashes on request.
//!
//! Owns the port: while the app is "down" nothing listens on it, so that a dial is refused by the
//! kernel as with a real app. Invariant: every connection ends with the app's future.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::pages::{self, Context};
use super::socket::SharedSocket;
use super::ws;

/// More than a person and a load test of a laptop need.
const CONNECTIONS: usize = 4096;

/// Pause after a failed accept or bind; neither may spin.
const BACK_OFF: Duration = Duration::from_millis(100);

/// How the app goes down on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// Finish what runs, close what idles, come back after the pause.
    Restart(Duration),
    /// Drop everything at once, come back after the pause.
    Crash(Duration),
}

/// The demo app, listening but not yet answering.
#[derive(Debug)]
pub struct DemoApp {
    listener: TcpListener,
    addr: SocketAddr,
}

impl DemoApp {
    /// Listen on a free loopback port.
    ///
    /// # Errors
    /// If there is none.
    pub async fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The target to give to an agent.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Answer until `shutdown` is ready.
    ///
    /// # Errors
    /// If the port cannot be taken again after a restart because another program has it.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> io::Result<()> {
        let mut shutdown = pin!(shutdown);
        let mut listener = self.listener;
        loop {
            let Some(back) = up(listener, shutdown.as_mut()).await else {
                return Ok(());
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = tokio::time::sleep_until(back) => {}
            }
            listener = TcpListener::bind(self.addr).await?;
        }
    }
}

/// One life of the app; returns when the next one begins, or `None` at shutdown. Afterwards the port
/// is free and no connection is left.
async fn up(
    listener: TcpListener,
    mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
) -> Option<Instant> {
    let (down, mut downs) = mpsc::channel(1);
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    let how = loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return None,
            Some(how) = downs.recv() => break how,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let context = Context::new(stream, down.clone());
                    connections.spawn(connection(context, closed.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, listener = "demo", "accept failed");
                    tokio::time::sleep(BACK_OFF).await;
                }
            },
        }
    };
    drop(listener);
    let (Down::Restart(pause) | Down::Crash(pause)) = how;
    let back = Instant::now() + pause;
    if let Down::Restart(_) = how {
        // Fails only if no connection is left to hear it.
        let _ = closing.send(true);
        let finished = async { while connections.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            () = &mut shutdown => return None,
            // Answers without an end are cut when the pause is over.
            _ = tokio::time::timeout_at(back, finished) => {}
        }
    }
    Some(back)
}

/// Ready when the app restarts (or is gone).
async fn told(closed: &mut watch::Receiver<bool>) {
    // An error means that the app is gone, which is told as well.
    let _ = closed.wait_for(|closed| *closed).await;
}

async fn connection(context: Context, mut closed: watch::Receiver<bool>) {
    let io = TokioIo::new(SharedSocket::new(Arc::clone(&context.socket)));
    let upgrade = Arc::clone(&context.upgrade);
    let service = service_fn(move |request| pages::answer(context.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(io, service)
        .with_upgrades();
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = told(&mut closed) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "demo connection ended");
    }
    let upgraded = upgrade
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(upgraded) = upgraded {
        tokio::select! {
            () = told(&mut closed) => {}
            () = ws::echo(upgraded) => {}
        }
    }
}

impl Context {
    fn new(stream: TcpStream, down: mpsc::Sender<Down>) -> Self {
        Self {
            socket: Arc::new(stream),
            upgrade: Arc::new(Mutex::new(None)),
            down,
        }
    }
}
