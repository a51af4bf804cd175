//! Flags over environment over file, into [`RunOptions`].
//!
//! clap has already put environment variables behind flags; here the file comes behind both. Owns every
//! check that needs no network, and names the flag in what it says.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridgehead_protocol::handshake::{Token, is_agent_id, is_app_name, is_host_header};
use bridgehead_protocol::io::tls::read_certificates;

use crate::app::Target;
use crate::app::table::AppSpec;
use crate::app::target::{Place, Tls};
use crate::app::tls::AppTrust;
use crate::carrier::address::{GatewayAddress, Plain};
use crate::carrier::proxy::{Proxies, ProxyAddress};
use crate::carrier::tls::{OwnCertificate, Roots};
use crate::cli::{ConnectionArgs, LogFormat, RunArgs};

use super::ConfigError;
use super::options::{
    DEFAULT_GRACE, DEFAULT_STREAMS, DEFAULT_TUNNELS, MOST_TUNNELS, RunOptions, random_agent_id,
};
use super::raw::{RawApp, RawConfig, read};
use super::secret::TokenSource;
use super::units::parse_duration;

/// Longest grace: beyond it init systems have long since killed the process.
const GRACE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// A look into the environment for what has no flag (`BH_TOKEN`, proxies).
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How to log; needed before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Text or JSON.
    pub format: LogFormat,
    /// Filter.
    pub level: String,
}

/// Everything a command line means.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to run.
    pub run: RunOptions,
    /// How to log.
    pub log: LogOptions,
}

/// Checks a command line together with its file.
///
/// # Errors
/// The first thing that is wrong, with the flag or key it stands in.
pub fn settings(args: RunArgs, environment: Environment<'_>) -> Result<Settings, ConfigError> {
    let RunArgs {
        connection,
        serving,
        app,
        command,
    } = args;
    let (raw, folder) = match &connection.config {
        Some(path) => (
            read(path)?,
            path.parent().map(Path::to_owned).unwrap_or_default(),
        ),
        None => (RawConfig::default(), PathBuf::new()),
    };
    let log = log_options(&connection, &raw)?;
    let plain = match connection.insecure_plain || raw.insecure_plain == Some(true) {
        true => Plain::Anywhere,
        false => Plain::LoopbackOnly,
    };
    let ca = beside(connection.ca.as_ref(), raw.ca.as_ref(), &folder);
    let certificate = own_certificate(
        beside(connection.cert.as_ref(), raw.cert.as_ref(), &folder),
        beside(connection.key.as_ref(), raw.key.as_ref(), &folder),
    )?;
    let command = match command.is_empty() {
        true => raw.command.iter().map(Into::into).collect(),
        false => command,
    };
    let run = RunOptions {
        token: token(&connection, &raw, &folder, environment)?,
        gateways: gateways(
            if connection.gateway.is_empty() {
                raw.gateway.into()
            } else {
                connection.gateway
            },
            plain,
        )?,
        agent: agent_id(connection.agent.or(raw.agent))?,
        apps: apps(&app, raw.app, &folder)?,
        tunnels: tunnels(serving.tunnels.or(raw.tunnels))?,
        roots: ca
            .map(|path| read_certificates(&path))
            .transpose()?
            .map_or(Roots::System, Roots::Only),
        certificate,
        proxies: proxies(connection.proxy.or(raw.proxy).as_deref(), environment)?,
        grace: grace(serving.grace.or(raw.grace).as_deref())?,
        max_streams: max_streams(serving.max_streams.or(raw.max_streams))?,
        health: health(serving.health.or(raw.health).as_deref())?,
        command,
        seed: rand::random(),
    };
    Ok(Settings { run, log })
}

/// The flag's file, or that of the configuration, which is named from where the configuration lies.
fn beside(flag: Option<&PathBuf>, file: Option<&PathBuf>, folder: &Path) -> Option<PathBuf> {
    flag.cloned().or_else(|| file.map(|file| folder.join(file)))
}

