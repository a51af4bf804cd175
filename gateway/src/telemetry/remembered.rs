//! The exchanges that `/v1/exchanges/ID` can tell of: all live ones and the last finished ones.
//!
//! Owns a bounded memory in shards, so that workers rarely meet at one lock. Invariant: at most
//! [`FINISHED`] finished exchanges are kept; live ones are bounded by admission.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::access::Exchange;

/// Finished exchanges that are kept, over all shards.
pub(super) const FINISHED: usize = 10_000;

/// A power of two; far more than workers, so that two of them seldom want the same lock.
const SHARDS: usize = 16;

#[derive(Debug)]
pub(super) struct Remembered {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<Uuid, Arc<Exchange>>,
    finished: VecDeque<Uuid>,
}

impl Remembered {
    pub(super) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn begin(&self, exchange: &Arc<Exchange>) {
        self.shard(exchange.id)
            .known
            .insert(exchange.id, Arc::clone(exchange));
    }

    /// Count the exchange as finished and forget the oldest finished one beyond the bound.
    pub(super) fn finish(&self, id: Uuid) {
        let mut shard = self.shard(id);
        shard.finished.push_back(id);
        let forgotten = if shard.finished.len() > FINISHED / SHARDS {
            shard.finished.pop_front()
        } else {
            None
        };
        let exchange = forgotten.and_then(|id| shard.known.remove(&id));
        drop(shard);
        // Freed outside the lock.
        drop(exchange);
    }

    pub(super) fn find(&self, id: Uuid) -> Option<Arc<Exchange>> {
        self.shard(id).known.get(&id).cloned()
    }

    fn shard(&self, id: Uuid) -> MutexGuard<'_, Shard> {
        // The last bits of a version 7 id are random.
        let index = usize::from(id.as_bytes()[15]) % SHARDS;
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
