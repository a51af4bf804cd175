//! An agent from its first byte to the end of its tunnel: handshake, registry, news, removal.
//!
//! One call serves one carrier. The one that began a tunnel drives it to its end, over all its later
//! carriers; the others hand theirs over and wait for its end. Handshakes run concurrently and within
//! a deadline, never in an accept loop. Invariants: a tunnel stands in the registry exactly while its
//! driver runs; what one token takes of what all share is bounded before WELCOME.

mod entry;
mod news;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bridgehead_protocol::conn::{Settings, Side};
use bridgehead_protocol::handshake::{
    Admitted, Applicant, AwaitHello, Identity, Terms, check_apps, gone,
};
use bridgehead_protocol::io::carrier::{Carrier, CarrierKind};
use bridgehead_protocol::io::shake::{self, ShakeError};
use bridgehead_protocol::io::{CloseReason, Notice, Tunnel};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::wire::{
    AppOffer, GoAwayReason, Refuse, RefuseCode, ReportEntry, ResumeTicket,
};
use bytes::BytesMut;
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use self::entry::Entry;
use self::news::{Delayed, News};
use super::live::{Carried, LiveTunnel, NewTunnel, Tunnels};
use super::offered::OnOffer;
use super::pool::PoolLimits;
use super::quota::{self, Berth, Berths};
use super::token::Tokens;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::AgentEntry;
use crate::pressure::Pressure;
use crate::shutdown::Signal;
use crate::telemetry::labels::{self, AgentLimit, HandshakeResult, ResumeResult};
use crate::telemetry::metrics::Metrics;

/// How often kept connections are looked at, a fraction of their shortest idle time, and whether the
/// token is still valid: one that expires is cut as fast as one that is revoked.
const REAP_EVERY: Duration = Duration::from_millis(500);

/// Told how streams of lost tunnels ended, as their agent says. The identity is proven; that the
/// tunnels were this identity's is for the listener to check.
pub type OnReport = Box<dyn Fn(&Identity, Vec<ReportEntry>) + Send + Sync>;

/// What every enrolment needs; one per gateway.
pub struct Enroll {
    /// The registry.
    pub tunnels: Arc<Tunnels>,
    /// Valid tokens now.
    pub tokens: Arc<ArcSwap<Tokens>>,
    /// What a tunnel that begins now gets, and one that must end.
    pub terms: ArcSwap<TunnelTerms>,
    /// True if an agent must show a certificate; TLS asks for it, a WebSocket's request is refused.
    pub certificates: AtomicBool,
    /// The process's clock.
    pub clock: Clock,
    /// Random bits for tunnel ids and secrets.
    pub chance: Arc<Chance>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// What each token takes.
    pub berths: Arc<Berths>,
    /// How short memory is.
    pub pressure: Arc<Pressure>,
    /// Routes learn about apps here.
    pub on_offer: Arc<OnOffer>,
    /// The ledger learns late outcomes here.
    pub on_report: OnReport,
}

/// What a tunnel begins with, and keeps; but for `grace`, which is read when the tunnel must end.
#[derive(Clone, Debug)]
pub struct TunnelTerms {
    /// What the gateway says of itself.
    pub told: Terms,
    /// Numbers of the tunnel.
    pub settings: Settings,
    /// Bounds of its kept connections.
    pub pool: PoolLimits,
    /// Longest handshake.
    pub handshake: Duration,
    /// Tunnels that one token subject may have.
    pub per_agent: usize,
    /// How long what runs may go on after GOAWAY: as long as the gateway itself waits in a drain, or
    /// the agent would close the tunnel under clients that are still served.
    pub grace: Duration,
}

/// A connection whose agent has not said who it is.
pub struct Newcomer {
    /// The connection.
    pub carrier: Carrier,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// What a WebSocket's request brought.
    pub token: Option<Zeroizing<String>>,
    /// Its place among the strangers; given back when it is let in.
    pub place: Option<Box<dyn Send>>,
}

/// An agent that was let in.
enum Entered {
    /// With a new tunnel.
    New(Admitted, Arc<TunnelTerms>, Entry),
    /// With the next carrier of a tunnel.
    Back(Arc<LiveTunnel>, Admitted),
}