/// Both files or none; read once, so that what is wrong with them is told before dialling.
fn own_certificate(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<OwnCertificate>, ConfigError> {
    let (cert, key) = match (cert, key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return Err(setting("key")("is missing beside cert".to_owned())),
        (None, Some(_)) => return Err(setting("cert")("is missing beside key".to_owned())),
    };
    let own = OwnCertificate { cert, key };
    own.load()?;
    Ok(Some(own))
}

fn setting(name: &'static str) -> impl Fn(String) -> ConfigError {
    move |what| ConfigError::Setting { name, what }
}

fn log_options(connection: &ConnectionArgs, raw: &RawConfig) -> Result<LogOptions, ConfigError> {
    let from_file = match raw.log.as_deref() {
        None => None,
        Some("text") => Some(LogFormat::Text),
        Some("json") => Some(LogFormat::Json),
        Some(other) => {
            return Err(setting("log")(format!(
                "`{other}` is neither `text` nor `json`"
            )));
        }
    };
    Ok(LogOptions {
        format: connection.log.or(from_file).unwrap_or_default(),
        level: connection
            .log_level
            .clone()
            .or_else(|| raw.log_level.clone())
            .unwrap_or_else(|| "info".to_owned()),
    })
}

/// The flag, then `BH_TOKEN`, then the file. Loaded once, so that a missing one is told before dialling.
fn token(
    connection: &ConnectionArgs,
    raw: &RawConfig,
    folder: &Path,
    environment: Environment<'_>,
) -> Result<TokenSource, ConfigError> {
    let from_environment = environment("BH_TOKEN").filter(|text| !text.trim().is_empty());
    let source = match (
        &connection.token_file,
        from_environment,
        &raw.token,
        &raw.token_file,
    ) {
        (Some(path), ..) => TokenSource::File(path.clone()),
        (None, Some(text), ..) => TokenSource::Given(Token::parse(text.trim())?),
        (None, None, Some(_), Some(_)) => {
            return Err(setting("token")(
                "give either `token` or `token_file`, not both".to_owned(),
            ));
        }
        (None, None, Some(text), None) => TokenSource::Given(Token::parse(text.trim())?),
        (None, None, None, Some(path)) => TokenSource::File(folder.join(path)),
        (None, None, None, None) => {
            return Err(ConfigError::Missing {
                name: "--token-file",
                how: "`bh-gateway token new` makes a token; put it into a file or into BH_TOKEN",
            });
        }
    };
    source.load()?;
    Ok(source)
}

fn gateways(texts: Vec<String>, plain: Plain) -> Result<Vec<GatewayAddress>, ConfigError> {
    let parsed: Vec<_> = texts
        .iter()
        .map(|text| GatewayAddress::parse(text, plain).map_err(setting("--gateway")))
        .collect::<Result<_, _>>()?;
    if parsed.is_empty() {
        return Err(ConfigError::Missing {
            name: "--gateway",
            how: "for example --gateway tls://gw.example.com:7000",
        });
    }
    Ok(parsed)
}

fn agent_id(given: Option<String>) -> Result<String, ConfigError> {
    let Some(id) = given else {
        return Ok(random_agent_id());
    };
    if !is_agent_id(&id) {
        return Err(setting("--agent")(format!(
            "`{id}` is not an id; use 1 to 64 letters, digits, `-`, `_`, `.`"
        )));
    }
    Ok(id)
}

/// The file's apps, where a flag of the same name comes instead.
fn apps(flags: &[String], file: Vec<RawApp>, folder: &Path) -> Result<Vec<AppSpec>, ConfigError> {
    let mut given = Vec::with_capacity(flags.len());
    for text in flags {
        let (name, target) = text.split_once('=').ok_or_else(|| {
            setting("--app")(format!(
                "`{text}` is not NAME=TARGET, for example demo=http://127.0.0.1:3000"
            ))
        })?;
        given.push(AppSpec::new(
            app_name(name)?,
            Target::parse(target).map_err(setting("--app"))?,
        ));
    }
    let mut all = Vec::with_capacity(file.len() + given.len());
    for raw in file {
        let spec = app_from_file(raw, folder)?;
        if !given.iter().any(|flag| flag.name == spec.name) {
            all.push(spec);
        }
    }
    all.append(&mut given);
    if all.is_empty() {
        return Err(ConfigError::Missing {
            name: "--app",
            how: "for example --app demo=http://127.0.0.1:3000",
        });
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = all.iter().find(|app| !names.insert(app.name.as_str())) {
        return Err(setting("--app")(format!("`{}` is given twice", twice.name)));
    }
    Ok(all)
}

fn app_name(name: &str) -> Result<String, ConfigError> {
    if !is_app_name(name) {
        return Err(setting("--app")(format!(
            "`{name}` is not an app name; use 1 to 40 of a-z, 0-9 and `-`"
        )));
    }
    Ok(name.to_owned())
}

fn app_from_file(raw: RawApp, folder: &Path) -> Result<AppSpec, ConfigError> {
    let target = Target::parse(&raw.target).map_err(setting("app.target"))?;
    let weight = raw.weight.unwrap_or(1);
    if !(1..=100).contains(&weight) {
        return Err(setting("app.weight")(format!(
            "{weight} is not from 1 to 100"
        )));
    }
    let host = raw.host.unwrap_or_default();
    if !is_host_header(&host) {
        return Err(setting("app.host")(format!("`{host}` is not a host")));
    }
    let encrypted = matches!(target.place, Place::Tcp { tls: Tls::Yes, .. });
    if !encrypted && (raw.ca.is_some() || raw.verify.is_some()) {
        return Err(setting("app.ca")(format!(
            "`ca` and `verify` are for https:// targets, not for {target}"
        )));
    }
    let trust = match (raw.verify, raw.ca) {
        (Some(false), Some(_)) => {
            return Err(setting("app.verify")(
                "`verify = false` makes `ca` useless; give one of them".to_owned(),
            ));
        }
        (Some(false), None) => AppTrust::Anything,
        (_, Some(path)) => AppTrust::Roots(read_certificates(&folder.join(path))?),
        (_, None) => AppTrust::System,
    };
    Ok(AppSpec {
        name: app_name(&raw.name)?,
        target,
        weight,
        host,
        trust,
    })
}

fn tunnels(given: Option<u8>) -> Result<NonZeroU8, ConfigError> {
    let Some(count) = given else {
        return Ok(DEFAULT_TUNNELS);
    };
    NonZeroU8::new(count)
        .filter(|count| count.get() <= MOST_TUNNELS)
        .ok_or_else(|| setting("--tunnels")(format!("{count} is not from 1 to {MOST_TUNNELS}")))
}

fn proxies(given: Option<&str>, environment: Environment<'_>) -> Result<Proxies, ConfigError> {
    match given {
        None => Proxies::from_environment(environment).map_err(setting("environment")),
        Some("off") => Ok(Proxies::none()),
        Some(text) => ProxyAddress::parse(text)
            .map(Proxies::all)
            .map_err(setting("--proxy")),
    }
}

fn grace(given: Option<&str>) -> Result<Duration, ConfigError> {
    let grace = given
        .map_or(Ok(DEFAULT_GRACE), parse_duration)
        .map_err(setting("--grace"))?;
    if grace > GRACE_LIMIT {
        return Err(setting("--grace")("more than a day".to_owned()));
    }
    Ok(grace)
}

fn max_streams(given: Option<u32>) -> Result<u32, ConfigError> {
    let count = given.unwrap_or(DEFAULT_STREAMS);
    if count == 0 {
        return Err(setting("--max-streams")(
            "0 would accept nothing".to_owned(),
        ));
    }
    Ok(count)
}

fn health(given: Option<&str>) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(text) = given else { return Ok(None) };
    match text.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(setting("--health")(format!(
            "`{text}` is not an address with a port, such as 127.0.0.1:9091"
        ))),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
