//! The registry with its running tunnels, shared by all workers: look up, take, change.
//!
//! Lookups read a snapshot without a lock. Changes are serialised by a short lock, and rare: how fast
//! tunnels begin and tell news is bounded at the door.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bridgehead_protocol::handshake::{Admitted, Applicant, Identity, Resumable, Scope, gone};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::io::carrier::{Carrier, CarrierKind};
use bridgehead_protocol::wire::{AppHealth, AppOffer, GoAwayReason, Refuse, ResumeTicket};
use bytes::BytesMut;

use super::offered::{Offered, TooManyApps};
use super::pick::{Candidate, pick};
use super::pool::{Pool, PoolLimits};
use super::registry::{Health, Offer, Registry, TunnelNumber};
use super::token::Tokens;
use crate::telemetry::labels::TunnelState;

/// So long a tunnel whose token was revoked may count what it wrote. Well within the two seconds in which
/// it has to be gone, and as long as any other count is waited for.
const COUNTED_WITHIN: Duration = Duration::from_millis(500);

/// Exchanges that a near tunnel may carry beyond twice those of the least loaded one.
const NEAR_SLACK: usize = 8;

/// A tunnel that stands.
pub struct LiveTunnel {
    /// Its number in this process.
    pub number: TunnelNumber,
    /// Its id as text, for logs and admin.
    pub id: Arc<str>,
    /// Who is at the other end.
    pub identity: Identity,
    /// The agent's id as text.
    pub agent: Arc<str>,
    /// Random per start of the agent.
    pub instance: u128,
    /// Key id of the token that its agent showed last.
    pub key: Mutex<String>,
    /// Apps it may ever offer.
    pub scope: Scope,
    /// Since when.
    pub since: SystemTime,
    /// The tunnel itself.
    pub tunnel: Tunnel,
    /// Kept connections, shared by the tunnels of one start of an agent.
    pub pool: Arc<Pool>,
    carried: Mutex<Carried>,
    /// What it offers; nothing once it is forgotten.
    offered: Mutex<Option<Offered>>,
    resumable: Mutex<Resumable>,
    ticket: u128,
    /// Name of the worker it lives on.
    pub worker: Box<str>,
    thread: ThreadId,
    /// Takes no new exchange although the tunnel still would (takeover, drain).
    pub retired: AtomicBool,
    in_flight: AtomicUsize,
    /// Carriers after the first.
    resumes: AtomicU32,
    /// How long it outlives its carrier, as its agent was told.
    pub resume_window: Duration,
}

/// What carries a tunnel now, or did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What it is made of.
    pub kind: CarrierKind,
    /// Where the agent dialled from.
    pub peer: std::net::SocketAddr,
}

/// What is needed to make a [`LiveTunnel`].
pub struct NewTunnel {
    /// See [`LiveTunnel::id`].
    pub id: Arc<str>,
    /// See [`LiveTunnel::identity`].
    pub identity: Identity,
    /// See [`LiveTunnel::instance`].
    pub instance: u128,
    /// See [`LiveTunnel::key`].
    pub key: String,
    /// See [`LiveTunnel::scope`].
    pub scope: Scope,
    /// What it offers at first.
    pub offered: Offered,
    /// What carries it first.
    pub carried: Carried,
    /// What its agent was told to continue it with.
    pub ticket: ResumeTicket,
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Bounds of its pool.
    pub pool: PoolLimits,
    /// See [`LiveTunnel::resume_window`].
    pub resume_window: Duration,
}

impl LiveTunnel {
    /// True while exchanges may begin here.
    #[must_use]
    pub fn is_accepting(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && self.tunnel.is_accepting()
    }

    /// What operators see.
    #[must_use]
    pub fn state(&self) -> TunnelState {
        if self.tunnel.is_suspended() {
            TunnelState::Suspended
        } else if self.is_accepting() {
            TunnelState::Live
        } else {
            TunnelState::Draining
        }
    }

