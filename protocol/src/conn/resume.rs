//! A tunnel without its carrier: what stops, what is kept, what the next carrier has to carry again.
//!
//! A sender keeps what the peer has not consumed. After both sides stated their offsets each sends
//! from the stated one, so bytes reach the app once and in order. Invariant: while suspended nothing
//! is emitted. `emitted` of a stream never falls, whatever is sent again, but for what a lost carrier
//! never took: frames that still stood whole in the outbox died with it, and are as if never emitted.
//!
//! ```text
//! Up ──suspend()──► Gone ──resume()──► Stating ──the peer's RESUME──► Up
//! │                  ▲ │                  │ │
//! └──silence─────────┘ │                  │ └──silence, suspend()──► Gone
//!                      └──window over─────┴──► failed (Lapsed)
//! ```
//! What a driver does: when the carrier ends or fails it drops its inbox, gives its outbox back by
//! [`Conn::never_taken`] and calls [`Conn::suspend`], in one step. After every call it asks [`Conn::wants_carrier`]: if true while it still holds
//! a carrier (silence was noticed by [`Conn::handle_timeout`], which then answers `Ok`), it drops
//! carrier and inbox and gives the outbox back. [`Conn::failure`] says whether the tunnel is over (at once after
//! `suspend` without a resume window). The timer goes on all the time: [`Conn::handle_timeout`] ends
//! the tunnel with [`ConnError::Lapsed`](super::ConnError::Lapsed) when the window is over.

use std::collections::{BTreeMap, BTreeSet};

use crate::planted::Bug;
use crate::time::Moment;
use crate::wire::{Frame, Resume, StreamId};

use super::emit::Outbox;
use super::event::{Ended, Event, Wake};
use super::store::StreamKey;
use super::stream::{Pending, Phase, Stream};
use super::{Conn, Side};

#[cfg(test)]
mod breaches;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod tunnel_tests;
#[cfg(test)]
mod untaken;

type Breach = &'static str;

/// Whether there is a carrier, and who has stated its offsets over it.
#[derive(Debug)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) enum Carriage {
    Up,
    /// No carrier; the tunnel ends at `lapses`.
    Gone {
        lapses: Moment,
    },
    /// A carrier stands, the peer has not said all of where it stands.
    Stating {
        lapses: Moment,
        theirs: Statement,
    },
}

impl Carriage {
    pub(super) const fn lapses(&self) -> Option<Moment> {
        match self {
            Self::Up => None,
            Self::Gone { lapses } | Self::Stating { lapses, .. } => Some(*lapses),
        }
    }
}

/// What the peer has stated so far.
#[derive(Debug, Default)]
#[cfg_attr(feature = "test-util", derive(Clone))]
pub(super) struct Statement {
    highest: Option<u32>,
    offsets: BTreeMap<StreamId, u64>,
}

impl Conn {
    /// The carrier is gone. Keeps everything for the next one, until the resume window is over;
    /// without a resume window the tunnel is lost.
    ///
    /// Until [`Conn::resume`] nothing is emitted and bytes that still come in are dropped. Streams may
    /// be opened, written, fenced, reset and released as before, within the same bounds; a stream
    /// whose OPEN never was emitted stays provably unknown to the peer ([`Ended::NotOpened`] after a
    /// reset or the end of the window). An open is taken, not refused, because the tunnel may be the
    /// only one; who has a choice asks [`Conn::is_suspended`]. The window counts from the first cut
    /// until a resume is complete. Without effect if there is no carrier.
    pub fn suspend(&mut self, now: Moment) {
        if self.failed.is_some() {
            return;
        }
        if self.settings.resume_window.is_zero() {
            self.lose();
            return;
        }
        self.saw(now);
        let lapses = match self.carriage {
            Carriage::Gone { .. } => return,
            Carriage::Stating { lapses, .. } => lapses,
            Carriage::Up => {
                self.events.push_back(Event::Suspended);
                now + self.settings.resume_window
            }
        };
        self.carriage = Carriage::Gone { lapses };
        self.sched.hush();
        self.wake_everyone();
    }

    /// The carrier that was to take `left` is lost, and nobody writes it any more: frames of which it
    /// took no byte were never emitted. A frame of which one byte was taken, or may have been, counts as
    /// emitted whole. To be called before [`Conn::resume`]. Who asks what was emitted is woken: silence was
    /// perhaps told before, and then the answer has changed since.
    pub fn never_taken(&mut self, left: Outbox) {
        let mut first = BTreeSet::new();
        for lot in left.into_lots() {
            // What follows the first untaken frame of a stream is untaken as well.
            if !first.insert(lot.key) {
                continue;
            }
            if let Some(stream) = self.store.find(lot.key) {
                stream.out.never_taken(lot.offset, lot.emitted);
                self.wake(lot.key, Wake::CONTROL);
            }
            self.offer(lot.key);
        }
    }

