//! Composition root: puts rooms together and runs an agent. The only place that imports them all.
//!
//! Used by `bh-agent run` and by the gateway's `dev` mode alike; so it catches no signals, sets up no log
//! and prints nothing. Every task stands in a `JoinSet` of its owner: when [`run`] ends, none is left.

mod agent;
pub mod check;
mod greet;
mod keeper;
mod orphans;
mod slot;
mod tunnel;

use std::sync::Arc;

use bridgehead_protocol::wire::AppHealth;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::app::child::{AppProcess, exit_code};
use crate::app::probe;
use crate::config::RunOptions;
use crate::control::{Control, Handle, Stop, control};
use crate::error::{AgentError, Outcome};
use crate::outside::Outside;
use crate::telemetry::Readiness;
use crate::telemetry::health::HealthListener;

use agent::Agent;
use slot::Slot;

/// Runs an agent until it is told to stop or its app's process ends.
///
/// A gateway that is away, or does not know the token (yet), is no reason to end: it is dialled for ever. `readiness` counts the tunnels
/// that are up, for whoever wants to look.
///
/// # Errors
/// What a person must mend; see [`AgentError::exit_code`].
pub async fn run(
    options: RunOptions,
    control: Control,
    readiness: Readiness,
) -> Result<Outcome, AgentError> {
    let outside = Outside::sockets(&options)?;
    run_within(options, control, readiness, outside).await
}

/// The same in a world of the caller's. Whoever holds its [`Pace`](crate::outside::Pace) gives this future
/// through it as well.
///
/// # Errors
/// As [`run`].
pub async fn run_within(
    options: RunOptions,
    control: Control,
    readiness: Readiness,
    outside: Outside,
) -> Result<Outcome, AgentError> {
    let health = match options.health {
        Some(address) => Some(
            HealthListener::bind(address)
                .await
                .map_err(|error| AgentError::Health { address, error })?,
        ),
        None => None,
    };
    let start = match options.command.is_empty() {
        true => AppHealth::Unknown,
        false => AppHealth::Starting,
    };
    let agent = Arc::new(Agent::build(options, start, readiness, outside)?);
    tracing::info!(
        agent = agent.options.agent,
        version = env!("CARGO_PKG_VERSION"),
        count = agent.options.apps.len(),
        "agent starts"
    );
    let process = start_app(&agent)?;
    let mut background = JoinSet::new();
    let pace = &agent.outside.pace;
    background.spawn(pace.clone().keep(probe::watch(Arc::clone(&agent.apps))));
    if let Some(health) = health {
        if let Ok(addr) = health.address() {
            tracing::info!(%addr, "health endpoint listens");
        }
        background.spawn(health.serve(agent.readiness.clone()));
    }
    Running::start(agent, control, process).run().await
}

fn start_app(agent: &Agent) -> Result<Option<AppProcess>, AgentError> {
    let command = &agent.options.command;
    let Some(program) = command.first() else {
        return Ok(None);
    };
    match AppProcess::start(command) {
        Ok(process) => Ok(Some(process)),
        Err(error) => Err(AgentError::Start {
            command: program.to_string_lossy().into_owned(),
            error,
        }),
    }
}

/// A running agent: its slots, its app's process, and the wire that stops them.
struct Running {
    agent: Arc<Agent>,
    control: Control,
    process: Option<AppProcess>,
    slots: JoinSet<()>,
    /// Stops the slots: when asked from outside, or because the app's process ended.
    inner: Handle,
    ended: Option<u8>,
    /// When what still runs is given up.
    give_up: Option<Instant>,
}

/// What woke a running agent.
enum Woken {
    StopNow,
    Drain,
    AppEnded(u8),
    Slot(Option<Result<(), JoinError>>),
}

impl Running {
    fn start(agent: Arc<Agent>, control: Control, process: Option<AppProcess>) -> Self {
        let (inner, inner_control) = self::control();
        let mut slots = JoinSet::new();
        for index in 0..agent.options.tunnels.get() {
            let slot = Slot::new(Arc::clone(&agent), index, inner_control.stop_signal());
            slots.spawn(agent.outside.pace.clone().keep(slot.run()));
        }
        Self {
            agent,
            control,
            process,
            slots,
            inner,
            ended: None,
            give_up: None,
        }
    }

    async fn run(mut self) -> Result<Outcome, AgentError> {
        loop {
            match self.woken().await? {
                // Dropping the slots closes their carriers.
                Woken::StopNow => break,
                Woken::Drain => self.drain(),
                Woken::AppEnded(code) => {
                    tracing::info!(code, "app process ended, so the agent ends");
                    self.ended = Some(code);
                    self.drain();
                }
                Woken::Slot(None) => break,
                Woken::Slot(Some(Ok(()))) => {}
                Woken::Slot(Some(Err(error))) => {
                    let error = std::io::Error::other(error);
                    let what = "a task of the agent failed";
                    return Err(AgentError::System { what, error });
                }
            }
        }
        self.finish().await
    }

    fn drain(&mut self) {
        self.give_up
            .get_or_insert(Instant::now() + self.agent.options.grace);
        self.inner.stop(Stop::Drain);
    }

    async fn woken(&mut self) -> Result<Woken, AgentError> {
        let mut stop = self.control.stop_signal();
        let mut stop_now = self.control.stop_signal();
        loop {
            let app_runs = self.process.is_some() && self.ended.is_none();
            let process = &mut self.process;
            let app_ended = async {
                match process {
                    Some(process) => process.ended().await,
                    None => std::future::pending().await,
                }
            };
            let signal = tokio::select! {
                biased;
                () = stop_now.at_least(Stop::Now) => return Ok(Woken::StopNow),
                () = stop.at_least(Stop::Drain), if self.give_up.is_none() => return Ok(Woken::Drain),
                signal = self.control.signal() => signal,
                status = app_ended, if app_runs => {
                    let what = "the app's process cannot be watched";
                    let status = status.map_err(|error| AgentError::System { what, error })?;
                    return Ok(Woken::AppEnded(exit_code(status)));
                }
                done = self.slots.join_next() => return Ok(Woken::Slot(done)),
            };
            if let Some(process) = &mut self.process {
                process.signal(signal);
            }
        }
    }

    /// The tunnels are gone; what is left of the grace is the app's, and they have left some.
    async fn finish(mut self) -> Result<Outcome, AgentError> {
        self.slots.shutdown().await;
        let Some(mut process) = self.process.take() else {
            return Ok(Outcome::Stopped);
        };
        if let Some(code) = self.ended {
            return Ok(Outcome::AppEnded(code));
        }
        let left = self.give_up.map_or(std::time::Duration::ZERO, |end| {
            let left = end.saturating_duration_since(Instant::now());
            left.max(self.agent.app_share())
        });
        let mut stop = self.control.stop_signal();
        let asked = tokio::select! {
            biased;
            () = stop.at_least(Stop::Now) => None,
            status = process.stop(left) => Some(status),
        };
        let status = match asked {
            Some(status) => status,
            None => process.stop(std::time::Duration::ZERO).await,
        };
        let what = "the app's process cannot be stopped";
        let status = status.map_err(|error| AgentError::System { what, error })?;
        tracing::info!(code = exit_code(status), "app process ended");
        Ok(Outcome::Stopped)
    }
}

#[cfg(test)]
mod tests;
