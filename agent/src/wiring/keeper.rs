//! Keeps one tunnel on its feet: hears its news, and brings the next carrier when one is lost.
//!
//! Does what `session::redial` says. The streams of the tunnel and the app's connections know nothing
//! of it. Ends with the tunnel, whichever slot it belongs to by then: a retired one is brought back
//! as well, so that it can drain.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::handshake::ClientError;
use bridgehead_protocol::io::carrier::{Carrier, CarrierEnd};
use bridgehead_protocol::io::shake::{LONGEST_RESUMING, ShakeError};
use bridgehead_protocol::io::{Notice, Tunnel};
use bridgehead_protocol::wire::{GoAwayReason, ResumeTicket};
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::carrier::address::GatewayAddress;
use crate::error::{one_line, refusal};
use crate::session::redial::{Action, Event, Redial};
use crate::telemetry::Standing;

use super::agent::Agent;
use super::greet::{self, Admitted, NotLetIn};

/// Longest time for name, connection, TLS and upgrade of one dial; the handshake has as long again.
const DIAL_LIMIT: Duration = LONGEST_RESUMING;

/// That the gateway starts nothing more, and until when it lets finish.
pub(super) type GoneAway = Option<(GoAwayReason, Duration)>;

/// What is waited for.
type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

enum Done {
    Carrier(Carrier),
    NoCarrier(greet::NoCarrier),
    LetIn(Box<Admitted>),
    NotLetIn(NotLetIn),
    Timer,
}

/// One tunnel's keeper.
pub(super) struct Keeper {
    pub(super) agent: Arc<Agent>,
    pub(super) tunnel: Tunnel,
    pub(super) gateway: GatewayAddress,
    /// The gateway's name for itself; reports go to no other.
    pub(super) node: String,
    pub(super) ticket: ResumeTicket,
    pub(super) redial: Redial,
    /// Whether the tunnel counts as up.
    pub(super) standing: Standing,
    pub(super) gone_away: watch::Sender<GoneAway>,
    /// How far the fates of lost tunnels were told over this one.
    pub(super) told: u64,
}

impl Keeper {
    /// Until the tunnel is over. `end`: that of its first carrier.
    pub(super) async fn run(mut self, mut end: CarrierEnd) {
        let mut work: Work = pending();
        let mut carrier = None;
        let mut admitted: Option<Box<Admitted>> = None;
        let mut carried = true;
        let mut news = self.agent.news();
        loop {
            while let Some(action) = self.redial.poll_action() {
                match action {
                    Action::GiveUp => self.tunnel.close(),
                    Action::GoOn => {
                        if let Some(admitted) = admitted.take() {
                            end = self.go_on(*admitted);
                            carried = true;
                        }
                    }
                    other => work = self.begin(other, carrier.take()),
                }
            }
            let event = tokio::select! {
                biased;
                _ = self.tunnel.closed() => return,
                () = end.ended(), if carried => {
                    carried = false;
                    self.lost();
                    Event::Cut
                }
                Some(notice) = self.tunnel.notice() => {
                    self.hear(notice);
                    continue;
                }
                Ok(()) = news.changed() => {
                    self.report();
                    continue;
                }
                done = &mut work => {
                    work = pending();
                    match done {
                        Done::Carrier(new) => {
                            carrier = Some(new);
                            Event::Dialled
                        }
                        Done::LetIn(new) if self.is_ours(&new) => {
                            admitted = Some(new);
                            Event::LetBack
                        }
                        other => self.failed(other),
                    }
                }
            };
            self.redial.handle(self.agent.clock.now(), event);
        }
    }

