//! The operating system's signals, turned into what the agent understands.
//!
//! Belongs to the binary: a library that catches signals would take them from its host.

use std::io;

use crate::control::Handle;

/// Whether the agent runs the app's process, which then gets the signals that are not the agent's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// SIGHUP, SIGUSR1 and SIGUSR2 go to the app's process.
    ToApp,
    /// There is none; SIGHUP stops the agent as it would any program.
    Nowhere,
}

/// Listens until dropped: the first SIGTERM or SIGINT drains, the second ends.
///
/// # Errors
/// If the system refuses a handler.
#[cfg(unix)]
pub async fn listen(handle: Handle, passing: Passing) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    use crate::app::child::ChildSignal;

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut user1 = signal(SignalKind::user_defined1())?;
    let mut user2 = signal(SignalKind::user_defined2())?;
    loop {
        let passed_on = tokio::select! {
            biased;
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            _ = hangup.recv() => Some(ChildSignal::Hangup),
            _ = user1.recv() => Some(ChildSignal::User1),
            _ = user2.recv() => Some(ChildSignal::User2),
        };
        match (passed_on, passing) {
            (None, _) | (Some(ChildSignal::Hangup), Passing::Nowhere) => handle.stop_more(),
            (Some(signal), Passing::ToApp) => handle.pass_on(signal),
            (Some(_), Passing::Nowhere) => {}
        }
    }
}

/// Listens until dropped: the first Ctrl-C drains, the second ends.
///
/// # Errors
/// If the system refuses a handler.
#[cfg(not(unix))]
pub async fn listen(handle: Handle, _passing: Passing) -> io::Result<()> {
    loop {
        tokio::signal::ctrl_c().await?;
        handle.stop_more();
    }
}
