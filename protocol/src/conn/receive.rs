//! Frames in. Sizes and rights are checked before state is touched; an `Err` is a breach by the
//! peer and ends the tunnel, never a neighbour.

use std::time::Duration;

use bytes::Bytes;

use crate::planted::Bug;
use crate::time::Moment;
use crate::wire::{AppKind, Begin, FinalCause, Frame, Open, RefusedReason, ResetCode, StreamId};

use super::event::{Counted, Ended, Event, Wake};
use super::flow::{RecvHalf, Taken};
use super::store::StreamKey;
use super::stream::{Phase, Stream};
use super::{Conn, Side};

type Breach = &'static str;

/// Refusals beyond the stream limit that may wait to be sent; a peer that reads its answers and
/// keeps to the limit never comes near.
const MAX_REFUSALS: usize = 1024;

impl Conn {
    pub(super) fn receive(&mut self, now: Moment, frame: Frame) -> Result<(), Breach> {
        if self.is_suspended() {
            return match frame {
                Frame::Resume(part) => self.on_statement(part),
                Frame::Data { stream, bytes, fin } if Bug::OldCarrierRead.bites() => {
                    self.on_data(stream, bytes, fin)
                }
                _ if Bug::OldCarrierRead.bites() => Ok(()),
                _ => Err("frame before the offsets were stated"),
            };
        }
        match frame {
            Frame::Ping(bytes) => self.sched.pong(bytes),
            Frame::Pong(bytes) => {
                self.liveness.ponged(now, bytes);
                if self.lateness.answered(bytes) {
                    self.wake_everyone();
                }
                self.heard_reports(bytes);
            }
            Frame::Data { stream, bytes, fin } => self.on_data(stream, bytes, fin)?,
            Frame::Credit {
                stream,
                limit,
                consumed,
            } => self.on_credit(stream, limit, consumed)?,
            Frame::Reset { stream, code } => self.on_reset(stream, code)?,
            Frame::GoAway {
                last,
                reason,
                deadline,
            } => {
                self.on_goaway(last)?;
                self.events.push_back(Event::GoAway { reason, deadline });
            }
            other => match self.side {
                Side::Gateway => self.receive_from_agent(other)?,
                Side::Agent => self.receive_from_gateway(now, other)?,
            },
        }
        Ok(())
    }

    fn receive_from_agent(&mut self, frame: Frame) -> Result<(), Breach> {
        match frame {
            Frame::Apps { revision, apps } => {
                if revision <= self.apps_revision {
                    return Err("app list revision went back");
                }
                self.apps_revision = revision;
                self.events.push_back(Event::Apps(apps));
                Ok(())
            }
            Frame::Opened { stream, credit } => self.on_opened(stream, credit),
            Frame::Refused {
                stream,
                reason,
                errno,
            } => {
                self.owe_done(stream)?;
                self.on_refused(stream, reason, errno)
            }
            Frame::Count {
                stream,
                written,
                read,
            } => self.on_count(stream, written, read),
            Frame::Final {
                stream,
                written,
                read,
                cause,
            } => {
                self.owe_done(stream)?;
                self.on_final(stream, written, read, cause)
            }
            Frame::Report(entries) => self.on_report(entries),
            _ => Err("frame not allowed from an agent"),
        }
    }

    fn receive_from_gateway(&mut self, now: Moment, frame: Frame) -> Result<(), Breach> {
        match frame {
            Frame::Open(id, open) => self.on_open(now, id, open),
            Frame::Begin(id, begin) => self.on_begin(now, id, begin),
            Frame::Fence { stream, linger } => self.on_fence(stream, linger),
            Frame::Done(ids) => self.on_done(&ids),
            _ => Err("frame not allowed from a gateway"),
        }
    }

    /// The stream a frame is for; `None` if it has ended (late frames are ignored).
    fn addressed(&self, id: StreamId) -> Result<Option<StreamKey>, Breach> {
        let bound = self.bound(id)?;
        Ok(bound.filter(|key| self.store.get(*key).is_some_and(|s| s.ended.is_none())))
    }

    /// As [`Conn::addressed`], but also one whose terminal is not acknowledged.
    fn bound(&self, id: StreamId) -> Result<Option<StreamKey>, Breach> {
        if id == StreamId::TUNNEL || id.0.is_multiple_of(2) || id.0 > self.highest_open {
            return Err("frame for a stream that was never opened");
        }
        Ok(self.store.by_id(id))
    }

