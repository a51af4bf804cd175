//! APPS, type 0x07, agent → gateway: the full list of apps the agent offers now.
//!
//! ```text
//! u64   revision
//! list  apps, ≤128: text name · u8 kind · u8 weight · u8 health · text upstream host
//! ```

use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::fields::{Fields, MAX_TEXT, put_list, put_text, put_text_up_to};
use super::frame::{AppHealth, AppKind, AppOffer, Frame};
use super::header::{Header, Kind, Limits};

/// Two empty texts and three bytes.
const SMALLEST: usize = 5;

/// Longest app name; keeps 128 offers below the payload cap.
const MAX_NAME: usize = 40;

pub(super) fn decode(
    header: &Header,
    fields: &mut Fields<'_>,
    limits: &Limits,
) -> Result<Frame, WireError> {
    header.allow_flags(0)?;
    Ok(Frame::Apps {
        revision: fields.u64()?,
        apps: offers(fields, limits)?,
    })
}

pub(super) fn encode(revision: u64, apps: &[AppOffer], out: &mut BytesMut) {
    out.put_u64(revision);
    put_offers(out, apps);
}

/// What the maker of a HELLO or APPS checks before it hands the list to the encoder, which has no
/// way to refuse and would cut it.
///
/// # Errors
/// The list is too long for one frame, or a name or host is.
pub fn check_offers(apps: &[AppOffer]) -> Result<(), WireError> {
    let cap = Limits::MAX_APPS;
    if apps.len() > cap {
        let count = apps.len();
        return Err(WireError::TooMany {
            kind: Kind::Apps,
            field: "apps",
            count,
            cap,
        });
    }
    let long = |app: &AppOffer| app.name.len() > MAX_NAME || app.upstream_host.len() > MAX_TEXT;
    if apps.iter().any(long) {
        return Err(WireError::Text(Kind::Apps));
    }
    Ok(())
}

pub(super) fn offers(fields: &mut Fields<'_>, limits: &Limits) -> Result<Vec<AppOffer>, WireError> {
    fields.list(
        "apps",
        limits.apps.min(Limits::MAX_APPS),
        SMALLEST,
        |fields| {
            Ok(AppOffer {
                name: fields.text()?,
                kind: fields.code("kind", AppKind::from_number)?,
                weight: fields.u8()?,
                health: fields.code("health", AppHealth::from_number)?,
                upstream_host: fields.text()?,
            })
        },
    )
}

pub(super) fn put_offers(out: &mut BytesMut, apps: &[AppOffer]) {
    put_list(out, apps, Limits::MAX_APPS, |out, app| {
        put_text_up_to(out, &app.name, MAX_NAME);
        out.put_u8(app.kind.number());
        out.put_u8(app.weight);
        out.put_u8(app.health.number());
        put_text(out, &app.upstream_host);
    });
}
