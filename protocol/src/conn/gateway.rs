//! The gateway's side: opening a stream, marking exchanges, giving up, looking.
//!
//! Every way of giving up forgets queued and kept bytes and answers, in the same step, the highest
//! offset ever given to a carrier. That number is evidence: it must come from here and nowhere else.
//! Given to a carrier is what stands in its outbox; [`View::emitted`] falls again by what a lost carrier
//! never took of it, also after giving up.

use crate::planted::Bug;
use crate::time::Moment;
use crate::verdict::Terminal;
use crate::wire::{Begin, Open, ResetCode, StreamId};

use super::event::{Counted, Ended, Wake};
use super::flow::{RecvHalf, Taken};
use super::store::StreamKey;
use super::stream::{Phase, Stream};
use super::{Conn, OpenError, Side};

/// Answered for a stream that is gone: nothing may be concluded from what was not emitted.
const UNKNOWN: u64 = u64::MAX;

/// What the gateway can see of a stream at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// OPENED arrived: the app's connection stands.
    pub opened: bool,
    /// Highest offset ever given to a carrier.
    pub emitted: u64,
    /// Offset after the last byte taken from the writer.
    pub queued_to: u64,
    /// Bytes the peer says it consumed (at the agent: accepted by the app's socket). A stage, not a proof.
    pub consumed: u64,
    /// Bytes received from the peer.
    pub received: u64,
    /// Bytes handed to the reader.
    pub taken: u64,
    /// The terminal, if there is one.
    pub ended: Option<Ended>,
    /// Counts answered to a fence.
    pub counted: Option<Counted>,
    /// No exchange may begin on this stream.
    pub closing: bool,
    /// The carrier is gone and the next one has not taken over; windows rest.
    pub suspended: bool,
    /// Given up by the core: it held memory without progress while others needed it.
    pub starved: bool,
}

impl View {
    /// What ended an exchange that began at `start` on this stream, as the decision function asks it.
    #[must_use]
    pub fn terminal(&self, start: u64) -> Terminal {
        match (self.ended, self.counted) {
            (Some(Ended::NotOpened), _) => Terminal::NotOpened,
            (Some(Ended::Refused { .. }), _) => Terminal::Refused,
            (Some(Ended::GoAway), _) => Terminal::GoAwayBelow,
            (Some(Ended::Final { written, .. }), _) => Terminal::Counted { written },
            (_, Some(counted)) => Terminal::Counted {
                written: counted.written,
            },
            _ if Bug::ClaimAfterHandOver.bites() && self.consumed <= start => Terminal::Refused,
            (Some(Ended::Lost), None) if self.consumed <= start => Terminal::LostUnknown,
            // What was told as taken gives a stage, whatever became of the tunnel since.
            (Some(Ended::Lost) | None, None) => Terminal::Open {
                consumed: self.consumed,
            },
        }
    }
}

impl Conn {
    /// Queues a new stream to an app; nothing is emitted before the next `poll_transmit`.
    ///
    /// # Errors
    /// [`OpenError`] if the tunnel takes no new streams; the peer has heard nothing then.
    pub fn open(&mut self, now: Moment, open: Open) -> Result<StreamKey, OpenError> {
        self.open_within(now, open, u32::MAX)
    }

    /// The same with a bound on the stream's credit, see [`Conn::cap`].
    ///
    /// # Errors
    /// As [`Conn::open`].
    pub fn open_within(
        &mut self,
        now: Moment,
        mut open: Open,
        cap: u32,
    ) -> Result<StreamKey, OpenError> {
        debug_assert_eq!(self.side, Side::Gateway);
        self.saw(now);
        if self.failed.is_some() {
            return Err(OpenError::Lost);
        }
        if self.takes_no_streams() {
            return Err(OpenError::GoingAway);
        }
        if self.store.len() >= self.settings.max_streams.min(self.peer.max_streams) as usize {
            return Err(OpenError::Full);
        }
        let window = self.fresh_window().min(cap);
        open.credit = window;
        let credit = self.peer.initial_credit;
        let deadline = now + open.remaining;
        let key = self.store.insert(|key| {
            Stream::new(
                key,
                open,
                deadline,
                Phase::Queued,
                RecvHalf::new(window, now),
            )
        });
        if let Some(stream) = self.store.find(key) {
            stream.out.grant(u64::from(credit));
            stream.inn.cap(cap, window);
            stream.pending.open = true;
        }
        self.owe(key);
        Ok(key)
    }

