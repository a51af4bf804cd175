//! Why the agent ended, in one line, and with which code.
//!
//! Codes: 0 as asked, 1 failed at run time, 2 usage, configuration, token or certificate. If the agent ran
//! the app's process, its code is the agent's.

use std::io;
use std::net::SocketAddr;

use bridgehead_protocol::handshake::IntroductionError;
use bridgehead_protocol::io::tls::TlsError;
use bridgehead_protocol::wire::Refuse;

use crate::config::ConfigError;

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Stopped,
    /// The app's process ended with this code.
    AppEnded(u8),
}

/// Why the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// What it was told is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The apps or the agent id would be accepted by no gateway.
    #[error(transparent)]
    Introduction(#[from] IntroductionError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The health endpoint cannot listen.
    #[error("--health {address}: {error}")]
    Health {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The app's process cannot be started.
    #[error("the app cannot be started: {command}: {error}")]
    Start {
        /// The program.
        command: String,
        /// What the system says.
        error: io::Error,
    },
    /// The system failed the agent.
    #[error("{what}: {error}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// `check` found something; it has said what.
    #[error("{0} of the checks failed")]
    Check(usize),
}

impl AgentError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Introduction(_) | Self::Tls(_) | Self::Start { .. } => 2,
            Self::Health { .. } | Self::System { .. } | Self::Check(_) => 1,
        }
    }
}

/// A gateway's refusal as one line, with what the operator can do about it.
#[must_use]
pub fn refusal(refuse: &Refuse) -> String {
    format!(
        "the gateway refuses this agent: {}{}",
        one_line(&refuse.text),
        hint(refuse)
    )
}

/// What the operator can do about a refusal.
fn hint(refuse: &Refuse) -> &'static str {
    use bridgehead_protocol::wire::RefuseCode as Code;
    match refuse.code {
        Code::Unauthorized => "; check the token, `bh-gateway token new` makes one",
        Code::ScopeDenied => "; add the app to the agent's `apps` in the gateway's configuration",
        Code::VersionUnsupported => "; use an agent of the gateway's version or the one before",
        Code::Malformed | Code::ResumeGone | Code::StaleEpoch | Code::Busy | Code::Draining => "",
    }
}

/// A peer's text for a person: no line breaks or other control characters, and not endless.
#[must_use]
pub fn one_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(300).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridgehead_protocol::wire::RefuseCode;

    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_a_way_out() {
        let refuse = Refuse {
            code: RefuseCode::Unauthorized,
            permanent: true,
            retry_after: Duration::ZERO,
            text: "unknown\r\nkey \u{1b}[31m".to_owned(),
        };
        let said = refusal(&refuse);
        assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
        assert!(said.contains("bh-gateway token new"), "{said}");
    }
}
