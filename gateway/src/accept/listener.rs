//! Sockets that accept: bound for several workers, bounded by the gate, and never spinning.
//!
//! The loop only accepts: everything that could wait for a peer happens in the connection's own
//! task. Draining closes the listener and lets the tasks finish; force ends them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::gate::{DoorPlace, Gate, Permit};
use crate::shutdown::Signal;

/// Connections that the kernel keeps for us before we accept them.
const BACKLOG: i32 = 1024;

/// First and longest pause after the process ran out of something.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// Silence after which the kernel asks whether a peer is alive, and how it asks.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// Bind `address` once for each of `workers`; connections are spread among them by the kernel. Port
/// zero is chosen once and shared. Listeners are given in standard form: each worker turns its own
/// into tokio's on its own runtime.
///
/// # Errors
/// The operating system's.
pub fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<std::net::TcpListener>> {
    let mut address = address;
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let listener = bind_one(address)?;
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn bind_one(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Unsent bytes that the kernel holds for one client. Without it a client that does not read makes the
/// kernel keep megabytes for it (`tcp_wmem`), unseen by any limit of ours and by the write stall.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 128 * 1024;

/// A connection that was accepted and has a place.
#[derive(Debug)]
pub struct Arrival {
    /// The connection; small writes are not delayed, dead peers are noticed.
    pub stream: TcpStream,
    /// Who connected.
    pub peer: SocketAddr,
    /// Its place; to be kept as long as the connection.
    pub permit: Permit,
}

/// What is done with connections.
pub trait Serve: Clone + Send + 'static {
    /// Serve one connection to its end.
    fn serve(self, arrival: Arrival) -> impl Future<Output = ()> + Send + 'static;

    /// There is no place for `stream`. Unless told otherwise it is reset: nothing was done.
    fn turn_away(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        door: DoorPlace,
    ) -> impl Future<Output = ()> + Send + 'static {
        refuse(&stream);
        drop((stream, peer, door));
        std::future::ready(())
    }
}

/// Accept until draining begins, then wait for what was accepted; ends at once when forced.
pub async fn run<S: Serve>(listener: TcpListener, gate: Arc<Gate>, serve: S, mut signal: Signal) {
    let mut connections = JoinSet::new();
    let mut pause = None;
    loop {
        tokio::select! { biased;
            () = signal.draining() => break,
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener, &mut pause) => {
                if let Some((stream, peer)) = accepted {
                    admit(&gate, &serve, stream, peer, &mut connections);
                }
            }
        }
    }
    // Whom the kernel let in already is told; newcomers it refuses from here on.
    while let Some(Ok((stream, peer))) = listener.accept().now_or_never() {
        admit(&gate, &serve, stream, peer, &mut connections);
    }
    drop(listener);
    tokio::select! { biased;
        () = signal.forced() => connections.shutdown().await,
        () = async { while connections.join_next().await.is_some() {} } => {}
    }
}

/// A place for `stream`, or the door.
fn admit<S: Serve>(
    gate: &Arc<Gate>,
    serve: &S,
    stream: TcpStream,
    peer: SocketAddr,
    connections: &mut JoinSet<()>,
) {
    configure(&stream);
    let serve = serve.clone();
    if let Some(permit) = gate.enter() {
        let arrival = Arrival {
            stream,
            peer,
            permit,
        };
        connections.spawn(serve.serve(arrival));
    } else if let Some(door) = gate.door() {
        connections.spawn(serve.turn_away(stream, peer, door));
    } else {
        refuse(&stream);
    }
}

/// A pause after the process ran out of something.
#[derive(Clone, Copy, Debug)]
struct Pause {
    span: Duration,
    /// A moment and not a span to wait: whoever waits is interrupted by every connection that ends.
    until: Instant,
}

/// One attempt; `None` if nothing was accepted. An exhausted process pauses, longer each time.
/// Cancel safe: a pause goes on where it was.
async fn accept(
    listener: &TcpListener,
    pause: &mut Option<Pause>,
) -> Option<(TcpStream, SocketAddr)> {
    if let Some(pause) = *pause {
        sleep_until(pause.until).await;
    }
    match listener.accept().await {
        Ok(accepted) => {
            *pause = None;
            Some(accepted)
        }
        Err(error) => {
            let span = pause_after(&error, pause.map(|pause| pause.span));
            *pause = span.map(|span| Pause {
                span,
                until: Instant::now() + span,
            });
            if let Some(span) = span {
                tracing::warn!(%error, millis = span.as_millis(), "cannot accept connections");
            }
            None
        }
    }
}

/// How long to wait after `error`: not at all if it only concerns the connection that was coming.
fn pause_after(error: &io::Error, last: Option<Duration>) -> Option<Duration> {
    match error.kind() {
        io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::Interrupted => None,
        _ => Some(last.map_or(PAUSE_FIRST, |last| (last * 2).min(PAUSE_LAST))),
    }
}

/// Make the close of `stream` a reset.
pub(crate) fn refuse(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a refused connection is already gone");
    }
}

