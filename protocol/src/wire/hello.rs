//! HELLO, type 0x01, agent → gateway, first frame on every carrier.
//!
//! ```text
//! flags   0x01 a resume ticket stands at the end
//! list    versions   u16 each, highest first, ≤16
//! list    features   text each, ≤64
//! text    agent id
//! u128    instance
//! text    token, empty if it came in the WebSocket request
//! list    apps       see `apps`
//! limits  u32 streams · u32 initial credit · milliseconds linger
//! [ticket u128 tunnel · 32 bytes secret · u32 epoch]
//! ```
//! This layout and that of REFUSE are the same in every version: the version is agreed on here.

use bytes::{BufMut, BytesMut};

use super::apps;
use super::error::WireError;
use super::fields::{Fields, put_list, put_millis, put_text};
use super::frame::{Frame, Hello, PeerLimits, ResumeTicket};
use super::header::{Header, Limits};

/// A resume ticket follows the limits.
pub(super) const WITH_TICKET: u8 = 0x01;

const MAX_VERSIONS: usize = 16;
const MAX_FEATURES: usize = 64;

pub(super) fn decode(
    header: &Header,
    fields: &mut Fields<'_>,
    limits: &Limits,
) -> Result<Frame, WireError> {
    header.allow_flags(WITH_TICKET)?;
    Ok(Frame::Hello(Hello {
        versions: fields.list("versions", MAX_VERSIONS, 2, Fields::u16)?,
        features: features(fields)?,
        agent: fields.text()?,
        instance: fields.u128()?,
        token: fields.text()?,
        apps: apps::offers(fields, limits)?,
        limits: peer_limits(fields)?,
        resume: if header.has(WITH_TICKET) {
            Some(ticket(fields)?)
        } else {
            None
        },
    }))
}

pub(super) const fn flags(hello: &Hello) -> u8 {
    if hello.resume.is_some() {
        WITH_TICKET
    } else {
        0
    }
}

pub(super) fn encode(hello: &Hello, out: &mut BytesMut) {
    put_list(out, &hello.versions, MAX_VERSIONS, |out, version| {
        out.put_u16(*version)
    });
    put_features(out, &hello.features);
    put_text(out, &hello.agent);
    out.put_u128(hello.instance);
    put_text(out, &hello.token);
    apps::put_offers(out, &hello.apps);
    put_peer_limits(out, &hello.limits);
    if let Some(resume) = &hello.resume {
        put_ticket(out, resume);
    }
}

pub(super) fn features(fields: &mut Fields<'_>) -> Result<Vec<String>, WireError> {
    fields.list("features", MAX_FEATURES, 1, Fields::text)
}

pub(super) fn put_features(out: &mut BytesMut, features: &[String]) {
    put_list(out, features, MAX_FEATURES, |out, feature| {
        put_text(out, feature)
    });
}

pub(super) fn ticket(fields: &mut Fields<'_>) -> Result<ResumeTicket, WireError> {
    Ok(ResumeTicket {
        tunnel: fields.u128()?,
        secret: fields.array()?,
        epoch: fields.u32()?,
    })
}

pub(super) fn put_ticket(out: &mut BytesMut, ticket: &ResumeTicket) {
    out.put_u128(ticket.tunnel);
    out.put_slice(&ticket.secret);
    out.put_u32(ticket.epoch);
}

pub(super) fn peer_limits(fields: &mut Fields<'_>) -> Result<PeerLimits, WireError> {
    Ok(PeerLimits {
        max_streams: fields.u32()?,
        initial_credit: fields.u32()?,
        linger: fields.millis()?,
    })
}

pub(super) fn put_peer_limits(out: &mut BytesMut, limits: &PeerLimits) {
    out.put_u32(limits.max_streams);
    out.put_u32(limits.initial_credit);
    put_millis(out, limits.linger);
}
