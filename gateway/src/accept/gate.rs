//! How many connections there may be, in all and from one address.
//!
//! Shared by every worker's listeners. A place is a [`Permit`]; dropping it gives the place back, so
//! the counts are right on every exit. Whoever finds no place, or ends before it is anybody's client, is
//! counted here by the reason.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::seldom::Seldom;
use crate::telemetry::labels::{ConnectionRefused, TlsFailure};
use crate::telemetry::metrics::ListenerMetrics;

/// One client for the count: an IPv4 address, or the /64 that one IPv6 customer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    V4(u32),
    V6(u64),
}

impl Origin {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            // The high half is the network.
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// The bounds and the counts.
#[derive(Debug)]
pub struct Gate {
    most: AtomicUsize,
    most_per_origin: AtomicUsize,
    open: AtomicUsize,
    by_origin: Mutex<HashMap<Origin, usize>>,
    numbers: AtomicU64,
    at_the_door: AtomicUsize,
    counts: ListenerMetrics,
    warned: Mutex<Seldom>,
}

/// Connections without a place that are told so at the same time; the others are reset.
const AT_THE_DOOR: usize = 64;

impl Gate {
    /// A gate for `most` connections, `most_per_origin` of them from one address. `counts` those without
    /// a place.
    #[must_use]
    pub fn new(most: usize, most_per_origin: usize, counts: ListenerMetrics) -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(most),
            most_per_origin: AtomicUsize::new(most_per_origin),
            open: AtomicUsize::new(0),
            by_origin: Mutex::new(HashMap::new()),
            numbers: AtomicU64::new(0),
            at_the_door: AtomicUsize::new(0),
            counts,
            warned: Mutex::default(),
        })
    }

    /// So many there may be from now on. Those that are open stay.
    pub fn resize(&self, most: usize, most_per_origin: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.most_per_origin
            .store(most_per_origin, Ordering::Relaxed);
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that were refused for that reason, since the start.
    #[cfg(test)]
    pub(super) fn refused(&self, reason: ConnectionRefused) -> u64 {
        self.counts.refused_now(reason)
    }

    /// A place for one more connection, if there is one.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Option<Permit> {
        let below = |open: usize| (open < self.most.load(Ordering::Relaxed)).then_some(open + 1);
        let entered = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        if entered.is_err() {
            self.counts.refused(ConnectionRefused::Connections);
            return None;
        }
        Some(Permit {
            gate: Arc::clone(self),
            origin: None,
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
        })
    }

    /// Room to tell one connection that there is no place for it.
    #[must_use]
    pub fn door(self: &Arc<Self>) -> Option<DoorPlace> {
        let place = DoorPlace(Arc::clone(self));
        (self.at_the_door.fetch_add(1, Ordering::Relaxed) < AT_THE_DOOR).then_some(place)
    }

    fn origins(&self) -> MutexGuard<'_, HashMap<Origin, usize>> {
        self.by_origin
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection that is being told; given back by its drop.
#[derive(Debug)]
pub struct DoorPlace(Arc<Gate>);

impl Drop for DoorPlace {
    fn drop(&mut self) {
        self.0.at_the_door.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of one connection.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    origin: Option<Origin>,
    number: u64,
}

impl Permit {
    /// Number of the connection in this process, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// See [`Gate::door`].
    #[must_use]
    pub fn door(&self) -> Option<DoorPlace> {
        self.gate.door()
    }

    /// Count the connection for `address`, once that is known; false if the address has too many.
    #[must_use]
    pub fn claim(&mut self, address: IpAddr) -> bool {
        debug_assert!(self.origin.is_none(), "an address is claimed once");
        let origin = Origin::of(address);
        let mut origins = self.gate.origins();
        let open = origins.entry(origin).or_insert(0);
        if *open >= self.gate.most_per_origin.load(Ordering::Relaxed) {
            self.gate.counts.refused(ConnectionRefused::PerIp);
            return false;
        }
        *open += 1;
        drop(origins);
        self.origin = Some(origin);
        true
    }
}

impl Permit {
    /// The count for its address as a guard of its own, for a connection that counts only until it is
    /// known who it is.
    #[must_use]
    pub fn split_claim(&mut self) -> Option<Claim> {
        self.origin.take().map(|origin| Claim {
            gate: Arc::clone(&self.gate),
            origin,
        })
    }

