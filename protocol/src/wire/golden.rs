//! Golden vectors of version 1: the bytes in `golden/v1.txt` are the protocol. They may be added
//! to, never changed, while version 1 is spoken anywhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;

const VECTORS: &str = include_str!("golden/v1.txt");

/// The values behind the vectors. The match is over every kind of frame: a new frame does not
/// compile without a sample, and a sample does not pass without its vector.
fn samples(kind: Kind) -> Vec<(&'static str, Frame)> {
    let stream = StreamId(0x0102_0305);
    match kind {
        Kind::Hello => vec![
            ("hello", Frame::Hello(hello(None))),
            ("hello.resume", Frame::Hello(hello(Some(ticket())))),
        ],
        Kind::Welcome => vec![("welcome", Frame::Welcome(welcome()))],
        Kind::Refuse => refuse(),
        Kind::Resume => vec![
            ("resume.empty", resume(&[], false)),
            ("resume.more", resume(&[(1, 0), (3, u64::MAX)], true)),
        ],
        Kind::Ping => vec![("ping", Frame::Ping(*b"abcdefgh"))],
        Kind::Pong => vec![("pong", Frame::Pong(*b"abcdefgh"))],
        Kind::Apps => vec![
            (
                "apps",
                Frame::Apps {
                    revision: 7,
                    apps: offers(),
                },
            ),
            (
                "apps.none",
                Frame::Apps {
                    revision: u64::MAX,
                    apps: vec![],
                },
            ),
        ],
        Kind::GoAway => go_away(),
        Kind::Open => vec![
            ("open.unknown_client", open(stream, AppKind::Tcp, None)),
            (
                "open.v4",
                open(stream, AppKind::Http1, Some("192.0.2.1:443")),
            ),
            (
                "open.v6",
                open(stream, AppKind::H2c, Some("[2001:db8::1]:65535")),
            ),
        ],
        Kind::Opened => vec![(
            "opened",
            Frame::Opened {
                stream,
                credit: 262_144,
            },
        )],
        Kind::Refused => RefusedReason::ALL
            .iter()
            .map(|&reason| {
                (
                    "refused",
                    Frame::Refused {
                        stream,
                        reason,
                        errno: 111,
                    },
                )
            })
            .collect(),
        Kind::Begin => {
            vec![
                ("begin", begin(stream, Some(0x1_0000_0000))),
                ("begin.any", begin(stream, None)),
            ]
        }
        Kind::Data => vec![
            ("data", data(stream, b"GET / HTTP/1.1\r\n", false)),
            ("data.fin", data(stream, b"!", true)),
            ("data.only_fin", data(stream, b"", true)),
        ],
        Kind::Credit => {
            vec![(
                "credit",
                Frame::Credit {
                    stream,
                    limit: u64::MAX,
                    consumed: 65_536,
                },
            )]
        }
        Kind::Fence => vec![
            (
                "fence",
                Frame::Fence {
                    stream,
                    linger: false,
                },
            ),
            (
                "fence.linger",
                Frame::Fence {
                    stream,
                    linger: true,
                },
            ),
        ],
        Kind::Count => vec![(
            "count",
            Frame::Count {
                stream,
                written: 300,
                read: 2,
            },
        )],
        Kind::Reset => ResetCode::ALL
            .iter()
            .map(|&code| ("reset", Frame::Reset { stream, code }))
            .collect(),
        Kind::Final => FinalCause::ALL
            .iter()
            .map(|&cause| {
                (
                    "final",
                    Frame::Final {
                        stream,
                        written: 300,
                        read: 2,
                        cause,
                    },
                )
            })
            .collect(),
        Kind::Done => vec![
            (
                "done",
                Frame::Done(vec![StreamId(1), StreamId(0x7fff_ffff)]),
            ),
            ("done.none", Frame::Done(vec![])),
        ],
        Kind::Report => vec![("report", Frame::Report(report()))],
    }
}

fn refuse() -> Vec<(&'static str, Frame)> {
    let frame = |(index, &code)| {
        let text = "wait".to_owned();
        let retry_after = Duration::from_secs(15);
        Frame::Refuse(Refuse {
            code,
            permanent: index % 2 == 0,
            retry_after,
            text,
        })
    };
    RefuseCode::ALL
        .iter()
        .enumerate()
        .map(frame)
        .map(|frame| ("refuse", frame))
        .collect()
}

fn go_away() -> Vec<(&'static str, Frame)> {
    let deadline = Duration::from_secs(30);
    let last = StreamId(9);
    let frame = |&reason| {
        (
            "goaway",
            Frame::GoAway {
                last,
                reason,
                deadline,
            },
        )
    };
    GoAwayReason::ALL.iter().map(frame).collect()
}

fn hello(resume: Option<ResumeTicket>) -> Hello {
    Hello {
        versions: vec![2, 1],
        features: vec!["report".to_owned()],
        agent: "laptop".to_owned(),
        instance: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
        token: "bh_k1_secret".to_owned(),
        apps: offers(),
        limits: PeerLimits {
            max_streams: 1000,
            initial_credit: 262_144,
            linger: Duration::from_secs(30),
        },
        resume,
    }
}

