//! The registry with its running tunnels, shared by all workers: look up, take, change.
//!
//! Lookups read a snapshot without a lock. Changes are rare and serialised by a short lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use bridgehead_protocol::handshake::{Identity, Scope};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::wire::{AppHealth, AppOffer, GoAwayReason};

use super::pick::{Candidate, pick};
use super::pool::{Pool, PoolLimits};
use super::registry::{Health, Offer, Registry, TunnelNumber};

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
    /// Apps it may ever offer.
    pub scope: Scope,
    /// What carries it: `tcp`, `tls`, `ws` or `wss`.
    pub carrier: &'static str,
    /// Where the agent dialled from.
    pub peer: std::net::SocketAddr,
    /// Since when.
    pub since: SystemTime,
    /// The tunnel itself.
    pub tunnel: Tunnel,
    /// Kept connections, shared by the tunnels of one start of an agent.
    pub pool: Arc<Pool>,
    /// The worker it lives on.
    thread: ThreadId,
    /// Takes no new exchange although the tunnel still would (takeover, drain).
    pub retired: AtomicBool,
    in_flight: AtomicUsize,
}

/// What is needed to make a [`LiveTunnel`].
pub struct NewTunnel {
    /// See [`LiveTunnel::id`].
    pub id: Arc<str>,
    /// See [`LiveTunnel::identity`].
    pub identity: Identity,
    /// See [`LiveTunnel::instance`].
    pub instance: u128,
    /// See [`LiveTunnel::scope`].
    pub scope: Scope,
    /// See [`LiveTunnel::carrier`].
    pub carrier: &'static str,
    /// See [`LiveTunnel::peer`].
    pub peer: std::net::SocketAddr,
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Bounds of its pool.
    pub pool: PoolLimits,
}

impl LiveTunnel {
    /// True while exchanges may begin here.
    #[must_use]
    pub fn is_accepting(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && self.tunnel.is_accepting()
    }

    /// Cuts it: its token is no longer valid.
    pub fn revoke(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.tunnel
            .drain(GoAwayReason::Revoked, std::time::Duration::ZERO);
        self.tunnel.close();
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
    next: AtomicU64,
    turn: AtomicU64,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            registry: ArcSwap::default(),
            change: Mutex::default(),
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
            let free = only.tunnel.is_accepting() && !avoid.contains(&only.number);
            return free.then(|| Place::new(only));
        }
        let candidates: Vec<Candidate> = offers.iter().map(candidate).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let picked = &offers[pick(&candidates, avoid, turn)?];
        Some(Place::new(near(offers, picked, avoid)))
    }

    /// A place on exactly that tunnel, if it takes exchanges with `app`.
    #[must_use]
    pub fn take_on(&self, number: TunnelNumber, app: &str) -> Option<Place> {
        let registry = self.registry.load();
        let offers = registry.offers(app).iter();
        offers
            .filter(|offer| offer.number == number && offer.tunnel.is_accepting())
            .map(Place::new)
            .next()
    }

    /// The snapshot now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Registry<LiveTunnel>> {
        self.registry.load_full()
    }

    /// Adds a tunnel that offers `apps`. Tunnels of the same identity with another instance are
    /// retired: a newer start of an agent takes over. Answers the tunnel and those it replaced.
    pub fn add(
        &self,
        new: NewTunnel,
        apps: &[AppOffer],
    ) -> (Arc<LiveTunnel>, Vec<Arc<LiveTunnel>>) {
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
        let live = Arc::new(LiveTunnel {
            number,
            id: new.id,
            agent: new.identity.agent.as_str().into(),
            identity: new.identity,
            instance: new.instance,
            scope: new.scope,
            carrier: new.carrier,
            peer: new.peer,
            since: SystemTime::now(),
            tunnel: new.tunnel,
            pool,
            thread: std::thread::current().id(),
            retired: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        });
        let replaced = older_instances(&registry, &live);
        for old in &replaced {
            old.retired.store(true, Ordering::Relaxed);
        }
        let next = registry.with(number, &live, offers(&live, apps));
        self.registry.store(Arc::new(next));
        (live, replaced)
    }

    /// The tunnel offers exactly `apps` from now on. A tunnel that was removed stays removed.
    pub fn offer(&self, live: &Arc<LiveTunnel>, apps: &[AppOffer]) {
        self.change(|registry| {
            if registry.tunnels().any(|(number, _)| number == live.number) {
                registry.with(live.number, live, offers(live, apps))
            } else {
                registry.without(live.number)
            }
        });
    }

    /// Forgets a tunnel.
    pub fn remove(&self, number: TunnelNumber) {
        self.change(|registry| registry.without(number));
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
            && offer.tunnel.is_accepting()
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
        accepting: offer.tunnel.is_accepting(),
    }
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
