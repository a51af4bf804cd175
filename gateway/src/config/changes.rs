//! What differs between the configuration that runs and the one that is wanted, by the names of the
//! keys: what a reload puts into effect, and what only a restart does.
//!
//! Pure. Invariant: every key of the configuration is named in exactly one of the two lists if it
//! differs; a section without a line here does not compile (the structs are taken apart whole).

use super::settings::{
    AdminSettings, AgentEntry, AppEntry, Config, GatewaySettings, Limits, PublicSettings,
    TunnelSettings,
};

/// Names of keys and entries that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In effect after a reload.
    pub changed: Vec<String>,
    /// Not before a restart.
    pub needs_restart: Vec<String>,
}

macro_rules! differing {
    ($list:expr, $section:literal, $old:expr, $new:expr, [$($field:ident),* $(,)?]) => {
        $(if $old.$field != $new.$field {
            $list.push(concat!($section, ".", stringify!($field)).to_owned());
        })*
    };
}

impl Changes {
    /// From `running` to `wanted`.
    #[must_use]
    pub fn between(running: &Config, wanted: &Config) -> Self {
        let mut changes = Self::default();
        changes.sections(running, wanted);
        changes.limits(&running.limits, &wanted.limits);
        if running.defaults != wanted.defaults {
            changes.changed.push("[defaults]".to_owned());
        }
        changes.agents(&running.agents, &wanted.agents);
        changes.apps(&running.apps, &wanted.apps);
        changes
    }

    fn sections(&mut self, running: &Config, wanted: &Config) {
        let (live, later) = (&mut self.changed, &mut self.needs_restart);
        let GatewaySettings {
            node: _,
            workers: _,
            memory: _,
            grace: _,
            drain_delay: _,
            hosts: _,
        } = wanted.gateway;
        let (old, new) = (&running.gateway, &wanted.gateway);
        differing!(
            live,
            "[gateway]",
            old,
            new,
            [memory, grace, drain_delay, hosts]
        );
        differing!(later, "[gateway]", old, new, [node, workers]);
        let PublicSettings {
            http: _,
            https: _,
            domain: _,
            tls: _,
            trusted_proxies: _,
            proxy_protocol: _,
            catch_all: _,
        } = wanted.public;
        let (old, new) = (&running.public, &wanted.public);
        #[rustfmt::skip]
        differing!(live, "[public]", old, new, [
            domain, trusted_proxies, proxy_protocol, catch_all,
        ]);
        differing!(later, "[public]", old, new, [http, https]);
        let TunnelSettings {
            listen: _,
            tls: _,
            agent_ca: _,
            plain: _,
            resume_window: _,
            handshake: _,
            handshakes_per_ip: _,
            tunnels_per_agent: _,
            apps_per_agent: _,
        } = wanted.tunnel;
        let (old, new) = (&running.tunnel, &wanted.tunnel);
        #[rustfmt::skip]
        differing!(live, "[tunnel]", old, new, [
            agent_ca, resume_window, handshake, handshakes_per_ip, tunnels_per_agent, apps_per_agent,
        ]);
        differing!(later, "[tunnel]", old, new, [listen, plain]);
        let AdminSettings {
            listen: _,
            token_hash: _,
        } = wanted.admin;
        differing!(later, "[admin]", running.admin, wanted.admin, [listen]);
        let value = |config: &Config| config.admin.token_hash.map(|hash| hash.value());
        if value(running) != value(wanted) {
            live.push("[admin].token_hash".to_owned());
        }
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        let Limits {
            head_size: _,
            head_fields: _,
            uri_size: _,
            head_time: _,
            upload_idle: _,
            upload_rate: _,
            upload_rate_after: _,
            write_stall: _,
            keep_alive_idle: _,
            connections: _,
            connections_per_ip: _,
            tls_handshake: _,
            app_connect: _,
            app_keep_alive_idle: _,
            app_idle_connections: _,
            h2_streams: _,
            h2_stream_window: _,
            h2_connection_window: _,
            h2_send_buffer: _,
            h2_pending_resets: _,
            h2_held: _,
            h2_ping: _,
            h2_ping_timeout: _,
        } = new;
        #[rustfmt::skip]
        differing!(self.changed, "[limits]", old, new, [
            head_size, head_fields, uri_size, head_time, upload_idle, upload_rate,
            upload_rate_after, write_stall, keep_alive_idle, connections, connections_per_ip,
            tls_handshake, app_connect, app_keep_alive_idle, app_idle_connections, h2_streams,
            h2_stream_window, h2_connection_window, h2_send_buffer, h2_pending_resets, h2_held,
            h2_ping, h2_ping_timeout,
        ]);
    }

