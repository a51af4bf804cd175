//! From a gateway's address to a carrier that the gateway has let in: dial, HELLO, the answer.
//!
//! The same for a new tunnel and for one that goes on. Decides nothing about when. Cancel safe: a
//! dropped future closes the connection.

use std::fmt;
use std::time::Duration;

use bridgehead_protocol::handshake::Client;
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::shake::{self, ShakeError};
use bridgehead_protocol::wire::{ResumeTicket, Welcome};
use bytes::BytesMut;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::carrier::address::GatewayAddress;
use crate::carrier::dial::DialError;
use crate::carrier::tls::certificate_hint;
use crate::config::ConfigError;

use super::agent::Agent;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoCarrier {
    /// The token cannot be read now; whoever replaces it may be between two steps.
    Token(ConfigError),
    Dial(DialError),
}

/// Why the connection carries no tunnel.
#[derive(Debug)]
pub(super) enum NotLetIn {
    Token(ConfigError),
    Shake(ShakeError),
}

impl fmt::Display for NoCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Dial(error) => error.fmt(f),
        }
    }
}

/// A failed handshake for people, with what to do about it.
pub(super) fn told(error: &ShakeError) -> String {
    let hint = match error {
        ShakeError::Io(error) => certificate_hint(error),
        ShakeError::TimedOut
        | ShakeError::Ended
        | ShakeError::Wire(_)
        | ShakeError::Client(_)
        | ShakeError::Refused(_) => "",
    };
    format!("{error}{hint}")
}

/// What a handshake left behind.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) carrier: Carrier,
    /// What was read beyond the handshake.
    pub(super) leftover: BytesMut,
    pub(super) welcome: Welcome,
    /// Marked as seen before the apps of HELLO were listed, so that no change in between is missed.
    pub(super) changes: watch::Receiver<u64>,
}

/// A connection to the gateway. The name is resolved each time: an address may have moved.
pub(super) async fn dial(
    agent: &Agent,
    gateway: &GatewayAddress,
    within: Duration,
) -> Result<Carrier, NoCarrier> {
    let token = agent.options.token.load().map_err(NoCarrier::Token)?;
    let until = Instant::now() + within;
    let dialled = agent.outside.carriers.dial(gateway, &token, until).await;
    dialled.map_err(NoCarrier::Dial)
}

/// Says HELLO, with the ticket of the tunnel that shall go on.
pub(super) async fn greet(
    agent: &Agent,
    gateway: &GatewayAddress,
    mut carrier: Carrier,
    resume: Option<ResumeTicket>,
) -> Result<Admitted, NotLetIn> {
    // A WebSocket's request has carried the token already.
    let token = match gateway.scheme.is_websocket() {
        true => None,
        false => Some(agent.options.token.load().map_err(NotLetIn::Token)?),
    };
    let until = match resume {
        Some(_) => shake::resuming_deadline(shake::LONGEST_RESUMING),
        None => shake::deadline(shake::LONGEST),
    };
    let mut changes = agent.apps.changes();
    changes.mark_unchanged();
    let mut introduction = agent.introduction(token, agent.apps.offers());
    introduction.resume = resume;
    // `Agent::build` has checked the same; only the health of the apps can differ.
    let client = Client::new(introduction)
        .map_err(|error| NotLetIn::Shake(ShakeError::Io(std::io::Error::other(error))))?;
    let mut leftover = BytesMut::new();
    let answered = shake::knock(&mut carrier, &mut leftover, client, until).await;
    let welcome = answered.map_err(NotLetIn::Shake)?;
    Ok(Admitted {
        carrier,
        leftover,
        welcome,
        changes,
    })
}
