//! Composition root: puts the rooms together and runs a gateway, alone or with an agent in `dev`.
//! The only place that imports them all.
//!
//! A gateway is made in two steps, so that nothing is half-started: [`bound::Bound`] holds every listener
//! or the one line that says what is wrong; running it cannot fail for a reason a person must mend.

mod bound;
mod dev;
mod end;
mod gateway;
pub mod handed;
mod knobs;
mod memory;
mod names;
mod reload;
mod spread;
mod state;
mod tunnels;
mod workers;

use std::net::SocketAddr;

use bridgehead_protocol::io::descriptors;

use crate::cert::CertError;
use crate::cli::{DevRun, ServeRun, Work};
use crate::telemetry::log::LogError;

/// Descriptors asked for: as many as systems let one process have. Each connection and each tunnel takes one,
/// and how many there may be is the configuration's; 1024, as many systems start with, is a tenth of its default.
const DESCRIPTORS: u64 = 1 << 20;

/// What keeps a gateway from starting or ends it.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// A listener's address is taken or not ours.
    #[error("cannot listen on {address} ({what}): {error}")]
    Listen {
        /// Configuration key.
        what: &'static str,
        /// Address.
        address: SocketAddr,
        /// The system's word.
        error: std::io::Error,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system refused a thread, a runtime or a signal handler.
    #[error("{what}: {error}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its word.
        error: std::io::Error,
    },
    /// The agent inside `dev` failed.
    #[error("the agent failed: {0}")]
    Agent(String),
}

impl WiringError {
    /// 2 for what the operator must mend in flags or configuration, 1 for the rest.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Certificate(_) | Self::Log(_) => crate::cli::EXIT_USAGE,
            Self::Listen { .. } | Self::System { .. } | Self::Agent(_) => crate::cli::EXIT_FAILED,
        }
    }
}

/// Runs `dev` or `serve` until it is told to end.
///
/// # Errors
/// [`WiringError`].
pub fn run(work: Work) -> Result<(), WiringError> {
    match work {
        Work::Dev(run) => run_dev(run),
        Work::Serve(run) => run_serve(run),
    }
}

fn run_serve(run: ServeRun) -> Result<(), WiringError> {
    crate::telemetry::log::start(run.log.format, &run.log.level)?;
    descriptors::raise(DESCRIPTORS);
    let (format, file) = (run.log.format, run.file);
    let bound = bound::Bound::bind(run.config)?;
    main_runtime()?.block_on(async move {
        let gateway =
            gateway::Gateway::start(bound, gateway::AccessTo::Stdout(format), Some(file))?;
        let end = end::Signals::listen()?;
        end::on_hangup(gateway.reloader())?;
        println!("ready {}", gateway.addresses().line(None));
        gateway.run(end).await
    })
}

fn run_dev(run: DevRun) -> Result<(), WiringError> {
    crate::telemetry::log::start(run.log.format, &run.log.level)?;
    descriptors::raise(DESCRIPTORS);
    main_runtime()?.block_on(dev::run(run))
}

/// The runtime beside the workers: signals, admin, and in `dev` the agent and the demo app.
fn main_runtime() -> Result<tokio::runtime::Runtime, WiringError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| WiringError::System {
            what: "cannot start a runtime",
            error,
        })
}
