//! Who offers what: an immutable snapshot of tunnels by app. Pure.
//!
//! A change makes a new snapshot. Invariants: an entry stands at most once; removal names the entry
//! by its number, so a late removal never takes away a newer tunnel of the same agent; offers keep
//! the order in which tunnels arrived.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a tunnel in this process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelNumber(pub u64);

/// What an agent says about one app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Its port answered.
    Ready,
    /// Nothing is known.
    Unknown,
    /// It refuses, or starts, or is being removed.
    Down,
}

/// One app offered through one tunnel.
#[derive(Debug)]
pub struct Offer<T> {
    /// The tunnel's number.
    pub number: TunnelNumber,
    /// Share of the load relative to other offers of the app; at least 1.
    pub weight: u8,
    /// What the agent says.
    pub health: Health,
    /// Host header the agent asked for; empty = the client's own.
    pub upstream_host: Arc<str>,
    /// The tunnel.
    pub tunnel: Arc<T>,
}

impl<T> Clone for Offer<T> {
    fn clone(&self) -> Self {
        Self {
            upstream_host: Arc::clone(&self.upstream_host),
            tunnel: Arc::clone(&self.tunnel),
            ..*self
        }
    }
}

/// A snapshot.
#[derive(Debug)]
pub struct Registry<T> {
    tunnels: BTreeMap<TunnelNumber, Arc<T>>,
    offers: BTreeMap<Arc<str>, Arc<[Offer<T>]>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            tunnels: BTreeMap::new(),
            offers: BTreeMap::new(),
        }
    }
}

impl<T> Registry<T> {
    /// The offers of an app; empty if nobody serves it.
    #[must_use]
    pub fn offers(&self, app: &str) -> &[Offer<T>] {
        self.offers.get(app).map_or(&[], |offers| offers)
    }

    /// Every tunnel, oldest first.
    pub fn tunnels(&self) -> impl Iterator<Item = (TunnelNumber, &Arc<T>)> {
        self.tunnels
            .iter()
            .map(|(number, tunnel)| (*number, tunnel))
    }

    /// Every app that is offered, by name.
    pub fn apps(&self) -> impl Iterator<Item = &Arc<str>> {
        self.offers.keys()
    }

    /// The snapshot with `tunnel` offering exactly `offers` (name, offer), whatever it offered before.
    #[must_use]
    pub fn with(
        &self,
        number: TunnelNumber,
        tunnel: &Arc<T>,
        offers: Vec<(Arc<str>, Offer<T>)>,
    ) -> Self {
        let mut next = self.without(number);
        next.tunnels.insert(number, Arc::clone(tunnel));
        for (app, offer) in offers {
            debug_assert_eq!(offer.number, number);
            let mut list = next.offers(&app).to_vec();
            let at = list.partition_point(|other| other.number < number);
            list.insert(at, offer);
            next.offers.insert(app, list.into());
        }
        next
    }

    /// The snapshot without that tunnel.
    #[must_use]
    pub fn without(&self, number: TunnelNumber) -> Self {
        let mut tunnels = self.tunnels.clone();
        tunnels.remove(&number);
        let mut offers = BTreeMap::new();
        for (app, list) in &self.offers {
            if !list.iter().any(|offer| offer.number == number) {
                offers.insert(Arc::clone(app), Arc::clone(list));
                continue;
            }
            let kept: Vec<Offer<T>> = list
                .iter()
                .filter(|offer| offer.number != number)
                .cloned()
                .collect();
            if !kept.is_empty() {
                offers.insert(Arc::clone(app), kept.into());
            }
        }
        Self { tunnels, offers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(number: u64, tunnel: &Arc<String>) -> (Arc<str>, Offer<String>) {
        let offer = Offer {
            number: TunnelNumber(number),
            weight: 1,
            health: Health::Ready,
            upstream_host: "".into(),
            tunnel: Arc::clone(tunnel),
        };
        ("demo".into(), offer)
    }

    fn numbers(registry: &Registry<String>) -> Vec<u64> {
        registry.offers("demo").iter().map(|o| o.number.0).collect()
    }

    #[test]
    fn a_late_removal_never_takes_a_newer_tunnel_away() {
        let (old, new) = (Arc::new("old".to_owned()), Arc::new("new".to_owned()));
        let registry = Registry::default()
            .with(TunnelNumber(1), &old, vec![offer(1, &old)])
            .with(TunnelNumber(2), &new, vec![offer(2, &new)])
            .without(TunnelNumber(1))
            .without(TunnelNumber(1));
        assert_eq!(numbers(&registry), [2]);
    }

    #[test]
    fn a_new_list_replaces_the_old_one_of_the_same_tunnel() {
        let tunnel = Arc::new("t".to_owned());
        let registry = Registry::default().with(TunnelNumber(1), &tunnel, vec![offer(1, &tunnel)]);
        assert_eq!(
            registry
                .with(TunnelNumber(1), &tunnel, Vec::new())
                .offers("demo")
                .len(),
            0
        );
        assert_eq!(
            numbers(&registry.with(TunnelNumber(1), &tunnel, vec![offer(1, &tunnel)])),
            [1]
        );
    }

    #[test]
    fn an_old_snapshot_does_not_change() {
        let tunnel = Arc::new("t".to_owned());
        let before = Registry::default();
        let after = before.with(TunnelNumber(7), &tunnel, vec![offer(7, &tunnel)]);
        assert_eq!((numbers(&before).len(), numbers(&after)), (0, vec![7]));
    }
}
