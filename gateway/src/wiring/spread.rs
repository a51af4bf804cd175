//! Agents' connections, dealt out to the workers in turn.
//!
//! An agent holds two tunnels, and an exchange prefers the one on its own worker: on another, each of
//! its bytes wakes a thread on the way there and one on the way back. The kernel deals connections out by
//! a hash, which puts both on the same worker as often as not. A carrier cannot move once its TLS
//! session stands, so a connection moves before its first byte is read.
//!
//! The worker that accepted a connection waits for its end elsewhere: draining and force stay its
//! listener's business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::accept::gate::Permit;
use crate::accept::listener::{Arrival, Serve};
use crate::shutdown::Signal;

/// Connections on their way to one worker; it takes them at once, unless it is very busy.
const ON_THE_WAY: usize = 64;

/// A connection on its way to another worker.
struct Handed<S> {
    front: S,
    stream: std::net::TcpStream,
    peer: SocketAddr,
    permit: Permit,
    /// Ends when whoever accepted it gives it up.
    wanted: oneshot::Receiver<()>,
    /// Dropped at its end.
    ended: oneshot::Sender<()>,
}

/// The ways to every worker.
pub(super) struct Seats<S> {
    ways: Vec<mpsc::Sender<Handed<S>>>,
    turn: AtomicUsize,
}

/// One worker's end of its way.
pub(super) struct Seat<S>(mpsc::Receiver<Handed<S>>);

/// Ways to `workers`, and the ends of them in their order.
pub(super) fn seats<S>(workers: usize) -> (Arc<Seats<S>>, Vec<Seat<S>>) {
    let (mut ways, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let (way, end) = mpsc::channel(ON_THE_WAY);
        ways.push(way);
        ends.push(Seat(end));
    }
    let turn = AtomicUsize::new(0);
    (Arc::new(Seats { ways, turn }), ends)
}

/// Serves each connection on the worker whose turn it is.
pub(super) struct Spread<S> {
    pub(super) front: S,
    /// The worker that accepts.
    pub(super) here: usize,
    pub(super) seats: Arc<Seats<S>>,
}

impl<S: Clone> Clone for Spread<S> {
    fn clone(&self) -> Self {
        Self {
            front: self.front.clone(),
            here: self.here,
            seats: Arc::clone(&self.seats),
        }
    }
}

impl<S: Serve> Serve for Spread<S> {
    async fn serve(self, arrival: Arrival) {
        let ways = &self.seats.ways;
        let there = self.seats.turn.fetch_add(1, Ordering::Relaxed) % ways.len();
        if there == self.here {
            return self.front.serve(arrival).await;
        }
        let Arrival {
            stream,
            peer,
            permit,
        } = arrival;
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%peer, %error, "a new carrier is already gone"),
        };
        let (_wants, wanted) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let handed = Handed {
            front: self.front,
            stream,
            peer,
            permit,
            wanted,
            ended,
        };
        match ways[there].try_send(handed) {
            // Its sender is only ever dropped, which is the end.
            Ok(()) => drop(end.await),
            // That worker is busy, or has ended.
            Err(back) => back.into_inner().serve().await,
        }
    }
}

impl<S: Serve> Handed<S> {
    /// Serves it on this worker, to its end or until whoever accepted it gives it up.
    async fn serve(self) {
        let Self {
            front,
            stream,
            peer,
            permit,
            wanted,
            ended,
        } = self;
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%peer, %error, "a new carrier is lost"),
        };
        let arrival = Arrival {
            stream,
            peer,
            permit,
        };
        tokio::select! {
            biased;
            _ = wanted => {}
            () = front.serve(arrival) => {}
        }
        drop(ended);
    }
}

