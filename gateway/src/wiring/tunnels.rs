//! From a listener's connection to a tunnel or a TCP app.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::socket;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::accept::listener::{Arrival, Serve};
use crate::accept::tcp::TcpCorridor;
use crate::config::AppName;
use crate::request::Exchanges;
use crate::request::front::ClientInfo;
use crate::shutdown::Signal;
use crate::telemetry::labels::ConnectionKind;
use crate::tunnel::enroll::Enroll;

/// Agents that dial raw TLS or plain TCP.
#[derive(Clone)]
pub(super) struct TunnelFront {
    pub(super) enroll: Arc<Enroll>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) handshake: Duration,
    pub(super) signal: Signal,
}

impl Serve for TunnelFront {
    async fn serve(self, arrival: Arrival) {
        let Arrival {
            stream,
            peer,
            mut permit,
        } = arrival;
        if !permit.claim(peer.ip()) {
            // The peer holds as many connections as it may; the drop tells it.
            return;
        }
        let place = self.enroll.metrics.connection(ConnectionKind::Tunnel);
        if let Err(error) = socket::tune_carrier(&stream, self.enroll.settings.dead_after) {
            tracing::debug!(%peer, %error, "a new carrier is already gone");
            return;
        }
        let mut carrier = match self.tls {
            None => Carrier::tcp(stream),
            Some(config) => {
                let handshake = TlsAcceptor::from(config).accept(stream);
                match tokio::time::timeout(self.handshake, handshake).await {
                    Ok(Ok(session)) => Carrier::tls(session),
                    Ok(Err(error)) => {
                        return tracing::debug!(%peer, %error, "an agent's TLS handshake failed");
                    }
                    Err(_) => {
                        return tracing::debug!(%peer, "an agent's TLS handshake took too long");
                    }
                }
            }
        };
        // They are the connection's, which may end long before the tunnel that it began.
        carrier.keep((permit, place));
        self.enroll.serve(carrier, peer, None, self.signal).await;
    }
}

/// Clients of one TCP app.
#[derive(Clone)]
pub(super) struct TcpApp {
    pub(super) exchanges: Exchanges,
    /// Set for each listener.
    pub(super) app: Option<AppName>,
}

impl TcpCorridor for TcpApp {
    async fn connection(&self, info: ClientInfo, stream: TcpStream) {
        if let Some(app) = &self.app {
            self.exchanges.serve_tcp(stream, info, app.as_str()).await;
        }
    }
}
