//! Any frame at all, for the properties.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn millis() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|ms| Duration::from_millis(u64::from(ms)))
}

fn stream() -> impl Strategy<Value = StreamId> {
    (1..=MAX_STREAM).prop_map(StreamId)
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,40}"
}

fn offer() -> impl Strategy<Value = AppOffer> {
    (
        "[a-z0-9-]{1,40}",
        select(AppKind::ALL),
        any::<u8>(),
        select(AppHealth::ALL),
        text(),
    )
        .prop_map(|(name, kind, weight, health, upstream_host)| AppOffer {
            name,
            kind,
            weight,
            health,
            upstream_host,
        })
}

fn peer_limits() -> impl Strategy<Value = PeerLimits> {
    (any::<u32>(), any::<u32>(), millis()).prop_map(|(max_streams, initial_credit, linger)| {
        PeerLimits {
            max_streams,
            initial_credit,
            linger,
        }
    })
}

fn ticket() -> impl Strategy<Value = ResumeTicket> {
    (any::<u128>(), any::<[u8; 32]>(), any::<u32>()).prop_map(|(tunnel, secret, epoch)| {
        ResumeTicket {
            tunnel,
            secret,
            epoch,
        }
    })
}

fn hello() -> impl Strategy<Value = Frame> {
    let texts = (vec(text(), 0..5), text(), text());
    let resume = proptest::option::of(ticket());
    let parts = (
        vec(any::<u16>(), 0..16),
        texts,
        any::<u128>(),
        vec(offer(), 0..5),
        peer_limits(),
        resume,
    );
    parts.prop_map(
        |(versions, (features, agent, token), instance, apps, limits, resume)| {
            Frame::Hello(Hello {
                versions,
                features,
                agent,
                instance,
                token,
                apps,
                limits,
                resume,
            })
        },
    )
}

fn welcome() -> impl Strategy<Value = Frame> {
    let texts = (vec(text(), 0..5), text(), vec(text(), 0..5));
    let spans = (millis(), millis());
    (any::<u16>(), texts, ticket(), spans, peer_limits()).prop_map(
        |(version, (features, node, nodes), ticket, (ping_after, resume_window), limits)| {
            Frame::Welcome(Welcome {
                version,
                features,
                node,
                ticket,
                ping_after,
                resume_window,
                limits,
                nodes,
            })
        },
    )
}

pub(super) fn tunnel_frame() -> impl Strategy<Value = Frame> {
    let refuse = (select(RefuseCode::ALL), any::<bool>(), millis(), text()).prop_map(
        |(code, permanent, retry_after, text)| {
            Frame::Refuse(Refuse {
                code,
                permanent,
                retry_after,
                text,
            })
        },
    );
    let resume = (
        any::<u32>(),
        vec((stream(), any::<u64>()), 0..20),
        any::<bool>(),
    )
        .prop_map(|(highest_open, streams, more)| {
            Frame::Resume(Resume {
                highest_open,
                streams,
                more,
            })
        });
    let go_away =
        (stream(), select(GoAwayReason::ALL), millis()).prop_map(|(last, reason, deadline)| {
            Frame::GoAway {
                last,
                reason,
                deadline,
            }
        });
    let entry = (
        any::<u128>(),
        stream(),
        any::<u64>(),
        any::<u64>(),
        select(FinalCause::ALL),
    )
        .prop_map(|(tunnel, stream, written, read, cause)| ReportEntry {
            tunnel,
            stream,
            written,
            read,
            cause,
        });
    prop_oneof![
        hello(),
        welcome(),
        refuse,
        resume,
        any::<[u8; 8]>().prop_map(Frame::Ping),
        any::<[u8; 8]>().prop_map(Frame::Pong),
        (any::<u64>(), vec(offer(), 0..6))
            .prop_map(|(revision, apps)| Frame::Apps { revision, apps }),
        go_away,
        vec(stream(), 0..40).prop_map(Frame::Done),
        vec(entry, 0..10).prop_map(Frame::Report),
    ]
}

fn open() -> impl Strategy<Value = Frame> {
    let client = proptest::option::of(
        (any::<std::net::IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port)),
    );
    (
        stream(),
        text(),
        select(AppKind::ALL),
        millis(),
        any::<u32>(),
        client,
    )
        .prop_map(|(stream, app, kind, remaining, credit, client)| {
            Frame::Open(
                stream,
                Open {
                    app,
                    kind,
                    remaining,
                    credit,
                    client,
                },
            )
        })
}

pub(super) fn stream_frame() -> impl Strategy<Value = Frame> {
    let begin = (stream(), any::<u128>(), millis(), any::<Option<u64>>()).prop_map(
        |(stream, request, remaining, expect_read)| {
            Frame::Begin(
                stream,
                Begin {
                    request,
                    remaining,
                    expect_read,
                },
            )
        },
    );
    let numbers = || (stream(), any::<u64>(), any::<u64>());
    prop_oneof![
        open(),
        begin,
        (stream(), any::<u32>()).prop_map(|(stream, credit)| Frame::Opened { stream, credit }),
        (stream(), select(RefusedReason::ALL), any::<u16>()).prop_map(|(stream, reason, errno)| {
            Frame::Refused {
                stream,
                reason,
                errno,
            }
        }),
        (stream(), vec(any::<u8>(), 0..300), any::<bool>()).prop_map(|(stream, bytes, fin)| {
            Frame::Data {
                stream,
                bytes: Bytes::from(bytes),
                fin,
            }
        }),
        numbers().prop_map(|(stream, limit, consumed)| Frame::Credit {
            stream,
            limit,
            consumed
        }),
        (stream(), any::<bool>()).prop_map(|(stream, linger)| Frame::Fence { stream, linger }),
        numbers().prop_map(|(stream, written, read)| Frame::Count {
            stream,
            written,
            read
        }),
        (stream(), select(ResetCode::ALL)).prop_map(|(stream, code)| Frame::Reset { stream, code }),
        (numbers(), select(FinalCause::ALL)).prop_map(|((stream, written, read), cause)| {
            Frame::Final {
                stream,
                written,
                read,
                cause,
            }
        }),
    ]
}

pub(super) fn frames() -> impl Strategy<Value = Vec<Frame>> {
    vec(prop_oneof![tunnel_frame(), stream_frame()], 0..8)
}
