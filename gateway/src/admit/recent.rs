//! A bounded memory of clients: who was seen last stays, who was not is forgotten.
//!
//! Two generations; when the young one is full it becomes the old one, and the old one is dropped.
//! So each step costs the same however many strangers come, and at most twice [`GENERATION`] are
//! kept. Looked up, never iterated.

use std::collections::HashMap;

use super::net::Client;

/// Clients of one generation; bounds the memory of one app's table to a few megabytes.
const GENERATION: usize = 8_192;

#[derive(Debug)]
pub(super) struct Recent<V> {
    young: HashMap<Client, V>,
    old: HashMap<Client, V>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<V> Recent<V> {
    pub(super) fn find(&mut self, client: Client) -> Option<&mut V> {
        if let Some(value) = self.old.remove(&client) {
            self.put(client, value);
        }
        self.young.get_mut(&client)
    }

    pub(super) fn put(&mut self, client: Client, value: V) {
        self.old.remove(&client);
        if self.young.len() >= GENERATION && !self.young.contains_key(&client) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(client, value);
    }

    pub(super) fn forget(&mut self, client: Client) {
        self.young.remove(&client);
        self.old.remove(&client);
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_never_make_it_grow_beyond_two_generations() {
        let mut recent = Recent::default();
        for n in 0..10 * GENERATION as u64 {
            recent.put(Client::Address(n), ());
            assert!(recent.len() <= 2 * GENERATION);
        }
    }

    #[test]
    fn who_is_seen_again_is_remembered_and_who_is_not_is_forgotten() {
        let mut recent = Recent::default();
        recent.put(Client::Address(u64::MAX), 7);
        recent.put(Client::Key([1; 16]), 8);
        for n in 0..4 * GENERATION as u64 {
            recent.put(Client::Address(n), 0);
            assert_eq!(recent.find(Client::Address(u64::MAX)).copied(), Some(7));
        }
        assert_eq!(recent.find(Client::Key([1; 16])), None);
    }
}