impl<S: Serve> Seat<S> {
    /// Serves what comes on the way until draining begins, then waits for what came.
    pub(super) async fn run(mut self, mut signal: Signal) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! { biased;
                () = signal.draining() => break,
                Some(_) = connections.join_next() => {}
                Some(handed) = self.0.recv() => {
                    connections.spawn(handed.serve());
                }
            }
        }
        self.0.close();
        while let Some(handed) = self.0.recv().await {
            connections.spawn(handed.serve());
        }
        while connections.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::accept::gate::Gate;
    use crate::accept::listener;
    use crate::shutdown::Shutdown;
    use crate::telemetry::labels::Listener;
    use crate::telemetry::metrics::Metrics;

    /// Tells each connection's number and holds it until its peer closes.
    #[derive(Clone)]
    struct Hold(mpsc::Sender<u64>);

    impl Serve for Hold {
        async fn serve(self, mut arrival: Arrival) {
            let number = arrival.permit.number();
            self.0.send(number).await.expect("a listening test");
            // End or error: the peer is gone.
            drop(arrival.stream.read(&mut [0]).await);
        }
    }

    /// The first of two workers, accepting; and the second's seat.
    struct One {
        address: SocketAddr,
        served: mpsc::Receiver<u64>,
        gate: Arc<Gate>,
        shutdown: Shutdown,
        running: tokio::task::JoinHandle<()>,
        other: Seat<Hold>,
    }

    fn one() -> One {
        let address = "127.0.0.1:0".parse().expect("an address");
        let bound = listener::bind(address, 1).expect("a listener").remove(0);
        let socket = TcpListener::from_std(bound).expect("a listener");
        let address = socket.local_addr().expect("an address");
        let (sender, served) = mpsc::channel(8);
        let (seats, mut ends) = seats(2);
        let spread = Spread {
            front: Hold(sender),
            here: 0,
            seats,
        };
        let (gate, shutdown) = (gate(), Shutdown::new());
        let run = listener::run(socket, Arc::clone(&gate), spread, shutdown.signal());
        One {
            address,
            served,
            gate,
            running: tokio::spawn(run),
            shutdown,
            other: ends.remove(1),
        }
    }

    fn gate() -> Arc<Gate> {
        Gate::new(10, 10, Metrics::new().listener(Listener::Tunnel))
    }

    #[tokio::test]
    async fn connections_are_dealt_out_in_turn_and_each_is_served_where_it_was_handed() {
        let mut one = one();
        let first = TcpStream::connect(one.address).await.expect("a connection");
        assert_eq!(one.served.recv().await, Some(1), "its own turn");
        let second = TcpStream::connect(one.address).await.expect("a connection");
        let third = TcpStream::connect(one.address).await.expect("a connection");
        assert_eq!(
            one.served.recv().await,
            Some(3),
            "the other does not run yet"
        );
        let other = tokio::spawn(one.other.run(one.shutdown.signal()));
        assert_eq!(one.served.recv().await, Some(2));
        assert_eq!(one.gate.open(), 3);
        one.shutdown.drain();
        drop((first, second, third));
        one.running.await.expect("the listener ends");
        other.await.expect("the seat ends");
        assert_eq!(one.gate.open(), 0);
    }

    #[tokio::test]
    async fn force_ends_what_was_handed_on() {
        let mut one = one();
        let _first = TcpStream::connect(one.address).await.expect("a connection");
        let _second = TcpStream::connect(one.address).await.expect("a connection");
        let other = tokio::spawn(one.other.run(one.shutdown.signal()));
        assert_eq!(
            one.served.recv().await.zip(one.served.recv().await),
            Some((1, 2))
        );
        one.shutdown.force();
        one.running.await.expect("the listener ends");
        other.await.expect("the seat ends");
        assert_eq!(one.gate.open(), 0);
    }

    #[tokio::test]
    async fn a_worker_that_has_ended_is_passed_over() {
        let mut one = one();
        drop(one.other);
        let _first = TcpStream::connect(one.address).await.expect("a connection");
        let _second = TcpStream::connect(one.address).await.expect("a connection");
        let served = async { (one.served.recv().await, one.served.recv().await) };
        let served = tokio::time::timeout(Duration::from_secs(15), served).await;
        assert_eq!(served, Ok((Some(1), Some(2))));
        one.shutdown.force();
        one.running.await.expect("the listener ends");
    }
}