impl Enroll {
    /// Serves one carrier to its end, and the tunnel that it began, if it did, to the tunnel's end.
    pub async fn serve(&self, newcomer: Newcomer, shutdown: Signal) {
        let Newcomer {
            mut carrier,
            peer,
            token,
            place,
        } = newcomer;
        let mut buffer = BytesMut::new();
        let entered = match self
            .shake(&mut carrier, &mut buffer, token, &shutdown)
            .await
        {
            Ok(entered) => entered,
            Err(error) => {
                self.metrics.handshake(handshake_result(&error));
                tracing::info!(%peer, %error, "agent not let in");
                return;
            }
        };
        self.metrics.handshake(HandshakeResult::Accepted);
        drop(place);
        let carried = Carried {
            kind: carrier.kind(),
            peer,
        };
        carrier.keep(self.metrics.carrier(carrier_label(carried.kind)));
        match entered {
            Entered::New(admitted, terms, entry) => {
                let (tunnel, driver) = Tunnel::new(
                    Side::Gateway,
                    terms.settings,
                    admitted.limits,
                    carrier,
                    buffer,
                    self.clock.moments(),
                );
                let Entry { berth, offered } = entry;
                let new = NewTunnel {
                    id: format!("{:032x}", admitted.ticket.tunnel).into(),
                    identity: admitted.identity,
                    instance: admitted.instance,
                    key: admitted.key,
                    scope: admitted.scope,
                    offered,
                    carried,
                    ticket: admitted.ticket,
                    tunnel,
                    pool: terms.pool,
                    resume_window: terms.settings.resume_window,
                };
                self.run(new, driver, berth, shutdown).await;
            }
            Entered::Back(live, admitted) => {
                self.go_on(&live, &admitted, carried, carrier, buffer).await;
            }
        }
    }

    /// From now on an agent must show a certificate, or need not.
    pub fn require_certificates(&self, required: bool) {
        self.certificates.store(required, Ordering::Relaxed);
    }

    /// True if an agent must show a certificate.
    #[must_use]
    pub fn requires_certificates(&self) -> bool {
        self.certificates.load(Ordering::Relaxed)
    }

    /// Counts and tells an agent whose certificate is missing or not accepted.
    pub fn no_certificate(&self, peer: SocketAddr, error: &dyn std::fmt::Display) {
        self.metrics.handshake(HandshakeResult::Denied);
        tracing::info!(%peer, %error, "agent not let in");
    }

    /// Forgets every token of an agent and cuts its tunnels. Answers how many there were; nothing
    /// if no such agent is known. An exchange that runs gets the verdict that its evidence allows.
    pub fn revoke(&self, subject: &str) -> Option<usize> {
        let mut known = false;
        // As one step: a reload that read the tokens before must not bring these back.
        self.tokens.rcu(|tokens| {
            let without = tokens.without(subject);
            known = without.is_some();
            without.map_or_else(|| Arc::clone(tokens), Arc::new)
        });
        if !known {
            return None;
        }
        let tunnels = self.tunnels.snapshot();
        let theirs = tunnels
            .tunnels()
            .filter(|(_, live)| live.identity.subject == subject);
        Some(theirs.map(|(_, live)| live.revoke()).count())
    }

    /// Takes the tokens of a newer configuration and cuts the tunnels whose key is gone, or whose
    /// apps its key no longer covers. Answers how many.
    pub fn replace_tokens(&self, agents: &[AgentEntry]) -> usize {
        self.tokens.rcu(|tokens| tokens.replaced(agents));
        let next = self.tokens.load_full();
        let registry = self.tunnels.snapshot();
        let now = SystemTime::now();
        let uncovered = registry.tunnels().filter(|(number, live)| {
            let offered = registry
                .apps()
                .filter(|app| registry.offers(app).iter().any(|o| o.number == *number));
            !live.is_covered(&next, now, offered)
        });
        uncovered.map(|(_, live)| live.revoke()).count()
    }

    async fn shake(
        &self,
        carrier: &mut Carrier,
        buffer: &mut BytesMut,
        token: Option<Zeroizing<String>>,
        shutdown: &Signal,
    ) -> Result<Entered, ShakeError> {
        let terms = self.terms.load_full();
        let (until, resuming) = (
            shake::deadline(terms.handshake),
            shake::resuming_deadline(terms.handshake),
        );
        let waiting = token.map_or_else(AwaitHello::new, AwaitHello::with_header_token);
        let tokens = self.tokens.load_full();
        let applicant = shake::receive(carrier, buffer, waiting, &*tokens, until).await?;
        if applicant.resume().is_some() {
            return self.let_back(carrier, applicant, resuming).await;
        }
        if shutdown.is_draining() {
            let draining = Refuse::of(
                RefuseCode::Draining,
                "this gateway is draining; dial another one",
            );
            return Err(shake::refuse(carrier, draining, until).await);
        }
        let ticket = ResumeTicket {
            tunnel: u128::from_be_bytes(self.chance.bytes()),
            secret: self.chance.bytes(),
            epoch: 1,
        };
        let entry = match self.enter(&applicant, &terms) {
            Ok(entry) => entry,
            Err(refuse) => return Err(shake::refuse(carrier, refuse, until).await),
        };
        let admitted = shake::admit(carrier, applicant, &terms.told, ticket, until).await?;
        Ok(Entered::New(admitted, terms, entry))
    }