    fn agents(&mut self, old: &[AgentEntry], new: &[AgentEntry]) {
        let ids = |list: &[AgentEntry]| list.iter().map(|a| a.id.clone()).collect();
        for id in both(ids(old), ids(new)) {
            let find = |list: &[AgentEntry]| list.iter().position(|agent| agent.id == id);
            let same = match (find(old), find(new)) {
                (Some(was), Some(is)) => same_agent(&old[was], &new[is]),
                _ => false,
            };
            if !same {
                self.changed.push(format!("[[agent]] {id}"));
            }
        }
    }

    fn apps(&mut self, old: &[AppEntry], new: &[AppEntry]) {
        let names = |list: &[AppEntry]| list.iter().map(|a| a.name.as_str().to_owned()).collect();
        for name in both(names(old), names(new)) {
            let find =
                |list: &'_ [AppEntry]| list.iter().find(|a| a.name.as_str() == name).cloned();
            let (was, is) = (find(old), find(new));
            if was == is {
                continue;
            }
            let port = |app: &Option<AppEntry>| app.as_ref().and_then(|app| app.port);
            if port(&was) != port(&is) {
                self.needs_restart.push(format!("[[app]] {name}.port"));
            }
            self.changed.push(format!("[[app]] {name}"));
        }
    }
}

/// All names of both lists, each once, in order.
fn both(mut names: Vec<String>, more: Vec<String>) -> Vec<String> {
    names.extend(more);
    names.sort();
    names.dedup();
    names
}

fn same_agent(old: &AgentEntry, new: &AgentEntry) -> bool {
    let keys = |agent: &AgentEntry| {
        let key = |key: &super::AgentKey| (key.id.clone(), key.hash.value(), key.expires);
        agent.keys.iter().map(key).collect::<Vec<_>>()
    };
    old.apps == new.apps && keys(old) == keys(new)
}

