//! Rules that need more than one key: what may not stand together, and what needs company.
//!
//! Pure; used for files and for `dev` alike. Place in the path: after `parse` found no mistake of
//! its own. Invariant: what passes can be bound and routed without ambiguity.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bridgehead_protocol::io::shake::LONGEST_RESUMING;
use bridgehead_protocol::wire::AppKind;

use super::defaults::DEAD_AFTER;
use super::net::clash;
use super::settings::{AppEntry, Config, ProxyProtocol};
use crate::route::host::Host;
use bridgehead_protocol::config::Fault;

/// Which table a violation is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Gateway,
    Public,
    Tunnel,
    Admin,
    Limits,
    Agent(usize),
    AgentKey(usize, usize),
    App(usize),
}

/// A broken rule; an empty `key` means the table as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) place: Place,
    pub(super) key: &'static str,
    pub(super) fault: Fault,
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(
        &mut self,
        place: Place,
        key: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.0.push(Violation {
            place,
            key,
            fault: Fault::new(what, mend),
        });
    }
}

/// Every broken rule, in the order of the sections.
pub(super) fn check(config: &Config) -> Vec<Violation> {
    let mut found = Found::default();
    public(config, &mut found);
    tunnel(config, &mut found);
    admin(config, &mut found);
    limits(config, &mut found);
    agents(config, &mut found);
    for (index, app) in config.apps.iter().enumerate() {
        one_app(config, index, app, &mut found);
    }
    unique_apps(config, &mut found);
    unique_hosts(config, &mut found);
    listeners(config, &mut found);
    found.0
}

fn public(config: &Config, found: &mut Found) {
    let public = &config.public;
    if !public.https.is_empty() && public.tls.is_empty() {
        found.add(
            Place::Public,
            "https",
            "needs a certificate",
            "add tls = [{ cert = \"…\", key = \"…\" }]",
        );
    }
    if public.http.is_empty() && public.https.is_empty() {
        found.add(
            Place::Public,
            "http",
            "there is no public listener",
            "give http or https an address",
        );
    }
    let trusts_nobody = public.trusted_proxies.is_empty();
    if public.proxy_protocol == ProxyProtocol::FromTrusted && trusts_nobody {
        found.add(
            Place::Public,
            "proxy_protocol",
            "from_trusted has nobody to trust",
            "list the proxies in trusted_proxies",
        );
    }
}

fn tunnel(config: &Config, found: &mut Found) {
    let tunnel = &config.tunnel;
    if tunnel.listen.is_empty() {
        found.add(
            Place::Tunnel,
            "listen",
            "there is no listener for agents",
            "give it an address",
        );
    }
    if tunnel.tls.is_empty() && !tunnel.plain {
        found.add(
            Place::Tunnel,
            "tls",
            "is missing, and [public] has no certificate to share",
            "add tls = [{ cert = \"…\", key = \"…\" }], or plain = true inside a trusted network",
        );
    }
    if tunnel.plain && !tunnel.tls.is_empty() {
        found.add(
            Place::Tunnel,
            "plain",
            "contradicts tls",
            "keep one of the two",
        );
    }
    if tunnel.plain && tunnel.agent_ca.is_some() {
        found.add(
            Place::Tunnel,
            "agent_ca",
            "asks for certificates where there is no TLS",
            "take plain = true out",
        );
    }
    let resuming = tunnel.handshake.min(LONGEST_RESUMING);
    let shortest = DEAD_AFTER + resuming;
    if !tunnel.resume_window.is_zero() && tunnel.resume_window < shortest {
        found.add(
            Place::Tunnel,
            "resume_window",
            format!(
                "is over before a dead connection is noticed ({}s) and another one stands ({}s)",
                DEAD_AFTER.as_secs_f32(),
                resuming.as_secs_f32()
            ),
            format!(
                "give it {}s or more, or 0s to let tunnels end with their connections",
                shortest.as_secs_f32()
            ),
        );
    }
}

fn admin(config: &Config, found: &mut Found) {
    let admin = &config.admin;
    if admin.token_hash.is_none() && !admin.listen.ip().is_loopback() {
        found.add(
            Place::Admin,
            "token_hash",
            format!(
                "is missing while {} is reachable from outside",
                admin.listen
            ),
            "add token_hash = \"blake3:…\", or listen on 127.0.0.1",
        );
    }
}

fn limits(config: &Config, found: &mut Found) {
    let limits = &config.limits;
    if limits.uri_size > limits.head_size {
        found.add(
            Place::Limits,
            "uri_size",
            format!(
                "is above head_size ({}B), of which the address is a part, so that it never applies",
                limits.head_size
            ),
            "make it smaller, or head_size larger",
        );
    }
}