    /// Count that the connection is refused although it had a place.
    pub fn refused(&self, reason: ConnectionRefused) {
        self.gate.counts.refused(reason);
    }

    /// Count that its TLS handshake came to nothing.
    pub fn tls_failed(&self, failure: TlsFailure) {
        self.gate.counts.tls_failed(failure);
    }

    /// How many refused connections to warn of, this one included, if it is time for a warning.
    #[must_use]
    pub(super) fn worth_a_warning(&self) -> Option<u64> {
        let mut warned = self
            .gate
            .warned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        warned.one(Instant::now())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.open.fetch_sub(1, Ordering::Relaxed);
        drop(self.split_claim());
    }
}

/// The count of one connection for its address; taken back by its drop.
#[derive(Debug)]
#[must_use = "the count is taken back when this is dropped"]
pub struct Claim {
    gate: Arc<Gate>,
    origin: Origin,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut origins = self.gate.origins();
        if let Some(open) = origins.get_mut(&self.origin) {
            *open -= 1;
            if *open == 0 {
                origins.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::Listener;
    use crate::telemetry::metrics::Metrics;

    fn gate(most: usize, most_per_origin: usize) -> Arc<Gate> {
        let counts = Metrics::new().listener(Listener::Public);
        Gate::new(most, most_per_origin, counts)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_place_is_given_back_on_every_exit() {
        let gate = gate(2, 2);
        let first = gate.enter().expect("a place");
        let second = gate.enter().expect("a place");
        assert!(gate.enter().is_none());
        let refused = gate.refused(ConnectionRefused::Connections);
        assert_eq!((gate.open(), refused), (2, 1));
        assert_eq!((first.number(), second.number()), (1, 2));
        drop(first);
        assert!(gate.enter().is_some());
        drop(second);
        assert_eq!(gate.open(), 0);
    }

    #[test]
    fn a_smaller_gate_keeps_who_is_in_and_lets_nobody_in_until_enough_have_left() {
        let gate = gate(2, 2);
        let inside = [gate.enter(), gate.enter()];
        gate.resize(1, 1);
        assert_eq!((gate.open(), gate.enter().is_none()), (2, true));
        drop(inside);
        let mut first = gate.enter().expect("a place");
        assert!(first.claim(ip("192.0.2.1")) && gate.enter().is_none());
        gate.resize(9, 1);
        let mut second = gate.enter().expect("a place");
        assert!(!second.claim(ip("192.0.2.1")));
    }

    #[test]
    fn an_address_has_room_again_once_it_is_known_who_is_behind_it() {
        let gate = gate(9, 1);
        let mut known = gate.enter().expect("a place");
        assert!(known.claim(ip("192.0.2.1")));
        let claim = known.split_claim().expect("it was claimed");
        let mut next = gate.enter().expect("a place");
        assert!(!next.claim(ip("192.0.2.1")));
        assert_eq!(gate.refused(ConnectionRefused::PerIp), 1);
        drop(claim);
        let mut next = gate.enter().expect("a place");
        assert!(next.claim(ip("192.0.2.1")));
        drop(known);
        assert!(!gate.enter().expect("a place").claim(ip("192.0.2.1")));
        drop(next);
        assert!(gate.origins().is_empty());
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let gate = gate(100, 1);
        let claim = |address: &str| {
            let mut permit = gate.enter().expect("a place");
            permit.claim(ip(address)).then_some(permit)
        };
        let held = claim("192.0.2.1");
        assert!(held.is_some());
        assert!(claim("192.0.2.1").is_none());
        assert!(claim("::ffff:192.0.2.1").is_none(), "the same client");
        let six = claim("2001:db8::1");
        assert!(six.is_some());
        assert!(claim("2001:db8::ffff:1").is_none(), "the same /64");
        assert!(claim("2001:db8:0:1::1").is_some());
        drop(held);
        assert!(claim("192.0.2.1").is_some());
        drop(six);
        assert!(
            gate.origins().is_empty(),
            "nothing is remembered of who left"
        );
    }
}
