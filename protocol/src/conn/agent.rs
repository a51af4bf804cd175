//! The agent's side: what stands in front of the app, what its socket took, how a stream is concluded.
//!
//! `taken` of a stream's incoming half is the count of bytes the app's socket accepted: the evidence.
//! It moves only in [`Conn::app_took`], and never again once the stream is fenced, reset or concluded.

use bytes::Bytes;

use crate::time::Moment;
use crate::wire::{AppOffer, Begin, FinalCause, Frame, Open, RefusedReason, StreamId};

use super::Conn;
use super::event::{Ended, Wake};
use super::flow::{Item, Taken};
use super::store::StreamKey;
use super::stream::Phase;

/// What stands at the front of a stream's incoming side at the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// Bytes for the app's socket (the front piece, shared not copied).
    Bytes(Bytes),
    /// An exchange begins here.
    Begin {
        /// Its frame.
        begin: Begin,
        /// When its time is over.
        deadline: Moment,
    },
    /// The gateway ended its direction.
    Fin,
    /// Nothing yet.
    Empty,
    /// A fence: write nothing more. `linger`: the request was written whole, read on for the late answer.
    Fenced {
        /// Keep the app's connection for reading.
        linger: bool,
    },
    /// A reset, or the tunnel is lost: close the app's socket.
    Closed {
        /// No exchange was under way, so an orderly close says the truth.
        idle: bool,
    },
}

impl Conn {
    /// What the gateway asked for, and when its time is over.
    #[must_use]
    pub fn asked(&self, key: StreamKey) -> Option<(&Open, Moment)> {
        self.store.get(key).map(|s| (&s.open, s.deadline))
    }

    /// The app's connection stands and nothing was written yet. Without effect on a refused stream.
    pub fn opened(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key)
            && stream.phase == Phase::Opening
            && stream.pending.refused.is_none()
        {
            stream.phase = Phase::Open;
            stream.was_opened = true;
            stream.pending.opened = true;
            self.owe(key);
        }
    }

    /// The stream cannot be handed to the app. Only before [`Conn::opened`].
    pub fn refuse(&mut self, key: StreamKey, reason: RefusedReason, errno: u16) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        // The first reason stands: a handle that is dropped after it refuses again, for want of a better one.
        if stream.phase != Phase::Opening || stream.pending.refused.is_some() {
            return;
        }
        debug_assert_eq!(stream.inn.taken(), 0);
        if stream.reset || stream.fenced.is_some() {
            self.conclude(key, FinalCause::Reset);
            return;
        }
        stream.inn.discard(Taken::Evidence);
        stream.out.forget();
        stream.pending.refused = Some((reason, errno));
        self.owe(key);
    }

    /// To be called before [`Conn::front`] is obeyed: after a sleep the app's copier may run before
    /// anything else has looked at the clock, with a first byte in its hand.
    pub fn look_at_clock(&mut self, now: Moment) {
        if self.failed.is_none() {
            self.saw(now);
            self.notice_sleep(now);
        }
    }

    /// What stands at the front of the bytes for the app. After this side slept, no exchange begins
    /// until the gateway was heard again.
    #[must_use]
    pub fn front(&self, key: StreamKey) -> Front {
        let Some(stream) = self.store.get(key) else {
            return Front::Closed { idle: false };
        };
        if stream.reset
            || stream.starved
            || stream.ended.is_some()
            || stream.phase >= Phase::Concluding
        {
            return Front::Closed {
                idle: stream.was_idle,
            };
        }
        if let Some(linger) = stream.fenced {
            return Front::Fenced {
                linger: linger && stream.inn.taken() == stream.inn.received(),
            };
        }
        let held = self.lateness.is_held();
        match stream.inn.front() {
            Some(Item::Data(_)) if held && stream.untouched => Front::Empty,
            Some(Item::Begin(..)) if held => Front::Empty,
            Some(Item::Data(bytes)) => Front::Bytes(bytes.clone()),
            Some(Item::Begin(begin, deadline)) => Front::Begin {
                begin: *begin,
                deadline: *deadline,
            },
            None if stream.inn.fin() => Front::Fin,
            None => Front::Empty,
        }
    }

    /// The app's socket accepted `count` bytes of the front piece. Must be called in the same step
    /// as the write, before any other event is handled: this number is the evidence.
    pub fn app_took(&mut self, now: Moment, key: StreamKey, count: usize) {
        if let Some(stream) = self.store.find(key) {
            stream.untouched &= count == 0;
            let taken = stream.inn.take(count);
            debug_assert_eq!(taken.map(|b| b.len()), Some(count));
            self.told_or_later(now, key);
        }
    }

    /// The freshness check of the BEGIN at the front was passed; its bytes may be written.
    pub fn begun(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.find(key) {
            stream.inn.pop_begin();
            stream.untold_begin = true;
            stream.untouched = true;
            stream.out.mark_fresh();
        }
    }

    /// Bytes read from the app and taken into the stream so far.
    #[must_use]
    pub fn app_read(&self, key: StreamKey) -> u64 {
        self.store.get(key).map_or(0, |s| s.out.end())
    }

    /// The stream is over at the agent; FINAL follows what was read (at once after a reset).
    pub fn conclude(&mut self, key: StreamKey, cause: FinalCause) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        if stream.phase >= Phase::Concluding || stream.pending.refused.is_some() {
            return;
        }
        stream.phase = Phase::Concluding;
        stream.inn.discard(Taken::Evidence);
        if !stream.was_opened {
            // Its gateway never hears that it stands, so no byte of it may follow.
            stream.out.forget();
        }
        let cause = if stream.reset {
            stream.out.forget();
            FinalCause::Reset
        } else if stream.starved {
            FinalCause::Starved
        } else {
            cause
        };
        stream.pending.conclude = Some(cause);
        self.owe(key);
    }

    /// The number of a stream whose tunnel was lost for good, if the app's socket took all that had
    /// arrived for it: the app may have a whole request, and answer it yet.
    #[must_use]
    pub fn orphaned(&self, key: StreamKey) -> Option<StreamId> {
        let stream = self.store.get(key)?;
        let dry = stream.inn.taken() == stream.inn.received() && stream.inn.is_empty();
        let given_up = stream.reset || stream.starved;
        (stream.ended == Some(Ended::Lost) && dry && !given_up).then_some(stream.id)?
    }

    /// Announces the apps; the last list wins if several are waiting.
    pub fn announce(&mut self, apps: Vec<AppOffer>) {
        self.apps_revision += 1;
        self.announced = Some(apps.clone());
        self.sched.apps(Frame::Apps {
            revision: self.apps_revision,
            apps,
        });
    }

    /// The agent's handle is gone: an unanswered stream is refused, an open one concluded.
    pub fn let_go(&mut self, key: StreamKey) {
        self.stop(key);
        self.forget_handle(key);
    }

    /// The agent's time is over: what [`Conn::let_go`] does to one stream, done to all, so that the gateway
    /// learns of each how much was written instead of waiting for an agent that will not come back. Their
    /// holders see [`Front::Closed`].
    pub fn stop_all(&mut self) {
        for key in self.store.keys() {
            self.stop(key);
            self.wake(key, Wake::ALL);
        }
    }

    fn stop(&mut self, key: StreamKey) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        match stream.phase {
            Phase::Opening => self.refuse(key, RefusedReason::Draining, 0),
            Phase::Open => {
                stream.out.abandon();
                self.conclude(key, FinalCause::Stopping);
            }
            Phase::Queued | Phase::Concluding | Phase::Ended => {}
        }
    }
}
