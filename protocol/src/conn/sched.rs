//! What goes out next: tunnel control, stream control, first bytes of exchanges, then bulk in turn.
//!
//! Every queue is bounded by the number of streams, because a stream stands in each at most once
//! and the keys of gone streams are purged; tunnel control keeps only the latest of each kind.

use std::collections::VecDeque;

use crate::wire::Frame;

use super::store::StreamKey;

/// Bytes one stream may send before the next has its turn.
pub(super) const SLICE: usize = 16 * 1024;

/// Terminals for streams never opened that may wait at once; no honest gateway comes near.
const MAX_ORPHANS: usize = 1024;

/// Keys of gone streams that may stand in a queue before it is purged.
const SLACK: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Sched {
    pong: Option<[u8; 8]>,
    ping: Option<[u8; 8]>,
    apps: Option<Frame>,
    goaway: Option<Frame>,
    /// Terminals of streams whose OPEN never came; bounded, more is a breach.
    orphans: VecDeque<Frame>,
    control: VecDeque<StreamKey>,
    fresh: VecDeque<StreamKey>,
    bulk: VecDeque<StreamKey>,
}

impl Sched {
    /// Echoes are coalesced: a flood of pings costs one pong a turn.
    pub(super) fn pong(&mut self, bytes: [u8; 8]) {
        self.pong = Some(bytes);
    }

    pub(super) fn ping(&mut self, bytes: [u8; 8]) {
        self.ping = Some(bytes);
    }

    pub(super) fn apps(&mut self, frame: Frame) {
        self.apps = Some(frame);
    }

    pub(super) fn goaway(&mut self, frame: Frame) {
        self.goaway = Some(frame);
    }

    pub(super) fn orphan(&mut self, terminal: Frame) -> Result<(), &'static str> {
        if self.orphans.len() >= MAX_ORPHANS {
            return Err("too many frames for streams that were never opened");
        }
        self.orphans.push_back(terminal);
        Ok(())
    }

    pub(super) fn control(&mut self, key: StreamKey) {
        self.control.push_back(key);
    }

    pub(super) fn data(&mut self, key: StreamKey, fresh: bool) {
        if fresh {
            self.fresh.push_back(key);
        } else {
            self.bulk.push_back(key);
        }
    }

    /// True if most of what stands here belongs to streams that are gone: streams opened and given
    /// up while the carrier takes nothing leave their keys behind.
    pub(super) fn is_crowded(&self, streams: usize) -> bool {
        let bound = 2 * streams + SLACK;
        self.control.len() > bound || self.fresh.len() + self.bulk.len() > bound
    }

    /// Drops the keys of streams that are gone.
    pub(super) fn purge(&mut self, lives: impl Fn(StreamKey) -> bool) {
        self.control.retain(|key| lives(*key));
        self.fresh.retain(|key| lives(*key));
        self.bulk.retain(|key| lives(*key));
    }

    /// Keys that stand in any queue.
    #[cfg(test)]
    pub(super) fn standing(&self) -> usize {
        self.control.len() + self.fresh.len() + self.bulk.len() + self.orphans.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pong.is_none()
            && self.ping.is_none()
            && self.apps.is_none()
            && self.goaway.is_none()
            && self.orphans.is_empty()
            && self.control.is_empty()
            && self.fresh.is_empty()
            && self.bulk.is_empty()
    }

    pub(super) fn next_tunnel_frame(&mut self) -> Option<Frame> {
        if let Some(bytes) = self.pong.take() {
            return Some(Frame::Pong(bytes));
        }
        if let Some(bytes) = self.ping.take() {
            return Some(Frame::Ping(bytes));
        }
        self.apps
            .take()
            .or_else(|| self.goaway.take())
            .or_else(|| self.orphans.pop_front())
    }

    pub(super) fn next_control(&mut self) -> Option<StreamKey> {
        self.control.pop_front()
    }

    pub(super) fn next_data(&mut self) -> Option<StreamKey> {
        self.fresh.pop_front().or_else(|| self.bulk.pop_front())
    }
}
