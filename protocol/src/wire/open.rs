//! OPEN, type 0x10, gateway → agent: connect to the app.
//!
//! ```text
//! text  app
//! u8    kind
//! ms    time left
//! u32   initial credit
//! u8    client address: 0 none · 4 then 4 bytes and u16 port · 6 then 16 bytes and u16 port
//! ```

use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, put_millis, put_text};
use super::frame::{AppKind, Frame, Open};
use super::header::Header;

pub(super) fn decode(header: &Header, fields: &mut Fields<'_>) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    let open = Open {
        app: fields.text()?,
        kind: fields.code("kind", AppKind::from_number)?,
        remaining: fields.millis()?,
        credit: fields.u32()?,
        client: client(header, fields)?,
    };
    Ok(Frame::Open(header.stream, open))
}

pub(super) fn encode(open: &Open, out: &mut BytesMut) {
    put_text(out, &open.app);
    out.put_u8(open.kind.number());
    put_millis(out, open.remaining);
    out.put_u32(open.credit);
    let Some(client) = open.client else {
        out.put_u8(0);
        return;
    };
    match client.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_slice(&ip.octets());
        }
    }
    out.put_u16(client.port());
}

fn client(header: &Header, fields: &mut Fields<'_>) -> Result<Option<SocketAddr>, WireError> {
    let ip = match fields.u8()? {
        0 => return Ok(None),
        4 => IpAddr::from(fields.array::<4>()?),
        6 => IpAddr::from(fields.array::<16>()?),
        value => {
            let field = "address family";
            return Err(WireError::UnknownValue {
                kind: header.kind,
                field,
                value,
            });
        }
    };
    Ok(Some(SocketAddr::new(ip, fields.u16()?)))
}