    /// A new carrier stands and its handshake is done: offsets are stated first, then what the
    /// peer did not get is sent again. The caller has dropped every unread byte of the old carrier.
    /// A carrier that still counts as standing is suspended first.
    pub fn resume(&mut self, now: Moment) {
        if !self.wants_carrier() {
            self.suspend(now);
        }
        let Carriage::Gone { lapses } = self.carriage else {
            return;
        };
        self.saw(now);
        self.notice_sleep(now);
        let theirs = Statement::default();
        self.carriage = Carriage::Stating { lapses, theirs };
        let statement = self.statement();
        self.sched.state(statement);
        self.liveness.restart(now);
        let probe = self.liveness.probe(now);
        self.sched.ping(probe);
    }

    /// True from the cut until both sides stated their offsets over the next carrier. The windows of
    /// exchanges rest meanwhile. Streams are woken when it changes.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        !matches!(self.carriage, Carriage::Up)
    }

    /// True while there is no carrier at all and one may still come: the driver must not read or
    /// write the old one any more.
    #[must_use]
    pub const fn wants_carrier(&self) -> bool {
        matches!(self.carriage, Carriage::Gone { .. })
    }

    /// Where this side stands. Nothing of a stream arrives or leaves before the peer has stated its
    /// own, so it stays true until it is emitted.
    fn statement(&self) -> Frame {
        let highest_open = match self.side {
            Side::Gateway => 0,
            Side::Agent => self.highest_open,
        };
        let stands = |(id, key)| {
            let stream = self.store.get(key)?;
            stream.ended.is_none().then(|| (id, stream.inn.received()))
        };
        Frame::Resume(Resume {
            highest_open,
            streams: self.store.bound().into_iter().filter_map(stands).collect(),
            more: false,
        })
    }

    /// A part of the peer's statement.
    pub(super) fn on_statement(&mut self, part: Resume) -> Result<(), Breach> {
        let most = self.most_bound();
        let Carriage::Stating { theirs, .. } = &mut self.carriage else {
            return Err("offsets stated out of place");
        };
        if *theirs.highest.get_or_insert(part.highest_open) != part.highest_open {
            return Err("contradicts itself about the streams it has seen");
        }
        for (id, offset) in part.streams {
            if id.0.is_multiple_of(2) {
                return Err("states an offset of no stream");
            }
            if theirs.offsets.insert(id, offset).is_some() {
                return Err("states an offset twice");
            }
        }
        if theirs.offsets.len() > most {
            return Err("states offsets of more streams than there can be");
        }
        if part.more {
            return Ok(());
        }
        let theirs = std::mem::take(theirs);
        match self.side {
            Side::Gateway => self.check_agent(&theirs)?,
            Side::Agent => self.check_gateway(&theirs)?,
        }
        self.settle(&theirs);
        Ok(())
    }

    /// What an agent cannot say: that it saw what was not sent, or forgot what it has shown to know.
    fn check_agent(&self, theirs: &Statement) -> Result<(), Breach> {
        let highest = theirs.highest.unwrap_or(0);
        if highest > self.highest_open || (highest != 0 && highest.is_multiple_of(2)) {
            return Err("has seen streams that were never opened");
        }
        if highest < self.peer_saw {
            return Err("forgot streams it had seen");
        }
        if theirs.offsets.keys().any(|id| id.0 > highest) {
            return Err("states an offset of a stream it has not seen");
        }
        for (id, key) in self.store.bound() {
            let Some(stream) = self.store.get(key) else {
                continue;
            };
            if id.0 > highest && stream.shows_acceptance() {
                return Err("forgot a stream it had accepted");
            }
            check_offset(stream, theirs.offsets.get(&id))?;
        }
        Ok(())
    }

    /// What a gateway cannot say: that it saw streams of the agent, that a stream lives whose
    /// terminal it acknowledged, or that one has ended which the agent did not end.
    fn check_gateway(&self, theirs: &Statement) -> Result<(), Breach> {
        if theirs.highest != Some(0) {
            return Err("has seen streams that were never opened");
        }
        for (id, offset) in &theirs.offsets {
            if id.0 > self.highest_open {
                if *offset > 0 {
                    return Err("states an offset beyond what was sent");
                }
            } else if self.store.by_id(*id).is_none() {
                return Err("states an offset of a stream that has ended");
            }
        }
        for (id, key) in self.store.bound() {
            let Some(stream) = self.store.get(key) else {
                continue;
            };
            let stated = theirs.offsets.get(&id);
            if stated.is_none() && !stream.kept && !self.was_denied(id) {
                return Err("forgot a stream without a terminal");
            }
            check_offset(stream, stated)?;
        }
        Ok(())
    }

    /// This side's GOAWAY said that the stream was not accepted.
    fn was_denied(&self, id: StreamId) -> bool {
        self.going_away.is_some_and(|leaving| id > leaving.last)
    }

    /// Both sides know where the peer stands: what it did not get goes out again.
    fn settle(&mut self, theirs: &Statement) {
        self.carriage = Carriage::Up;
        let waiting = self.sched.restart();
        for key in self.store.keys() {
            if let Some(stream) = self.store.find(key) {
                stream.in_control = false;
                stream.in_data = false;
            }
        }
        let highest = theirs.highest.unwrap_or(0);
        let mut resent = 0;
        let bound = self.store.bound();
        for (id, key) in &bound {
            let stated = theirs.offsets.get(id).copied();
            resent += match self.side {
                Side::Gateway => self.rewind_to_agent(*key, stated, id.0 > highest),
                Side::Agent => self.rewind_to_gateway(*key, stated),
            };
        }
        // Streams the peer has not seen first and in the order of their ids: a later id makes it
        // take the earlier ones for seen.
        let (seen, unseen): (Vec<_>, Vec<_>) = bound.iter().partition(|(id, _)| id.0 <= highest);
        for (_, key) in unseen.into_iter().chain(seen) {
            self.owe(key);
        }
        for key in waiting {
            if self
                .store
                .get(key)
                .is_some_and(|s| s.phase == Phase::Queued)
            {
                self.owe(key);
            }
        }
        for key in self.store.keys() {
            self.offer(key);
        }
        self.peer_saw = self.peer_saw.max(highest);
        self.repeat_of_tunnel();
        self.restart_budget();
        self.events.push_back(Event::Resumed { resent });
        self.wake_everyone();
    }

    /// What was said of the tunnel as a whole and may have been lost.
    fn repeat_of_tunnel(&mut self) {
        if let Some(leaving) = self.going_away {
            self.sched.goaway(Frame::GoAway {
                last: leaving.last,
                reason: leaving.reason,
                deadline: leaving.at.since(self.latest),
            });
        }
        match (self.side, self.announced.take()) {
            (Side::Agent, Some(apps)) => self.announce(apps),
            (Side::Agent, None) => {}
            (Side::Gateway, _) => self.reported = 0,
        }
        self.reported_by = None;
    }

    /// Gateway: goes back to where the agent stands; answers how many bytes are sent again.
    fn rewind_to_agent(&mut self, key: StreamKey, stated: Option<u64>, is_unseen: bool) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        stream.pending = Pending::default();
        stream.repeats.opened = stream.was_opened;
        stream.repeats.count = stream.counted.is_some();
        stream.inn.expect_repeats();
        let offset = match stated {
            Some(offset) => offset,
            None if is_unseen => 0,
            None => {
                // It has ended there; the terminal comes again.
                stream.out.forget();
                return 0;
            }
        };
        let resent = stream.out.rewind(offset);
        if stream.reset {
            stream.pending.reset = Some(stream.reset_code);
        } else if let (Some(linger), None) = (stream.fenced, stream.counted) {
            // A part of the request that was lost is not sent any more: no answer to wait for.
            stream.fenced = Some(linger && offset == stream.out.end());
            stream.pending.fence = true;
        } else {
            stream.pending.open = is_unseen || Bug::OpenDialledTwice.bites();
        }
        if !stream.reset {
            stream.pending.credit = stream.inn.credit_again();
        }
        resent
    }

    /// Agent: goes back to where the gateway stands. A kept terminal follows its bytes once more, or
    /// is acknowledged if the gateway no longer has the stream.
    fn rewind_to_gateway(&mut self, key: StreamKey, stated: Option<u64>) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        let Some(offset) = stated else {
            if stream.kept {
                self.acknowledged(key);
            } else {
                self.end(key, Ended::GoAway);
            }
            return 0;
        };
        stream.inn.expect_repeats();
        stream.repeats.fence = stream.fenced.is_some();
        stream.pending.opened = stream.was_opened;
        stream.pending.credit = stream.inn.credit_again();
        match stream.ended {
            Some(_) if Bug::TerminalNotRepeated.bites() => {}
            Some(Ended::Refused { reason, errno }) => {
                stream.pending.refused = Some((reason, errno));
            }
            Some(Ended::Final { cause, .. }) => stream.pending.conclude = Some(cause),
            _ => stream.pending.count = stream.fenced.is_some(),
        }
        stream.out.rewind(offset)
    }
}

fn check_offset(stream: &Stream, stated: Option<&u64>) -> Result<(), Breach> {
    if stated.is_some_and(|offset| !stream.out.may_stand_at(*offset)) {
        return Err("states an offset beyond what was sent, or behind what it consumed");
    }
    Ok(())
}
