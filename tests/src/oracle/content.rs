//! What both ends agree on: addresses, bodies, and which answer is right.
//!
//! Pure. Invariant: what the app makes of an [`Action`], [`Check`] accepts, and nothing shorter, longer
//! or different.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;

/// Bytes of the table that all bodies are cut from.
const TABLE: usize = 64 * 1024;

/// Length that [`Action::HalfBody`] announces; it sends half of it.
pub const HALF_BODY: u64 = 200_000;

/// What the app is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer at once.
    Get,
    /// Answer after a pause.
    Slow(Duration),
    /// Take the body, answer its digest.
    Take,
    /// Send so many bytes; framed by length if even, by chunks if odd.
    Download(u64),
    /// Send so many events with a pause before each.
    Events(u32, Duration),
    /// Be a WebSocket that sends each message back.
    Echo,
    /// Take the request, then close without a word.
    Crash,
    /// Close in the middle of the head.
    HalfHead,
    /// Close in the middle of the body.
    HalfBody,
    /// Never say a word.
    Silent,
    /// Answer something that is no HTTP.
    Garbage,
}

impl Action {
    /// The app's own failures.
    pub const FAULTS: [Self; 5] = [
        Self::Crash,
        Self::HalfHead,
        Self::HalfBody,
        Self::Silent,
        Self::Garbage,
    ];

    fn word(self) -> String {
        match self {
            Self::Get => "get".into(),
            Self::Slow(pause) => format!("slow.{}", pause.as_millis()),
            Self::Take => "take".into(),
            Self::Download(bytes) => format!("download.{bytes}"),
            Self::Events(count, pause) => format!("events.{count}.{}", pause.as_millis()),
            Self::Echo => "echo".into(),
            Self::Crash => "crash".into(),
            Self::HalfHead => "half-head".into(),
            Self::HalfBody => "half-body".into(),
            Self::Silent => "silent".into(),
            Self::Garbage => "garbage".into(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let word = parts.next()?;
        let mut number = || parts.next()?.parse::<u32>().ok();
        Some(match word {
            "get" => Self::Get,
            "slow" => Self::Slow(Duration::from_millis(number()?.into())),
            "take" => Self::Take,
            "download" => Self::Download(number()?.into()),
            "events" => Self::Events(number()?, Duration::from_millis(number()?.into())),
            "echo" => Self::Echo,
            "crash" => Self::Crash,
            "half-head" => Self::HalfHead,
            "half-body" => Self::HalfBody,
            "silent" => Self::Silent,
            "garbage" => Self::Garbage,
            _ => return None,
        })
    }
}

/// Target of a request. The id stands as early as it can, so that a fragment of a head names its request.
pub fn target(run: u32, id: u64, action: Action) -> String {
    format!("/{run:x}/{id}/{}", action.word())
}

/// Run, id and action of a target; an unknown action is none.
pub fn parse_target(target: &str) -> Option<(u32, u64, Option<Action>)> {
    let mut parts = target.strip_prefix('/')?.splitn(3, '/');
    let run = u32::from_str_radix(parts.next()?, 16).ok()?;
    let id = parts.next()?.parse().ok()?;
    Some((run, id, parts.next().and_then(Action::parse)))
}

/// Run and id of a request of which only the beginning is there: `GET /4f/17/…`.
pub fn parse_beginning(bytes: &[u8]) -> Option<(u32, u64)> {
    let line = bytes.split(|b| *b == b'\r').next()?;
    let mut parts = line.splitn(5, |b| *b == b'/');
    let text = |part: &[u8]| std::str::from_utf8(part).ok().map(str::to_owned);
    let _method = parts.next()?;
    let run = u32::from_str_radix(&text(parts.next()?)?, 16).ok()?;
    let id = text(parts.next()?)?.parse().ok()?;
    // Only a slash proves that the number is whole.
    parts.next().map(|_| (run, id))
}

fn table() -> &'static [u8] {
    static TABLE_BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE_BYTES.get_or_init(|| {
        let word = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        (0..2 * TABLE as u64)
            .map(|i| word(i % TABLE as u64))
            .collect()
    })
}

/// At most `most` bytes of a body from `offset` on; bodies of different ids differ.
pub fn part(id: u64, offset: u64, most: usize) -> Bytes {
    // A prime step keeps neighbours apart; the table is doubled, so that any part of it is one slice.
    let begin = (id.wrapping_mul(7919).wrapping_add(offset) % TABLE as u64) as usize;
    Bytes::from_static(&table()[begin..begin + most.min(TABLE)])
}

/// A whole body.
pub fn body(id: u64, length: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(length);
    while body.len() < length {
        body.extend_from_slice(&part(id, body.len() as u64, length - body.len()));
    }
    body
}

/// What the app answers to [`Action::Get`] and [`Action::Slow`].
pub fn greeting(run: u32, id: u64) -> String {
    format!("request {id} of run {run:x}\n")
}

/// What the app answers to [`Action::Take`].
pub fn receipt(digest: &blake3::Hash, length: u64) -> String {
    format!("{length} bytes {digest}\n")
}

/// The `n`th event.
pub fn event(id: u64, n: u32) -> String {
    format!("id: {n}\ndata: event {n} of request {id}\n\n")
}

/// Judges a body as it comes.
#[derive(Clone, Debug)]
pub struct Check {
    expected: Expected,
    offset: u64,
    right: bool,
}

#[derive(Clone, Debug)]
enum Expected {
    Bytes(Bytes),
    Pattern {
        id: u64,
        length: u64,
    },
    /// An answer that never comes whole.
    Nothing,
}

impl Check {
    /// For the answer to `action`, sent with this body.
    pub fn of(run: u32, id: u64, action: Action, sent: &[u8]) -> Self {
        let expected = match action {
            Action::Get | Action::Slow(_) => Expected::Bytes(greeting(run, id).into()),
            Action::Take => Expected::Bytes(receipt(&blake3::hash(sent), sent.len() as u64).into()),
            Action::Download(length) => Expected::Pattern { id, length },
            // The half that comes is right; that it is a whole one would not be.
            Action::HalfBody => Expected::Pattern {
                id,
                length: HALF_BODY,
            },
            Action::Events(count, _) => {
                let events: String = (1..=count).map(|n| event(id, n)).collect();
                Expected::Bytes(events.into())
            }
            Action::Echo | Action::Crash | Action::HalfHead | Action::Silent | Action::Garbage => {
                Expected::Nothing
            }
        };
        Self {
            expected,
            offset: 0,
            right: true,
        }
    }

