//! How a world ends: lost, let go of, or drained of every byte.

use super::*;

impl World {
    /// The tunnel is lost; the agent knows what became of every stream that ever reached it and whose
    /// terminal did not reach the gateway.
    pub(super) fn lose(&mut self) {
        if std::mem::replace(&mut self.cut, true) {
            return;
        }
        let open: Vec<_> = self
            .pair
            .gateway
            .store
            .iter()
            .filter_map(|s| s.id.filter(|_| s.ended.is_none()))
            .filter(|id| id.0 <= self.pair.agent.highest_open)
            .collect();
        self.pair.gateway.lose();
        self.pair.agent.lose();
        let fates: BTreeMap<_, _> = self
            .pair
            .agent
            .take_fates()
            .into_iter()
            .map(|fate| (fate.stream, fate))
            .collect();
        for id in open {
            assert!(fates.contains_key(&id), "{id:?} is forgotten: {fates:?}");
        }
        for (id, fate) in fates {
            let took = self.ids.get(&id).map_or(0, |key| self.known[key].took);
            assert_eq!(fate.written, took, "{fate:?}");
        }
    }

    /// Lets go of everything; nothing may be left.
    pub(super) fn end(mut self) {
        self.reconnect();
        for key in self.gateway.clone() {
            if !self.known[&key].released {
                self.known.get_mut(&key).unwrap().released = true;
                self.pair.gateway.release(key);
            }
        }
        self.settle();
        self.check();
        for app in std::mem::take(&mut self.agent) {
            self.pair.agent.let_go(app);
        }
        self.settle();
        self.advance(Duration::from_millis(100));
        for core in [&mut self.pair.gateway, &mut self.pair.agent] {
            assert_eq!(core.store.len(), 0, "{:?}", core.store);
            assert_eq!(core.store.live(), 0);
            if !self.cut {
                assert!(!core.wants_transmit());
            }
        }
    }

    /// Everything written is taken and read; then every byte of credit is back.
    pub(super) fn check_credit(&mut self) {
        let moved = |world: &Self| -> u64 { world.known.values().map(|k| k.took + k.read).sum() };
        self.reconnect();
        // A round may only open streams, or only pass marks.
        let mut idle = 0;
        while idle < 3 {
            let before = moved(self);
            self.settle();
            for app in self.agent.clone() {
                self.agent_step(&Op::AppOpened(0), app);
                self.agent_step(&Op::AppTakes(0, u16::MAX), app);
            }
            for key in self.gateway.clone() {
                if !self.known[&key].released {
                    self.gateway_step(&Op::Read(0, u16::MAX), key);
                }
            }
            self.check();
            idle = if moved(self) == before { idle + 1 } else { 0 };
        }
        self.advance(Duration::from_millis(100));
        if self.cut {
            return;
        }
        for (core, peer) in [
            (&self.pair.gateway, &self.pair.agent),
            (&self.pair.agent, &self.pair.gateway),
        ] {
            for stream in core.store.iter() {
                let given_up = stream.reset || stream.fenced.is_some() || stream.ended.is_some();
                let Some(other) = stream.id.and_then(|id| peer.store.by_id(id)) else {
                    continue;
                };
                let other = peer.store.get(other).unwrap();
                if given_up || other.phase != stream::Phase::Open {
                    continue;
                }
                assert_eq!(stream.out.consumed(), stream.out.end(), "all was consumed");
                let free = stream.out.free_credit();
                assert_eq!(free, other.inn.free_credit(), "both sides agree on it");
                assert!(free >= SETTINGS.initial_window.into(), "credit was lost");
            }
        }
    }
}
