//! The admin listener's loop: few connections, each bounded in time.
//!
//! Owns its connections; they end with the future. Invariants: at most [`CONNECTIONS`] at once
//! (the rest waits in the kernel), a peer that is slow with its head or idle is dropped, and an
//! accept error never spins.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::routes::{Admin, Peer};
use crate::telemetry::labels::ConnectionKind;

/// Operators, a scraper and probes; more is an attack or a leak.
const CONNECTIONS: usize = 64;

/// Longest wait for a request's head, idle time between requests included.
const HEAD: Duration = Duration::from_secs(10);

/// Longest life of a connection: scrapers reconnect, and nobody can hold a place for ever.
const LIFE: Duration = Duration::from_secs(600);

/// Pause after a failed accept (no descriptors, most often).
const BACK_OFF: Duration = Duration::from_millis(100);

/// Answer requests on `listener` until `shutdown` is ready; then drop every connection.
pub async fn serve(listener: TcpListener, admin: Admin, shutdown: impl Future<Output = ()> + Send) {
    let metrics = std::sync::Arc::clone(admin.sinks().metrics());
    let router = admin.router();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let counted = metrics.connection(ConnectionKind::Admin);
                    let served = connection(stream, peer, router.clone());
                    connections.spawn(async move {
                        let _counted = counted;
                        // Its own end or the limit, both are fine.
                        let _ = tokio::time::timeout(LIFE, served).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, listener = "admin", "accept failed");
                    tokio::time::sleep(BACK_OFF).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router) {
    let named = router.layer(axum::Extension(Peer(peer)));
    let service = TowerToHyperService::new(named);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, %peer, "admin connection ended");
    }
}
