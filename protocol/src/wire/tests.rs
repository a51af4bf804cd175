//! Single cases at the edges of the codec.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::properties::{read_all, written};
use super::*;

fn raw(length: u32, number: u8, flags: u8, stream: u32) -> BytesMut {
    let mut buf = BytesMut::new();
    buf.put_uint(u64::from(length), 3);
    buf.put_u8(number);
    buf.put_u8(flags);
    buf.put_u32(stream);
    buf
}

#[test]
fn an_unknown_type_with_the_high_bit_is_skipped_and_any_other_is_an_error() {
    let mut buf = raw(3, 0x80, 0xff, u32::MAX);
    buf.put_slice(b"abc");
    encode(&Frame::Ping([1; 8]), &mut buf);
    assert_eq!(
        decode(&mut buf, &Limits::default()),
        Ok(Some(Frame::Ping([1; 8])))
    );

    let mut buf = raw(3, 0x7f, 0, 0);
    assert_eq!(
        decode(&mut buf, &Limits::default()),
        Err(WireError::UnknownType(0x7f))
    );
}

#[test]
fn a_length_above_the_cap_is_refused_with_the_header_alone() {
    let mut buf = raw(65_537, Kind::Data.number(), 0, 1);
    let error = WireError::TooLong {
        length: 65_537,
        cap: MAX_PAYLOAD,
    };
    assert_eq!(decode(&mut buf, &Limits::default()), Err(error));

    let mut buf = raw(1025, Kind::Hello.number(), 0, 0);
    let limits = Limits {
        payload: 1024,
        ..Limits::default()
    };
    let error = WireError::TooLong {
        length: 1025,
        cap: 1024,
    };
    assert_eq!(decode(&mut buf, &limits), Err(error));
}

#[test]
fn a_frame_on_the_wrong_kind_of_stream_is_refused() {
    for kind in Kind::ALL {
        for stream in [0, 1, MAX_STREAM + 1] {
            let mut buf = raw(8, kind.number(), 0, stream);
            let right = stream <= MAX_STREAM && kind.of_stream() == (stream != 0);
            let expected = if right {
                Ok(None)
            } else {
                Err(WireError::WrongStream {
                    kind: *kind,
                    stream,
                })
            };
            assert_eq!(
                decode(&mut buf, &Limits::default()),
                expected,
                "{kind} on {stream}"
            );
        }
    }
}

#[test]
fn an_unknown_flag_is_refused() {
    let mut buf = raw(0, Kind::Fence.number(), 0x02, 1);
    let error = WireError::UnknownFlags {
        kind: Kind::Fence,
        flags: 0x02,
    };
    assert_eq!(decode(&mut buf, &Limits::default()), Err(error));
}

#[test]
fn a_count_that_the_payload_cannot_hold_is_refused_before_its_entries_are_read() {
    let mut buf = raw(9, Kind::Apps.number(), 0, 0);
    buf.put_u64(1);
    buf.put_u8(128);
    assert_eq!(
        decode(&mut buf, &Limits::default()),
        Err(WireError::Short(Kind::Apps))
    );

    let mut buf = raw(9, Kind::Apps.number(), 0, 0);
    buf.put_u64(1);
    buf.put_u8(3);
    let error = WireError::TooMany {
        kind: Kind::Apps,
        field: "apps",
        count: 3,
        cap: 2,
    };
    assert_eq!(
        decode(
            &mut buf,
            &Limits {
                apps: 2,
                ..Limits::default()
            }
        ),
        Err(error)
    );
}

#[test]
fn a_text_with_a_line_break_is_refused() {
    let text = "fine\nlevel=error".to_owned();
    let refuse = Refuse {
        code: RefuseCode::Busy,
        permanent: false,
        retry_after: Duration::ZERO,
        text,
    };
    let mut buf = written(&[Frame::Refuse(refuse)]);
    assert_eq!(
        decode(&mut buf, &Limits::default()),
        Err(WireError::Text(Kind::Refuse))
    );
}

#[test]
fn the_bytes_of_data_are_shared_with_the_buffer_not_copied() {
    let frame = Frame::Data {
        stream: StreamId(1),
        bytes: Bytes::from_static(b"body"),
        fin: false,
    };
    let mut buf = written(&[frame]);
    let place = buf.as_ptr().addr() + HEADER_LEN;
    let Ok(Some(Frame::Data { bytes, .. })) = decode(&mut buf, &Limits::default()) else {
        panic!("a DATA frame");
    };
    assert_eq!(bytes.as_ptr().addr(), place);
}

