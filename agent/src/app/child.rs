//! The app's process, if the agent starts it (`run … -- CMD ARGS…`).
//!
//! The command runs in a process group of its own (Unix), so that a shell's children end with it. It gets
//! no standard input: a background group that reads the terminal would be stopped by the kernel. The agent
//! runs as long as the command does and ends with its code; restarting it is the init system's work.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Settings of the agent that hold a secret. The app has no use for them, and may print its environment.
const SECRETS: [&str; 2] = ["BH_TOKEN", "BH_PROXY"];

/// What to send to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildSignal {
    /// Please end.
    Terminate,
    /// End now.
    Kill,
    /// Passed on from the agent: reload, or whatever the app takes it for.
    Hangup,
    /// Passed on from the agent.
    User1,
    /// Passed on from the agent.
    User2,
}

/// The running command.
#[derive(Debug)]
pub struct AppProcess {
    child: Child,
    /// Process id, which is the group's id too; kept because tokio forgets it once the command is reaped.
    #[cfg(unix)]
    group: rustix::process::Pid,
    ended: Option<ExitStatus>,
}

impl AppProcess {
    /// Starts the command; its output goes where the agent's goes.
    ///
    /// # Errors
    /// If the list is empty or the system cannot start the command.
    pub fn start(command: &[OsString]) -> io::Result<Self> {
        let child = builder(command)?.spawn()?;
        #[cfg(unix)]
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(rustix::process::Pid::from_raw)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            child,
            #[cfg(unix)]
            group,
            ended: None,
        })
    }

    /// Waits until the command ends. Cancel safe; may be called again afterwards.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = self.child.wait().await?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Sends a signal to the command and its children. One that is gone is no error.
    #[cfg(unix)]
    pub fn signal(&mut self, signal: ChildSignal) {
        use rustix::process::{Signal, kill_process_group};
        let signal = match signal {
            ChildSignal::Terminate => Signal::TERM,
            ChildSignal::Kill => Signal::KILL,
            ChildSignal::Hangup => Signal::HUP,
            ChildSignal::User1 => Signal::USR1,
            ChildSignal::User2 => Signal::USR2,
        };
        if let Err(error) = kill_process_group(self.group, signal) {
            tracing::debug!(%error, "app process is gone");
        }
    }

    /// Ends the command; other systems know no gentler way.
    #[cfg(not(unix))]
    pub fn signal(&mut self, signal: ChildSignal) {
        if matches!(signal, ChildSignal::Terminate | ChildSignal::Kill) {
            if let Err(error) = self.child.start_kill() {
                tracing::debug!(%error, "app process is gone");
            }
        }
    }

    /// Ends the command: asks it, and after `grace` does not ask again.
    ///
    /// # Errors
    /// If the system cannot tell how it ended.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(ChildSignal::Terminate);
        let status = match timeout(grace, self.ended()).await {
            Ok(status) => status?,
            Err(_) => {
                tracing::warn!(
                    seconds = grace.as_secs_f64(),
                    "app process did not end when asked, killing it"
                );
                self.signal(ChildSignal::Kill);
                self.ended().await?
            }
        };
        // Its children may outlive it; nobody would end them later.
        self.signal(ChildSignal::Kill);
        Ok(status)
    }
}

impl Drop for AppProcess {
    /// `kill_on_drop` ends the command alone; its children must not be left behind either.
    fn drop(&mut self) {
        self.signal(ChildSignal::Kill);
    }
}

fn builder(command: &[OsString]) -> io::Result<Command> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut builder = Command::new(program);
    builder
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for name in SECRETS {
        builder.env_remove(name);
    }
    #[cfg(unix)]
    builder.process_group(0);
    Ok(builder)
}

/// The code the agent ends with: the command's own, or 128 + signal as shells say it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1)
}

#[cfg(all(test, unix))]
#[path = "child_tests.rs"]
mod tests;
