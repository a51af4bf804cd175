//! One way of a connection, taken apart into frames as they come.
//!
//! Pure. Must not drop, alter or invent a byte: what goes in comes out, in order. Invariant: from the
//! first byte that is no frame on, everything is passed as it comes (TLS, WebSocket, garbage), since the
//! position of the next frame is lost. At most one unfinished frame is held.

use bridgehead_protocol::wire::{self, HEADER_LEN, Kind, Limits, MAX_PAYLOAD};
use bytes::{Bytes, BytesMut};

/// What a rule may know of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFacts {
    /// Type.
    pub kind: Kind,
    /// Stream; 0 is the tunnel.
    pub stream: u32,
}

/// Bytes that are passed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes, the header included.
    pub bytes: Bytes,
    /// The frame they are; none if they are not known to be one.
    pub frame: Option<FrameFacts>,
}

/// Takes bytes, gives pieces.
#[derive(Debug, Default)]
pub struct Scanner {
    buffer: BytesMut,
    opaque: bool,
}

impl Scanner {
    /// One that never looks for frames.
    pub fn opaque() -> Self {
        Self {
            buffer: BytesMut::new(),
            opaque: true,
        }
    }

    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Next piece; none until more was read.
    pub fn next_piece(&mut self) -> Option<Piece> {
        if !self.opaque {
            match self.frame() {
                Ok(piece) => return piece,
                Err(()) => self.opaque = true,
            }
        }
        self.rest()
    }

    /// What is left when nothing more will come: the beginning of a frame, as a rule.
    pub fn rest(&mut self) -> Option<Piece> {
        let bytes = self.buffer.split().freeze();
        (!bytes.is_empty()).then_some(Piece { bytes, frame: None })
    }

    /// True once a byte came that is no frame.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    fn frame(&mut self) -> Result<Option<Piece>, ()> {
        let Some(&[l2, l1, l0]) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, l2, l1, l0]) as usize;
        // Told by three bytes, and a wrong type by four: a peer that speaks something else may wait for
        // an answer to what it said so far.
        let number = self.buffer.get(3).copied();
        let known = |number: u8| Kind::from_number(number).is_some() || number >= 0x80;
        if length > MAX_PAYLOAD || number.is_some_and(|number| !known(number)) {
            return Err(());
        }
        if self.buffer.len() < HEADER_LEN + length {
            return Ok(None);
        }
        let mut copy = BytesMut::from(&self.buffer[..HEADER_LEN + length]);
        let frame = wire::decode(&mut copy, &Limits::default()).map_err(|_| ())?;
        let bytes = self.buffer.split_to(HEADER_LEN + length).freeze();
        // A type that may be skipped decodes to nothing: it is passed, and no rule counts it.
        let frame = frame.map(|f| FrameFacts {
            kind: f.kind(),
            stream: f.stream().0,
        });
        Ok(Some(Piece { bytes, frame }))
    }
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::wire::{Frame, ResetCode, StreamId, encode};
    use proptest::prelude::*;

    use super::*;

    fn frames() -> Vec<u8> {
        let mut bytes = BytesMut::new();
        let stream = StreamId(7);
        let data = Frame::Data {
            stream,
            bytes: Bytes::from_static(b"hello"),
            fin: false,
        };
        let reset = Frame::Reset {
            stream,
            code: ResetCode::Cancelled,
        };
        for frame in [Frame::Ping([1; 8]), data, reset] {
            encode(&frame, &mut bytes);
        }
        bytes.to_vec()
    }

    fn all(scanner: &mut Scanner) -> Vec<Piece> {
        std::iter::from_fn(|| scanner.next_piece()).collect()
    }

    #[test]
    fn frames_are_found_byte_by_byte() {
        let mut scanner = Scanner::default();
        let mut found = Vec::new();
        for byte in frames() {
            scanner.push(&[byte]);
            found.extend(all(&mut scanner));
        }
        let facts: Vec<_> = found
            .iter()
            .filter_map(|p| p.frame)
            .map(|f| (f.kind, f.stream))
            .collect();
        assert_eq!(facts, [(Kind::Ping, 0), (Kind::Data, 7), (Kind::Reset, 7)]);
    }

    #[test]
    fn what_is_no_frame_passes_at_once_and_ends_the_search() {
        for head in [
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
            b"GET / HTTP/1.1\r\n",
            &[0, 0, 5, 0x40, 0, 0, 0, 0, 0],
        ] {
            let mut scanner = Scanner::default();
            scanner.push(head);
            assert_eq!(
                all(&mut scanner),
                [Piece {
                    bytes: Bytes::copy_from_slice(head),
                    frame: None
                }]
            );
            scanner.push(&frames());
            assert!(all(&mut scanner).iter().all(|p| p.frame.is_none()));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_passed_byte_for_byte(chunks: Vec<Vec<u8>>, whole in 0_usize..3) {
            let mut scanner = Scanner::default();
            let (mut sent, mut passed) = (Vec::new(), Vec::new());
            for chunk in std::iter::repeat_n(frames(), whole).chain(chunks) {
                sent.extend_from_slice(&chunk);
                scanner.push(&chunk);
                passed.extend(all(&mut scanner).iter().flat_map(|p| p.bytes.to_vec()));
            }
            passed.extend(scanner.rest().into_iter().flat_map(|p| p.bytes.to_vec()));
            prop_assert_eq!(sent, passed);
        }
    }
}
