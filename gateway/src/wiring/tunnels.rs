//! From a listener's connection to a tunnel or a TCP app.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::socket;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::accept::http::tls_failure;
use crate::accept::listener::{Arrival, Serve, refuse};
use crate::accept::opening::Opening;
use crate::accept::tcp::TcpCorridor;
use crate::config::AppName;
use crate::request::Exchanges;
use crate::request::front::ClientInfo;
use crate::shutdown::Signal;
use crate::telemetry::labels::{ConnectionKind, TlsFailure};
use crate::tunnel::enroll::{Enroll, Newcomer};

/// How long an agent that is not let in may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);

/// Agents that dial raw TLS or plain TCP.
#[derive(Clone)]
pub(super) struct TunnelFront {
    pub(super) enroll: Arc<Enroll>,
    /// Who is trusted to bring the connections of others, and so is not one client.
    pub(super) opening: Arc<ArcSwap<Opening>>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) signal: Signal,
}

impl Serve for TunnelFront {
    async fn serve(self, arrival: Arrival) {
        let Arrival {
            stream,
            peer,
            mut permit,
        } = arrival;
        let trusted = self.opening.load().trusts(peer.ip());
        if !trusted && !permit.claim(peer.ip()) {
            // The address has as many strangers as it may.
            return refuse(&stream);
        }
        let claim = permit.split_claim();
        let place = self.enroll.metrics.connection(ConnectionKind::Tunnel);
        if let Err(error) =
            socket::tune_carrier(&stream, self.enroll.terms.load().settings.dead_after)
        {
            tracing::debug!(%peer, %error, "a new carrier is already gone");
            return;
        }
        let mut carrier = match self.tls {
            None => Carrier::tcp(stream),
            Some(config) => {
                let within = self.enroll.terms.load().handshake;
                let handshake = TlsAcceptor::from(config).accept(stream).into_fallible();
                match tokio::time::timeout(within, handshake).await {
                    Ok(Ok(session)) => Carrier::tls(session),
                    Ok(Err((error, stream))) if is_about_a_certificate(&error) => {
                        self.enroll.no_certificate(peer, &error);
                        return farewell(stream).await;
                    }
                    Ok(Err((error, _))) => {
                        permit.tls_failed(tls_failure(&error));
                        return tracing::debug!(%peer, %error, "an agent's TLS handshake failed");
                    }
                    Err(_) => {
                        permit.tls_failed(TlsFailure::TimedOut);
                        return tracing::debug!(%peer, "an agent's TLS handshake took too long");
                    }
                }
            }
        };
        // They are the connection's, which may end long before the tunnel that it began.
        carrier.keep((permit, place));
        let newcomer = Newcomer {
            carrier,
            peer,
            token: None,
            place: claim.map(|claim| Box::new(claim) as Box<dyn Send>),
        };
        self.enroll.serve(newcomer, self.signal).await;
    }
}

/// True if the peer showed no certificate, or none that is accepted.
fn is_about_a_certificate(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        inner,
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
    )
}

/// Closes so that the alert arrives: an agent has said HELLO by now, and what stays unread would
/// turn the end into a reset that overtakes the alert.
async fn farewell(mut stream: TcpStream) {
    let mut scrap = [0; 1024];
    let read_out = async {
        stream.shutdown().await?;
        while stream.read(&mut scrap).await? > 0 {}
        std::io::Result::Ok(())
    };
    // However it ends, the connection is over.
    let _ended = tokio::time::timeout(FAREWELL, read_out).await;
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
