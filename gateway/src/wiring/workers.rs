//! One single-threaded runtime per core, each with its own sockets: nothing on the data path is
//! stolen between threads.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::WiringError;
use super::bound::{Door, Duty};
use super::spread::{Seat, Seats, Spread, seats};
use super::tunnels::TunnelFront;
use crate::accept::http::HttpFront;
use crate::accept::listener;
use crate::accept::tcp::TcpFront;
use crate::request::Exchanges;
use crate::shutdown::Signal;
use crate::task::Tasks;

/// What every worker needs to serve its sockets.
#[derive(Clone)]
pub(super) struct Fronts {
    pub(super) http: HttpFront<Exchanges>,
    pub(super) tunnel: TunnelFront,
    pub(super) tcp: TcpFront<super::tunnels::TcpApp>,
    pub(super) gates: Gates,
    /// Ends the public side.
    pub(super) public: Signal,
    /// Ends the tunnels, after the public side.
    pub(super) tunnels: Signal,
    /// Tasks of no connection.
    pub(super) tasks: Tasks,
}

/// Connections allowed, by side.
#[derive(Clone)]
pub(super) struct Gates {
    pub(super) public: Arc<crate::accept::gate::Gate>,
    pub(super) tunnel: Arc<crate::accept::gate::Gate>,
}

/// The running workers.
pub(super) struct Workers {
    threads: Vec<JoinHandle<()>>,
    public: Tasks,
}

impl Workers {
    /// Waits until no client is connected any more. Cancel safe.
    pub(super) async fn public_idle(&self) {
        self.public.idle().await;
    }

    /// Waits for the threads; the signals must have been given before.
    pub(super) async fn join(self) {
        let joined = tokio::task::spawn_blocking(move || {
            self.threads
                .into_iter()
                .filter_map(|thread| thread.join().err())
                .count()
        });
        if joined.await.unwrap_or(1) > 0 {
            tracing::error!("a worker panicked");
        }
    }
}

/// Starts the workers, each with one socket of every door.
pub(super) fn start(
    count: usize,
    doors: Vec<Door>,
    fronts: &Fronts,
) -> Result<Workers, WiringError> {
    let public = Tasks::new();
    let mut sockets: Vec<Vec<(Duty, std::net::TcpListener)>> =
        (0..count).map(|_| Vec::new()).collect();
    for door in doors {
        for (worker, socket) in door.sockets.into_iter().enumerate() {
            sockets[worker].push((door.duty.clone(), socket));
        }
    }
    let (seats, ends) = seats(count);
    let spawned = sockets.into_iter().zip(ends).enumerate();
    let spawned = spawned.map(|(number, (sockets, seat))| {
        let worker = Worker {
            number,
            seats: Arc::clone(&seats),
        };
        spawn(worker, seat, sockets, fronts.clone(), public.clone())
    });
    let threads = spawned.collect::<Result<_, _>>()?;
    Ok(Workers { threads, public })
}

/// A worker among the others.
struct Worker {
    number: usize,
    seats: Arc<Seats<TunnelFront>>,
}

fn spawn(
    worker: Worker,
    seat: Seat<TunnelFront>,
    sockets: Vec<(Duty, std::net::TcpListener)>,
    fronts: Fronts,
    public: Tasks,
) -> Result<JoinHandle<()>, WiringError> {
    let fault = |error| WiringError::System {
        what: "cannot start a worker",
        error,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(fault)?;
    let number = worker.number;
    let work = move || {
        runtime.block_on(async move {
            let mut loops = JoinSet::new();
            loops.spawn(seat.run(fronts.tunnels.clone()));
            for (duty, socket) in sockets {
                match TcpListener::from_std(socket) {
                    Ok(socket) => serve(&mut loops, &worker, &fronts, &public, duty, socket),
                    Err(error) => tracing::error!(%error, "a listener was lost"),
                }
            }
            while loops.join_next().await.is_some() {}
            // A tunnel that came over WebSocket is a task of its own, and may have clients on another
            // worker; what lingers ends with the drain.
            let mut force = fronts.public.clone();
            tokio::select! {
                biased;
                () = force.forced() => {}
                () = fronts.tasks.idle() => {}
            }
        });
    };
    std::thread::Builder::new()
        .name(format!("bh-worker-{number}"))
        .spawn(work)
        .map_err(fault)
}

fn serve(
    loops: &mut JoinSet<()>,
    worker: &Worker,
    fronts: &Fronts,
    tasks: &Tasks,
    duty: Duty,
    socket: TcpListener,
) {
    let gate = fronts.gates.public.clone();
    match duty {
        Duty::Http(tls) => {
            let front = HttpFront {
                tls,
                ..fronts.http.clone()
            };
            let place = tasks.enter("public listener");
            let run = listener::run(socket, gate, front, fronts.public.clone());
            loops.spawn(async move {
                run.await;
                drop(place);
            });
        }
        Duty::Tcp(app) => {
            let mut front = fronts.tcp.clone();
            front.corridor.app = Some(app);
            let place = tasks.enter("public listener");
            let run = listener::run(socket, gate, front, fronts.public.clone());
            loops.spawn(async move {
                run.await;
                drop(place);
            });
        }
        Duty::Tunnel(tls) => {
            let front = TunnelFront {
                tls,
                ..fronts.tunnel.clone()
            };
            let spread = Spread {
                front,
                here: worker.number,
                seats: Arc::clone(&worker.seats),
            };
            loops.spawn(listener::run(
                socket,
                fronts.gates.tunnel.clone(),
                spread,
                fronts.tunnels.clone(),
            ));
        }
    }
}
