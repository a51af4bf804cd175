//! Runs one slot for a tunnel: does what `session::core` says and tells it what came of it.
//!
//! Decides nothing about when to dial, drain or give up; that is the core's. Owns the tasks of its tunnels,
//! the retired ones included. A connection that a tunnel outlives is no news here: its keeper sees to it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::handshake::ClientError;
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::shake::ShakeError;
use bridgehead_protocol::io::{CloseReason, Tunnel};
use bridgehead_protocol::wire::GoAwayReason;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::carrier::address::GatewayAddress;
use crate::control::{Stop, StopSignal};
use crate::error::{one_line, refusal};
use crate::session::core::{Action, Event, Fault, Session};
use crate::telemetry::Standing;

use super::agent::Agent;
use super::greet::{self, Admitted, NoCarrier, NotLetIn};
use super::orphans::{self, Orphans};
use super::tunnel::{self, Serving};

/// Longest time for name, connection, TLS and upgrade of one dial.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// Time for the gateway to close a drained tunnel by itself. If the agent closed first, an OPEN on its way
/// could meet a dead socket, whose reset would destroy the GOAWAY that proves it was not started.
const GATEWAY_CLOSES: Duration = Duration::from_secs(1);

/// Slack beyond the time that a retired tunnel has, in which the gateway closes it first.
const RETIRED_SLACK: Duration = Duration::from_secs(5);

/// How long the ends of streams that are cut may take to be told. The gateway answers who waits for them
/// at once, and does not wait for this agent to come back.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Of a run of failed tries, the first and then each so-manieth is a warning; the others are details.
const WARN_EACH: u32 = 20;

/// What the slot waits for.
type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What it waited for.
enum Done {
    Carrier(Carrier),
    NoCarrier(NoCarrier),
    Admitted(Box<Admitted>),
    NotLetIn(NotLetIn),
    GoAway(GoAwayReason, Duration),
    Over(CloseReason),
    Drained(CloseReason),
    Timer,
}

/// The tunnel that is up.
struct Current {
    tunnel: Tunnel,
    gateway: GatewayAddress,
    /// Whether it counts as up.
    standing: Standing,
}

/// One slot.
pub(super) struct Slot {
    agent: Arc<Agent>,
    session: Session,
    seed: u64,
    /// Tunnels served so far.
    served: u64,
    stop: StopSignal,
    /// Which gateway comes next.
    turn: usize,
    /// Tries that failed since a tunnel was last up.
    failures: u32,
    carrier: Option<(Carrier, GatewayAddress)>,
    admitted: Option<(Box<Admitted>, GatewayAddress)>,
    current: Option<Current>,
    /// Serving tunnels, the one that is up and the retired ones.
    tunnels: JoinSet<Orphans>,
    /// The retired ones that are not over.
    retired: Vec<Tunnel>,
    /// What lost tunnels left; cut with the slot.
    orphans: JoinSet<()>,
    /// When tunnels are cut, once the agent has been told to stop.
    stop_by: Option<Instant>,
    /// How long the tunnel that is retired next may finish what runs.
    finish_within: Duration,
}

impl Slot {
    pub(super) fn new(agent: Arc<Agent>, index: u8, stop: StopSignal) -> Self {
        let seed = agent.options.seed.wrapping_add(u64::from(index));
        Self {
            session: Session::new(seed),
            seed,
            served: 0,
            stop,
            turn: usize::from(index),
            failures: 0,
            carrier: None,
            admitted: None,
            current: None,
            tunnels: JoinSet::new(),
            retired: Vec::new(),
            orphans: JoinSet::new(),
            stop_by: None,
            finish_within: Duration::ZERO,
            agent,
        }
    }

