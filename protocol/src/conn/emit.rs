//! Frames out: what a stream owes, in the order the protocol demands, into one bounded outbox.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::planted::Bug;
use crate::wire::{Frame, GoAwayReason, StreamId, encode, encode_data_header};

use super::event::{Counted, Ended};
use super::flow::Piece;
use super::sched::SLICE;
use super::store::StreamKey;
use super::stream::Phase;
use super::{Conn, ID_CEILING, Side};

/// Payloads below this are copied next to their header, above they are written as they are.
const INLINE_BELOW: usize = 4 * 1024;

/// Encoded frames on their way to a carrier: whole frames only, to be written front to back.
#[derive(Debug, Default)]
pub struct Outbox {
    segments: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
    /// Bytes ever put in.
    put: u64,
    /// DATA frames of the gateway of which no byte was written yet, in order.
    lots: VecDeque<Lot>,
}

/// A DATA frame in an [`Outbox`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    /// Where its header begins, counted from the outbox's first byte.
    at: u64,
    pub(super) key: StreamKey,
    /// Offset in its stream of its first byte.
    pub(super) offset: u64,
    /// What `emitted` was before it.
    pub(super) emitted: u64,
}

impl Outbox {
    /// Bytes not yet written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is left to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments to write, in order.
    pub fn segments(&self) -> impl Iterator<Item = &Bytes> {
        self.segments.iter()
    }

    /// The front segment.
    #[must_use]
    pub fn front(&self) -> Option<&Bytes> {
        self.segments.front()
    }

    /// Drops `count` bytes from the front, which the carrier took or may have taken.
    pub fn advance(&mut self, mut count: usize) {
        self.len = self.len.saturating_sub(count);
        let taken = self.put - self.len as u64;
        while self.lots.pop_front_if(|lot| lot.at < taken).is_some() {}
        while let Some(front) = self.segments.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.segments.pop_front();
        }
    }

    fn frame(&mut self, frame: &Frame) {
        let before = self.tail.len();
        encode(frame, &mut self.tail);
        self.grow(self.tail.len() - before);
    }

    fn grow(&mut self, count: usize) {
        self.len += count;
        self.put += count as u64;
    }

    /// The frame that comes next can be told to have never left, if the carrier is lost before.
    fn note(&mut self, key: StreamKey, offset: u64, emitted: u64) {
        let at = self.put;
        self.lots.push_back(Lot {
            at,
            key,
            offset,
            emitted,
        });
    }

    /// The frames of which no byte was written, for a carrier that is lost: nobody writes them now.
    pub(super) fn into_lots(self) -> impl Iterator<Item = Lot> {
        self.lots.into_iter()
    }

    fn data(&mut self, stream: StreamId, bytes: Bytes, fin: bool) {
        let header = encode_data_header(stream, bytes.len(), fin);
        self.tail.extend_from_slice(&header);
        self.grow(header.len() + bytes.len());
        if bytes.len() < INLINE_BELOW {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.seal();
            self.segments.push_back(bytes);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.segments.push_back(self.tail.split().freeze());
        }
    }
}

impl Conn {
    /// Fills `out` with what goes out next, until it holds about `budget` bytes. Control first,
    /// then first bytes of exchanges, then bulk in turn.
    pub fn poll_transmit(&mut self, out: &mut Outbox, budget: usize) {
        if self.wants_carrier() {
            return;
        }
        while let Some(frame) = self.sched.next_preamble() {
            out.frame(&frame);
        }
        if !self.is_suspended() {
            self.emit_all(out, budget);
        }
        out.seal();
    }

    fn emit_all(&mut self, out: &mut Outbox, budget: usize) {
        while let Some(frame) = self.sched.next_tunnel_frame() {
            out.frame(&frame);
        }
        while out.len() < budget && self.failed.is_none() {
            if let Some(pong) = self.sched.next_pong() {
                out.frame(&pong);
            }
            let Some(key) = self.sched.next_control() else {
                break;
            };
            self.emit_control(key, out);
        }
        if out.len() < budget && self.failed.is_none() {
            self.emit_report(out);
        }
        while out.len() < budget && self.failed.is_none() {
            let Some(key) = self.sched.next_data() else {
                break;
            };
            self.emit_data(key, out);
        }
    }

