//! WELCOME, type 0x02, gateway → agent: the agent is let in.
//!
//! ```text
//! u16     version
//! list    features       text each, ≤64
//! text    node id
//! ticket  u128 tunnel · 32 bytes secret · u32 epoch
//! ms      ping after
//! ms      resume window, 0 = never
//! limits  u32 streams · u32 initial credit · milliseconds linger
//! list    other nodes    text each, ≤16
//! ```

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, put_list, put_millis, put_text};
use super::frame::{Frame, Welcome};
use super::header::Header;
use super::hello;

const MAX_NODES: usize = 16;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Welcome(Welcome {
        version: fields.u16()?,
        features: hello::features(fields)?,
        node: fields.text()?,
        ticket: hello::ticket(fields)?,
        ping_after: fields.millis()?,
        resume_window: fields.millis()?,
        limits: hello::peer_limits(fields)?,
        nodes: fields.list("nodes", MAX_NODES, 1, Fields::text)?,
    }))
}

pub(super) fn encode(welcome: &Welcome, out: &mut BytesMut) {
    out.put_u16(welcome.version);
    hello::put_features(out, &welcome.features);
    put_text(out, &welcome.node);
    hello::put_ticket(out, &welcome.ticket);
    put_millis(out, welcome.ping_after);
    put_millis(out, welcome.resume_window);
    hello::put_peer_limits(out, &welcome.limits);
    put_list(out, &welcome.nodes, MAX_NODES, |out, node| {
        put_text(out, node)
    });
}