    /// More of the body came.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() && self.right {
            let expected = match &self.expected {
                Expected::Bytes(all) => {
                    let from = usize::try_from(self.offset)
                        .unwrap_or(usize::MAX)
                        .min(all.len());
                    all.slice(from..)
                }
                Expected::Pattern { id, length } => {
                    let left =
                        usize::try_from(length.saturating_sub(self.offset)).unwrap_or(usize::MAX);
                    part(*id, self.offset, left)
                }
                Expected::Nothing => Bytes::new(),
            };
            let take = bytes.len().min(expected.len());
            self.right = take > 0 && expected[..take] == bytes[..take];
            self.offset += take as u64;
            bytes = &bytes[take..];
        }
    }

    /// True if every byte so far was right.
    pub fn is_right(&self) -> bool {
        self.right
    }

    /// True if what came is the whole answer and nothing else.
    pub fn is_whole(&self) -> bool {
        let length = match &self.expected {
            Expected::Bytes(all) => all.len() as u64,
            Expected::Pattern { length, .. } => *length,
            Expected::Nothing => return false,
        };
        self.right && self.offset == length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_target_tells_what_it_was_made_of() {
        let actions = [
            Action::Get,
            Action::Slow(Duration::from_millis(5)),
            Action::Take,
            Action::Download(9),
            Action::Events(3, Duration::from_millis(7)),
            Action::Echo,
        ];
        for action in actions.into_iter().chain(Action::FAULTS) {
            assert_eq!(
                parse_target(&target(0xab, 17, action)),
                Some((0xab, 17, Some(action)))
            );
        }
        assert_eq!(parse_target("/favicon.ico"), None);
    }

    #[test]
    fn a_fragment_names_its_request_only_when_the_number_is_whole() {
        let whole = b"GET /ab/170/get HTTP/1.1\r\nHost: a/b/c\r\n";
        for end in 0..whole.len() {
            let expected = (end >= 12).then_some((0xab, 170));
            assert_eq!(parse_beginning(&whole[..end]), expected, "{end}");
        }
    }

    proptest! {
        #[test]
        fn a_check_accepts_the_answer_in_any_pieces_and_nothing_else(
            id: u64, length in 1_usize..200_000, cut in 1_usize..70_000, at: prop::sample::Index,
        ) {
            let right = body(id, length);
            let judged = |bytes: &[u8]| {
                let mut check = Check::of(1, id, Action::Download(length as u64), b"");
                bytes.chunks(cut).for_each(|chunk| check.feed(chunk));
                check.is_whole()
            };
            prop_assert!(judged(&right));
            prop_assert!(!judged(&right[..length - 1]));
            prop_assert!(!judged(&[&right[..], b"x"].concat()));
            let mut wrong = right;
            wrong[at.index(length)] ^= 1;
            prop_assert!(!judged(&wrong));
        }
    }
}