    fn begin(&self, action: Action, carrier: Option<Carrier>) -> Work {
        let (agent, gateway) = (Arc::clone(&self.agent), self.gateway.clone());
        match (action, carrier) {
            (Action::Dial, _) => Box::pin(async move {
                match greet::dial(&agent, &gateway, DIAL_LIMIT).await {
                    Ok(carrier) => Done::Carrier(carrier),
                    Err(error) => Done::NoCarrier(error),
                }
            }),
            (Action::Shake(epoch), Some(carrier)) => {
                let ticket = ResumeTicket {
                    epoch,
                    ..self.ticket.clone()
                };
                Box::pin(async move {
                    match greet::greet(&agent, &gateway, carrier, Some(ticket)).await {
                        Ok(admitted) => Done::LetIn(Box::new(admitted)),
                        Err(error) => Done::NotLetIn(error),
                    }
                })
            }
            (Action::Shake(_), None) => {
                Box::pin(async { Done::NotLetIn(NotLetIn::Shake(ShakeError::Ended)) })
            }
            (Action::WaitUntil(until), _) => {
                let until = agent.clock.instant(until);
                Box::pin(async move {
                    sleep_until(until).await;
                    Done::Timer
                })
            }
            // Not futures; `run` has taken them.
            (Action::GoOn | Action::GiveUp, _) => pending(),
        }
    }

    /// The carrier is dropped. Not told for a tunnel that is over: that has its own word.
    fn lost(&self) {
        if !self.tunnel.is_over() {
            self.standing.suspended();
            tracing::warn!(addr = %self.gateway, tunnel = self.id(), "connection is lost, tunnel waits for the next");
        }
    }

    fn go_on(&mut self, admitted: Admitted) -> CarrierEnd {
        let Admitted {
            mut carrier,
            leftover,
            ..
        } = admitted;
        let end = carrier.watch();
        self.tunnel.resume(carrier, leftover);
        end
    }

    fn hear(&mut self, notice: Notice) {
        match notice {
            Notice::GoAway { reason, deadline } => {
                self.gone_away.send_replace(Some((reason, deadline)));
            }
            Notice::Resumed { resent } => {
                self.standing.resumed();
                self.report();
                tracing::info!(addr = %self.gateway, tunnel = self.id(), bytes = resent, "tunnel is resumed");
            }
            // Of the gateway's side only, or known by the end of the carrier.
            Notice::Suspended | Notice::Apps(_) | Notice::Report(_) => {}
        }
    }

    /// Tells what became of streams whose tunnel was lost, as far as it was not told over this one.
    pub(super) fn report(&mut self) {
        let (entries, told) = self.agent.fates_due(&self.node, self.told);
        self.told = told;
        if !entries.is_empty() {
            let count = entries.len();
            tracing::info!(addr = %self.gateway, count, "telling what became of lost streams");
            self.tunnel.report(entries);
        }
    }

    fn is_ours(&self, admitted: &Admitted) -> bool {
        admitted.welcome.ticket.tunnel == self.ticket.tunnel
    }

    fn failed(&self, done: Done) -> Event {
        let (event, error) = match done {
            Done::Timer | Done::Carrier(_) => return Event::Timer,
            Done::NoCarrier(error) => (Event::DialFailed, error.to_string()),
            Done::NotLetIn(NotLetIn::Token(error)) => (Event::ShakeFailed, error.to_string()),
            Done::NotLetIn(NotLetIn::Shake(ShakeError::Client(ClientError::Refused(refuse)))) => {
                let text = refusal(&refuse);
                (Event::Refused(refuse), text)
            }
            Done::NotLetIn(NotLetIn::Shake(error)) => (Event::ShakeFailed, greet::told(&error)),
            Done::LetIn(_) => (
                Event::ShakeFailed,
                "the gateway answered with another tunnel".to_owned(),
            ),
        };
        let error = one_line(&error);
        tracing::info!(addr = %self.gateway, tunnel = self.id(), error, "tunnel is not resumed yet");
        event
    }

    fn id(&self) -> String {
        format!("{:032x}", self.ticket.tunnel)
    }
}

fn pending() -> Work {
    Box::pin(std::future::pending())
}