    /// The agent may send at most so many bytes of this stream unasked from now on; what it was
    /// granted before stays granted.
    pub fn cap(&mut self, key: StreamKey, cap: u32) {
        let usual = self.fresh_window();
        if let Some(stream) = self.store.find(key) {
            stream.inn.cap(cap, usual);
        }
    }

    /// At most so many bytes of this stream that the app has not taken are here from now on; `None`: as
    /// many as the tunnel keeps. What is here already stays.
    pub fn keep_at_most(&mut self, key: StreamKey, most: Option<u64>) {
        if let Some(stream) = self.store.find(key) {
            stream.out.keep_at_most(most);
        }
    }

    /// Bytes of this stream that are here unread, or that the agent may send unasked.
    #[must_use]
    pub fn exposure(&self, key: StreamKey) -> u64 {
        self.store
            .get(key)
            .map_or(0, |stream| stream.inn.exposure())
    }

    /// Marks where an exchange begins; answers its start offset.
    pub fn begin(&mut self, now: Moment, key: StreamKey, begin: Begin) -> u64 {
        self.saw(now);
        let Some(stream) = self.store.find(key) else {
            return 0;
        };
        let start = stream.out.begin(now, begin);
        self.offer(key);
        start
    }

    /// Asks the agent to write nothing more and to count. Forgets what was not emitted; answers
    /// the highest offset ever emitted. `linger`: the whole request was queued before this call.
    pub fn fence(&mut self, key: StreamKey, linger: bool) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return UNKNOWN;
        };
        if Bug::RetainedNotForgotten.bites() {
            return stream.out.emitted();
        }
        let whole = stream.out.is_drained();
        let emitted = stream.out.forget();
        if stream.phase == Phase::Queued {
            self.end(key, Ended::NotOpened);
        } else if stream.ended.is_none() && stream.fenced.is_none() && !stream.reset {
            stream.fenced = Some(linger && whole);
            stream.pending.open = false;
            stream.pending.fence = true;
            self.owe(key);
            self.wake(key, Wake::ALL);
        }
        emitted
    }

    /// Fences every stream that lives: none of them will be written any more.
    pub fn fence_all(&mut self) {
        for key in self.store.keys() {
            self.fence(key, false);
        }
    }

    /// Ends both directions abruptly. Forgets what was not emitted and what was not read; answers
    /// the highest offset ever emitted.
    pub fn reset(&mut self, key: StreamKey, code: ResetCode) -> u64 {
        let Some(stream) = self.store.find(key) else {
            return UNKNOWN;
        };
        if Bug::ResetOvertakesOpen.bites() && stream.phase == Phase::Queued {
            return stream.out.emitted();
        }
        let emitted = stream.out.forget();
        stream.inn.discard(Taken::Counted);
        if stream.phase == Phase::Queued {
            self.end(key, Ended::NotOpened);
        } else if stream.ended.is_none() && !stream.reset {
            stream.reset = true;
            stream.reset_code = code;
            stream.pending.open = false;
            stream.pending.fence = false;
            stream.pending.reset = Some(code);
            self.owe(key);
            self.wake(key, Wake::ALL);
        }
        emitted
    }

    /// The gateway's handle is gone: a live stream is reset.
    pub fn release(&mut self, key: StreamKey) {
        if !Bug::CancelNotPassedOn.bites() {
            self.reset(key, ResetCode::Cancelled);
        }
        self.forget_handle(key);
    }

    /// The wire's number of a stream; nothing before its OPEN was emitted.
    #[must_use]
    pub fn stream_id(&self, key: StreamKey) -> Option<StreamId> {
        self.store.get(key).and_then(|s| s.id)
    }

    /// What can be seen of a stream.
    #[must_use]
    pub fn view(&self, key: StreamKey) -> Option<View> {
        self.store.get(key).map(|s| View {
            opened: s.was_opened,
            emitted: s.out.emitted(),
            queued_to: s.out.end(),
            consumed: s.out.consumed(),
            received: s.inn.received(),
            taken: s.inn.taken(),
            ended: s.ended,
            counted: s.counted,
            closing: self.takes_no_streams() && !Bug::GoAwayIgnored.bites(),
            suspended: self.is_suspended(),
            starved: s.starved,
        })
    }
}
