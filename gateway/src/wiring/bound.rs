//! Every listener and certificate of a configuration, before anything runs.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;

use super::WiringError;
use crate::accept::{http, listener};
use crate::cert::CertStore;
use crate::cert::agents::{AgentIssuers, PublicTerms, tunnel_terms};
use crate::config::{AppName, Config};
use crate::outlook::{Stores, tunnel_certificates};

/// What a listener serves.
#[derive(Clone)]
pub(super) enum Duty {
    /// HTTP, with TLS if there is a configuration.
    Http(Option<Arc<PublicTerms>>),
    /// Agents, with TLS if there is a configuration.
    Tunnel(Option<Arc<ServerConfig>>),
    /// A TCP app.
    Tcp(AppName),
}

/// One address with one socket a worker.
pub(super) struct Door {
    pub(super) duty: Duty,
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<std::net::TcpListener>,
}

/// A gateway that could start.
pub(super) struct Bound {
    pub(super) config: Config,
    pub(super) workers: usize,
    pub(super) doors: Vec<Door>,
    pub(super) admin: std::net::TcpListener,
    pub(super) certs: Certs,
}

/// Certificates in use, by side.
#[derive(Clone)]
pub(super) struct Certs {
    pub(super) public: Option<Arc<CertStore>>,
    pub(super) tunnel: Option<Arc<CertStore>>,
    /// Whose certificates agents show.
    pub(super) issuers: Arc<AgentIssuers>,
    /// Terms of the public listeners, which depend on the gateway's own hosts.
    pub(super) terms: Option<Arc<PublicTerms>>,
}

impl Certs {
    /// For a look at them.
    pub(super) fn stores(&self) -> Stores<'_> {
        Stores {
            public: self.public.as_deref(),
            tunnel: self.tunnel.as_deref(),
        }
    }
}

impl Bound {
    /// Binds everything, or says what cannot be bound.
    pub(super) fn bind(config: Config) -> Result<Self, WiringError> {
        let workers = match config.gateway.workers {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            count => count,
        };
        let mut doors = Vec::new();
        let mut certs = Certs {
            public: None,
            tunnel: None,
            issuers: AgentIssuers::load(config.tunnel.agent_ca.as_ref())?,
            terms: None,
        };
        let mut door = |what, address, duty| -> Result<(), WiringError> {
            let sockets =
                listener::bind(address, workers).map_err(|error| WiringError::Listen {
                    what,
                    address,
                    error,
                })?;
            let address = local(&sockets[0], address);
            doors.push(Door {
                duty,
                address,
                sockets,
            });
            Ok(())
        };
        for address in &config.public.http {
            door("public.http", *address, Duty::Http(None))?;
        }
        if !config.public.https.is_empty() {
            let store = Arc::new(CertStore::load(&config.public.tls)?);
            let hosts = own_hosts(&config);
            let terms = PublicTerms::new(&store, &certs.issuers, hosts, &http::ALPN)?;
            certs.public = Some(store);
            for address in &config.public.https {
                door(
                    "public.https",
                    *address,
                    Duty::Http(Some(Arc::clone(&terms))),
                )?;
            }
            certs.terms = Some(terms);
        }
        let tunnel_tls = if config.tunnel.plain {
            None
        } else {
            let store = Arc::new(CertStore::load(tunnel_certificates(&config))?);
            let alpn = [bridgehead_protocol::io::tls::ALPN];
            let terms = tunnel_terms(&store, &certs.issuers, &alpn)?;
            certs.tunnel = Some(store);
            Some(terms)
        };
        for address in &config.tunnel.listen {
            door("tunnel.listen", *address, Duty::Tunnel(tunnel_tls.clone()))?;
        }
        for app in &config.apps {
            if let Some(port) = app.port {
                let address = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port);
                door("app.port", address, Duty::Tcp(app.name.clone()))?;
            }
        }
        let address = config.admin.listen;
        let admin = std::net::TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| WiringError::Listen {
                what: "admin.listen",
                address,
                error,
            })?;
        Ok(Self {
            config,
            workers,
            doors,
            admin,
            certs,
        })
    }
}

/// Names of the gateway itself.
pub(super) fn own_hosts(config: &Config) -> Vec<String> {
    let hosts = config.gateway.hosts.iter();
    hosts.map(|host| host.as_str().to_owned()).collect()
}

fn local(socket: &std::net::TcpListener, asked: SocketAddr) -> SocketAddr {
    socket.local_addr().unwrap_or(asked)
}