    fn emit_control(&mut self, key: StreamKey, out: &mut Outbox) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        stream.in_control = false;
        if !stream.speaks() {
            return;
        }
        if std::mem::take(&mut stream.pending.open) {
            self.emit_open(key, out);
        }
        let credit = self.settings.initial_window;
        let Some(stream) = self.store.find(key) else {
            return;
        };
        let Some(id) = stream.id else { return };
        if std::mem::take(&mut stream.pending.opened) {
            out.frame(&Frame::Opened { stream: id, credit });
        }
        if let Some((limit, consumed)) = stream.pending.credit.take() {
            out.frame(&Frame::Credit {
                stream: id,
                limit,
                consumed,
            });
        }
        if std::mem::take(&mut stream.pending.fence) {
            out.frame(&Frame::Fence {
                stream: id,
                linger: stream.fenced.unwrap_or(false),
            });
        }
        if std::mem::take(&mut stream.pending.count) {
            let counted = *stream.counted.get_or_insert(Counted {
                written: stream.inn.counted(),
                read: stream.out.end(),
            });
            out.frame(&Frame::Count {
                stream: id,
                written: counted.written,
                read: counted.read,
            });
        }
        if let Some(code) = stream.pending.reset.take() {
            out.frame(&Frame::Reset { stream: id, code });
        }
        if let Some((reason, errno)) = stream.pending.refused.take() {
            out.frame(&Frame::Refused {
                stream: id,
                reason,
                errno,
            });
            if stream.ended.is_none() {
                self.end(key, Ended::Refused { reason, errno });
            }
            return;
        }
        self.emit_final(key, out);
    }

    /// OPEN, with its id for the first time, or again over a new carrier with the time that is left.
    fn emit_open(&mut self, key: StreamKey, out: &mut Outbox) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        let mut open = stream.open.clone();
        open.remaining = open.remaining.min(stream.deadline.since(self.latest));
        if let Some(id) = stream.id {
            out.frame(&Frame::Open(id, open));
            return;
        }
        let id = StreamId(self.next_id);
        self.next_id += 2;
        self.highest_open = id.0;
        stream.id = Some(id);
        stream.phase = Phase::Opening;
        out.frame(&Frame::Open(id, open));
        self.store.bind(id, key);
        if self.next_id >= ID_CEILING {
            self.drain(
                GoAwayReason::IdsExhausted,
                std::time::Duration::from_secs(30),
            );
        }
    }

    /// The last one is followed by a probe: its answer says that all were received.
    fn emit_report(&mut self, out: &mut Outbox) {
        let Some(report) = self.sched.next_report() else {
            return;
        };
        out.frame(&report);
        if self.sched.has_reported_all() {
            let probe = self.liveness.probe(self.latest);
            self.reported_by = Some(u64::from_be_bytes(probe));
            out.frame(&Frame::Ping(probe));
        }
    }

    fn emit_data(&mut self, key: StreamKey, out: &mut Outbox) {
        let now = self.latest;
        // What an agent emitted proves nothing to anybody.
        let is_evidence = self.side == Side::Gateway;
        let Some(stream) = self.store.find(key) else {
            return;
        };
        stream.in_data = false;
        let Some(id) = stream.id else { return };
        if !stream.speaks() {
            return;
        }
        let mut slice = SLICE;
        while slice > 0 {
            let (offset, emitted) = (stream.out.next(), stream.out.emitted());
            match stream.out.next_piece(now, slice) {
                Some(Piece::Begin(begin)) => out.frame(&Frame::Begin(id, begin)),
                Some(Piece::Data(bytes, fin)) => {
                    slice -= bytes.len().min(slice);
                    if is_evidence {
                        out.note(key, offset, emitted);
                    }
                    out.data(id, bytes, fin);
                    if fin {
                        break;
                    }
                }
                None => break,
            }
        }
        let finished = stream.out.is_finished();
        if finished || self.room(key) > 0 {
            self.wake(key, super::Wake::WRITE);
        }
        self.offer(key);
        self.emit_final(key, out);
    }

    /// FINAL goes out once everything read from the app has.
    fn emit_final(&mut self, key: StreamKey, out: &mut Outbox) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        let (Some(id), Some(cause)) = (stream.id, stream.pending.conclude) else {
            return;
        };
        if !stream.out.is_drained() && !Bug::FinalOvertakesData.bites() {
            return;
        }
        stream.pending.conclude = None;
        let (written, read) = match stream.ended {
            Some(Ended::Final { written, read, .. }) => (written, read),
            _ => (stream.inn.counted(), stream.out.end()),
        };
        out.frame(&Frame::Final {
            stream: id,
            written,
            read,
            cause,
        });
        if stream.ended.is_some() {
            return;
        }
        self.end(
            key,
            Ended::Final {
                written,
                read,
                cause,
            },
        );
    }
}