    /// An agent whose tunnel lost its carrier, noticed here or not. The old carrier is given up before
    /// WELCOME: what it still brings is dropped before either side states an offset.
    async fn let_back(
        &self,
        carrier: &mut Carrier,
        applicant: Applicant,
        until: Instant,
    ) -> Result<Entered, ShakeError> {
        let live = applicant
            .resume()
            .and_then(|ticket| self.tunnels.of_ticket(ticket));
        let judged = match &live {
            Some(live) => live.let_back(&applicant),
            None => Err(gone()),
        };
        match (live, judged) {
            (Some(live), Ok(ticket)) => {
                // It was promised this when it began.
                let terms = Terms {
                    resume_window: live.resume_window,
                    ..self.terms.load().told.clone()
                };
                let admitted = shake::admit(carrier, applicant, &terms, ticket, until).await?;
                Ok(Entered::Back(live, admitted))
            }
            (_, Err(refuse)) => {
                self.metrics.resumed(match refuse.code {
                    RefuseCode::StaleEpoch => ResumeResult::Stale,
                    _ => ResumeResult::Gone,
                });
                Err(shake::refuse(carrier, refuse, until).await)
            }
            (None, Ok(_)) => Err(shake::refuse(carrier, gone(), until).await),
        }
    }

    /// Hands the carrier to its tunnel, wherever that lives, with nothing written since WELCOME. The
    /// task stays until the carrier ends, because the socket is registered with this worker's reactor
    /// and the worker must not end before it.
    async fn go_on(
        &self,
        live: &Arc<LiveTunnel>,
        admitted: &Admitted,
        carried: Carried,
        mut carrier: Carrier,
        leftover: BytesMut,
    ) {
        let mut end = carrier.watch();
        live.go_on(admitted, carried, carrier, leftover);
        self.check_key(live);
        self.offer(live, &admitted.apps);
        end.ended().await;
    }

    /// A tunnel from its first moment to its last.
    async fn run(
        &self,
        new: NewTunnel,
        driver: impl Future<Output = CloseReason>,
        berth: Berth,
        shutdown: Signal,
    ) {
        let Carried { kind, peer } = new.carried;
        let (live, replaced) = self.tunnels.add(new);
        for old in replaced {
            tracing::info!(
                agent = &*old.agent,
                tunnel = &*old.id,
                "replaced by a newer instance"
            );
            self.send_away(&old, GoAwayReason::Replaced);
        }
        self.check_key(&live);
        tracing::info!(agent = &*live.agent, tunnel = &*live.id, carrier = kind.as_str(), %peer, "tunnel up");
        let reason = tokio::select! {
            biased;
            reason = driver => reason,
            reason = self.attend(&live, shutdown) => reason,
        };
        if reason == CloseReason::Lapsed {
            self.metrics.resumed(ResumeResult::Lapsed);
        }
        self.tunnels.remove(&live);
        drop(berth);
        live.pool.close_tunnel(live.number);
        tracing::info!(agent = &*live.agent, tunnel = &*live.id, %reason, "tunnel down");
    }

    /// The token may have been revoked while the handshake ran.
    fn check_key(&self, live: &LiveTunnel) {
        if !self.is_key_valid(live) {
            live.revoke();
        }
    }

    fn is_key_valid(&self, live: &LiveTunnel) -> bool {
        live.is_covered(&self.tokens.load(), SystemTime::now(), std::iter::empty())
    }

    /// News of the tunnel and the care of its pool; ends only after the tunnel has.
    async fn attend(&self, live: &Arc<LiveTunnel>, mut shutdown: Signal) -> CloseReason {
        let mut reap = tokio::time::interval(REAP_EVERY);
        let mut starved = 0;
        let (mut told, mut closed) = (false, false);
        let mut news = News::default();
        let mut end = shutdown.clone();
        let mut state = live.state();
        let mut gauge = self.metrics.tunnel(state);
        loop {
            let now = live.state();
            if now != state {
                state = now;
                gauge = self.metrics.tunnel(state);
            }
            let due = news.due().map(|due| self.clock.instant(due));
            tokio::select! {
                biased;
                () = shutdown.draining(), if !told => {
                    told = true;
                    self.send_away(live, GoAwayReason::Draining);
                }
                () = end.forced(), if !closed => {
                    closed = true;
                    live.tunnel.close();
                }
                notice = live.tunnel.notice() => match notice {
                    None => {
                        drop(gauge);
                        return live.tunnel.closed().await;
                    }
                    Some(Notice::Apps(apps)) => {
                        news.put(apps);
                        self.take_news(live, &mut news);
                    }
                    Some(Notice::GoAway { reason, .. }) => {
                        tracing::info!(agent = &*live.agent, tunnel = &*live.id, ?reason, "agent drains");
                        if !Bug::GoAwayIgnored.bites() {
                            live.pool.close_tunnel(live.number);
                        }
                        live.tunnel.close_when_drained();
                    }
                    Some(Notice::Report(entries)) => (self.on_report)(&live.identity, entries),
                    Some(Notice::Suspended) => {
                        let peer = live.carried().peer;
                        tracing::info!(agent = &*live.agent, tunnel = &*live.id, %peer, "carrier lost, tunnel waits for the next");
                    }
                    Some(Notice::Resumed { resent }) => self.resumed(live, resent),
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.take_news(live, &mut news);
                }
                _ = reap.tick() => {
                    live.pool.reap(self.clock.now());
                    let until_now = live.tunnel.stats().starved;
                    self.metrics.starved(until_now.saturating_sub(starved));
                    starved = until_now;
                    if !closed && !self.is_key_valid(live) {
                        closed = true;
                        tracing::warn!(agent = &*live.agent, tunnel = &*live.id, "tunnel cut, its token has expired");
                        live.revoke();
                    }
                    if !live.is_accepting() {
                        live.pool.close_tunnel(live.number);
                    }
                }
            }
        }
    }

