//! What all tunnels of one agent share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::conn::{Fate, Settings};
use bridgehead_protocol::handshake::{Client, Introduction, Token};
use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::wire::{AppHealth, AppOffer, PeerLimits, ReportEntry, StreamId};
use tokio::sync::{Semaphore, watch};

use crate::app::AppTable;
use crate::config::RunOptions;
use crate::error::AgentError;
use crate::outside::Outside;
use crate::session::fates::Fates;
use crate::telemetry::Readiness;

use super::orphans;

/// Of the grace, what tunnels leave to the app's process if there is one, half of it at most: its turn to
/// end comes after theirs, and one WebSocket would otherwise use up all the time that there is.
const APP_SHARE: Duration = Duration::from_secs(5);

/// One agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) options: RunOptions,
    pub(super) apps: Arc<AppTable>,
    pub(super) outside: Outside,
    pub(super) readiness: Readiness,
    pub(super) clock: Clock,
    /// Random per start: how a gateway tells a newer instance from an older.
    instance: u128,
    /// Places of connections to apps that are kept for a late answer.
    pub(super) late_answers: Arc<Semaphore>,
    /// What lost tunnels left untold.
    fates: Mutex<Fates>,
    /// Changes when more of it is known.
    news: watch::Sender<()>,
}

impl Agent {
    /// Prepares what needs no network, and finds out early what no gateway would accept.
    pub(super) fn build(
        options: RunOptions,
        start: AppHealth,
        readiness: Readiness,
        outside: Outside,
    ) -> Result<Self, AgentError> {
        let agent = Self {
            apps: Arc::new(AppTable::build(&options.apps, start)?.within(outside.apps.clone())),
            outside,
            readiness,
            clock: Clock::counting_sleep(),
            instance: instance(options.seed),
            fates: Mutex::default(),
            late_answers: Arc::new(Semaphore::new(orphans::MOST)),
            news: watch::Sender::new(()),
            options,
        };
        Client::new(agent.introduction(None, agent.apps.offers()))?;
        Ok(agent)
    }

    /// What the agent says of itself; without a token if the carrier brought it.
    pub(super) fn introduction(&self, token: Option<Token>, apps: Vec<AppOffer>) -> Introduction {
        let settings = self.settings();
        Introduction {
            agent: self.options.agent.clone(),
            instance: self.instance,
            token,
            features: Vec::new(),
            apps,
            limits: PeerLimits {
                max_streams: settings.max_streams,
                initial_credit: settings.initial_window,
                linger: settings.linger,
            },
            resume: None,
        }
    }

    /// Keeps what a lost tunnel to `node` left untold.
    pub(super) fn keep_fates(&self, node: &str, tunnel: u128, fates: Vec<Fate>) {
        self.fates().keep(self.clock.now(), node, tunnel, fates);
        self.news.send_replace(());
    }

    /// Apps answered although their tunnel is lost: with so many bytes each.
    pub(super) fn learn_answers(&self, tunnel: u128, answers: &[(StreamId, u64)]) {
        self.fates().answered(tunnel, answers);
        self.news.send_replace(());
    }

    /// What to tell the gateway `node` of tunnels that were lost, of what came after `told`, and where
    /// that leads to.
    pub(super) fn fates_due(&self, node: &str, told: u64) -> (Vec<ReportEntry>, u64) {
        self.fates().due(self.clock.now(), node, told)
    }

    /// Says when there is more to tell.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn fates(&self) -> MutexGuard<'_, Fates> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long tunnels may finish what runs when the agent stops.
    pub(super) fn tunnels_grace(&self) -> Duration {
        self.options.grace - self.app_share()
    }

    /// How long the app's process has at least to end when it is asked to.
    pub(super) fn app_share(&self) -> Duration {
        match self.options.command.is_empty() {
            true => Duration::ZERO,
            false => APP_SHARE.min(self.options.grace / 2),
        }
    }

    /// Numbers of a tunnel before the gateway has said its own.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            max_streams: self.options.max_streams,
            ..Settings::default()
        }
    }
}

/// The instance id that follows from the process's seed: both halves of it mixed, so that neighbours among
/// the seeds are no neighbours among the ids.
fn instance(seed: u64) -> u128 {
    let mix = |word: u64| {
        let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let high = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    u128::from(high) << 64 | u128::from(mix(high.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}
