//! What goes out next: tunnel control, stream control, first bytes of exchanges, then bulk in turn.
//!
//! Every queue is bounded by the number of streams, because a stream stands in each at most once
//! and the keys of gone streams are purged; tunnel control keeps only the latest of each kind.

use std::collections::{BTreeSet, VecDeque};

use crate::wire::{Frame, ReportEntry, StreamId};

use super::store::StreamKey;

/// Bytes one stream may send before the next has its turn.
pub(super) const SLICE: usize = 16 * 1024;

/// Terminals reported in one turn: as many bytes as one stream's turn.
const REPORTED_AT_ONCE: usize = SLICE / 37;

/// Keys of gone streams that may stand in a queue before it is purged.
const SLACK: usize = 64;

/// An echo goes out behind all stream control that stood when the ping came: an agent that slept
/// takes it as the word that nothing older is under way.
#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
struct Pong {
    bytes: [u8; 8],
    behind: usize,
}

#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Sched {
    /// Offsets, before anything else on a new carrier.
    statement: Option<Frame>,
    pong: Option<Pong>,
    ping: Option<[u8; 8]>,
    apps: Option<Frame>,
    goaway: Option<Frame>,
    /// Terminals to acknowledge.
    done: BTreeSet<StreamId>,
    reports: Vec<ReportEntry>,
    reported: usize,
    control: VecDeque<StreamKey>,
    fresh: VecDeque<StreamKey>,
    bulk: VecDeque<StreamKey>,
}

impl Sched {
    /// Echoes are coalesced: a flood of pings costs one pong a turn.
    pub(super) fn pong(&mut self, bytes: [u8; 8]) {
        self.pong = Some(Pong {
            bytes,
            behind: self.control.len(),
        });
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

    /// A terminal was received; answers how many wait to be acknowledged.
    pub(super) fn done(&mut self, id: StreamId) -> usize {
        self.done.insert(id);
        self.done.len()
    }

    pub(super) fn report(&mut self, entries: Vec<ReportEntry>) {
        self.reports.extend(entries);
    }

    /// The carrier is gone: what only meant it is void.
    pub(super) fn hush(&mut self) {
        self.statement = None;
        self.pong = None;
        self.ping = None;
        self.done.clear();
    }

    /// The tunnel is over: of all that waited only the goodbye goes out.
    pub(super) fn close(&mut self) {
        let (statement, goaway) = (self.statement.take(), self.goaway.take());
        *self = Self {
            statement,
            goaway,
            ..Self::default()
        };
    }

    /// The first word on a new carrier.
    pub(super) fn state(&mut self, statement: Frame) {
        self.statement = Some(statement);
    }

    /// Begins the queues of streams anew; answers whose control waited, in order.
    pub(super) fn restart(&mut self) -> VecDeque<StreamKey> {
        self.fresh.clear();
        self.bulk.clear();
        self.reported = 0;
        std::mem::take(&mut self.control)
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
        if let Some(pong) = &mut self.pong {
            pong.behind = pong.behind.min(self.control.len());
        }
        self.fresh.retain(|key| lives(*key));
        self.bulk.retain(|key| lives(*key));
    }

    /// Keys that stand in any queue.
    #[cfg(test)]
    pub(super) fn standing(&self) -> usize {
        self.control.len() + self.fresh.len() + self.bulk.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_preamble()
            && self.pong.is_none()
            && self.done.is_empty()
            && self.reported == self.reports.len()
            && self.apps.is_none()
            && self.goaway.is_none()
            && self.control.is_empty()
            && self.fresh.is_empty()
            && self.bulk.is_empty()
    }

    pub(super) fn has_preamble(&self) -> bool {
        self.statement.is_some() || self.ping.is_some()
    }

    /// What may go out before the peer has stated its offsets.
    pub(super) fn next_preamble(&mut self) -> Option<Frame> {
        self.statement
            .take()
            .or_else(|| self.ping.take().map(Frame::Ping))
    }

    /// Acknowledgements stand before every OPEN, so that an agent never counts a stream twice.
    pub(super) fn next_tunnel_frame(&mut self) -> Option<Frame> {
        if !self.done.is_empty() {
            let ids = std::mem::take(&mut self.done);
            return Some(Frame::Done(ids.into_iter().collect()));
        }
        self.apps.take().or_else(|| self.goaway.take())
    }

    pub(super) fn next_pong(&mut self) -> Option<Frame> {
        let pong = self.pong.take_if(|pong| pong.behind == 0)?;
        Some(Frame::Pong(pong.bytes))
    }

    pub(super) fn next_control(&mut self) -> Option<StreamKey> {
        if let Some(pong) = &mut self.pong {
            pong.behind = pong.behind.saturating_sub(1);
        }
        self.control.pop_front()
    }

    /// A turn's worth of what is reported.
    pub(super) fn next_report(&mut self) -> Option<Frame> {
        let end = self.reports.len().min(self.reported + REPORTED_AT_ONCE);
        let part = &self.reports[self.reported..end];
        self.reported = end;
        (!part.is_empty()).then(|| Frame::Report(part.to_vec()))
    }

    /// The peer has received everything that was reported.
    pub(super) fn forget_reports(&mut self) {
        self.reports = Vec::new();
        self.reported = 0;
    }

    pub(super) fn has_reported_all(&self) -> bool {
        self.reported == self.reports.len()
    }

    pub(super) fn next_data(&mut self) -> Option<StreamKey> {
        self.fresh.pop_front().or_else(|| self.bulk.pop_front())
    }
}
