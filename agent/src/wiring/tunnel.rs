//! One tunnel that is up: its driver, its streams, its keeper, its news of the apps.
//!
//! Owns the tasks of the streams: when the tunnel is over, each has told its end and none is left.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::{Settings, Side};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::wire::Welcome;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::carrier::address::GatewayAddress;
use crate::serve::{self, Orphan};
use crate::session::redial::Redial;
use crate::telemetry::Standing;

use super::agent::Agent;
use super::greet::Admitted;
use super::keeper::{GoneAway, Keeper};
use super::orphans::Orphans;

/// Bounds of the ping period a gateway may ask for: below, pings are load; above, a dead gateway goes
/// unnoticed.
const PING: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// Longest time that streams and connections to apps are kept for a gateway that does not come back.
const LONGEST_WINDOW: Duration = Duration::from_secs(10 * 60);

/// A side is dead after so many silent ping periods.
const SILENT_PERIODS: u32 = 3;

/// A tunnel that is up.
pub(super) struct Serving {
    pub(super) tunnel: Tunnel,
    /// Whether it counts as up; outlives the tunnel's use by nobody.
    pub(super) standing: Standing,
    /// Told once the gateway starts nothing more on it.
    pub(super) gone_away: watch::Receiver<GoneAway>,
}

/// A tunnel and the future that serves it, over all its carriers; the future ends with the tunnel, and
/// answers whose answer it was waiting for.
pub(super) fn serve(
    agent: Arc<Agent>,
    admitted: Admitted,
    gateway: GatewayAddress,
    seed: u64,
) -> (Serving, impl Future<Output = Orphans> + Send) {
    let Admitted {
        mut carrier,
        leftover,
        welcome,
        changes,
    } = admitted;
    let settings = settings(agent.settings(), &welcome);
    let (clock, limits) = (agent.clock, welcome.limits);
    let end = carrier.watch();
    let (tunnel, driver) = Tunnel::new(Side::Agent, settings, limits, carrier, leftover, clock);
    let (gone_away, told) = watch::channel(None);
    let standing = agent.readiness.up();
    let serving = Serving {
        tunnel: tunnel.clone(),
        standing: standing.clone(),
        gone_away: told,
    };
    let (window, epoch) = (settings.resume_window, welcome.ticket.epoch);
    let mut keeper = Keeper {
        agent: Arc::clone(&agent),
        tunnel: tunnel.clone(),
        gateway,
        node: welcome.node,
        ticket: welcome.ticket,
        redial: Redial::new(seed, window, epoch, clock.now()),
        standing,
        gone_away,
        told: 0,
    };
    keeper.report();
    let (node, id) = (keeper.node.clone(), keeper.ticket.tunnel);
    let served = serve_streams(Arc::clone(&agent), tunnel.clone(), changes);
    // The driver ends by itself; the streams and the keeper end when it has.
    let whole = async move {
        let (_, streams, ()) = tokio::join!(driver, served, keeper.run(end));
        agent.keep_fates(&node, id, tunnel.take_fates());
        Orphans {
            tunnel: id,
            streams,
            linger: settings.linger,
        }
    };
    (serving, whole)
}

/// What the gateway asked for, within reason.
fn settings(own: Settings, welcome: &Welcome) -> Settings {
    let ping_after = welcome.ping_after.clamp(*PING.start(), *PING.end());
    Settings {
        ping_after,
        dead_after: own.dead_after.max(ping_after * SILENT_PERIODS),
        linger: welcome.limits.linger,
        resume_window: welcome.resume_window.min(LONGEST_WINDOW),
        ..own
    }
}

async fn serve_streams(
    agent: Arc<Agent>,
    tunnel: Tunnel,
    mut changes: watch::Receiver<u64>,
) -> Vec<Orphan> {
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
    let mut orphans = Vec::new();
    while let Some(ended) = streams.join_next().await {
        orphans.extend(ended.ok().flatten());
    }
    orphans
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::wire::{PeerLimits, ResumeTicket};

    use super::*;

    #[test]
    fn a_resume_window_is_taken_within_reason() {
        let mut asked = welcome(Duration::from_secs(2));
        assert!(
            settings(Settings::default(), &asked)
                .resume_window
                .is_zero()
        );
        asked.resume_window = Duration::from_secs(86_400);
        let taken = settings(Settings::default(), &asked).resume_window;
        assert_eq!(taken, LONGEST_WINDOW);
    }

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