#[test]
fn a_data_header_and_its_bytes_are_what_encode_writes() {
    let bytes = Bytes::from_static(b"body");
    let frame = Frame::Data {
        stream: StreamId(7),
        bytes: bytes.clone(),
        fin: true,
    };
    let mut apart = BytesMut::from(&encode_data_header(StreamId(7), bytes.len(), true)[..]);
    apart.put_slice(&bytes);
    assert_eq!(apart, written(&[frame]));
}

#[test]
fn long_lists_become_several_frames_with_the_same_content() {
    let streams: Vec<_> = (1..=40_000).map(StreamId).collect();
    let mut buf = written(&[Frame::Done(streams.clone())]);
    let frames = read_all(&mut buf, &Limits::default()).expect("frames");
    let read: Vec<_> = frames
        .into_iter()
        .flat_map(|frame| {
            if let Frame::Done(part) = frame {
                part
            } else {
                vec![]
            }
        })
        .collect();
    assert_eq!(read, streams);

    let offsets: Vec<_> = streams.iter().map(|stream| (*stream, 9)).collect();
    let resume = Resume {
        highest_open: 4,
        streams: offsets.clone(),
        more: false,
    };
    let mut buf = written(&[Frame::Resume(resume)]);
    let mut read = Vec::new();
    let mut more = Vec::new();
    for frame in read_all(&mut buf, &Limits::default()).expect("frames") {
        let Frame::Resume(part) = frame else {
            panic!("only RESUME")
        };
        assert_eq!(part.highest_open, 4);
        read.extend(part.streams);
        more.push(part.more);
    }
    assert_eq!(read, offsets);
    let (last, before) = more.split_last().expect("several frames");
    assert!(!last && !before.is_empty() && before.iter().all(|more| *more));
}

#[test]
fn a_data_frame_above_the_cap_becomes_several_and_the_last_has_the_fin() {
    let bytes = Bytes::from(vec![7; MAX_PAYLOAD + 1]);
    let mut buf = written(&[Frame::Data {
        stream: StreamId(1),
        bytes,
        fin: true,
    }]);
    let sizes: Vec<_> = read_all(&mut buf, &Limits::default())
        .expect("frames")
        .into_iter()
        .map(|frame| match frame {
            Frame::Data { bytes, fin, .. } => (bytes.len(), fin),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [(MAX_PAYLOAD, false), (1, true)]);
}

#[test]
fn a_hello_of_the_largest_allowed_size_fits_into_one_frame() {
    let app = AppOffer {
        name: "n".repeat(40),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: "h".repeat(255),
    };
    let hello = Hello {
        versions: vec![1; 16],
        features: vec!["f".repeat(255); 64],
        agent: "a".repeat(255),
        instance: 1,
        token: "t".repeat(255),
        apps: vec![app; Limits::MAX_APPS],
        limits: PeerLimits {
            max_streams: 1,
            initial_credit: 1,
            linger: Duration::ZERO,
        },
        resume: Some(ResumeTicket {
            tunnel: 1,
            secret: [1; 32],
            epoch: 1,
        }),
    };
    assert_eq!(check_offers(&hello.apps), Ok(()));
    let mut buf = written(&[Frame::Hello(hello.clone())]);
    assert_eq!(
        decode(&mut buf, &Limits::default()),
        Ok(Some(Frame::Hello(hello)))
    );
}

#[test]
fn a_debug_print_shows_no_token_no_secret_and_no_stream_bytes() {
    let ticket = ResumeTicket {
        tunnel: 1,
        secret: *b"resume-secret-canary-32-bytes-xx",
        epoch: 1,
    };
    let limits = PeerLimits {
        max_streams: 1,
        initial_credit: 1,
        linger: Duration::ZERO,
    };
    let hello = Hello {
        versions: vec![1],
        features: vec![],
        agent: "a".to_owned(),
        instance: 1,
        token: "token-canary".to_owned(),
        apps: vec![],
        limits,
        resume: Some(ticket.clone()),
    };
    let welcome = Welcome {
        version: 1,
        features: vec![],
        node: "gw".to_owned(),
        ticket,
        ping_after: Duration::ZERO,
        resume_window: Duration::ZERO,
        limits,
        nodes: vec![],
    };
    let data = Frame::Data {
        stream: StreamId(1),
        bytes: Bytes::from_static(b"data-canary"),
        fin: false,
    };
    let secret_as_list = format!("{:?}", b"resume-secret-canary-32-bytes-xx");
    for frame in [Frame::Hello(hello), Frame::Welcome(welcome), data] {
        let text = format!("{frame:?} {frame:#?}");
        assert!(!text.contains("canary"), "{text}");
        assert!(
            !text.contains(secret_as_list.trim_matches(['[', ']'])),
            "{text}"
        );
    }
}
