//! From what an operator wrote to a value: the same rules for a flag, its variable and the file.
//!
//! Pure. Whoever asks says where the text stood.

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use bridgehead_protocol::config::Fault;
use bridgehead_protocol::handshake::{Token, is_agent_id, is_app_name, is_host_header};

use crate::app::Target;
use crate::carrier::address::{GatewayAddress, Plain};
use crate::carrier::proxy::{Proxies, ProxyAddress};
use crate::cli::LogFormat;

use super::options::MOST_TUNNELS;

/// Longest grace: beyond it init systems have long since killed the process.
const GRACE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What was said already holds the cure.
pub(super) fn fault(what: String) -> Fault {
    Fault::new(what, "")
}

pub(super) fn gateway(text: &str, plain: Plain) -> Result<GatewayAddress, Fault> {
    GatewayAddress::parse(text, plain).map_err(fault)
}

/// Never repeats the text: it may be nearly a secret.
pub(super) fn token(text: &str) -> Result<Token, Fault> {
    Token::parse(text.trim())
        .map_err(|error| Fault::new(error.to_string(), "`bh-gateway token new` makes one"))
}

pub(super) fn agent_id(text: &str) -> Result<String, Fault> {
    match is_agent_id(text) {
        true => Ok(text.to_owned()),
        false => Err(Fault::new(
            format!("`{text}` is not an id"),
            "use 1 to 64 letters, digits, `-`, `_`, `.`",
        )),
    }
}

pub(super) fn app_name(text: &str) -> Result<String, Fault> {
    match is_app_name(text) {
        true => Ok(text.to_owned()),
        false => Err(Fault::new(
            format!("`{text}` is not an app name"),
            "use 1 to 40 of a-z, 0-9 and `-`",
        )),
    }
}

pub(super) fn target(text: &str) -> Result<Target, Fault> {
    Target::parse(text).map_err(fault)
}

pub(super) fn host(text: &str) -> Result<String, Fault> {
    match is_host_header(text) {
        true => Ok(text.to_owned()),
        false => Err(Fault::new(
            format!("`{text}` is not a host"),
            "write for example `app.local` or `app.local:3000`",
        )),
    }
}

pub(super) fn weight(number: u64) -> Result<u8, Fault> {
    u8::try_from(number)
        .ok()
        .filter(|weight| (1..=100).contains(weight))
        .ok_or_else(|| fault(format!("{number} is not from 1 to 100")))
}

pub(super) fn tunnels(number: u64) -> Result<NonZeroU8, Fault> {
    u8::try_from(number)
        .ok()
        .and_then(NonZeroU8::new)
        .filter(|count| count.get() <= MOST_TUNNELS)
        .ok_or_else(|| fault(format!("{number} is not from 1 to {MOST_TUNNELS}")))
}

pub(super) fn grace(span: Duration) -> Result<Duration, Fault> {
    match span > GRACE_LIMIT {
        true => Err(Fault::new("more than a day", "write a shorter time")),
        false => Ok(span),
    }
}

pub(super) fn max_streams(number: u64) -> Result<u32, Fault> {
    u32::try_from(number)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| fault(format!("{number} is not from 1 to {}", u32::MAX)))
}

pub(super) fn health(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        Fault::new(
            format!("`{text}` is not an address with a port"),
            "write for example 127.0.0.1:9091",
        )
    })
}

/// `off` is no proxy, whatever the environment says.
pub(super) fn proxy(text: &str) -> Result<Proxies, Fault> {
    match text {
        "off" => Ok(Proxies::none()),
        text => ProxyAddress::parse(text).map(Proxies::all).map_err(fault),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, Fault> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(fault(format!("`{other}` is neither `text` nor `json`"))),
    }
}
