//! Bytes of one stream in one direction: what is queued, emitted, retained, granted, consumed.
//!
//! Offsets are absolute from the stream's first byte. Invariants:
//! `base ≤ next ≤ end`, `next ≤ limit`, `high ≥ next` on the sending half;
//! `taken ≤ received ≤ granted` on the receiving half. Every byte received is returned as credit
//! exactly once, by being taken or by being dropped.

mod back;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::planted::Bug;
use crate::time::Moment;
use crate::wire::Begin;

use super::gather::{GATHER_BELOW, PINS_BELOW, gather};

#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct SendHalf {
    /// Emitted but not known to be consumed; kept for a resume.
    retained: VecDeque<Bytes>,
    queued: VecDeque<Bytes>,
    /// Marks to be emitted, and those emitted whose first byte is not known to be consumed.
    begins: VecDeque<Mark>,
    marks: VecDeque<Mark>,
    base: u64,
    next: u64,
    end: u64,
    high: u64,
    limit: u64,
    consumed: u64,
    /// Less than the tunnel would keep, if somebody bounds it.
    keeps: Option<u64>,
    fin: bool,
    fin_sent: bool,
    /// Nothing more is taken or emitted: forgotten, or finished.
    shut: bool,
    /// Bytes emitted since the exchange began; small means it goes before bulk.
    since_begin: u64,
}

/// Where an exchange begins, and when its time is over.
#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
struct Mark {
    at: u64,
    begin: Begin,
    deadline: Moment,
}

/// One piece to emit.
#[derive(Debug)]
pub(super) enum Piece {
    Begin(Begin),
    Data(Bytes, bool),
}