    /// Nothing new begins at its agent; what runs has the grace of this moment.
    fn send_away(&self, live: &LiveTunnel, reason: GoAwayReason) {
        live.tunnel.drain(reason, self.terms.load().grace);
    }

    fn resumed(&self, live: &LiveTunnel, resent: u64) {
        live.resumed();
        self.metrics.resumed(ResumeResult::Resumed);
        self.metrics.resent(resent);
        let Carried { kind, peer } = live.carried();
        tracing::info!(agent = &*live.agent, tunnel = &*live.id, carrier = kind.as_str(), %peer, bytes = resent, "tunnel resumed");
    }

    /// Takes what the agent said of its apps, if it is something new and not too often.
    fn take_news(&self, live: &Arc<LiveTunnel>, news: &mut News) {
        let now = self.clock.now();
        let Some(apps) = news.ready(now).filter(|apps| live.is_news(apps)) else {
            return;
        };
        let about = match live.lacks_any(&apps) {
            true => quota::News::Names,
            false => quota::News::Known,
        };
        let theirs = || self.berths.news(now, &live.identity.subject, about);
        match news.turn(now, apps, theirs) {
            Ok(apps) => self.take_apps(live, &apps),
            Err(Delayed) => self.metrics.agent_limit(AgentLimit::News),
        }
    }

    fn take_apps(&self, live: &Arc<LiveTunnel>, apps: &[AppOffer]) {
        if let Err(refuse) = check_apps(apps, &live.scope) {
            tracing::warn!(
                agent = &*live.agent,
                tunnel = &*live.id,
                reason = refuse.text,
                "agent offers what it may not"
            );
            live.tunnel
                .drain(GoAwayReason::ProtocolError, Duration::ZERO);
            live.tunnel.close();
            return;
        }
        self.offer(live, apps);
    }

    /// The tunnel offers `apps` from now on. If that is more than its token may bring, it keeps what it
    /// offered and finishes what runs: the protocol refuses only at the door, so that is where its agent
    /// is told why when it comes again.
    fn offer(&self, live: &Arc<LiveTunnel>, apps: &[AppOffer]) {
        if let Err(many) = self.tunnels.offer(live, apps) {
            self.metrics.agent_limit(AgentLimit::Apps);
            tracing::warn!(
                agent = &*live.agent,
                tunnel = &*live.id,
                reason = %many,
                "agent brings more apps than it may"
            );
            live.finish(GoAwayReason::ProtocolError, self.terms.load().grace);
        }
    }
}

fn handshake_result(error: &ShakeError) -> HandshakeResult {
    match error {
        ShakeError::TimedOut => HandshakeResult::TimedOut,
        ShakeError::Ended | ShakeError::Io(_) => HandshakeResult::Closed,
        ShakeError::Wire(_) | ShakeError::Client(_) => HandshakeResult::Malformed,
        ShakeError::Refused(refuse) => match refuse.code {
            RefuseCode::Unauthorized | RefuseCode::ScopeDenied => HandshakeResult::Denied,
            RefuseCode::Malformed => HandshakeResult::Malformed,
            RefuseCode::VersionUnsupported
            | RefuseCode::ResumeGone
            | RefuseCode::StaleEpoch
            | RefuseCode::Busy
            | RefuseCode::Draining => HandshakeResult::Refused,
        },
    }
}

const fn carrier_label(kind: CarrierKind) -> labels::CarrierKind {
    match kind {
        CarrierKind::Tls => labels::CarrierKind::Tls,
        CarrierKind::Tcp => labels::CarrierKind::Tcp,
        CarrierKind::Wss => labels::CarrierKind::Wss,
        CarrierKind::Ws => labels::CarrierKind::Ws,
    }
}

#[cfg(test)]
mod tests;
