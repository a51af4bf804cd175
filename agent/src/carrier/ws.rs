//! The WebSocket carrier: the upgrade on the gateway's own host, then frames in binary messages.
//!
//! The request and the frames are `protocol::io::carrier`'s; here stands what the agent puts into it.

use bridgehead_protocol::handshake::Token;
use bridgehead_protocol::io::carrier::upgrade::{self, ConnectError};
use bridgehead_protocol::io::carrier::{Carrier, CarrierKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::address::GatewayAddress;
use super::tls::certificate_hint;

/// Upgrades a connection to the gateway. The token travels in the request, not in HELLO, so that an
/// unknown agent is turned away before it gets a tunnel's memory.
///
/// # Errors
/// If the gateway, or whatever answers there, does not upgrade.
pub(super) async fn upgrade<S>(
    stream: S,
    gateway: &GatewayAddress,
    token: &Token,
    kind: CarrierKind,
    until: Instant,
) -> Result<Carrier, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let host = gateway.host_header();
    upgrade::connect(stream, &host, &gateway.path, token, kind, until).await
}

/// What an operator should do about a refused upgrade.
pub(super) fn hint(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Status(401) => "; check the token",
        ConnectError::Status(403) => {
            "; does the gateway want a certificate of this agent? Name it with --cert and --key"
        }
        ConnectError::Status(426) => {
            "; does the gateway want TLS? Use wss://, or see what a proxy on the way leaves of the upgrade"
        }
        ConnectError::Status(404 | 421) => {
            "; the host must be among the gateway's own `hosts`, and the path its tunnel's"
        }
        ConnectError::Status(_) | ConnectError::Answer(_) => "; something else may listen there",
        ConnectError::Io(error) => certificate_hint(error),
        ConnectError::Address(_) | ConnectError::TimedOut => "",
    }
}