    /// Runs until stopped.
    pub(super) async fn run(mut self) {
        let mut work: Work = Box::pin(std::future::pending());
        self.tell(Event::Start);
        loop {
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::End => return self.end().await,
                    Action::Retire => self.retire(),
                    other => work = self.begin(other),
                }
            }
            let mut stop = self.stop.clone();
            let event = tokio::select! {
                biased;
                () = stop.at_least(Stop::Drain), if self.stop_by.is_none() => {
                    self.stop_by = Some(Instant::now() + self.agent.tunnels_grace());
                    Event::Stop
                }
                done = &mut work => {
                    work = Box::pin(std::future::pending());
                    self.absorb(done)
                }
                // Ends of retired tunnels; the one that is up reports through `work`.
                Some(ended) = self.tunnels.join_next() => {
                    self.read_on(ended.unwrap_or_default());
                    continue;
                }
                Some(_) = self.orphans.join_next() => continue,
            };
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event) {
        self.session.handle(self.agent.clock.now(), event);
    }

    /// The future of an action.
    fn begin(&mut self, action: Action) -> Work {
        match action {
            Action::Dial => self.dial(),
            Action::Shake => self.shake(),
            Action::Serve => self.serve(),
            Action::Drain => self.drain(),
            Action::WaitUntil(until) => {
                let until = self.agent.clock.instant(until);
                Box::pin(async move {
                    sleep_until(until).await;
                    Done::Timer
                })
            }
            // Not futures; `run` has taken them.
            Action::Retire | Action::End => Box::pin(std::future::pending()),
        }
    }

    fn gateway(&self) -> GatewayAddress {
        let gateways = &self.agent.options.gateways;
        gateways[self.turn % gateways.len()].clone()
    }

    fn dial(&mut self) -> Work {
        let (agent, gateway) = (Arc::clone(&self.agent), self.gateway());
        Box::pin(async move {
            match greet::dial(&agent, &gateway, DIAL_LIMIT).await {
                Ok(carrier) => Done::Carrier(carrier),
                Err(error) => Done::NoCarrier(error),
            }
        })
    }

    fn shake(&mut self) -> Work {
        let Some((carrier, gateway)) = self.carrier.take() else {
            return Box::pin(async { Done::NotLetIn(NotLetIn::Shake(ShakeError::Ended)) });
        };
        let agent = Arc::clone(&self.agent);
        Box::pin(async move {
            match greet::greet(&agent, &gateway, carrier, None).await {
                Ok(admitted) => Done::Admitted(Box::new(admitted)),
                Err(error) => Done::NotLetIn(error),
            }
        })
    }

    fn serve(&mut self) -> Work {
        let Some((admitted, gateway)) = self.admitted.take() else {
            return Box::pin(async { Done::Over(CloseReason::Closed) });
        };
        tracing::info!(
            addr = %gateway,
            carrier = admitted.carrier.kind().as_str(),
            node = one_line(&admitted.welcome.node),
            tunnel = format!("{:032x}", admitted.welcome.ticket.tunnel),
            "tunnel is up"
        );
        // Tunnels of one gateway that are cut at the same moment do not come back in step.
        self.served = self.served.wrapping_add(1);
        let seed = self.seed.rotate_left(32).wrapping_add(self.served);
        let agent = Arc::clone(&self.agent);
        let (serving, served) = tunnel::serve(agent, *admitted, gateway.clone(), seed);
        let pace = self.agent.outside.pace.clone();
        self.tunnels.spawn(pace.keep(served));
        let Serving {
            tunnel,
            standing,
            mut gone_away,
        } = serving;
        let watched = tunnel.clone();
        self.current = Some(Current {
            tunnel,
            gateway,
            standing,
        });
        Box::pin(async move {
            let told = gone_away.wait_for(Option::is_some).await;
            let told = told.ok().and_then(|told| *told);
            match told {
                Some((reason, deadline)) => Done::GoAway(reason, deadline),
                // The keeper ends with the tunnel.
                None => Done::Over(watched.closed().await),
            }
        })
    }

    /// The gateway closes a retired tunnel when it is drained; the agent sees to it that it does not
    /// live on for ever.
    fn retire(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        current.standing.leave();
        let until = Instant::now() + self.finish_within + RETIRED_SLACK;
        let tunnel = current.tunnel;
        self.retired.retain(|tunnel| !tunnel.is_over());
        self.retired.push(tunnel.clone());
        let pace = self.agent.outside.pace.clone();
        self.tunnels.spawn(pace.keep(async move {
            if timeout_at(until, tunnel.closed()).await.is_err() {
                tunnel.close_after_ends(LAST_WORDS);
            }
            Orphans::default()
        }));
    }

    /// Apps that were at work when their tunnel was lost may still answer.
    fn read_on(&mut self, orphans: Orphans) {
        if !orphans.streams.is_empty() {
            let read = orphans::read_on(Arc::clone(&self.agent), orphans);
            self.orphans
                .spawn(self.agent.outside.pace.clone().keep(read));
        }
    }

    fn drain(&mut self) -> Work {
        let Some(current) = &self.current else {
            return Box::pin(async { Done::Drained(CloseReason::Closed) });
        };
        current.standing.leave();
        let tunnel = current.tunnel.clone();
        let until = self.until();
        let grace = until.saturating_duration_since(Instant::now());
        Box::pin(async move {
            tunnel.drain(GoAwayReason::Draining, grace);
            let by_gateway = Instant::now() + GATEWAY_CLOSES.min(grace);
            if let Ok(reason) = timeout_at(by_gateway, tunnel.closed()).await {
                return Done::Drained(reason);
            }
            tunnel.close_when_drained();
            match timeout_at(until, tunnel.closed()).await {
                Ok(reason) => Done::Drained(reason),
                Err(_) => {
                    let count = tunnel.stats().streams.total();
                    tracing::warn!(count, "grace is over, streams are cut");
                    tunnel.close_after_ends(LAST_WORDS);
                    Done::Drained(tunnel.closed().await)
                }
            }
        })
    }

    /// What came of a future, as an event; the values it brought are kept for the next action.
    fn absorb(&mut self, done: Done) -> Event {
        match done {
            Done::Carrier(carrier) => {
                self.carrier = Some((carrier, self.gateway()));
                Event::Dialled
            }
            Done::NoCarrier(error) => {
                self.failed(&error);
                Event::DialFailed(match error {
                    NoCarrier::Dial(error) => error.fault(),
                    // It was there at the start; whoever replaces it may be between two steps.
                    NoCarrier::Token(_) => Fault::Passing,
                })
            }
            Done::Admitted(admitted) => {
                self.failures = 0;
                self.admitted = Some((admitted, self.gateway()));
                Event::Welcomed
            }
            Done::NotLetIn(NotLetIn::Shake(ShakeError::Client(ClientError::Refused(refuse)))) => {
                self.failed(&refusal(&refuse));
                Event::Refused(refuse)
            }
            Done::NotLetIn(NotLetIn::Shake(error)) => {
                self.failed(&greet::told(&error));
                Event::ShakeFailed
            }
            Done::NotLetIn(NotLetIn::Token(error)) => {
                self.failed(&error);
                Event::ShakeFailed
            }
            Done::GoAway(reason, deadline) => {
                self.finish_within = finish_within(reason, deadline, self.agent.options.grace);
                let addr = self.current.as_ref().map(|c| c.gateway.to_string());
                tracing::info!(addr, ?reason, "gateway takes nothing new on this tunnel");
                Event::GoAway(reason)
            }
            Done::Over(reason) => {
                let addr = self.current.take().map(|c| c.gateway.to_string());
                tracing::warn!(addr, %reason, "tunnel is lost");
                Event::Lost
            }
            Done::Drained(reason) => {
                let addr = self.current.take().map(|c| c.gateway.to_string());
                tracing::info!(addr, %reason, "tunnel is drained");
                Event::Closed
            }
            Done::Timer => Event::Timer,
        }
    }

    /// Counts and tells a failed try, and turns to the next gateway.
    fn failed(&mut self, error: &dyn std::fmt::Display) {
        let addr = self.gateway();
        self.turn = self.turn.wrapping_add(1);
        self.failures = self.failures.saturating_add(1);
        let count = self.failures;
        let error = one_line(&error.to_string());
        if count % WARN_EACH == 1 {
            tracing::warn!(%addr, count, error, "no tunnel, trying again");
        } else {
            tracing::debug!(%addr, count, error, "no tunnel, trying again");
        }
    }

    /// When tunnels are cut. Nothing but being told to stop makes a slot ask.
    fn until(&self) -> Instant {
        self.stop_by.unwrap_or_else(Instant::now)
    }

    /// Lets retired tunnels use what is left of the grace.
    async fn end(mut self) {
        let until = self.until();
        if timeout_at(until, ended(&mut self.tunnels)).await.is_ok() {
            return;
        }
        tracing::warn!("grace is over, retired tunnels are cut");
        for tunnel in &self.retired {
            tunnel.close_after_ends(LAST_WORDS);
        }
        // Those that are not through by then are dropped.
        let _late = timeout(LAST_WORDS * 2, ended(&mut self.tunnels)).await;
    }
}

async fn ended(tunnels: &mut JoinSet<Orphans>) {
    while tunnels.join_next().await.is_some() {}
}

/// How long a tunnel may finish what runs, once the gateway starts nothing more on it. Whoever ends
/// something says how long that takes: the gateway when it drains, and the agent when a newer one has
/// taken its place, as if it had been told to stop.
fn finish_within(reason: GoAwayReason, told: Duration, own: Duration) -> Duration {
    match reason {
        GoAwayReason::Replaced => own,
        GoAwayReason::Draining
        | GoAwayReason::Revoked
        | GoAwayReason::IdsExhausted
        | GoAwayReason::ProtocolError => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drain_may_take_is_the_gateways_to_say_and_what_a_takeover_may_take_the_agents() {
        let (told, own) = (Duration::from_secs(300), Duration::from_secs(7));
        assert_eq!(finish_within(GoAwayReason::Draining, told, own), told);
        assert_eq!(finish_within(GoAwayReason::Replaced, told, own), own);
    }
}
