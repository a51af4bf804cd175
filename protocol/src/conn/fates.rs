//! Terminals that must not get lost: acknowledged by DONE, told again after a resume, reported by a
//! later tunnel.
//!
//! An agent keeps a stream whose terminal it emitted (with the bytes before it) until the gateway
//! acknowledges it, by DONE or by not listing the stream in a RESUME. Bound: streams with a wire id,
//! kept ones included, at most `max_streams` and the refusals that may wait; an honest gateway keeps
//! to it because it acknowledges before it opens. A hostile agent can neither make a gateway collect
//! acknowledgements nor reports without bound.

use crate::wire::{FinalCause, ReportEntry, StreamId};

use super::store::StreamKey;
use super::{Conn, Ended, Event, Side};

#[cfg(test)]
mod tests;

/// Terminals that may be reported over one carrier; more is a breach. Ten tunnels of 10,000 streams.
pub const MAX_REPORTED: usize = 100_000;

/// How a stream of a lost tunnel ended at the agent; told to the gateway by REPORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Its id.
    pub stream: StreamId,
    /// Bytes the app's socket accepted.
    pub written: u64,
    /// Bytes read from the app.
    pub read: u64,
    /// What ended it; `Reset` if it was the loss of the tunnel, or if it was refused.
    pub cause: FinalCause,
}

impl Fate {
    /// As it is reported for the tunnel with this id.
    #[must_use]
    pub const fn of_tunnel(self, tunnel: u128) -> ReportEntry {
        ReportEntry {
            tunnel,
            stream: self.stream,
            written: self.written,
            read: self.read,
            cause: self.cause,
        }
    }
}

impl Conn {
    /// Agent, once the tunnel was lost for good: every stream whose terminal the gateway has not
    /// acknowledged, once; empty before. The counts are final as soon as the tunnel is lost: nothing
    /// is written to an app after that, whenever its connection is closed.
    pub fn take_fates(&mut self) -> Vec<Fate> {
        std::mem::take(&mut self.fates)
    }

    /// Agent: terminals of tunnels that were lost, for a gateway that may still ask itself. At most
    /// [`MAX_REPORTED`] in the life of a tunnel; what is beyond is dropped.
    pub fn report(&mut self, mut entries: Vec<ReportEntry>) {
        entries.truncate(MAX_REPORTED.saturating_sub(self.reported));
        self.reported += entries.len();
        self.reported_by = None;
        self.sched.report(entries);
    }

    /// The probe behind the reports was answered: they need not be sent again.
    pub(super) fn heard_reports(&mut self, probe: [u8; 8]) {
        let answered = u64::from_be_bytes(probe);
        if self.reported_by.take_if(|by| answered >= *by).is_some() {
            self.sched.forget_reports();
        }
    }

    pub(super) fn on_report(&mut self, entries: Vec<ReportEntry>) -> Result<(), &'static str> {
        self.reported += entries.len();
        if self.reported > MAX_REPORTED {
            return Err("reported more terminals than it may");
        }
        self.events.push_back(Event::Report(entries));
        Ok(())
    }

    /// Gateway: a terminal came, also one for a stream that this side has ended itself.
    pub(super) fn owe_done(&mut self, id: StreamId) -> Result<(), &'static str> {
        if id == StreamId::TUNNEL || id.0.is_multiple_of(2) || id.0 > self.highest_open {
            return Err("terminal of a stream that was never opened");
        }
        if self.sched.done(id) > self.most_bound() {
            return Err("more terminals than streams");
        }
        Ok(())
    }

    pub(super) fn on_done(&mut self, ids: &[StreamId]) -> Result<(), &'static str> {
        for id in ids {
            let kept = |key: &StreamKey| self.store.get(*key).is_some_and(|s| s.kept);
            let Some(key) = self.store.by_id(*id).filter(kept) else {
                return Err("acknowledged a terminal that it was not told");
            };
            self.acknowledged(key);
        }
        Ok(())
    }

    /// Agent: the gateway has the terminal; nothing is kept for it.
    pub(super) fn acknowledged(&mut self, key: StreamKey) {
        let Some(stream) = self.store.find(key) else {
            return;
        };
        stream.kept = false;
        stream.out.forget();
        stream.pending = super::stream::Pending::default();
        let (id, done) = (stream.id, stream.is_done());
        if let Some(id) = id {
            self.store.unbind(id);
        }
        if done {
            self.remove(key);
        }
    }

    /// Agent, at the end of the tunnel: remembers what became of a stream.
    pub(super) fn note_fate(&mut self, key: StreamKey) {
        let Some(stream) = self.store.get(key) else {
            return;
        };
        if self.side == Side::Gateway || !stream.speaks() {
            return;
        }
        let (written, read, cause) = match stream.ended {
            Some(Ended::Final {
                written,
                read,
                cause,
            }) => (written, read, cause),
            Some(_) => (0, 0, FinalCause::Reset),
            None => {
                let cause = stream.pending.conclude.unwrap_or(FinalCause::Reset);
                (stream.inn.taken(), stream.out.end(), cause)
            }
        };
        if let Some(stream) = stream.id {
            self.fates.push(Fate {
                stream,
                written,
                read,
                cause,
            });
        }
        if stream.kept {
            self.acknowledged(key);
        }
    }
}
