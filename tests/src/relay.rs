//! A TCP relay between two processes, which a test can cut or point elsewhere.
//!
//! Must not: understand what it carries. Frame-aware faults belong to the chaos carrier, not here.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What connections do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Copy both ways to this address; the number changes with every cut.
    Pass(SocketAddr, u64),
    /// Accept and close at once.
    Refuse(u64),
}

/// A running relay.
pub struct Relay {
    addr: SocketAddr,
    mode: watch::Sender<Mode>,
    cuts: std::sync::atomic::AtomicU64,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port and passes everything on to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let addr = listener.local_addr().expect("a listener has an address");
        let mode = watch::Sender::new(Mode::Pass(target, 0));
        let watch = mode.subscribe();
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                running.spawn(carry(stream, watch.clone()));
                while running.try_join_next().is_some() {}
            }
        });
        Self {
            addr,
            mode,
            cuts: std::sync::atomic::AtomicU64::new(0),
            task,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Cuts every connection and passes new ones on to `target`.
    pub fn point_at(&self, target: SocketAddr) {
        self.mode.send_replace(Mode::Pass(target, self.count()));
    }

    /// Cuts every connection and closes new ones at once.
    pub fn refuse(&self) {
        self.mode.send_replace(Mode::Refuse(self.count()));
    }

    fn count(&self) -> u64 {
        self.cuts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut stream: TcpStream, mut mode: watch::Receiver<Mode>) {
    let now = *mode.borrow_and_update();
    let Mode::Pass(target, _) = now else { return };
    let Ok(mut onward) = TcpStream::connect(target).await else {
        return;
    };
    drop(stream.set_nodelay(true));
    drop(onward.set_nodelay(true));
    tokio::select! {
        biased;
        _ = mode.changed() => {}
        _ = tokio::io::copy_bidirectional(&mut stream, &mut onward) => {}
    }
}
