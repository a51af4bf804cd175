//! Flags over environment over file, into [`RunOptions`].
//!
//! clap has already put environment variables behind flags; here the file comes behind both. Names the flag
//! in what it says; what a value means is told by `values`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bridgehead_protocol::config::Fault;
use bridgehead_protocol::config::units::parse_duration;
use bridgehead_protocol::io::tls::read_certificates;

use crate::app::table::AppSpec;
use crate::carrier::address::{GatewayAddress, Plain};
use crate::carrier::proxy::Proxies;
use crate::carrier::tls::{OwnCertificate, Roots};
use crate::cli::{ConnectionArgs, LogFormat, RunArgs};

use super::ConfigError;
use super::file::{FileSettings, read};
use super::options::{
    DEFAULT_GRACE, DEFAULT_STREAMS, DEFAULT_TUNNELS, RunOptions, random_agent_id,
};
use super::secret::TokenSource;
use super::values;

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
/// Every mistake of the file; else the first thing that is wrong, with the flag it stands in.
pub fn settings(args: RunArgs, environment: Environment<'_>) -> Result<Settings, ConfigError> {
    let RunArgs {
        connection,
        serving,
        app,
        command,
    } = args;
    let plain = match connection.insecure_plain {
        true => Plain::Anywhere,
        false => Plain::LoopbackOnly,
    };
    let file = match &connection.config {
        Some(path) => read(path, plain)?,
        None => FileSettings::default(),
    };
    let log = LogOptions {
        format: connection.log.or(file.log).unwrap_or_default(),
        level: (connection.log_level.clone().or(file.log_level))
            .unwrap_or_else(|| "info".to_owned()),
    };
    let command = match command.is_empty() {
        true => file.command.iter().map(Into::into).collect(),
        false => command,
    };
    let given = serving.grace.as_deref().map(parse_duration);
    let grace = given.map(|span| span.and_then(values::grace));
    let tunnels = serving.tunnels.map(|count| values::tunnels(count.into()));
    let streams = (serving.max_streams).map(|count| values::max_streams(count.into()));
    let agent = connection.agent.as_deref().map(values::agent_id);
    let health = serving.health.as_deref().map(values::health);
    let run = RunOptions {
        token: token(&connection, file.token, environment)?,
        gateways: gateways(&connection.gateway, file.gateways, plain)?,
        agent: (before("--agent", agent, file.agent)?).unwrap_or_else(random_agent_id),
        apps: apps(&app, file.apps)?,
        tunnels: (before("--tunnels", tunnels, file.tunnels)?).unwrap_or(DEFAULT_TUNNELS),
        roots: (connection.ca.or(file.ca).as_deref().map(read_certificates))
            .transpose()?
            .map_or(Roots::System, Roots::Only),
        certificate: own_certificate(connection.cert.or(file.cert), connection.key.or(file.key))?,
        proxies: proxies(connection.proxy.as_deref(), file.proxies, environment)?,
        grace: (before("--grace", grace, file.grace)?).unwrap_or(DEFAULT_GRACE),
        max_streams: (before("--max-streams", streams, file.max_streams)?)
            .unwrap_or(DEFAULT_STREAMS),
        health: before("--health", health, file.health)?,
        command,
        seed: rand::random(),
    };
    Ok(Settings { run, log })
}

/// The flag `name` if it was given, else what the file says.
fn before<T>(
    name: &'static str,
    flag: Option<Result<T, Fault>>,
    file: Option<T>,
) -> Result<Option<T>, ConfigError> {
    match flag {
        Some(given) => given.map(Some).map_err(wrong(name)),
        None => Ok(file),
    }
}

/// A mistake in the flag `name`.
fn wrong(name: &'static str) -> impl Fn(Fault) -> ConfigError {
    move |fault| ConfigError::Setting {
        name,
        what: fault.to_string(),
    }
}

/// Both files or none; read once, so that what is wrong with them is told before dialling.
fn own_certificate(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<OwnCertificate>, ConfigError> {
    let lonely = |name, what| Err(wrong(name)(Fault::new(what, "give both")));
    let (cert, key) = match (cert, key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return lonely("--key", "is missing beside the certificate"),
        (None, Some(_)) => return lonely("--cert", "is missing beside the key"),
    };
    let own = OwnCertificate { cert, key };
    own.load()?;
    Ok(Some(own))
}

/// The flag, then `BH_TOKEN`, then the file. Loaded once, so that a missing one is told before dialling.
fn token(
    connection: &ConnectionArgs,
    file: Option<TokenSource>,
    environment: Environment<'_>,
) -> Result<TokenSource, ConfigError> {
    let given = environment("BH_TOKEN").filter(|text| !text.trim().is_empty());
    let source = match (&connection.token_file, given, file) {
        (Some(path), ..) => TokenSource::File(path.clone()),
        (None, Some(text), _) => {
            TokenSource::Given(values::token(&text).map_err(wrong("BH_TOKEN"))?)
        }
        (None, None, Some(source)) => source,
        (None, None, None) => {
            return Err(ConfigError::Missing {
                name: "--token-file",
                how: "`bh-gateway token new` makes a token; put it into a file or into BH_TOKEN",
            });
        }
    };
    source.load()?;
    Ok(source)
}

fn gateways(
    flags: &[String],
    file: Vec<GatewayAddress>,
    plain: Plain,
) -> Result<Vec<GatewayAddress>, ConfigError> {
    let given: Vec<_> = flags
        .iter()
        .map(|text| values::gateway(text, plain).map_err(wrong("--gateway")))
        .collect::<Result<_, _>>()?;
    let gateways = match given.is_empty() {
        true => file,
        false => given,
    };
    if gateways.is_empty() {
        return Err(ConfigError::Missing {
            name: "--gateway",
            how: "for example --gateway tls://gw.example.com:7000",
        });
    }
    Ok(gateways)
}

/// The file's apps, where a flag of the same name comes instead.
fn apps(flags: &[String], file: Vec<AppSpec>) -> Result<Vec<AppSpec>, ConfigError> {
    let mut given = Vec::with_capacity(flags.len());
    let mut names = BTreeSet::new();
    for text in flags {
        let spec = app(text).map_err(wrong("--app"))?;
        if !names.insert(spec.name.clone()) {
            let what = format!("`{}` is given twice", spec.name);
            return Err(wrong("--app")(values::fault(what)));
        }
        given.push(spec);
    }
    let mut all = file;
    all.retain(|spec| !names.contains(&spec.name));
    all.append(&mut given);
    if all.is_empty() {
        return Err(ConfigError::Missing {
            name: "--app",
            how: "for example --app demo=http://127.0.0.1:3000",
        });
    }
    Ok(all)
}

/// `NAME=TARGET`.
fn app(text: &str) -> Result<AppSpec, Fault> {
    let (name, target) = text.split_once('=').ok_or_else(|| {
        Fault::new(
            format!("`{text}` is not NAME=TARGET"),
            "write for example demo=http://127.0.0.1:3000",
        )
    })?;
    Ok(AppSpec::new(
        values::app_name(name)?,
        values::target(target)?,
    ))
}

fn proxies(
    flag: Option<&str>,
    file: Option<Proxies>,
    environment: Environment<'_>,
) -> Result<Proxies, ConfigError> {
    match before("--proxy", flag.map(values::proxy), file)? {
        Some(proxies) => Ok(proxies),
        None => Proxies::from_environment(environment)
            .map_err(|what| wrong("environment")(values::fault(what))),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