fn agents(config: &Config, found: &mut Found) {
    let mut ids = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for (index, agent) in config.agents.iter().enumerate() {
        let place = Place::Agent(index);
        if ids.insert(&agent.id, index).is_some() {
            let what = format!("\"{}\" is another agent's id", agent.id);
            found.add(
                place,
                "id",
                what,
                "put both tokens into one keys list, or rename one",
            );
        }
        if agent.keys.is_empty() {
            let what = "has no token, so this agent cannot dial in";
            found.add(
                place,
                "keys",
                what,
                "add what `bh-gateway token new` prints",
            );
        }
        for (position, key) in agent.keys.iter().enumerate() {
            if keys.insert(&key.id, index).is_some() {
                let what = format!("\"{}\" is another token's id", key.id);
                let mend = "make a new token; an id finds exactly one";
                found.add(Place::AgentKey(index, position), "id", what, mend);
            }
        }
    }
}

fn one_app(config: &Config, index: usize, app: &AppEntry, found: &mut Found) {
    let place = Place::App(index);
    match app.kind {
        AppKind::Tcp => {
            if app.port.is_none() {
                let what = "is missing; a TCP app answers on its own public port";
                found.add(place, "port", what, "add for example port = 5432");
            }
            if !app.hosts.is_empty() {
                let what = "mean nothing to a TCP app";
                found.add(place, "hosts", what, "remove them; its port is its address");
            }
            if !app.paths.is_empty() {
                let what = "mean nothing to a TCP app";
                found.add(place, "paths", what, "remove them; its port is its address");
            }
        }
        AppKind::Http1 | AppKind::H2c => {
            if app.port.is_some() {
                let what = "is for protocol = \"tcp\" only";
                found.add(
                    place,
                    "port",
                    what,
                    "remove it; HTTP apps share the public ports",
                );
            }
            if app.paths.is_empty() {
                let what = "is empty, so nothing reaches the app";
                found.add(place, "paths", what, "remove it, or list prefixes");
            }
            let catches_all = config.public.catch_all.as_ref() == Some(&app.name);
            if app.hosts.is_empty() && config.public.domain.is_none() && !catches_all {
                let what =
                    "are missing and [public].domain is not set, so no request reaches the app";
                found.add(place, "hosts", what, "add hosts = [\"…\"] or a domain");
            }
        }
    }
}

fn unique_apps(config: &Config, found: &mut Found) {
    let mut names = BTreeMap::new();
    for (index, app) in config.apps.iter().enumerate() {
        if names.insert(&app.name, index).is_some() {
            let what = format!("\"{}\" is another app's name", app.name);
            found.add(Place::App(index), "name", what, "rename one");
        }
    }
}

/// A host and prefix must lead to one app, own hosts to the gateway alone.
fn unique_hosts(config: &Config, found: &mut Found) {
    let domain = config.public.domain.as_ref();
    let named = |host: &Host| {
        let label = host.label_under(domain?)?;
        config.apps.iter().find(|app| app.name.as_str() == label)
    };
    for host in &config.gateway.hosts {
        if let Some(app) = named(host) {
            let what = format!("{host} is already the host of the app {}", app.name);
            found.add(
                Place::Gateway,
                "hosts",
                what,
                "choose another own host or rename the app",
            );
        }
    }
    let mut taken = BTreeMap::new();
    for (index, app) in config.apps.iter().enumerate() {
        for host in &app.hosts {
            if config.gateway.hosts.contains(host) {
                let what = format!("{host} is one of the gateway's own hosts");
                found.add(Place::App(index), "hosts", what, "choose another host");
            }
            if let Some(other) = named(host).filter(|other| other.name != app.name) {
                let what = format!("{host} is already the host of the app {}", other.name);
                found.add(Place::App(index), "hosts", what, "choose another host");
            }
            for path in &app.paths {
                if let Some(owner) = taken.insert((host, path), &app.name) {
                    let what = format!("{host}{path} already leads to the app {owner}");
                    let mend = "choose another host, or give the apps different paths";
                    found.add(Place::App(index), "hosts", what, mend);
                }
            }
        }
    }
}

fn listeners(config: &Config, found: &mut Found) {
    let all = |key, list: &[SocketAddr], place| -> Vec<(Place, &'static str, SocketAddr)> {
        list.iter().map(|address| (place, key, *address)).collect()
    };
    let mut wanted = all("http", &config.public.http, Place::Public);
    wanted.extend(all("https", &config.public.https, Place::Public));
    wanted.extend(all("listen", &config.tunnel.listen, Place::Tunnel));
    wanted.extend(all("listen", &[config.admin.listen], Place::Admin));
    for (index, app) in config.apps.iter().enumerate() {
        if let Some(port) = app.port {
            let address = super::defaults::everywhere(port);
            wanted.push((Place::App(index), "port", address));
        }
    }
    for (later, (place, key, address)) in wanted.iter().enumerate() {
        let earlier = wanted[..later]
            .iter()
            .find(|(_, _, other)| clash(*other, *address));
        if let Some((_, _, other)) = earlier {
            let what = format!("{address} clashes with the listener {other}");
            found.add(*place, key, what, "choose another port");
        }
    }
}
