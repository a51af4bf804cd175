//! The gateway's view of its streams, read a second time from the wires, and what it allows to be told.

use std::collections::BTreeMap;

use bridgehead_protocol::verdict::{Delivery, Evidence, Terminal, judge};
use bridgehead_protocol::wire::Kind;

use crate::frames::Whose;
use crate::journal::{Class, Entry, Op};
use crate::shape::{Back, Shape};

/// One stream that the measured exchange used, as it stood on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    used: bool,
    whose: Whose,
    sent: u64,
    /// Highest offset ever sent; a resume may begin again below it.
    emitted: u64,
    pub(super) begun: Option<u64>,
    received: u64,
    received_at_begin: u64,
    consumed: u64,
    refused: bool,
    counted: Option<u64>,
    away: bool,
}

impl Stream {
    pub(super) fn start(&self) -> u64 {
        self.begun.unwrap_or(u64::MAX)
    }

    pub(super) fn answer_bytes(&self) -> u64 {
        match self.begun {
            // What came although nothing is known to be written is a leftover, no answer.
            Some(start) if self.consumed.max(self.counted.unwrap_or(0)) <= start => 0,
            Some(_) => self.received - self.received_at_begin,
            None => 0,
        }
    }

    /// The decision, with `emitted` as the wire shows it or at its most.
    fn judged(&self, emitted: u64, answer_bytes: u64) -> Delivery {
        let terminal = match (self.refused, self.counted, self.away) {
            (true, _, _) => Terminal::Refused,
            (_, Some(written), _) => Terminal::Counted { written },
            (_, None, true) => Terminal::GoAwayBelow,
            (false, None, false) => Terminal::Open {
                consumed: self.consumed,
            },
        };
        judge(&Evidence {
            // Given to the carrier's queue counts as emitted, with a BEGIN that no wire shows.
            start: self
                .begun
                .unwrap_or(if emitted == u64::MAX { 0 } else { u64::MAX }),
            emitted,
            head_len: u64::MAX,
            request_len: None,
            terminal,
            answer_bytes,
        })
        .delivery
    }
}

/// A stream by its tunnel and number.
pub(super) type Key = (u64, u32);

/// The tunnel that each carrier carries.
pub(super) fn tunnels(entries: &[Entry]) -> BTreeMap<u16, u64> {
    let welcome = |e: &&Entry| e.op == Op::Wrote && e.side == 0 && e.note.is(Kind::Welcome);
    let all = entries.iter().filter(welcome);
    all.map(|e| (e.link, e.note.value)).collect()
}

/// The gateway's view of every stream, from what it wrote to and read from carriers.
pub(super) fn view(entries: &[Entry], mark: usize, until: usize) -> BTreeMap<Key, Stream> {
    let tunnels = tunnels(entries);
    let mut streams: BTreeMap<Key, Stream> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate().take(until) {
        if entry.class != Class::Carrier || entry.side != 0 {
            continue;
        }
        let note = entry.note;
        let Some(tunnel) = tunnels.get(&entry.link) else {
            continue;
        };
        if note.is(Kind::GoAway) && entry.op == Op::Read {
            for ((theirs, id), stream) in &mut streams {
                stream.away |= theirs == tunnel && u64::from(*id) > note.value;
            }
        }
        if note.stream == 0 {
            continue;
        }
        let stream = streams.entry((*tunnel, note.stream)).or_default();
        match (entry.op, Kind::from_number(note.kind)) {
            (Op::Wrote, Some(Kind::Open)) => stream.used |= index >= mark,
            (Op::Wrote, Some(Kind::Begin)) if index >= mark => {
                stream.used = true;
                // What is sent again after a resume began where it began.
                if stream.begun.is_none() {
                    stream.begun = Some(stream.sent);
                    stream.received_at_begin = stream.received;
                }
            }
            (Op::Wrote, Some(Kind::Data)) => {
                stream.whose = note.begins().unwrap_or(stream.whose);
                stream.sent += note.value;
                stream.emitted = stream.emitted.max(stream.sent);
            }
            (Op::Wrote, Some(Kind::Resume)) => stream.received = note.value,
            (Op::Read, Some(Kind::Resume)) => stream.sent = note.value,
            (Op::Read, Some(Kind::Data)) => stream.received += note.value,
            (Op::Read, Some(Kind::Refused)) => stream.refused = true,
            (Op::Read, Some(Kind::Final | Kind::Count)) => stream.counted = Some(note.value),
            (Op::Read, Some(Kind::Credit)) => stream.consumed = stream.consumed.max(note.value),
            _ => {}
        }
    }
    streams.retain(|_, stream| stream.used && stream.whose == Whose::Measured);
    streams
}

/// What may have been told at this point of the journal.
pub(super) fn allowed(
    shape: &Shape,
    entries: &[Entry],
    mark: usize,
    until: usize,
) -> Vec<Delivery> {
    let streams = view(entries, mark, until);
    // What an h2c app says beside its answers (settings, pings) is no answer; the wire shows bytes.
    let nothing_said: &[bool] = match shape.back {
        Back::Http1 | Back::Tcp => &[false],
        Back::H2c => &[false, true],
    };
    // The exchange goes on to another stream only after a proof, so the worst is the last.
    let mut allowed = Vec::new();
    let ways = nothing_said.iter().flat_map(|n| [(true, *n), (false, *n)]);
    for (exact, nothing) in ways {
        let judged = streams.values().map(|stream| {
            let answer = if nothing { 0 } else { stream.answer_bytes() };
            stream.judged(if exact { stream.emitted } else { u64::MAX }, answer)
        });
        let worst = judged.max_by_key(|delivery| match delivery {
            Delivery::NotDelivered => 0,
            Delivery::Unknown => 1,
            Delivery::Delivered => 2,
        });
        allowed.push(worst.unwrap_or(Delivery::NotDelivered));
    }
    allowed
}
