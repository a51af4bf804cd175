//! One tunnel that is up: its driver, its streams, its news of the apps.
//!
//! Owns the tasks of the streams: when the tunnel is over, each has told its end and none is left.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::{Settings, Side};
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::{CloseReason, Tunnel};
use bridgehead_protocol::wire::Welcome;
use bytes::BytesMut;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::serve;

use super::agent::Agent;

/// Bounds of the ping period a gateway may ask for: below, pings are load; above, a dead gateway goes
/// unnoticed.
const PING: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// A side is dead after so many silent ping periods.
const SILENT_PERIODS: u32 = 3;

/// What a handshake left behind.
pub(super) struct Admitted {
    pub(super) carrier: Carrier,
    /// What was read beyond the handshake.
    pub(super) leftover: BytesMut,
    pub(super) welcome: Welcome,
    /// Marked as seen before the apps of HELLO were listed, so that no change in between is missed.
    pub(super) changes: watch::Receiver<u64>,
}

/// A tunnel and the future that serves it; the future ends with the tunnel.
pub(super) fn serve(
    agent: Arc<Agent>,
    admitted: Admitted,
) -> (Tunnel, impl Future<Output = CloseReason> + Send) {
    let Admitted {
        carrier,
        leftover,
        welcome,
        changes,
    } = admitted;
    let settings = settings(agent.settings(), &welcome);
    let clock = agent.clock;
    let (tunnel, driver) = Tunnel::new(
        Side::Agent,
        settings,
        welcome.limits,
        carrier,
        leftover,
        clock,
    );
    let served = serve_streams(agent, tunnel.clone(), changes);
    // The driver ends by itself; the streams end when it has.
    let whole = async move {
        let (reason, ()) = tokio::join!(driver, served);
        reason
    };
    (tunnel, whole)
}

/// What the gateway asked for, within reason.
fn settings(own: Settings, welcome: &Welcome) -> Settings {
    let ping_after = welcome.ping_after.clamp(*PING.start(), *PING.end());
    Settings {
        ping_after,
        dead_after: own.dead_after.max(ping_after * SILENT_PERIODS),
        linger: welcome.limits.linger,
        ..own
    }
}

async fn serve_streams(agent: Arc<Agent>, tunnel: Tunnel, mut changes: watch::Receiver<u64>) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            stream = tunnel.accept() => match stream {
                Some(stream) => {
                    let served = serve::stream(stream, Arc::clone(&agent.apps));
                    streams.spawn(agent.outside.pace.clone().keep(served));
                }
                None => break,
            },
            Ok(()) = changes.changed() => tunnel.announce(agent.apps.offers()),
            Some(done) = streams.join_next() => {
                if let Err(error) = done {
                    tracing::error!(%error, "a stream's task failed");
                }
            }
        }
    }
    // The tunnel is over: each stream is closed by it, so each task is about to end.
    while streams.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::wire::{PeerLimits, ResumeTicket};

    use super::*;

    fn welcome(ping_after: Duration) -> Welcome {
        Welcome {
            version: 1,
            features: Vec::new(),
            node: "gw-1".to_owned(),
            ticket: ResumeTicket {
                tunnel: 1,
                secret: [0; 32],
                epoch: 0,
            },
            ping_after,
            resume_window: Duration::ZERO,
            limits: PeerLimits {
                max_streams: 1,
                initial_credit: 1,
                linger: Duration::from_secs(7),
            },
            nodes: Vec::new(),
        }
    }

    #[test]
    fn a_gateways_ping_period_is_taken_within_reason() {
        let own = Settings::default();
        for (asked, taken) in [(0, 100), (2_000, 2_000), (3_600_000, 60_000)] {
            let settings = settings(own, &welcome(Duration::from_millis(asked)));
            assert_eq!(settings.ping_after, Duration::from_millis(taken));
            assert!(settings.dead_after >= settings.ping_after * SILENT_PERIODS);
            assert_eq!(settings.linger, Duration::from_secs(7));
        }
    }
}
