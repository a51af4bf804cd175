//! Whether one more tunnel may begin: memory, the seats of its subject, the names that it brings.
//!
//! Every refusal says which bound it met, in words that the agent's log shows.

use bridgehead_protocol::handshake::{Applicant, Identity};
use bridgehead_protocol::wire::{Refuse, RefuseCode};

use super::{Enroll, TunnelTerms};
use crate::telemetry::labels::AgentLimit;
use crate::telemetry::metrics::Metrics;
use crate::tunnel::live::Tunnels;
use crate::tunnel::offered::{Offered, TooManyApps};
use crate::tunnel::quota::{Berth, Over};

/// What a tunnel takes of what all share.
pub(super) struct Entry {
    pub(super) berth: Berth,
    pub(super) offered: Offered,
}

impl Enroll {
    /// Lets a new tunnel of the applicant begin.
    pub(super) fn enter(
        &self,
        applicant: &Applicant,
        terms: &TunnelTerms,
    ) -> Result<Entry, Refuse> {
        if self.pressure.is_full() {
            self.metrics.agent_limit(AgentLimit::Memory);
            return Err(busy("this gateway is short of memory"));
        }
        let who = applicant.identity();
        let most = terms.per_agent + waiting_to_lapse(&self.tunnels, applicant);
        let berth = (self.berths)
            .enter(self.clock.now(), who, most)
            .map_err(|over| refuse(&self.metrics, who, terms, over))?;
        let offered = Offered::new(&self.on_offer, &who.subject, applicant.apps());
        let offered = offered.map_err(|many| too_many(&self.metrics, many))?;
        Ok(Entry { berth, offered })
    }
}

/// Tunnels of an earlier start of the same agent that lost their carrier: if it was killed, nobody will
/// come back for them, and they must not keep its next start out.
fn waiting_to_lapse(tunnels: &Tunnels, applicant: &Applicant) -> usize {
    let registry = tunnels.snapshot();
    let left = registry.tunnels().filter(|(_, live)| {
        live.tunnel.is_suspended()
            && live.identity == *applicant.identity()
            && live.instance != applicant.instance()
    });
    left.count()
}

fn refuse(metrics: &Metrics, who: &Identity, terms: &TunnelTerms, over: Over) -> Refuse {
    let subject = &who.subject;
    match over {
        Over::Tunnels => {
            metrics.agent_limit(AgentLimit::Tunnels);
            let most = terms.per_agent;
            busy(format!(
                "{subject} has as many tunnels as [tunnel].tunnels_per_agent allows ({most})"
            ))
        }
        Over::Pace(wait) => {
            metrics.agent_limit(AgentLimit::Pace);
            let text = format!("agents of {subject} begin new tunnels too often");
            let usual = busy(text);
            let wait = usual.retry_after.max(wait);
            usual.after(wait)
        }
    }
}

pub(super) fn too_many(metrics: &Metrics, many: TooManyApps) -> Refuse {
    metrics.agent_limit(AgentLimit::Apps);
    busy(many.to_string())
}

fn busy(text: impl Into<String>) -> Refuse {
    Refuse::of(RefuseCode::Busy, text)
}