impl SendHalf {
    pub(super) fn grant(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Takes the peer's consumed offset; true if it advanced. An offset beyond what the peer can
    /// have received is a lie and refused.
    pub(super) fn consumed_to(&mut self, consumed: u64) -> Result<bool, ()> {
        if consumed > self.next {
            return Err(());
        }
        if consumed <= self.consumed {
            return Ok(false);
        }
        self.consumed = consumed;
        while self.marks.front().is_some_and(|mark| mark.at < consumed) {
            self.marks.pop_front();
        }
        while let Some(front) = self.retained.front_mut() {
            let len = front.len() as u64;
            if self.base + len <= consumed {
                self.base += len;
                self.retained.pop_front();
            } else {
                if consumed > self.base {
                    let cut = usize::try_from(consumed - self.base).unwrap_or(front.len());
                    drop(front.split_to(cut));
                    self.base = consumed;
                }
                break;
            }
        }
        Ok(true)
    }

    /// Bounds what is kept, or lets it be what the tunnel keeps. What is there already stays.
    pub(super) fn keep_at_most(&mut self, most: Option<u64>) {
        self.keeps = most;
    }

    /// Bytes that may be taken from the source now.
    pub(super) fn room(&self, queue_limit: usize, retain_limit: u64) -> usize {
        if self.shut || self.fin {
            return 0;
        }
        let queued = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let queue = queue_limit.saturating_sub(queued);
        let most = self
            .keeps
            .map_or(retain_limit, |keeps| keeps.min(retain_limit));
        let retain = most.saturating_sub(self.end - self.consumed);
        let credit = self.limit.saturating_sub(self.end);
        queue.min(usize::try_from(retain.min(credit)).unwrap_or(usize::MAX))
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        debug_assert!(!self.shut && !self.fin);
        if !bytes.is_empty() {
            self.end += bytes.len() as u64;
            self.queued.push_back(bytes);
        }
    }

    pub(super) fn begin(&mut self, now: Moment, begin: Begin) -> u64 {
        if !self.shut {
            self.begins.push_back(Mark {
                at: self.end,
                begin,
                deadline: now + begin.remaining,
            });
        }
        self.since_begin = 0;
        self.end
    }

    /// The peer's exchange began: the next bytes of this half are its first.
    pub(super) fn mark_fresh(&mut self) {
        self.since_begin = 0;
    }

    pub(super) fn finish(&mut self) {
        self.fin = true;
    }

    /// Drops all that was not emitted, and what was kept; returns the highest offset ever emitted.
    pub(super) fn forget(&mut self) -> u64 {
        self.queued.clear();
        self.retained.clear();
        self.begins.clear();
        self.marks.clear();
        self.end = self.next;
        self.base = self.next;
        self.shut = true;
        self.high
    }

    /// Drops what was not emitted; what was stays, because the next carrier may have to carry it.
    pub(super) fn abandon(&mut self) {
        self.queued.clear();
        self.begins.clear();
        self.end = self.next;
        self.fin = self.fin_sent;
    }

    pub(super) fn has_piece(&self) -> bool {
        if self.begins.front().is_some_and(|mark| mark.at == self.next) {
            return true;
        }
        (self.next < self.end && self.next < self.limit) || self.owes_fin()
    }

    fn owes_fin(&self) -> bool {
        self.fin && !self.fin_sent && !self.shut && self.next == self.end
    }

    /// FIN was emitted and the peer consumed all before it.
    pub(super) fn is_taken(&self) -> bool {
        self.fin_sent && self.consumed == self.end
    }

    pub(super) fn is_fresh(&self, slice: u64) -> bool {
        self.since_begin < slice
    }

    /// Everything taken has been emitted (or forgotten).
    pub(super) fn is_drained(&self) -> bool {
        self.next == self.end && (!self.fin || self.fin_sent || self.shut)
    }

    pub(super) fn next_piece(&mut self, now: Moment, max: usize) -> Option<Piece> {
        if self.begins.front().is_some_and(|mark| mark.at == self.next) {
            let mark = self.begins.pop_front()?;
            let mut begin = mark.begin;
            begin.remaining = begin.remaining.min(mark.deadline.since(now));
            self.marks.push_back(mark);
            return Some(Piece::Begin(begin));
        }
        let mut allow = self.limit.saturating_sub(self.next).min(max as u64);
        if let Some(mark) = self.begins.front() {
            allow = allow.min(mark.at - self.next);
        }
        let allow = usize::try_from(allow).unwrap_or(max);
        let owes_fin = self.owes_fin();
        let bytes = match self.queued.front_mut() {
            Some(front) if allow > 0 && front.len() > allow => front.split_to(allow),
            Some(_) if allow > 0 => self.queued.pop_front().unwrap_or_default(),
            _ if owes_fin => Bytes::new(),
            _ => return None,
        };
        self.next += bytes.len() as u64;
        self.since_begin += bytes.len() as u64;
        self.high = self.high.max(self.next);
        if !bytes.is_empty() {
            self.retain(&bytes);
        }
        // A mark may stand where the stream ends; the end comes after it.
        let fin = self.fin && self.next == self.end && self.begins.is_empty();
        self.fin_sent |= fin;
        Some(Piece::Data(bytes, fin))
    }

    fn retain(&mut self, bytes: &Bytes) {
        let gathered = bytes.len() < GATHER_BELOW
            && self
                .retained
                .back_mut()
                .is_some_and(|last| gather(last, bytes));
        if !gathered {
            self.retained.push_back(bytes.clone());
        }
    }

    pub(super) fn emitted(&self) -> u64 {
        self.high
    }

    /// Offset of the byte that goes out next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes in memory: `base..end`.
    pub(super) fn held(&self) -> u64 {
        if self.shut { 0 } else { self.end - self.base }
    }

    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Bytes the peer would still take.
    #[cfg(test)]
    pub(super) fn free_credit(&self) -> u64 {
        self.limit - self.end
    }

    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        self.retained.len() + self.queued.len()
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    pub(super) fn is_finished(&self) -> bool {
        self.fin
    }

    pub(super) fn check(&self) {
        debug_assert!(self.base <= self.next && self.next <= self.end, "{self:?}");
        debug_assert!(self.shut || self.high >= self.next, "{self:?}");
        debug_assert!(self.consumed <= self.next, "{self:?}");
        let kept: u64 = self.retained.iter().map(|b| b.len() as u64).sum();
        let waiting: u64 = self.queued.iter().map(|b| b.len() as u64).sum();
        debug_assert!(self.shut || self.base + kept == self.next, "{self:?}");
        debug_assert!(self.next + waiting == self.end, "{self:?}");
    }
}

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) enum Item {
    Data(Bytes),
    Begin(Begin, Moment),
}

