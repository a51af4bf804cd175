//! Where HTTP/2 frames begin and end on a stream, seen from outside the codec. Pure.
//!
//! The `h2` crate does not say which of its bytes belong to a request, and evidence rests on exactly
//! that. So the bytes are followed by their frame heads, in both directions: nothing is decoded,
//! nothing is judged but order. Offsets are those of the tunnel stream.

/// `PRI * HTTP/2.0…` stands before a client's first frame.
pub(super) const PREFACE: u64 = 24;
/// HEADERS frames an app may send in one exchange: informational ones, the answer's, trailers.
const MAX_HEADS: u32 = 18;
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// The head of one frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    len: u32,
    /// Offset of its first byte.
    start: u64,
    /// Offset behind its last byte.
    end: u64,
}

impl Frame {
    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Follows frames through bytes that come in any pieces.
#[derive(Debug)]
struct Scan {
    offset: u64,
    /// Bytes until the next head.
    skip: u64,
    head: [u8; HEAD],
    have: usize,
}

impl Scan {
    const fn after(skip: u64) -> Self {
        Self {
            offset: 0,
            skip,
            head: [0; HEAD],
            have: 0,
        }
    }

    /// True if the last byte seen ended a frame.
    const fn is_between(&self) -> bool {
        self.skip == 0 && self.have == 0
    }

    fn feed(&mut self, mut bytes: &[u8], mut on: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = usize::try_from(self.skip)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.skip -= count as u64;
                self.offset += count as u64;
                bytes = &bytes[count..];
                continue;
            }
            let count = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + count].copy_from_slice(&bytes[..count]);
            self.have += count;
            self.offset += count as u64;
            bytes = &bytes[count..];
            if self.have == HEAD {
                self.have = 0;
                let frame = self.frame();
                self.skip = u64::from(frame.len);
                on(frame);
            }
        }
    }

    fn frame(&self) -> Frame {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        let len = u32::from_be_bytes([0, a, b, c]);
        Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
            len,
            start: self.offset - HEAD as u64,
            end: self.offset + u64::from(len),
        }
    }
}

/// Ends of one message's header block and of the message, from its frames in order.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// A HEADERS frame without END_HEADERS: does the message end with its block?
    open: Option<bool>,
    head: Option<u64>,
    whole: Option<u64>,
}

impl Ends {
    fn on(&mut self, frame: Frame) {
        match frame.kind {
            HEADERS if frame.has(END_HEADERS) => self.block(frame.has(END_STREAM), frame.end),
            HEADERS => self.open = Some(frame.has(END_STREAM)),
            CONTINUATION if frame.has(END_HEADERS) => {
                let ends = self.open.take().unwrap_or_default();
                self.block(ends, frame.end);
            }
            DATA if frame.has(END_STREAM) => self.whole = Some(frame.end),
            _ => {}
        }
    }

    fn block(&mut self, ends: bool, at: u64) {
        self.head.get_or_insert(at);
        if ends {
            self.whole = Some(at);
        }
    }
}

/// What this side has sent.
#[derive(Debug)]
pub(super) struct Sent {
    scan: Scan,
    stream: u32,
    ends: Ends,
    data: u64,
    /// Offset behind the last frame of the message so far.
    last: u64,
    reset: bool,
}

impl Sent {
    pub(super) const fn new() -> Self {
        Self {
            scan: Scan::after(PREFACE),
            stream: 0,
            ends: Ends {
                open: None,
                head: None,
                whole: None,
            },
            data: 0,
            last: 0,
            reset: false,
        }
    }

    /// Follows the exchange on `stream` from now on.
    pub(super) fn follow(&mut self, stream: u32) {
        self.stream = stream;
        self.ends = Ends::default();
        self.data = 0;
        self.last = 0;
        self.reset = false;
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let Self {
            scan,
            stream,
            ends,
            data,
            last,
            reset,
        } = self;
        scan.feed(bytes, |frame| {
            if frame.stream == *stream {
                ends.on(frame);
                if matches!(frame.kind, DATA | HEADERS | CONTINUATION) {
                    *last = frame.end;
                }
                match frame.kind {
                    DATA => *data += u64::from(frame.len),
                    RST_STREAM => *reset = true,
                    _ => {}
                }
            }
        });
    }

