//! A TCP relay between two processes, which a test can cut, silence or point elsewhere.
//!
//! Must not: understand what it carries. Frame-aware faults belong to the chaos carrier, not here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From whoever dialled.
    Up,
    /// To whoever dialled.
    Down,
}

/// What connections do now. They are counted from 1 in the order of their arrival.
#[derive(Clone, Copy, Debug)]
struct Orders {
    /// Where new ones go; `None`: they are closed at once.
    target: Option<SocketAddr>,
    /// Those up to this number are cut.
    cut: u64,
    /// Those up to this number lose every byte on its way up, or down, and nobody is told.
    silent: [u64; 2],
    /// All are cut whenever so many more bytes have passed.
    cut_each: Option<u64>,
}

/// What the relay's connections share.
#[derive(Clone)]
struct Common {
    orders: watch::Sender<Orders>,
    arrived: Arc<AtomicU64>,
    /// Bytes passed on, either way, by all of them.
    passed: Arc<AtomicU64>,
}

impl Common {
    /// Cuts every connection; new ones pass.
    fn cut(&self) {
        let upto = self.arrived.load(Ordering::SeqCst);
        self.orders.send_modify(|orders| orders.cut = upto);
    }

    /// So many bytes have passed: it may be time.
    fn passed(&self, count: usize) {
        let count = count as u64;
        let before = self.passed.fetch_add(count, Ordering::SeqCst);
        let each = self.orders.borrow().cut_each;
        if each.is_some_and(|each| before / each != (before + count) / each) {
            self.cut();
        }
    }
}

/// A running relay.
pub struct Relay {
    addr: SocketAddr,
    common: Common,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port and passes everything on to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let addr = listener.local_addr().expect("a listener has an address");
        let orders = watch::Sender::new(Orders {
            target: Some(target),
            cut: 0,
            silent: [0, 0],
            cut_each: None,
        });
        let common = Common {
            orders,
            arrived: Arc::default(),
            passed: Arc::default(),
        };
        let shared = common.clone();
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = shared.arrived.fetch_add(1, Ordering::SeqCst) + 1;
                running.spawn(carry(stream, number, shared.clone()));
                while running.try_join_next().is_some() {}
            }
        });
        Self { addr, common, task }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections that have come so far.
    pub fn arrived(&self) -> u64 {
        self.common.arrived.load(Ordering::SeqCst)
    }

    /// Cuts every connection; new ones pass.
    pub fn cut(&self) {
        self.common.cut();
    }

    /// Cuts every connection whenever `bytes` more have passed, so that what goes through is cut by
    /// its own progress and not by the clock.
    pub fn cut_each(&self, bytes: u64) {
        self.common
            .orders
            .send_modify(|orders| orders.cut_each = Some(bytes));
    }

    /// Swallows every byte that goes this way on the connections that stand, and says nothing; new
    /// ones pass.
    pub fn silence(&self, way: Way) {
        let upto = self.arrived();
        self.common
            .orders
            .send_modify(|orders| orders.silent[way as usize] = upto);
    }

    /// Cuts every connection and passes new ones on to `target`.
    pub fn point_at(&self, target: SocketAddr) {
        self.common
            .orders
            .send_modify(|orders| orders.target = Some(target));
        self.cut();
    }

    /// Cuts every connection and closes new ones at once.
    pub fn refuse(&self) {
        self.common
            .orders
            .send_modify(|orders| orders.target = None);
        self.cut();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(stream: TcpStream, number: u64, common: Common) {
    let mut orders = common.orders.subscribe();
    let Some(target) = orders.borrow().target else {
        return;
    };
    let Ok(onward) = TcpStream::connect(target).await else {
        return;
    };
    drop(stream.set_nodelay(true));
    drop(onward.set_nodelay(true));
    let (near_read, near_write) = stream.into_split();
    let (far_read, far_write) = onward.into_split();
    let seen = orders.clone();
    let is_silent = |way: Way| {
        let seen = seen.clone();
        move || seen.borrow().silent[way as usize] >= number
    };
    tokio::select! {
        biased;
        _ = orders.wait_for(|orders| orders.cut >= number) => {}
        _ = async {
            tokio::join!(
                pass(near_read, far_write, &common, is_silent(Way::Up)),
                pass(far_read, near_write, &common, is_silent(Way::Down)),
            )
        } => {}
    }
}

/// Until the end of `from`, which is passed on unless it happens in silence.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    common: &Common,
    is_silent: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        if is_silent() {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        common.passed(count);
    }
    if is_silent() {
        // Whoever waits on the other side hears nothing of it.
        std::future::pending::<()>().await;
    }
    drop(to.shutdown().await);
}