#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct RecvHalf {
    queue: VecDeque<Item>,
    received: u64,
    taken: u64,
    granted: u64,
    told: u64,
    window: u32,
    /// The window is at most this, whatever it has grown to.
    cap: u32,
    fin: bool,
    /// Bytes that wait or arrive are dropped.
    discard: Option<Taken>,
    /// Some were: the reader has not seen all.
    dropped: bool,
    grown_at: Moment,
    /// A BEGIN stands in the queue.
    mark_waits: bool,
    /// Where the latest BEGIN stood, and its request.
    last_mark: Option<(u64, u128)>,
    /// After a resume: that BEGIN, or the FIN, may come once more.
    mark_again: bool,
    fin_again: bool,
}

impl RecvHalf {
    pub(super) fn new(window: u32, now: Moment) -> Self {
        Self {
            queue: VecDeque::new(),
            received: 0,
            taken: 0,
            granted: u64::from(window),
            told: 0,
            window,
            cap: u32::MAX,
            fin: false,
            discard: None,
            dropped: false,
            grown_at: now,
            mark_waits: false,
            last_mark: None,
            mark_again: false,
            fin_again: false,
        }
    }

    /// From now on the window is at most `cap`; one that was bounded opens up to `usual` at once. Credit
    /// that was granted stays granted.
    pub(super) fn cap(&mut self, cap: u32, usual: u32) {
        self.cap = cap;
        self.window = self.window.max(usual.min(cap));
    }

    fn width(&self) -> u32 {
        self.window.min(self.cap)
    }

    /// Bytes that are here or may come unasked.
    pub(super) fn exposure(&self) -> u64 {
        self.granted - self.taken
    }

    /// A new carrier goes on at `received`; what stands exactly there may have arrived before.
    pub(super) fn expect_repeats(&mut self) {
        self.mark_again = self.last_mark.is_some_and(|(at, _)| at == self.received);
        self.fin_again = self.fin;
    }

    /// Credit and consumption as they stand, to be told over a new carrier.
    pub(super) fn credit_again(&mut self) -> Option<(u64, u64)> {
        self.told = self.taken;
        if self.discard.is_none() {
            self.granted = self.granted.max(self.taken + u64::from(self.width()));
        }
        (self.taken > 0).then_some((self.granted, self.taken))
    }

