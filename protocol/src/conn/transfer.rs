//! Bytes through a stream, the same on both sides: room, writing, ending, reading.

use bytes::Bytes;

use crate::time::Moment;

use super::Conn;
use super::flow::Due;
use super::store::StreamKey;

impl Conn {
    /// Bytes that [`Conn::write`] would take now; zero also when writing is over (see [`Conn::is_writable`]).
    #[must_use]
    pub fn room(&self, key: StreamKey) -> usize {
        self.store
            .get(key)
            .filter(|s| s.ended.is_none())
            .map_or(0, |s| {
                s.out.room(self.settings.queue_limit, self.retain_limit())
            })
    }

    /// False once nothing will ever be taken again.
    #[must_use]
    pub fn is_writable(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_some_and(|s| s.ended.is_none() && !s.out.is_shut() && !s.out.is_finished())
    }

    /// Takes bytes from the front of `bytes`, as many as there is room for; answers how many.
    pub fn write(&mut self, key: StreamKey, bytes: &mut Bytes) -> usize {
        let count = self.room(key).min(bytes.len());
        self.write_all(key, bytes.split_to(count));
        count
    }

    /// Takes all of `bytes`, for a writer that cannot give them back; it asked [`Conn::room`] before, and
    /// what another thread changed since then (a shorter path keeps less) must not cost a byte.
    /// Nothing is taken once writing is over.
    pub fn write_all(&mut self, key: StreamKey, bytes: Bytes) {
        if bytes.is_empty() || !self.is_writable(key) {
            return;
        }
        if let Some(stream) = self.store.find(key) {
            stream.out.push(bytes);
            if std::mem::take(&mut stream.untold_begin) {
                self.tell(self.latest, key, Due::Any);
            }
            self.offer(key);
        }
    }

    /// Ends this side's direction after what was written.
    pub fn finish(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && stream.ended.is_none()
            && !stream.out.is_shut()
        {
            stream.out.finish();
            self.offer(key);
        }
    }

    /// True once nothing more can become of what was written: the peer consumed it and its end, or
    /// the stream has its terminal. If both directions have ended, the terminal is about to come
    /// and is waited for; a reset before it would cut what the app has still to be given.
    #[must_use]
    pub fn is_flushed(&self, key: StreamKey) -> bool {
        self.store.get(key).is_none_or(|s| {
            s.ended.is_some() || s.out.is_shut() || (s.out.is_taken() && !s.inn.fin())
        })
    }

    /// Up to `max` received bytes; they count as consumed. `None`: nothing is there.
    pub fn read(&mut self, now: Moment, key: StreamKey, max: usize) -> Option<Bytes> {
        let stream = self.store.find(key)?;
        let bytes = stream.inn.take(max)?;
        self.told_or_later(now, key);
        Some(bytes)
    }

    /// True once the peer's direction has ended and everything was read.
    #[must_use]
    pub fn is_read_out(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_none_or(|s| s.inn.is_empty() && (s.inn.fin() || s.ended.is_some()))
    }

    /// True once the peer ended its direction in order (FIN) and everything was read. Never after unread
    /// bytes were dropped, as by a reset: what is missing then must not look like a clean end.
    #[must_use]
    pub fn is_read_to_fin(&self, key: StreamKey) -> bool {
        self.store.get(key).is_some_and(|s| s.inn.is_read_to_fin())
    }
}
