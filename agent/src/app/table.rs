//! The apps of this agent by name: what `serve` connects to and what the tunnels announce.
//!
//! Owns the health of each app behind a short lock, and the revision that tells the tunnels to announce
//! anew. Names are unique and their order is the configuration's.

use std::sync::{Arc, Mutex, PoisonError};

use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::io::tls::TlsError;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppHealth, AppKind, AppOffer, RefusedReason};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connect::{AppSocket, ConnectError, Dialer};
use super::health::{Change, Distance, Health};
use super::target::Target;
use super::tls::AppTrust;
use crate::outside::Connect;

/// One app as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// Name, `[a-z0-9-]{1,40}`.
    pub name: String,
    /// Where it listens.
    pub target: Target,
    /// Share of the load relative to other agents of the same app; 1 to 100.
    pub weight: u8,
    /// Host header the app wants to see; empty = the client's own.
    pub host: String,
    /// How its certificate is checked, for `https` targets.
    pub trust: AppTrust,
}

impl AppSpec {
    /// An app with the defaults: weight 1, the client's own host header, the system's roots.
    #[must_use]
    pub fn new(name: impl Into<String>, target: Target) -> Self {
        Self {
            name: name.into(),
            target,
            weight: 1,
            host: String::new(),
            trust: AppTrust::System,
        }
    }
}

/// One app this agent serves.
#[derive(Debug)]
pub struct App {
    spec: AppSpec,
    dialer: Dialer,
    health: Mutex<Health>,
}

impl App {
    /// Its configuration.
    #[must_use]
    pub fn spec(&self) -> &AppSpec {
        &self.spec
    }

    fn with_health<T>(&self, look: impl FnOnce(&mut Health) -> T) -> T {
        look(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When the probe should look for it next; `None` while it is ready.
    #[must_use]
    pub fn next_probe(&self) -> Option<Moment> {
        self.with_health(|health| health.next_probe())
    }

    fn offer(&self) -> AppOffer {
        AppOffer {
            name: self.spec.name.clone(),
            kind: self.spec.target.kind,
            weight: self.spec.weight,
            health: self.with_health(|health| health.state()),
            upstream_host: self.spec.host.clone(),
        }
    }
}

/// The apps of this agent.
#[derive(Debug)]
pub struct AppTable {
    apps: Vec<App>,
    /// Connects in the dialers' place.
    outside: Option<Arc<dyn Connect>>,
    clock: Clock,
    revision: watch::Sender<u64>,
}

impl AppTable {
    /// Builds the table. `start` is `Starting` if the agent starts the app itself, else `Unknown`.
    ///
    /// # Errors
    /// If TLS towards an app cannot be set up.
    pub fn build(specs: &[AppSpec], start: AppHealth) -> Result<Self, TlsError> {
        let apps = specs.iter().map(|spec| {
            let distance = if spec.target.is_local() {
                Distance::Local
            } else {
                Distance::Remote
            };
            let health = Mutex::new(Health::new(Moment::ZERO, start, distance));
            Ok(App {
                spec: spec.clone(),
                dialer: Dialer::build(spec.target.clone(), &spec.trust)?,
                health,
            })
        });
        Ok(Self {
            apps: apps.collect::<Result<_, TlsError>>()?,
            outside: None,
            clock: Clock::start(),
            revision: watch::Sender::new(1),
        })
    }

    /// The same table, whose connections are made by `outside` if there is one.
    #[must_use]
    pub fn within(self, outside: Option<Arc<dyn Connect>>) -> Self {
        Self { outside, ..self }
    }

    /// The app of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&App> {
        self.apps.iter().find(|app| app.spec.name == name)
    }

    /// All apps, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &App> {
        self.apps.iter()
    }

    /// What to announce now.
    #[must_use]
    pub fn offers(&self) -> Vec<AppOffer> {
        self.apps.iter().map(App::offer).collect()
    }

    /// Rises with each change of what is to be announced.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Connects to the app of that name for a stream of that kind, and remembers what that showed.
    ///
    /// Cancel safe; a cancelled attempt leaves the health as it was.
    ///
    /// # Errors
    /// As [`Dialer::connect`], and `NoSuchApp` if this agent has no such app or speaks to it differently.
    pub async fn connect(
        &self,
        name: &str,
        kind: AppKind,
        deadline: Instant,
    ) -> Result<AppSocket, ConnectError> {
        let refused = |text: String| ConnectError {
            reason: RefusedReason::NoSuchApp,
            errno: 0,
            text,
        };
        let Some(app) = self.find(name) else {
            return Err(refused(format!("this agent has no app `{name}`")));
        };
        let own = app.spec.target.kind;
        if own != kind {
            let text = format!("the gateway speaks {kind:?} to app `{name}`, which speaks {own:?}");
            tracing::warn!(
                app = name,
                error = text,
                "gateway and agent disagree on an app"
            );
            return Err(refused(text));
        }
        self.connect_app(app, deadline).await
    }

    /// Connects to one app and remembers what that showed.
    pub(super) async fn connect_app(
        &self,
        app: &App,
        deadline: Instant,
    ) -> Result<AppSocket, ConnectError> {
        let done = match &self.outside {
            None => app.dialer.connect(deadline).await,
            Some(outside) => outside.connect(&app.spec.name, deadline).await,
        };
        let now = self.clock.now();
        let change = app.with_health(|health| match &done {
            Ok(_) => health.connected(now),
            Err(error) => health.failed(now, error.reason),
        });
        if let Some(change) = change {
            log(app, change, now, done.as_ref().err());
            if !matches!(change, Change::StillFailing(_)) {
                self.revision.send_modify(|revision| *revision += 1);
            }
        }
        done
    }

    /// The table's clock: its values are comparable with [`App::next_probe`].
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }
}

fn log(app: &App, change: Change, now: Moment, error: Option<&ConnectError>) {
    let (name, addr) = (&app.spec.name, &app.spec.target);
    match change {
        Change::Ready(None) => tracing::info!(app = %name, %addr, "app answers"),
        Change::Ready(Some(run)) => {
            let seconds = now.since(run.since).as_secs_f64();
            tracing::info!(app = %name, %addr, count = run.count, seconds, "app answers after refusals");
        }
        Change::Failing(run) | Change::StillFailing(run) => {
            let error = error.map(ToString::to_string);
            let seconds = now.since(run.since).as_secs_f64();
            tracing::warn!(app = %name, %addr, count = run.count, seconds, error, "app does not answer");
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