fn configure(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&KEEPALIVE));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let set = set.and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = set {
        tracing::debug!(%error, "a new connection is already gone");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::shutdown::Shutdown;
    use crate::telemetry::labels::{ConnectionRefused, Listener};
    use crate::telemetry::metrics::Metrics;

    fn gate(most: usize) -> Arc<Gate> {
        Gate::new(most, most, Metrics::new().listener(Listener::Public))
    }

    /// "Too many open files" in Linux and the BSDs.
    const EMFILE: i32 = 24;

    /// Holds each connection until its peer closes.
    #[derive(Clone)]
    struct Hold(mpsc::Sender<u64>);

    impl Serve for Hold {
        async fn serve(self, mut arrival: Arrival) {
            self.0
                .send(arrival.permit.number())
                .await
                .expect("a listening test");
            let mut byte = [0];
            // End or error: the peer is gone.
            let _end = arrival.stream.read(&mut byte).await;
        }
    }

    fn on_runtime(listener: std::net::TcpListener) -> TcpListener {
        TcpListener::from_std(listener).expect("a listener")
    }

    #[tokio::test]
    async fn workers_share_one_port() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let bound = bind(address, 3).expect("three listeners");
        let ports: Vec<u16> = bound
            .iter()
            .map(|l| l.local_addr().expect("an address").port())
            .collect();
        assert!(ports[0] != 0 && ports.iter().all(|p| *p == ports[0]));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_keeps_little_for_a_client_that_does_not_read() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = on_runtime(bind(address, 1).expect("a listener").remove(0));
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("a connection");
        let (accepted, _) = listener.accept().await.expect("a connection");
        configure(&accepted);
        let socket = SockRef::from(&accepted);
        assert_eq!(socket.tcp_notsent_lowat().expect("an option"), UNSENT);
        // With small buffers on the way, what can be written is what the kernel keeps.
        SockRef::from(&client)
            .set_recv_buffer_size(4096)
            .expect("an option");
        let (mut taken, piece) = (0, vec![0; 64 * 1024]);
        while let Ok(written) = accepted.try_write(&piece) {
            taken += written;
        }
        assert!(taken < 8 * UNSENT as usize, "{taken} bytes");
    }

    #[tokio::test]
    async fn a_full_gate_resets_newcomers_and_a_drain_waits_for_the_others() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = bind(address, 1).expect("a listener").remove(0);
        let address = listener.local_addr().expect("an address");
        let gate = gate(1);
        let shutdown = Shutdown::new();
        let (sender, mut served) = mpsc::channel(8);
        let loop_ = run(
            on_runtime(listener),
            Arc::clone(&gate),
            Hold(sender),
            shutdown.signal(),
        );
        let running = tokio::spawn(loop_);
        let first = TcpStream::connect(address).await.expect("a connection");
        assert_eq!(served.recv().await, Some(1));
        let mut second = TcpStream::connect(address).await.expect("a connection");
        let mut byte = [0];
        let refused = second.read(&mut byte).await.expect_err("a reset");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset);
        let refused = gate.refused(ConnectionRefused::Connections);
        assert_eq!((gate.open(), refused), (1, 1));
        shutdown.drain();
        drop(first);
        running.await.expect("the loop ends");
        assert_eq!(gate.open(), 0);
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn force_ends_connections_that_would_go_on() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = bind(address, 1).expect("a listener").remove(0);
        let address = listener.local_addr().expect("an address");
        let gate = gate(10);
        let shutdown = Shutdown::new();
        let (sender, mut served) = mpsc::channel(8);
        let loop_ = run(
            on_runtime(listener),
            Arc::clone(&gate),
            Hold(sender),
            shutdown.signal(),
        );
        let running = tokio::spawn(loop_);
        let _client = TcpStream::connect(address).await.expect("a connection");
        served.recv().await.expect("a connection");
        shutdown.force();
        running.await.expect("the loop ends");
        assert_eq!(gate.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_although_connections_that_end_interrupt_it() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = on_runtime(bind(address, 1).expect("a listener").remove(0));
        let address = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(address).await.expect("a connection");
        let begun = Instant::now();
        let mut pause = Some(Pause {
            span: PAUSE_LAST,
            until: begun + PAUSE_LAST,
        });
        let often = PAUSE_LAST / 10;
        let mut accepted = None;
        for _ in 0..20 {
            let one = tokio::time::timeout(often, accept(&listener, &mut pause)).await;
            accepted = accepted.or(one.ok().flatten());
        }
        assert!(accepted.is_some(), "nobody is let in any more");
        assert!(pause.is_none());
    }

    #[test]
    fn an_exhausted_process_pauses_longer_each_time_and_a_lost_client_costs_nothing() {
        let exhausted = io::Error::from_raw_os_error(EMFILE);
        let mut pause = None;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pause = pause_after(&exhausted, pause);
            pauses.push(pause.expect("a pause").as_millis());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let lost = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(pause_after(&lost, pause), None);
    }
}
