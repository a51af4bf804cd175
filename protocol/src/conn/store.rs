//! Streams by key and by wire id. A key carries a generation, so that a stale key finds nothing.

use std::collections::BTreeMap;

use slab::Slab;

use crate::wire::StreamId;

use super::stream::Stream;

/// Handle of a stream inside one core; valid until the stream is released and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

impl StreamKey {
    /// Dense index for side tables; reused, so compare whole keys.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Store {
    slots: Slab<Stream>,
    by_id: BTreeMap<StreamId, StreamKey>,
    generation: u32,
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Streams with a wire id, that is, opened and not ended, or ended and not acknowledged.
    pub(super) fn live(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn insert(&mut self, make: impl FnOnce(StreamKey) -> Stream) -> StreamKey {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let index = u32::try_from(entry.key()).unwrap_or(u32::MAX);
        let key = StreamKey {
            index,
            generation: self.generation,
        };
        entry.insert(make(key));
        key
    }

    pub(super) fn bind(&mut self, id: StreamId, key: StreamKey) {
        self.by_id.insert(id, key);
    }

    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slots.get(key.index()).filter(|s| s.key == key)
    }

    pub(super) fn find(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.index()).filter(|s| s.key == key)
    }

    pub(super) fn by_id(&self, id: StreamId) -> Option<StreamKey> {
        self.by_id.get(&id).copied()
    }

    /// Frees the wire id: frames for it are ignored from now on.
    pub(super) fn unbind(&mut self, id: StreamId) {
        self.by_id.remove(&id);
    }

    pub(super) fn remove(&mut self, key: StreamKey) {
        if self.get(key).is_some() {
            let stream = self.slots.remove(key.index());
            if let Some(id) = stream.id {
                self.by_id.remove(&id);
            }
        }
    }

    /// Streams with a wire id, by id.
    pub(super) fn bound(&self) -> Vec<(StreamId, StreamKey)> {
        self.by_id.iter().map(|(id, key)| (*id, *key)).collect()
    }

    /// Keys in slab order; the order depends only on the history of calls.
    pub(super) fn keys(&self) -> Vec<StreamKey> {
        self.slots.iter().map(|(_, s)| s.key).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().map(|(_, s)| s)
    }
}