    /// Offset behind the request's head, once its frames have begun.
    pub(super) const fn head_end(&self) -> Option<u64> {
        self.ends.head
    }

    /// Offset behind the last byte of the request that was sent so far.
    pub(super) fn request_to(&self) -> u64 {
        self.last.min(self.scan.offset)
    }

    /// Offset behind the request, once all of it was sent.
    pub(super) fn whole(&self) -> Option<u64> {
        self.ends.whole.filter(|end| *end <= self.scan.offset)
    }

    /// True if no frame is half sent and `data` bytes of the request's body are in those that were.
    pub(super) const fn has_sent(&self, data: u64) -> bool {
        self.scan.is_between() && self.data == data
    }

    /// True if no frame is half sent.
    pub(super) const fn is_between(&self) -> bool {
        self.scan.is_between()
    }

    /// True if the request is whole or was called off.
    pub(super) fn is_over(&self) -> bool {
        self.whole().is_some() || self.reset
    }
}

/// What the app has sent.
#[derive(Debug)]
pub(super) struct Got {
    scan: Scan,
    stream: u32,
    ends: Ends,
    heads: u32,
    answer: Option<u64>,
    /// Offset behind the last frame of the answer so far.
    last: u64,
    reset: bool,
    settings: bool,
    foreign: bool,
    goaway: bool,
}

impl Got {
    pub(super) const fn new() -> Self {
        Self {
            scan: Scan::after(0),
            stream: 0,
            ends: Ends {
                open: None,
                head: None,
                whole: None,
            },
            heads: 0,
            answer: None,
            last: 0,
            reset: false,
            settings: false,
            foreign: false,
            goaway: false,
        }
    }

    /// Follows the exchange on `stream` from now on.
    pub(super) fn follow(&mut self, stream: u32) {
        self.stream = stream;
        self.ends = Ends::default();
        self.heads = 0;
        self.answer = None;
        self.last = 0;
        self.reset = false;
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let Self {
            scan,
            stream,
            ends,
            heads,
            answer,
            last,
            reset,
            settings,
            foreign,
            goaway,
        } = self;
        scan.feed(bytes, |frame| {
            let greets = frame.kind == SETTINGS && frame.stream == 0 && !frame.has(ACK);
            if !*settings {
                *foreign |= !greets;
                *settings = true;
            }
            *goaway |= frame.kind == GOAWAY;
            if frame.stream == *stream {
                ends.on(frame);
                *reset |= frame.kind == RST_STREAM;
                if matches!(frame.kind, DATA | HEADERS | CONTINUATION) {
                    *last = frame.end;
                }
                if frame.kind == HEADERS {
                    *heads += 1;
                    answer.get_or_insert(frame.start);
                }
            }
        });
    }

    /// Bytes from the first of the answer's head to the last of the answer so far.
    pub(super) fn answer(&self) -> u64 {
        let end = self.last.min(self.scan.offset);
        self.answer.map_or(0, |start| end - start)
    }

    /// True once the whole answer is here, whatever happened behind it.
    pub(super) fn is_whole(&self) -> bool {
        self.ends.whole.is_some_and(|end| end <= self.scan.offset)
    }

    /// True if the app has ended the exchange abruptly, be it behind a whole answer.
    pub(super) const fn is_reset(&self) -> bool {
        self.reset
    }

    /// True once the app has said what it can.
    pub(super) const fn has_greeted(&self) -> bool {
        self.settings && !self.foreign && self.scan.is_between()
    }

    /// True if the app will not take another exchange.
    pub(super) const fn is_closing(&self) -> bool {
        self.goaway
    }