    /// What carries it now, or did last.
    #[must_use]
    pub fn carried(&self) -> Carried {
        *self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets an applicant continue it, and gives up the carrier that it had until now. Answers the
    /// ticket for WELCOME.
    ///
    /// # Errors
    /// The REFUSE to send.
    pub fn let_back(&self, applicant: &Applicant) -> Result<ResumeTicket, Refuse> {
        if self.tunnel.is_over() {
            return Err(gone());
        }
        let ticket = self.resumable().judge(applicant)?;
        self.tunnel.suspend();
        Ok(ticket)
    }

    /// Goes on over the carrier that was let in as `admitted`; not if a later one was let in meanwhile,
    /// whose agent has given this one up.
    pub fn go_on(
        &self,
        admitted: &Admitted,
        carried: Carried,
        carrier: Carrier,
        leftover: BytesMut,
    ) {
        let resumable = self.resumable();
        if resumable.epoch() == admitted.ticket.epoch {
            *self.carried.lock().unwrap_or_else(PoisonError::into_inner) = carried;
            admitted
                .key
                .clone_into(&mut self.key.lock().unwrap_or_else(PoisonError::into_inner));
            self.tunnel.resume(carrier, leftover);
        }
    }

    /// True unless it offers just these already.
    #[must_use]
    pub fn is_news(&self, apps: &[AppOffer]) -> bool {
        let offered = self.offered();
        (offered.as_ref()).is_some_and(|offered| offered.apps() != apps)
    }

    /// True if it would bring a name that it does not offer.
    #[must_use]
    pub fn lacks_any(&self, apps: &[AppOffer]) -> bool {
        let offered = self.offered();
        (offered.as_ref()).is_some_and(|offered| offered.lacks_any(apps))
    }

    fn offered(&self) -> MutexGuard<'_, Option<Offered>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resumable(&self) -> MutexGuard<'_, Resumable> {
        self.resumable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True while the key that it joined with is valid for all the apps in `offered`.
    #[must_use]
    pub fn is_covered<'a>(
        &self,
        tokens: &Tokens,
        now: SystemTime,
        mut offered: impl Iterator<Item = &'a Arc<str>>,
    ) -> bool {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        tokens
            .scope_of(&key, &self.identity.subject, now)
            .is_some_and(|scope| offered.all(|app| scope.covers(app)))
    }

    /// Takes nothing new, and closes when what runs is over.
    pub fn finish(&self, reason: GoAwayReason, within: Duration) {
        self.retired.store(true, Ordering::Relaxed);
        self.tunnel.drain(reason, within);
        self.tunnel.close_when_drained();
    }

    /// Cuts it: its token is no longer valid. Whatever runs is fenced first and told by its counts, if
    /// these come at once.
    pub fn revoke(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.tunnel.drain(GoAwayReason::Revoked, Duration::ZERO);
        self.tunnel.close_after_counts(COUNTED_WITHIN);
    }

    /// How often it has gone on over another carrier.
    #[must_use]
    pub fn resumes(&self) -> u32 {
        self.resumes.load(Ordering::Relaxed)
    }

    /// Notes that it has.
    pub(super) fn resumed(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    /// Exchanges it carries now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// One exchange's place on a tunnel; given back by its drop.
pub struct Place {
    /// The tunnel.
    pub tunnel: Arc<LiveTunnel>,
    /// Host header the agent asked for; empty = the client's own.
    pub upstream_host: Arc<str>,
}

impl Place {
    fn new(offer: &Offer<LiveTunnel>) -> Self {
        offer.tunnel.in_flight.fetch_add(1, Ordering::Relaxed);
        Self {
            tunnel: Arc::clone(&offer.tunnel),
            upstream_host: Arc::clone(&offer.upstream_host),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.tunnel.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All tunnels of this gateway.
pub struct Tunnels {
    registry: ArcSwap<Registry<LiveTunnel>>,
    change: Mutex<()>,
    /// By the number in tickets; only looked up.
    tickets: Mutex<HashMap<u128, Arc<LiveTunnel>>>,
    next: AtomicU64,
    turn: AtomicU64,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            registry: ArcSwap::default(),
            change: Mutex::default(),
            tickets: Mutex::default(),
            next: AtomicU64::new(1),
            turn: AtomicU64::new(0),
        }
    }
}

impl Tunnels {
    /// The tunnel for the next exchange with `app`, not among `avoid`; `None` if nobody takes it.
    #[must_use]
    pub fn take(&self, app: &str, avoid: &[TunnelNumber]) -> Option<Place> {
        let registry = self.registry.load();
        let offers = registry.offers(app);
        if let [only] = offers {
            let free = is_free(&only.tunnel) && !avoid.contains(&only.number);
            return free.then(|| Place::new(only));
        }
        let candidates: Vec<Candidate> = offers.iter().map(candidate).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let picked = &offers[pick(&candidates, avoid, turn)?];
        Some(Place::new(near(offers, picked, avoid)))
    }

    /// True if another tunnel than `beside` would take an exchange with `app` now.
    #[must_use]
    pub fn stands_beside(
        &self,
        app: &str,
        avoid: &[TunnelNumber],
        beside: Option<TunnelNumber>,
    ) -> bool {
        let registry = self.registry.load();
        let mut offers = registry.offers(app).iter();
        offers.any(|offer| {
            let other = beside != Some(offer.number) && !avoid.contains(&offer.number);
            other && is_free(&offer.tunnel)
        })
    }

    /// A place on exactly that tunnel, if it takes exchanges with `app`.
    #[must_use]
    pub fn take_on(&self, number: TunnelNumber, app: &str) -> Option<Place> {
        let registry = self.registry.load();
        let offers = registry.offers(app).iter();
        offers
            .filter(|offer| offer.number == number && offer.tunnel.is_accepting())
            .filter(|offer| !offer.tunnel.tunnel.is_suspended())
            .map(Place::new)
            .next()
    }

    /// True if a tunnel without a carrier offers the app: what nobody else takes may wait for it.
    #[must_use]
    pub fn awaits(&self, app: &str) -> bool {
        let registry = self.registry.load();
        let mut offers = registry.offers(app).iter();
        offers.any(|offer| offer.tunnel.is_accepting() && offer.tunnel.tunnel.is_suspended())
    }

    /// The tunnel that a ticket names.
    #[must_use]
    pub fn of_ticket(&self, ticket: &ResumeTicket) -> Option<Arc<LiveTunnel>> {
        self.tickets().get(&ticket.tunnel).cloned()
    }

    fn tickets(&self) -> MutexGuard<'_, HashMap<u128, Arc<LiveTunnel>>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Registry<LiveTunnel>> {
        self.registry.load_full()
    }

    /// Adds a tunnel. Tunnels of the same identity with another instance are
    /// retired: a newer start of an agent takes over. Answers the tunnel and those it replaced.
    pub fn add(&self, new: NewTunnel) -> (Arc<LiveTunnel>, Vec<Arc<LiveTunnel>>) {
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = self.registry.load();
        let number = TunnelNumber(self.next.fetch_add(1, Ordering::Relaxed));
        let sister = registry
            .tunnels()
            .find(|(_, t)| t.identity == new.identity && t.instance == new.instance);
        let pool = match sister {
            Some((_, tunnel)) => Arc::clone(&tunnel.pool),
            None => Arc::new(Pool::new(new.pool)),
        };
        let (key, apps) = (new.ticket.tunnel, new.offered.apps().to_vec());
        let resumable = Resumable::new(new.identity.clone(), new.instance, &new.ticket);
        let thread = std::thread::current();
        let live = Arc::new(LiveTunnel {
            number,
            id: new.id,
            agent: new.identity.agent.as_str().into(),
            identity: new.identity,
            instance: new.instance,
            key: Mutex::new(new.key),
            scope: new.scope,
            carried: Mutex::new(new.carried),
            offered: Mutex::new(Some(new.offered)),
            resumable: Mutex::new(resumable),
            ticket: key,
            since: SystemTime::now(),
            tunnel: new.tunnel,
            pool,
            worker: thread.name().unwrap_or_default().into(),
            thread: thread.id(),
            retired: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            resumes: AtomicU32::new(0),
            resume_window: new.resume_window,
        });
        let replaced = older_instances(&registry, &live);
        for old in &replaced {
            old.retired.store(true, Ordering::Relaxed);
        }
        let next = registry.with(number, &live, offers(&live, &apps));
        self.registry.store(Arc::new(next));
        self.tickets().insert(key, Arc::clone(&live));
        (live, replaced)
    }

    /// The tunnel offers exactly `apps` from now on. A tunnel that was removed stays removed.
    ///
    /// # Errors
    /// [`TooManyApps`]; it offers what it did.
    pub fn offer(&self, live: &Arc<LiveTunnel>, apps: &[AppOffer]) -> Result<(), TooManyApps> {
        let mut now = live.offered();
        let Some(offered) = now.as_mut().filter(|now| now.apps() != apps) else {
            return Ok(());
        };
        offered.replace(apps)?;
        self.change(|registry| registry.with(live.number, live, offers(live, apps)));
        Ok(())
    }

    /// Forgets a tunnel, and takes back the names that it brought.
    pub fn remove(&self, live: &LiveTunnel) {
        drop(live.offered().take());
        drop(self.tickets().remove(&live.ticket));
        self.change(|registry| registry.without(live.number));
    }

    fn change(&self, change: impl FnOnce(&Registry<LiveTunnel>) -> Registry<LiveTunnel>) {
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let next = change(&self.registry.load());
        self.registry.store(Arc::new(next));
    }
}

/// The tunnel of the same agent that lives on this worker, unless it is much busier: bytes then
/// cross no thread, which costs two wake-ups an exchange.
fn near<'o>(
    offers: &'o [Offer<LiveTunnel>],
    picked: &'o Offer<LiveTunnel>,
    avoid: &[TunnelNumber],
) -> &'o Offer<LiveTunnel> {
    let here = std::thread::current().id();
    let most = picked.tunnel.in_flight() * 2 + NEAR_SLACK;
    let is_near = |offer: &&Offer<LiveTunnel>| {
        offer.tunnel.thread == here
            && offer.tunnel.instance == picked.tunnel.instance
            && offer.tunnel.identity == picked.tunnel.identity
            && is_free(&offer.tunnel)
            && offer.tunnel.in_flight() <= most
            && !avoid.contains(&offer.number)
    };
    offers.iter().find(is_near).unwrap_or(picked)
}

fn candidate(offer: &Offer<LiveTunnel>) -> Candidate {
    Candidate {
        number: offer.number,
        in_flight: offer.tunnel.in_flight(),
        weight: offer.weight,
        health: offer.health,
        accepting: is_free(&offer.tunnel),
    }
}

/// It would take an exchange and carry it at once. One without a carrier is not asked: an exchange
/// that waits beside it goes to whichever tunnel comes first, one that was given to it cannot.
fn is_free(tunnel: &LiveTunnel) -> bool {
    tunnel.is_accepting() && !tunnel.tunnel.is_suspended()
}

fn older_instances(registry: &Registry<LiveTunnel>, live: &LiveTunnel) -> Vec<Arc<LiveTunnel>> {
    registry
        .tunnels()
        .filter(|(_, old)| old.identity == live.identity && old.instance != live.instance)
        .map(|(_, old)| Arc::clone(old))
        .collect()
}

/// Offers outside the token's scope were refused before; a later APPS cannot widen it.
fn offers(live: &Arc<LiveTunnel>, apps: &[AppOffer]) -> Vec<(Arc<str>, Offer<LiveTunnel>)> {
    apps.iter()
        .filter(|app| live.scope.covers(&app.name) && app.health != AppHealth::Draining)
        .map(|app| {
            let offer = Offer {
                number: live.number,
                weight: app.weight.max(1),
                health: health(app.health),
                upstream_host: app.upstream_host.as_str().into(),
                tunnel: Arc::clone(live),
            };
            (Arc::from(app.name.as_str()), offer)
        })
        .collect()
}

fn health(health: AppHealth) -> Health {
    match health {
        AppHealth::Ready => Health::Ready,
        AppHealth::Unknown => Health::Unknown,
        AppHealth::Starting | AppHealth::Failing | AppHealth::Draining => Health::Down,
    }
}
