//! The configuration that `dev` makes for itself: one app, one agent, everything on loopback.
//!
//! Pure: ids and hashes come in. Invariant: it passes the same rules as a file.

use std::net::SocketAddr;
use std::time::Duration;

use bridgehead_protocol::handshake::{AppPattern, Token};

use super::admission::Admission;
use super::check::{self, Place};
use super::defaults::{ADMIN_PORT, HTTP_PORT, TUNNEL_PORT, loopback};
use super::names::AppName;
use super::settings::{
    AdminSettings, AgentEntry, AgentKey, AppEntry, AppKind, AppSettings, Config, GatewaySettings,
    Limits, PublicSettings, TunnelSettings,
};
use crate::route::host::{Host, HostError};
use crate::route::path::PathPrefix;
use bridgehead_protocol::config::Percent;
use bridgehead_protocol::config::{ConfigError, ConfigErrors};

/// The domain of `dev`; browsers resolve everything below it to loopback.
const DOMAIN: &str = "localhost";
/// The own host of `dev`.
const OWN_HOST: &str = "gateway.localhost";

/// What a person may choose for a `dev` run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevOptions {
    /// Name of the app.
    pub name: AppName,
    /// How the agent speaks to it; TCP is not offered in `dev`.
    pub kind: AppKind,
    /// Public listener.
    pub public: SocketAddr,
    /// Tunnel listener, plain TCP.
    pub tunnel: SocketAddr,
    /// Admin listener.
    pub admin: SocketAddr,
    /// Overrides the default window.
    pub first_frame_window: Option<Duration>,
    /// Overrides the default window.
    pub stall_window: Option<Duration>,
    /// Overrides the default hold.
    pub hold: Option<Duration>,
}

impl DevOptions {
    /// The defaults: the usual ports on loopback.
    #[must_use]
    pub fn new(name: AppName) -> Self {
        Self {
            name,
            kind: AppKind::Http1,
            public: loopback(HTTP_PORT),
            tunnel: loopback(TUNNEL_PORT),
            admin: loopback(ADMIN_PORT),
            first_frame_window: None,
            stall_window: None,
            hold: None,
        }
    }
}

impl Config {
    /// The configuration of a `dev` run. `agent` is the subject of the token made for this run,
    /// which may serve every app name, so that further agents can join with it.
    ///
    /// # Errors
    /// The rules of a file, told in terms of the command line.
    pub fn for_dev(options: &DevOptions, agent: &str, key: AgentKey) -> Result<Self, ConfigErrors> {
        let host = |text: &str| Host::parse(text).map_err(|error| own_host_fault(text, error));
        let inherited = AppSettings::default();
        let settings = AppSettings {
            first_frame_window: (options.first_frame_window)
                .unwrap_or(inherited.first_frame_window),
            stall_window: options.stall_window.unwrap_or(inherited.stall_window),
            hold: options.hold.unwrap_or(inherited.hold),
            // Everybody on this machine has one address.
            admission: Admission {
                client_share: Percent::WHOLE,
                ..Admission::default()
            },
            ..inherited
        };
        let config = Self {
            gateway: GatewaySettings {
                node: "dev".to_owned(),
                hosts: vec![host(OWN_HOST)?],
                ..GatewaySettings::default()
            },
            public: PublicSettings {
                http: vec![options.public],
                domain: Some(host(DOMAIN)?),
                catch_all: Some(options.name.clone()),
                ..PublicSettings::default()
            },
            tunnel: TunnelSettings {
                listen: vec![options.tunnel],
                plain: true,
                ..TunnelSettings::default()
            },
            admin: AdminSettings {
                listen: options.admin,
                token_hash: None,
            },
            limits: Limits::default(),
            defaults: settings.clone(),
            agents: vec![AgentEntry {
                id: agent.to_owned(),
                keys: vec![key],
                apps: AppPattern::parse("*").into_iter().collect(),
            }],
            apps: vec![AppEntry {
                name: options.name.clone(),
                hosts: Vec::new(),
                paths: vec![PathPrefix::root()],
                kind: options.kind,
                port: None,
                settings,
            }],
        };
        let errors: Vec<ConfigError> = check::check(&config).into_iter().map(as_flag).collect();
        match errors.is_empty() {
            true => Ok(config),
            false => Err(ConfigErrors::new(errors)),
        }
    }
}

fn as_flag(violation: check::Violation) -> ConfigError {
    let flag = match violation.place {
        Place::Gateway | Place::App(_) => "--name",
        Place::Public => "--public",
        Place::Tunnel => "--tunnel",
        Place::Admin => "--admin",
        Place::Agent(_) | Place::AgentKey(..) => "the run's token",
        // `dev` has the defaults.
        Place::Limits => "the limits",
    };
    let mend = match violation.place {
        // A file could add a token; `dev` is for one machine.
        Place::Admin if violation.key == "token_hash" => "listen on 127.0.0.1".to_owned(),
        _ => violation.fault.mend,
    };
    ConfigError {
        file: String::new(),
        line: None,
        path: flag.to_owned(),
        what: violation.fault.what,
        mend,
    }
}

fn own_host_fault(text: &str, error: HostError) -> ConfigErrors {
    ConfigErrors::whole_file("", format!("the host {text} {error}"), "")
}

impl AgentKey {
    /// A key for `token` that never expires; for a token that lives as long as the process.
    #[must_use]
    pub fn for_token(token: &Token) -> Self {
        Self {
            id: token.key_id().to_owned(),
            hash: token.hash(),
            expires: None,
        }
    }
}
