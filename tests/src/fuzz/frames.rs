//! Bytes of a carrier: however they are cut, they decode to the same frames, and a frame that was
//! decoded survives being said again.

use bridgehead_protocol::wire::{Frame, Limits, WireError, decode, encode, whole_frames};
use bytes::BytesMut;

use super::{signature, size, variant};

/// Headers of every type, and lengths that lie.
pub(super) const WORDS: &[&[u8]] = &[
    &[0, 0, 0, 1, 0, 0, 0, 0, 0],
    &[0, 0, 8, 5, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0, 0, 5, 11, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5],
    &[0, 0, 16, 12, 0, 0, 0, 0, 1],
    &[0, 255, 255, 11, 0, 0, 0, 0, 1],
    &[1, 0, 0, 11, 0, 0, 0, 0, 1],
    &[255, 255, 255, 255, 255, 255, 255, 255, 255],
    &[0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0],
    &[0, 0, 0, 0],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0, 4, b'd', b'e', b'm', b'o'],
];

/// Everything that `data` decodes to when it arrives `step` bytes at a time.
fn all(data: &[u8], step: usize) -> (Vec<Frame>, Option<WireError>, usize) {
    let limits = Limits::default();
    let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
    for piece in data.chunks(step.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match decode(&mut buffer, &limits) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error), 0),
            }
        }
    }
    (frames, None, buffer.len())
}

pub(super) fn run(data: &[u8]) -> u64 {
    let (frames, error, left) = all(data, data.len());
    let step = usize::from(data.first().copied().unwrap_or(1)) % 17 + 1;
    let (slowly, same, rest) = all(data, step);
    assert!(
        frames == slowly && error == same && left == rest,
        "cuts of {step} bytes change what is decoded"
    );
    if let (None, Ok(whole)) = (&error, whole_frames(data)) {
        assert_eq!(
            whole,
            data.len() - left,
            "whole frames end where decoding stops"
        );
    }
    let mut parts = vec![size(frames.len())];
    for frame in &frames {
        let mut out = BytesMut::new();
        encode(frame, &mut out);
        let (again, fault, over) = all(&out, out.len());
        assert!(fault.is_none() && over == 0, "our own frame is refused");
        assert!(
            again.len() == 1 && again[0] == *frame,
            "a frame changes when it is said again"
        );
        parts.push(u64::from(frame.kind().number()));
    }
    parts.truncate(4);
    parts.push(error.as_ref().map_or(0, variant));
    signature(&parts)
}