    fn on_data(&mut self, id: StreamId, bytes: Bytes, fin: bool) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let side = self.side;
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if side == Side::Gateway && stream.phase < Phase::Open {
            return Err("data before opened");
        }
        stream.inn.push(bytes, fin)?;
        self.wake(key, Wake::READ);
        Ok(())
    }

    fn on_credit(&mut self, id: StreamId, limit: u64, consumed: u64) -> Result<(), Breach> {
        let Some(key) = self.bound(id)? else {
            return Ok(());
        };
        let side = self.side;
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if side == Side::Gateway && stream.counted.is_some_and(|c| consumed > c.written) {
            return Err("consumed more than it counted");
        }
        let advanced = stream
            .out
            .consumed_to(consumed)
            .map_err(|()| "consumed more than was sent")?;
        stream.out.grant(limit);
        let mut wake = Wake::WRITE;
        if advanced {
            wake = wake.and(Wake::CONTROL);
        }
        self.wake(key, wake);
        self.offer(key);
        Ok(())
    }

    fn on_reset(&mut self, id: StreamId, code: ResetCode) -> Result<(), Breach> {
        if self.side == Side::Agent && self.is_unseen(id) {
            return self.end_unseen(id);
        }
        let Some(key) = self.bound(id)? else {
            return Ok(());
        };
        let side = self.side;
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if stream.ended.is_some() {
            // Its bytes are not wanted any more; a terminal that waits behind them goes at once.
            stream.out.forget();
            self.owe(key);
            return Ok(());
        }
        if side == Side::Gateway {
            // The agent follows with FINAL, which is what counts.
            stream.out.forget();
            self.wake(key, Wake::ALL);
            return Ok(());
        }
        if Bug::WriteAfterReset.bites() {
            return Ok(());
        }
        stream.reset = true;
        stream.was_idle = code == ResetCode::Idle;
        stream.inn.discard(Taken::Evidence);
        stream.out.forget();
        if stream.pending.conclude.is_some() {
            stream.pending.conclude = Some(FinalCause::Reset);
            self.owe(key);
        }
        self.wake(key, Wake::ALL);
        Ok(())
    }

    fn on_goaway(&mut self, last: StreamId) -> Result<(), Breach> {
        if self.peer_going_away.is_some_and(|known| known <= last) {
            // Said before; walking all streams for each repetition would be work for nothing.
            return Ok(());
        }
        self.peer_going_away = Some(last);
        if self.side == Side::Gateway {
            for key in self.store.keys() {
                self.end_if_not_accepted(key, last)?;
            }
        }
        self.wake_everyone();
        Ok(())
    }

    fn end_if_not_accepted(&mut self, key: StreamKey, last: StreamId) -> Result<(), Breach> {
        let Some(stream) = self.store.find(key).filter(|s| s.ended.is_none()) else {
            return Ok(());
        };
        if stream.phase == Phase::Queued {
            self.end(key, Ended::NotOpened);
        } else if stream.id.is_some_and(|id| id > last) {
            if stream.shows_acceptance() {
                return Err("went away from a stream it had accepted");
            }
            self.end(key, Ended::GoAway);
        }
        Ok(())
    }

    fn on_opened(&mut self, id: StreamId, credit: u32) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if std::mem::take(&mut stream.repeats.opened) {
            return Ok(());
        }
        if stream.phase != Phase::Opening {
            return Err("opened twice");
        }
        stream.phase = Phase::Open;
        stream.was_opened = true;
        stream.out.grant(u64::from(credit));
        self.wake(key, Wake::CONTROL.and(Wake::WRITE));
        self.offer(key);
        Ok(())
    }

    fn on_refused(
        &mut self,
        id: StreamId,
        reason: RefusedReason,
        errno: u16,
    ) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if stream.phase != Phase::Opening || stream.out.consumed() > 0 {
            return Err("refused after bytes were written");
        }
        self.end(key, Ended::Refused { reason, errno });
        Ok(())
    }

    fn on_count(&mut self, id: StreamId, written: u64, read: u64) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if stream.reset {
            return Ok(());
        }
        let known = Some(Counted { written, read }) == stream.counted;
        if known && std::mem::take(&mut stream.repeats.count) {
            return Ok(());
        }
        if stream.fenced.is_none() || stream.counted.is_some() {
            return Err("count that was not asked for");
        }
        if !stream.out.may_stand_at(written) {
            return Err("count contradicts what was sent or consumed");
        }
        stream.counted = Some(Counted { written, read });
        self.wake(key, Wake::CONTROL);
        Ok(())
    }

    fn on_final(
        &mut self,
        id: StreamId,
        written: u64,
        read: u64,
        cause: FinalCause,
    ) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if !stream.out.may_stand_at(written) {
            return Err("final contradicts what was sent or consumed");
        }
        if stream.counted.is_some_and(|c| c.written != written) {
            return Err("final contradicts the count");
        }
        if !stream.reset && read != stream.inn.received() {
            return Err("final overtook data");
        }
        // This side's own reset for want of memory: the agent cannot know why.
        let cause = if stream.starved {
            FinalCause::Starved
        } else {
            cause
        };
        self.end(
            key,
            Ended::Final {
                written,
                read,
                cause,
            },
        );
        Ok(())
    }

    fn is_unseen(&self, id: StreamId) -> bool {
        !id.0.is_multiple_of(2) && id.0 > self.highest_open
    }

    /// RESET or FENCE for an id whose OPEN never came: it counts as seen and ended with nothing.
    fn end_unseen(&mut self, id: StreamId) -> Result<(), Breach> {
        self.check_opens()?;
        self.highest_open = id.0;
        let cause = FinalCause::Reset;
        let open = Open {
            app: String::new(),
            kind: AppKind::Tcp,
            remaining: Duration::ZERO,
            credit: 0,
            client: None,
        };
        let key = self.store.insert(|key| {
            let inn = RecvHalf::new(0, Moment::ZERO);
            let mut stream = Stream::new(key, open, Moment::ZERO, Phase::Ended, inn);
            stream.id = Some(id);
            stream.ended = Some(Ended::Final {
                written: 0,
                read: 0,
                cause,
            });
            stream.pending.conclude = Some(cause);
            stream.kept = true;
            stream.released = true;
            stream
        });
        self.store.bind(id, key);
        self.owe(key);
        Ok(())
    }

    /// No honest gateway has so many streams under way, unacknowledged terminals included.
    fn check_opens(&self) -> Result<(), Breach> {
        if self.store.live() >= self.most_bound() {
            return Err("opened far more streams than it may");
        }
        Ok(())
    }

    /// Streams that may have a wire id at once.
    pub(super) fn most_bound(&self) -> usize {
        self.settings.max_streams as usize + MAX_REFUSALS
    }

    fn on_open(&mut self, now: Moment, id: StreamId, open: Open) -> Result<(), Breach> {
        if id.0.is_multiple_of(2) {
            return Err("open with an even id");
        }
        if id.0 <= self.highest_open && !Bug::OpenDialledTwice.bites() {
            return Ok(());
        }
        self.check_opens()?;
        self.highest_open = id.0;
        let window = self.settings.initial_window;
        let (credit, deadline) = (u64::from(open.credit), now + open.remaining);
        let full = self.store.live() >= self.settings.max_streams as usize;
        let key = self.store.insert(|key| {
            let mut stream = Stream::new(
                key,
                open,
                deadline,
                Phase::Opening,
                RecvHalf::new(window, now),
            );
            stream.id = Some(id);
            stream.out.grant(credit);
            stream
        });
        self.store.bind(id, key);
        if self.going_away.is_some() || full {
            let reason = if full {
                RefusedReason::Limit
            } else {
                RefusedReason::Draining
            };
            if let Some(stream) = self.store.find(key) {
                stream.released = true;
            }
            self.refuse(key, reason, 0);
        } else {
            self.events.push_back(Event::Incoming(key));
        }
        Ok(())
    }

    fn on_begin(&mut self, now: Moment, id: StreamId, begin: Begin) -> Result<(), Breach> {
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        stream.inn.push_begin(begin, now + begin.remaining)?;
        self.wake(key, Wake::READ);
        Ok(())
    }

    fn on_fence(&mut self, id: StreamId, linger: bool) -> Result<(), Breach> {
        if self.is_unseen(id) {
            return self.end_unseen(id);
        }
        let Some(key) = self.addressed(id)? else {
            return Ok(());
        };
        let Some(stream) = self.store.find(key) else {
            return Ok(());
        };
        if std::mem::take(&mut stream.repeats.fence) {
            return Ok(());
        }
        if stream.fenced.is_some() {
            return Err("fenced twice");
        }
        if Bug::WriteAfterFence.bites() {
            stream.pending.count = true;
            self.owe(key);
            return Ok(());
        }
        let whole = stream.inn.taken() == stream.inn.received();
        stream.fenced = Some(linger && whole);
        stream.inn.discard(Taken::Evidence);
        stream.pending.count = true;
        self.owe(key);
        self.wake(key, Wake::ALL);
        Ok(())
    }
}