    /// Takes bytes from the wire. An error is a breach of credit or order by the peer.
    pub(super) fn push(&mut self, bytes: Bytes, fin: bool) -> Result<(), &'static str> {
        let len = bytes.len() as u64;
        if self.received + len > self.granted {
            return Err("data beyond credit");
        }
        if self.fin {
            let again = len == 0 && fin && std::mem::take(&mut self.fin_again);
            return if again { Ok(()) } else { Err("data after fin") };
        }
        self.received += len;
        self.fin = fin;
        self.dropped |= self.discard.is_some() && len > 0;
        match self.discard {
            Some(Taken::Counted) => self.taken = self.received,
            Some(Taken::Evidence) => {}
            None if len == 0 => {}
            None => self.keep(bytes),
        }
        Ok(())
    }

    /// Queues bytes. Short ones are gathered behind each other, so that what they cost to hold
    /// stays near their length.
    fn keep(&mut self, bytes: Bytes) {
        if bytes.len() >= PINS_BELOW {
            self.queue.push_back(Item::Data(bytes));
            return;
        }
        if let Some(Item::Data(last)) = self.queue.back_mut()
            && gather(last, &bytes)
        {
            return;
        }
        self.queue
            .push_back(Item::Data(Bytes::copy_from_slice(&bytes)));
    }

    /// Takes a BEGIN from the wire. One waits at most: an exchange begins after the answer to the
    /// last one, and marks need no credit.
    pub(super) fn push_begin(
        &mut self,
        begin: Begin,
        deadline: Moment,
    ) -> Result<(), &'static str> {
        let mark = Some((self.received, begin.request));
        if std::mem::take(&mut self.mark_again) && self.last_mark == mark {
            return Ok(());
        }
        if self.fin {
            return Err("begin after fin");
        }
        self.last_mark = mark;
        if self.discard.is_some() {
            return Ok(());
        }
        if std::mem::replace(&mut self.mark_waits, true) {
            return Err("an exchange before the last one began");
        }
        self.queue.push_back(Item::Begin(begin, deadline));
        Ok(())
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.queue.front()
    }

    /// Removes up to `max` bytes from the front and counts them as taken.
    pub(super) fn take(&mut self, max: usize) -> Option<Bytes> {
        let bytes = match self.queue.front_mut() {
            Some(Item::Data(front)) if front.len() > max => front.split_to(max),
            Some(Item::Data(_)) => match self.queue.pop_front() {
                Some(Item::Data(bytes)) => bytes,
                _ => return None,
            },
            _ => return None,
        };
        self.taken += bytes.len() as u64;
        Some(bytes)
    }

    /// What a terminal says was written.
    pub(super) fn counted(&self) -> u64 {
        match Bug::WrittenRaisedLate.bites() {
            true => self.told,
            false => self.taken,
        }
    }

    pub(super) fn pop_begin(&mut self) {
        if matches!(self.queue.front(), Some(Item::Begin(..))) {
            self.queue.pop_front();
            self.mark_waits = false;
        }
    }

    /// Drops what waits and what will come. What was dropped counts as taken only where the
    /// reader is this side's own (gateway); at the agent `taken` is evidence and stays.
    pub(super) fn discard(&mut self, taken: Taken) {
        self.queue.clear();
        self.discard = Some(taken);
        self.dropped |= self.taken < self.received;
        if taken == Taken::Counted {
            self.taken = self.received;
        }
    }

    /// Credit to announce, if enough was taken (`half`) or anything is untold (`any`).
    pub(super) fn credit_due(
        &mut self,
        now: Moment,
        rtt: Duration,
        max_window: u32,
        due: Due,
    ) -> Option<(u64, u64)> {
        if self.taken == self.told || self.discard.is_some() {
            return None;
        }
        let half = u64::from(self.width() / 2);
        // The latter comes first where the window was opened wider than what is granted.
        let is_half = self.taken - self.told >= half || self.exposure() <= half;
        if matches!(due, Due::Half) && !is_half {
            return None;
        }
        if is_half {
            let quick = now.since(self.grown_at) < rtt * 2;
            let most = max_window.min(self.cap);
            if quick && self.window < most {
                self.window = self.window.saturating_mul(2).min(most);
            }
            self.grown_at = now;
        }
        self.told = self.taken;
        self.granted = self.granted.max(self.taken + u64::from(self.width()));
        Some((self.granted, self.taken))
    }

    /// Bytes the peer may still send.
    #[cfg(test)]
    pub(super) fn free_credit(&self) -> u64 {
        self.granted - self.received
    }

    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn fin(&self) -> bool {
        self.fin
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The reader has every byte, and the end.
    pub(super) fn is_read_to_fin(&self) -> bool {
        self.fin && self.queue.is_empty() && !self.dropped
    }

    pub(super) fn held(&self) -> u64 {
        self.queue
            .iter()
            .map(|i| {
                if let Item::Data(b) = i {
                    b.len() as u64
                } else {
                    0
                }
            })
            .sum()
    }

    pub(super) fn check(&self) {
        debug_assert!(
            self.taken <= self.received && self.received <= self.granted,
            "{self:?}"
        );
        debug_assert!(self.told <= self.taken, "{self:?}");
        debug_assert!(
            self.discard.is_some() || self.taken + self.held() == self.received,
            "{self:?}"
        );
    }
}

/// What dropping unread bytes means for the `taken` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The reader is here and does not want them.
    Counted,
    /// `taken` says what the app's socket accepted and must not move.
    Evidence,
}

/// How eager a credit update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Only when half the window was taken.
    Half,
    /// Whatever was taken and not told.
    Any,
}
