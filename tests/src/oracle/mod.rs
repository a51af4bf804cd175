//! The oracle: an app that knows what it saw, so that what a gateway tells can be held against it.
//!
//! | Module | Holds | |
//! |---|---|---|
//! | [`book`] | what was seen of each request | |
//! | [`content`] | addresses, bodies, and what a right answer is | pure |
//! | `serve` | the app: what each address does | |
//!
//! Invariants: a byte is in the book before the app acts on it, and an answer is in the book before its
//! first byte is written; so the book is never behind what a gateway can know.

pub mod book;
pub mod content;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use book::{Book, Level, Seen};

/// A running oracle app. Dropped, it closes its port and its connections.
pub struct Oracle {
    addr: SocketAddr,
    book: Arc<Book>,
    open: watch::Sender<bool>,
    listening: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Oracle {
    /// Listens at `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// The port is taken or may not be used.
    pub async fn start(addr: SocketAddr, run: u32) -> std::io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let book = Arc::new(Book::new(run));
        let open = watch::Sender::new(true);
        let (said, listening) = watch::channel(true);
        let task = tokio::spawn(run_port(
            listener,
            addr,
            Arc::clone(&book),
            open.subscribe(),
            said,
        ));
        Ok(Self {
            addr,
            book,
            open,
            listening,
            task,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it saw.
    pub fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Closes or opens the port, and waits until that is so. Connections go on.
    pub async fn set_port(&self, open: Port) {
        let open = open == Port::Open;
        self.open.send_replace(open);
        let mut listening = self.listening.clone();
        // The sender lives as long as the task, and so as long as this.
        drop(listening.wait_for(|now| *now == open).await);
    }
}

/// State of the app's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Connections are accepted.
    Open,
    /// Connections are refused by the kernel.
    Closed,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_port(
    first: TcpListener,
    addr: SocketAddr,
    book: Arc<Book>,
    mut open: watch::Receiver<bool>,
    said: watch::Sender<bool>,
) {
    let mut listener = Some(first);
    let mut running = JoinSet::new();
    loop {
        let wanted = *open.borrow_and_update();
        if !wanted {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(addr).await.ok();
        }
        said.send_replace(listener.is_some());
        while running.try_join_next().is_some() {}
        tokio::select! {
            biased;
            changed = open.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            stream = accept(listener.as_ref()) => {
                if let Some(stream) = stream {
                    running.spawn(serve::connection(stream, Arc::clone(&book)));
                }
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
