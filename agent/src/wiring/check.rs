//! `bh-agent check`: dials, authenticates, tries each app, says what is wrong.
//!
//! Goes the same ways as a running agent, but never takes a running one's place: it shows an id of its own
//! and offers its apps as draining, so that no request is sent to it.

use std::fmt::Write as _;
use std::time::Duration;

use bridgehead_protocol::conn::Side;
use bridgehead_protocol::handshake::{Client, ClientError};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::io::shake::{self, ShakeError};
use bridgehead_protocol::wire::{AppHealth, GoAwayReason, Welcome};
use bytes::BytesMut;
use tokio::time::{Instant, timeout};

use crate::carrier::address::GatewayAddress;
use crate::config::RunOptions;
use crate::config::options::random_agent_id;
use crate::error::{AgentError, one_line, refusal};
use crate::outside::Outside;
use crate::telemetry::Readiness;

use super::agent::Agent;
use super::greet;

/// Longest time for one connection of the check.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest time for a goodbye; the answer is known by then.
const GOODBYE: Duration = Duration::from_secs(1);

/// What was found, one line each.
#[derive(Debug, Default)]
pub struct Findings {
    lines: Vec<String>,
    faults: usize,
}

impl Findings {
    /// For a person: `ok` or `BAD` in front of each line.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |mut text, line| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            text
        })
    }

    /// Lines that say what is wrong.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.faults
    }

    fn fine(&mut self, line: impl std::fmt::Display) {
        self.lines.push(format!("ok   {line}"));
    }

    fn bad(&mut self, line: &dyn std::fmt::Display) {
        self.faults += 1;
        self.lines
            .push(format!("BAD  {}", one_line(&line.to_string())));
    }
}

/// Checks every gateway and every app.
///
/// # Errors
/// If the options themselves are unusable; what the network says is in the findings.
pub async fn check(options: RunOptions) -> Result<Findings, AgentError> {
    let options = RunOptions {
        agent: random_agent_id(),
        ..options
    };
    let outside = Outside::sockets(&options)?;
    let agent = Agent::build(options, AppHealth::Unknown, Readiness::default(), outside)?;
    let mut findings = Findings::default();
    for gateway in &agent.options.gateways {
        check_gateway(&agent, gateway, &mut findings).await;
    }
    for app in agent.apps.iter() {
        let spec = app.spec();
        let deadline = Instant::now() + LIMIT;
        match agent
            .apps
            .connect(&spec.name, spec.target.kind, deadline)
            .await
        {
            Ok(_) => findings.fine(format_args!("app {} answers at {}", spec.name, spec.target)),
            Err(error) => findings.bad(&format_args!("app {}: {error}", spec.name)),
        }
    }
    Ok(findings)
}

async fn check_gateway(agent: &Agent, gateway: &GatewayAddress, findings: &mut Findings) {
    let token = match agent.options.token.load() {
        Ok(token) => token,
        Err(error) => return findings.bad(&error),
    };
    let begun = Instant::now();
    let mut carrier = match agent
        .outside
        .carriers
        .dial(gateway, &token, begun + LIMIT)
        .await
    {
        Ok(carrier) => carrier,
        Err(error) => return findings.bad(&format_args!("gateway {gateway}: {error}")),
    };
    let millis = begun.elapsed().as_millis();
    findings.fine(format_args!("gateway {gateway} reached in {millis} ms"));
    let mut offers = agent.apps.offers();
    for offer in &mut offers {
        offer.health = AppHealth::Draining;
    }
    let token = (!gateway.scheme.is_websocket()).then_some(token);
    let client = match Client::new(agent.introduction(token, offers)) {
        Ok(client) => client,
        Err(error) => return findings.bad(&error),
    };
    let mut leftover = BytesMut::new();
    let until = shake::deadline(LIMIT);
    match shake::knock(&mut carrier, &mut leftover, client, until).await {
        Ok(welcome) => {
            let node = one_line(&welcome.node);
            findings.fine(format_args!(
                "token accepted by node {node} for every app named"
            ));
            leave(agent, carrier, leftover, &welcome).await;
        }
        Err(ShakeError::Client(ClientError::Refused(refuse))) => {
            findings.bad(&refusal(&refuse));
        }
        Err(error) => {
            findings.bad(&format_args!("gateway {gateway}: {}", greet::told(&error)));
        }
    }
}

/// Says goodbye in order, so that the gateway counts no lost tunnel.
async fn leave(
    agent: &Agent,
    carrier: bridgehead_protocol::io::carrier::Carrier,
    leftover: BytesMut,
    welcome: &Welcome,
) {
    let (tunnel, driver) = Tunnel::new(
        Side::Agent,
        agent.settings(),
        welcome.limits,
        carrier,
        leftover,
        agent.clock,
    );
    tunnel.drain(GoAwayReason::Draining, Duration::ZERO);
    tunnel.close_when_drained();
    // Whether the gateway heard it changes nothing for the check.
    drop(timeout(GOODBYE, driver).await);
}
