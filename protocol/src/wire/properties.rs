//! What holds for any frames and any bytes.

use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::arbitrary::{frames, stream_frame, tunnel_frame};
use super::*;

pub(super) fn read_all(buf: &mut BytesMut, limits: &Limits) -> Result<Vec<Frame>, WireError> {
    let mut frames = Vec::new();
    while let Some(frame) = decode(buf, limits)? {
        frames.push(frame);
    }
    Ok(frames)
}

pub(super) fn written(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    for frame in frames {
        encode(frame, &mut out);
    }
    out
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(frames in frames()) {
        let mut buf = written(&frames);
        prop_assert_eq!(read_all(&mut buf, &Limits::default()), Ok(frames));
        prop_assert!(buf.is_empty());
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_frames(
        frames in frames(),
        sizes in vec(1..60_usize, 1..20),
    ) {
        let mut bytes = written(&frames);
        let mut buf = BytesMut::new();
        let mut read = Vec::new();
        for size in sizes.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            buf.extend_from_slice(&bytes.split_to((*size).min(bytes.len())));
            read.extend(read_all(&mut buf, &Limits::default()).expect("frames"));
        }
        prop_assert_eq!(read, frames);
        prop_assert!(buf.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        let mut buf = BytesMut::from(&bytes[..]);
        let _verdict = read_all(&mut buf, &Limits::default());
    }

    /// Random bytes seldom get past the header; this puts them behind a right one.
    #[test]
    fn a_random_payload_never_panics_and_a_value_has_one_spelling(
        kind in select(Kind::ALL),
        flags in 0..4_u8,
        payload in vec(any::<u8>(), 0..200),
    ) {
        let stream = u32::from(kind.of_stream());
        let mut buf = BytesMut::new();
        buf.put_uint(payload.len() as u64, 3);
        buf.put_u8(kind.number());
        buf.put_u8(flags);
        buf.put_u32(stream);
        buf.put_slice(&payload);
        let whole = buf.clone();
        if let Ok(Some(frame)) = decode(&mut buf, &Limits::default()) {
            prop_assert_eq!(written(&[frame]), whole, "a value has one spelling");
        }
    }

    #[test]
    fn flipping_one_bit_of_a_frame_never_panics(
        frame in prop_oneof![tunnel_frame(), stream_frame()],
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut bytes = written(&[frame]);
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let _verdict = read_all(&mut bytes, &Limits::default());
    }
}