fn ticket() -> ResumeTicket {
    ResumeTicket {
        tunnel: 0xfeed,
        secret: [0xab; 32],
        epoch: 3,
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: vec!["report".to_owned()],
        node: "gw-1".to_owned(),
        ticket: ticket(),
        ping_after: Duration::from_secs(2),
        resume_window: Duration::from_secs(20),
        limits: PeerLimits {
            max_streams: 0,
            initial_credit: 16_384,
            linger: Duration::from_millis(1),
        },
        nodes: vec!["tls://gw-2.example.com:7000".to_owned()],
    }
}

fn offers() -> Vec<AppOffer> {
    let offer = |(index, &health): (usize, &AppHealth)| AppOffer {
        name: format!("app-{index}"),
        kind: AppKind::ALL[index % AppKind::ALL.len()],
        weight: 10,
        health,
        upstream_host: if index == 0 {
            "shop.example".to_owned()
        } else {
            String::new()
        },
    };
    AppHealth::ALL.iter().enumerate().map(offer).collect()
}

fn resume(streams: &[(u32, u64)], more: bool) -> Frame {
    let streams = streams
        .iter()
        .map(|&(stream, offset)| (StreamId(stream), offset))
        .collect();
    Frame::Resume(Resume {
        highest_open: 3,
        streams,
        more,
    })
}

fn open(stream: StreamId, kind: AppKind, client: Option<&str>) -> Frame {
    let client = client.map(|text| text.parse::<SocketAddr>().expect("a literal address"));
    let remaining = Duration::from_secs(5);
    Frame::Open(
        stream,
        Open {
            app: "demo".to_owned(),
            kind,
            remaining,
            credit: 1,
            client,
        },
    )
}

fn begin(stream: StreamId, expect_read: Option<u64>) -> Frame {
    Frame::Begin(
        stream,
        Begin {
            request: 0xbe61,
            remaining: Duration::ZERO,
            expect_read,
        },
    )
}

fn data(stream: StreamId, bytes: &'static [u8], fin: bool) -> Frame {
    Frame::Data {
        stream,
        bytes: Bytes::from_static(bytes),
        fin,
    }
}

fn report() -> Vec<ReportEntry> {
    let cause = FinalCause::AppClosed;
    vec![ReportEntry {
        tunnel: 0xdead,
        stream: StreamId(5),
        written: 1,
        read: 2,
        cause,
    }]
}

/// `name: hex…` a line, blanks in the hex ignored, the same name as often as it has samples.
fn vectors() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let mut vectors = BTreeMap::<_, Vec<_>>::new();
    for line in VECTORS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, hex) = line.split_once(": ").expect("a line is `name: hex`");
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).expect("hex is ASCII");
            u8::from_str_radix(pair, 16).expect("hex")
        };
        vectors
            .entry(name)
            .or_default()
            .push(digits.chunks(2).map(byte).collect());
    }
    vectors
}

fn hex(bytes: &[u8]) -> String {
    let (head, payload) = bytes.split_at(HEADER_LEN);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let parts = [&head[..3], &head[3..4], &head[4..5], &head[5..9], payload];
    parts.map(hex).join(" ").trim_end().to_owned()
}

#[test]
fn every_frame_is_written_as_its_vector_says() {
    let mut written = String::new();
    let mut wanted = String::new();
    for (name, frame) in Kind::ALL.iter().flat_map(|kind| samples(*kind)) {
        let mut out = BytesMut::new();
        encode(&frame, &mut out);
        written += &format!("{name}: {}\n", hex(&out));
    }
    for line in VECTORS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        wanted += line;
        wanted += "\n";
    }
    assert_eq!(written, wanted);
}

#[test]
fn every_vector_is_read_as_its_value() {
    let mut vectors = vectors();
    for (name, frame) in Kind::ALL.iter().flat_map(|kind| samples(*kind)) {
        let bytes = vectors
            .get_mut(name)
            .unwrap_or_else(|| panic!("no vector {name}"))
            .remove(0);
        let mut buf = BytesMut::from(&bytes[..]);
        let read = decode(&mut buf, &Limits::default()).expect("a vector is a frame");
        assert_eq!(read, Some(frame), "{name}");
        assert!(buf.is_empty(), "{name} leaves bytes");
    }
    assert!(
        vectors.values().all(Vec::is_empty),
        "a vector has no sample"
    );
}

#[test]
fn a_vector_cut_short_or_with_a_byte_more_is_refused() {
    for (name, frame) in Kind::ALL.iter().flat_map(|kind| samples(*kind)) {
        let kind = frame.kind();
        // DATA has no inner shape; open lists take whole entries more or less.
        if kind == Kind::Data {
            continue;
        }
        let mut whole = BytesMut::new();
        encode(&frame, &mut whole);
        let with_length = |change: isize| {
            let length = (whole.len() - HEADER_LEN).checked_add_signed(change)?;
            let mut bytes = whole.to_vec();
            bytes.resize(HEADER_LEN + length, 0);
            bytes[..3].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes()[1..]);
            Some(BytesMut::from(&bytes[..]))
        };
        for change in [-1, 1] {
            let Some(mut buf) = with_length(change) else {
                continue;
            };
            let error = decode(&mut buf, &Limits::default()).expect_err(name);
            let expected = [WireError::Short(kind), WireError::Trailing(kind)];
            assert!(expected.contains(&error), "{name} by {change}: {error}");
        }
    }
}