    /// What the app broke that the codec would not tell apart.
    pub(super) const fn breach(&self) -> Option<&'static str> {
        if self.foreign {
            Some("it does not speak HTTP/2")
        } else if self.heads > MAX_HEADS {
            Some("a storm of informational answers")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let len = u32::try_from(payload).expect("a small frame");
        let mut bytes = len.to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD + payload, 0xaa);
        bytes
    }

    fn request() -> Vec<u8> {
        let mut bytes = vec![b'P'; 24];
        bytes.extend(frame(SETTINGS, 0, 0, 6));
        bytes
    }

    #[test]
    fn a_request_is_whole_when_the_last_byte_of_its_last_frame_is_sent() {
        let mut sent = Sent::new();
        sent.feed(&request());
        sent.follow(1);
        let head = frame(HEADERS, END_HEADERS, 1, 20);
        let data = frame(DATA, 0, 1, 100);
        let last = frame(DATA, END_STREAM, 1, 0);
        sent.feed(&head);
        assert_eq!(sent.head_end(), Some(39 + 29));
        sent.feed(&data[..50]);
        assert!(!sent.has_sent(100), "half a frame is sent");
        sent.feed(&data[50..]);
        assert!(sent.has_sent(100) && !sent.is_over());
        sent.feed(&last[..8]);
        assert_eq!(sent.whole(), None);
        sent.feed(&last[8..]);
        assert_eq!(sent.whole(), Some(39 + 29 + 109 + 9));
        assert!(sent.is_over());
    }

    #[test]
    fn trailers_in_several_frames_end_a_message_with_the_last_of_them() {
        let mut sent = Sent::new();
        sent.feed(&request());
        sent.follow(3);
        sent.feed(&frame(HEADERS, END_HEADERS, 3, 5));
        sent.feed(&frame(HEADERS, END_STREAM, 3, 5));
        assert_eq!(sent.whole(), None);
        sent.feed(&frame(CONTINUATION, END_HEADERS, 3, 5));
        assert_eq!(sent.whole(), Some(39 + 3 * 14));
    }

    #[test]
    fn frames_are_found_whatever_pieces_they_come_in() {
        let mut bytes = request();
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, 33));
        for size in 1..bytes.len() {
            let mut sent = Sent::new();
            sent.follow(1);
            bytes.chunks(size).for_each(|piece| sent.feed(piece));
            assert_eq!(sent.whole(), Some(bytes.len() as u64), "pieces of {size}");
        }
    }

    #[test]
    fn settings_and_other_streams_are_no_answer() {
        let mut got = Got::new();
        got.follow(1);
        got.feed(&frame(SETTINGS, 0, 0, 6));
        got.feed(&frame(SETTINGS, ACK, 0, 0));
        got.feed(&frame(8, 0, 1, 4));
        assert_eq!((got.answer(), got.breach()), (0, None));
        let head = frame(HEADERS, END_HEADERS | END_STREAM, 1, 10);
        got.feed(&head[..9]);
        assert_eq!((got.answer(), got.is_whole()), (9, false));
        got.feed(&head[9..]);
        assert_eq!((got.answer(), got.is_whole()), (19, true));
        got.follow(3);
        assert_eq!((got.answer(), got.is_whole()), (0, false));
    }

    #[test]
    fn pings_are_part_of_neither_message() {
        let ping = frame(6, 0, 0, 8);
        let head = frame(HEADERS, END_HEADERS, 1, 10);
        let mut sent = Sent::new();
        sent.feed(&request());
        sent.follow(1);
        sent.feed(&head);
        sent.feed(&ping);
        assert_eq!(sent.request_to(), 39 + 19);
        let mut got = Got::new();
        got.follow(1);
        got.feed(&frame(SETTINGS, 0, 0, 0));
        got.feed(&head);
        got.feed(&ping);
        assert_eq!(got.answer(), 19);
    }

    #[test]
    fn an_app_of_another_protocol_is_known_by_its_first_bytes() {
        let mut got = Got::new();
        got.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert_eq!(got.breach(), Some("it does not speak HTTP/2"));
    }

    #[test]
    fn heads_without_end_are_a_storm() {
        let mut got = Got::new();
        got.follow(1);
        got.feed(&frame(SETTINGS, 0, 0, 0));
        for _ in 0..MAX_HEADS {
            got.feed(&frame(HEADERS, END_HEADERS, 1, 1));
        }
        assert_eq!(got.breach(), None);
        got.feed(&frame(HEADERS, END_HEADERS, 1, 1));
        assert_eq!(got.breach(), Some("a storm of informational answers"));
    }
}
