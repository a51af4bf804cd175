//! One single-threaded runtime per core, each with its own sockets: nothing on the data path is
//! stolen between threads.

use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::WiringError;
use super::bound::{Door, Duty};
use super::tunnels::TunnelFront;
use crate::accept::http::HttpFront;
use crate::accept::listener;
use crate::accept::tcp::TcpFront;
use crate::request::Exchanges;
use crate::shutdown::Signal;

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
}

/// Connections allowed, by side.
#[derive(Clone)]
pub(super) struct Gates {
    pub(super) public: std::sync::Arc<crate::accept::gate::Gate>,
    pub(super) tunnel: std::sync::Arc<crate::accept::gate::Gate>,
}

/// Starts the workers, each with one socket of every door.
pub(super) fn start(count: usize, doors: Vec<Door>, fronts: &Fronts) -> Result<Vec<JoinHandle<()>>, WiringError> {
    let mut sockets: Vec<Vec<(Duty, std::net::TcpListener)>> = (0..count).map(|_| Vec::new()).collect();
    for door in doors {
        for (worker, socket) in door.sockets.into_iter().enumerate() {
            sockets[worker].push((door.duty.clone(), socket));
        }
    }
    let spawned = sockets.into_iter().enumerate().map(|(number, sockets)| spawn(number, sockets, fronts.clone()));
    spawned.collect()
}

fn spawn(
    number: usize,
    sockets: Vec<(Duty, std::net::TcpListener)>,
    fronts: Fronts,
) -> Result<JoinHandle<()>, WiringError> {
    let fault = |error| WiringError::System { what: "cannot start a worker", error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    let work = move || {
        runtime.block_on(async move {
            let mut loops = JoinSet::new();
            for (duty, socket) in sockets {
                match TcpListener::from_std(socket) {
                    Ok(socket) => serve(&mut loops, &fronts, duty, socket),
                    Err(error) => tracing::error!(%error, "a listener was lost"),
                }
            }
            while loops.join_next().await.is_some() {}
        });
    };
    std::thread::Builder::new().name(format!("bh-worker-{number}")).spawn(work).map_err(fault)
}

fn serve(loops: &mut JoinSet<()>, fronts: &Fronts, duty: Duty, socket: TcpListener) {
    let public = fronts.gates.public.clone();
    match duty {
        Duty::Http(tls) => {
            let front = HttpFront { tls, ..fronts.http.clone() };
            loops.spawn(listener::run(socket, public, front, fronts.public.clone()));
        }
        Duty::Tcp(app) => {
            let mut front = fronts.tcp.clone();
            front.corridor.app = app;
            loops.spawn(listener::run(socket, public, front, fronts.public.clone()));
        }
        Duty::Tunnel(tls) => {
            let front = TunnelFront { tls, ..fronts.tunnel.clone() };
            loops.spawn(listener::run(socket, fronts.gates.tunnel.clone(), front, fronts.tunnels.clone()));
        }
    }
}