impl Config {
    /// What runs after a reload: the wanted values of what can change, the running ones of the rest,
    /// so that these are named again by the next reload.
    #[must_use]
    pub fn reloaded(&self, wanted: &Self) -> Self {
        let mut next = self.clone();
        next.gateway.memory = wanted.gateway.memory;
        next.gateway.grace = wanted.gateway.grace;
        next.gateway.drain_delay = wanted.gateway.drain_delay;
        next.gateway.hosts.clone_from(&wanted.gateway.hosts);
        next.public.domain.clone_from(&wanted.public.domain);
        let trusted = &wanted.public.trusted_proxies;
        next.public.trusted_proxies.clone_from(trusted);
        next.public.proxy_protocol = wanted.public.proxy_protocol;
        next.public.catch_all.clone_from(&wanted.public.catch_all);
        next.public.tls.clone_from(&wanted.public.tls);
        next.tunnel.tls.clone_from(&wanted.tunnel.tls);
        next.tunnel.agent_ca.clone_from(&wanted.tunnel.agent_ca);
        next.tunnel.resume_window = wanted.tunnel.resume_window;
        next.tunnel.handshake = wanted.tunnel.handshake;
        next.tunnel.handshakes_per_ip = wanted.tunnel.handshakes_per_ip;
        next.tunnel.tunnels_per_agent = wanted.tunnel.tunnels_per_agent;
        next.tunnel.apps_per_agent = wanted.tunnel.apps_per_agent;
        next.limits.clone_from(&wanted.limits);
        next.admin.token_hash = wanted.admin.token_hash;
        next.defaults.clone_from(&wanted.defaults);
        next.agents.clone_from(&wanted.agents);
        next.apps.clone_from(&wanted.apps);
        for app in &mut next.apps {
            // A listener stays where it is, and one that is not there does not come.
            let was = self.apps.iter().find(|old| old.name == app.name);
            app.port = was.and_then(|old| old.port);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    const BASE: &str = "[public]\ndomain = \"a.org\"\n[tunnel]\nplain = true\n";

    fn config(more: &str) -> Config {
        Config::from_toml(&format!("{BASE}{more}"), "gw.toml", Path::new("/")).unwrap()
    }

    fn between(old: &str, new: &str) -> (Vec<String>, Vec<String>) {
        let Changes {
            changed,
            needs_restart,
        } = Changes::between(&config(old), &config(new));
        (changed, needs_restart)
    }

    #[test]
    fn nothing_differs_from_itself() {
        assert_eq!(between("", ""), (vec![], vec![]));
    }

    #[test]
    fn an_app_that_comes_goes_or_changes_is_named() {
        let old = "[[app]]\nname = \"a\"\n[[app]]\nname = \"b\"\n[[app]]\nname = \"c\"\n";
        let new =
            "[[app]]\nname = \"b\"\nhold = \"1s\"\n[[app]]\nname = \"c\"\n[[app]]\nname = \"d\"\n";
        let changed = ["[[app]] a", "[[app]] b", "[[app]] d"];
        assert_eq!(
            between(old, new),
            (changed.map(String::from).into(), vec![])
        );
    }

    #[test]
    fn a_change_of_the_defaults_names_the_apps_that_inherit_it() {
        let old = "[[app]]\nname = \"a\"\n[[app]]\nname = \"b\"\nin_flight = 7\n";
        let new = format!("[defaults]\nin_flight = 9\n{old}");
        let changed = ["[defaults]", "[[app]] a"];
        assert_eq!(
            between(old, &new),
            (changed.map(String::from).into(), vec![])
        );
    }

    #[test]
    fn what_needs_a_restart_is_named_by_its_key_until_it_got_one() {
        let new = "listen = \":7001\"\n[gateway]\nnode = \"x\"\nworkers = 3\n";
        let needs = ["[gateway].node", "[gateway].workers", "[tunnel].listen"];
        assert_eq!(between("", new), (vec![], needs.map(String::from).into()));
        let running = config("").reloaded(&config(new));
        assert_eq!(
            Changes::between(&running, &config(new)).needs_restart,
            needs
        );
    }

    #[test]
    fn bounds_of_connections_memory_and_tunnels_are_in_effect_after_a_reload() {
        let new = concat!(
            "handshake = \"7s\"\nresume_window = \"0s\"\ntunnels_per_agent = 7\n[limits]\nh2_ping = \"7s\"\n",
            "[gateway]\nmemory = \"1GiB\"\ngrace = \"1s\"\ndrain_delay = \"1s\"\n"
        );
        let changed = [
            "[gateway].memory",
            "[gateway].grace",
            "[gateway].drain_delay",
            "[tunnel].resume_window",
            "[tunnel].handshake",
            "[tunnel].tunnels_per_agent",
            "[limits].h2_ping",
        ];
        assert_eq!(between("", new), (changed.map(String::from).into(), vec![]));
        let running = config("").reloaded(&config(new));
        assert_eq!(Changes::between(&running, &config(new)), Changes::default());
    }

    #[test]
    fn a_port_of_a_tcp_app_needs_a_restart() {
        let new = "[[app]]\nname = \"db\"\nprotocol = \"tcp\"\nport = 5432\n";
        let (changed, needs) = between("", new);
        assert_eq!(
            (changed, needs),
            (vec!["[[app]] db".into()], vec!["[[app]] db.port".into()])
        );
        let running = config("").reloaded(&config(new));
        assert_eq!(running.apps[0].port, None);
    }

    #[test]
    fn a_key_of_an_agent_is_told_apart_by_its_hash() {
        let agent = |digit: &str| {
            let hash = digit.repeat(64);
            format!(
                "[[agent]]\nid = \"x\"\napps = [\"*\"]\nkeys = [{{ id = \"k\", hash = \"blake3:{hash}\" }}]\n"
            )
        };
        assert_eq!(between(&agent("1"), &agent("1")), (vec![], vec![]));
        let changed = vec!["[[agent]] x".to_owned()];
        assert_eq!(between(&agent("1"), &agent("2")), (changed, vec![]));
    }
}
