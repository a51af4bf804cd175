//! Sections of text → validated values.
//!
//! Owns the meaning of each key; a rule that needs two keys stands in `check`. Pure. Place in the
//! path: after the text, before everything else. Invariant: every key is read through [`Section`], so
//! that an unread one is reported.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridgehead_protocol::config::{ConfigErrors, Fault, Percent, Section, Value, read, units};

use super::admission;
use super::check::{self, Place};
use super::defaults;
use super::media::{self, MediaTypes};
use super::names::{self, AppName};
use super::net::{self, Cidr};
use super::secret;
use super::settings::{
    AdminSettings, AgentCa, AgentEntry, AgentKey, AppEntry, AppKind, AppSettings, CertificateFiles,
    Config, Demand, GatewaySettings, Go, HostHeader, Limits, MemoryBudget, ProxyProtocol,
    PublicSettings, TunnelSettings,
};
use crate::route::host::{Authority, Host};
use crate::route::path::PathPrefix;

pub(super) fn parse(text: &str, file: &str, base: &Path) -> Result<Config, ConfigErrors> {
    read(text, file, |sink, root| {
        let sections = Sections::of(root);
        let config = sections.read(base);
        sections.finish();
        if sink.is_empty() {
            // Rules between keys would only repeat what a broken key already caused.
            for violation in check::check(&config) {
                let section = sections.at(violation.place);
                section.report(violation.key, violation.fault);
            }
        }
        config
    })
}

/// The sections of one file, kept for the rules that name a place later.
struct Sections<'d> {
    root: Section<'d>,
    gateway: Section<'d>,
    public: Section<'d>,
    tunnel: Section<'d>,
    admin: Section<'d>,
    limits: Section<'d>,
    defaults: Section<'d>,
    agents: Vec<(Section<'d>, Vec<Section<'d>>)>,
    apps: Vec<Section<'d>>,
}

impl<'d> Sections<'d> {
    fn of(root: Section<'d>) -> Self {
        Self {
            gateway: root.table("gateway"),
            public: root.table("public"),
            tunnel: root.table("tunnel"),
            admin: root.table("admin"),
            limits: root.table("limits"),
            defaults: root.table("defaults"),
            agents: (root.tables("agent").into_iter())
                .map(|agent| {
                    let keys = agent.tables("keys");
                    (agent, keys)
                })
                .collect(),
            apps: root.tables("app"),
            root,
        }
    }

    fn read(&self, base: &Path) -> Config {
        let defaults = app_settings(&self.defaults, &AppSettings::default());
        let public = public(&self.public, base);
        Config {
            gateway: gateway(&self.gateway),
            tunnel: tunnel(&self.tunnel, base, &public.tls),
            admin: admin(&self.admin),
            limits: limits(&self.limits),
            agents: (self.agents.iter())
                .filter_map(|(section, keys)| agent(section, keys))
                .collect(),
            apps: (self.apps.iter())
                .filter_map(|section| app(section, &defaults))
                .collect(),
            public,
            defaults,
        }
    }

    fn finish(&self) {
        self.root.finish();
        let single = [
            &self.gateway,
            &self.public,
            &self.tunnel,
            &self.admin,
            &self.limits,
            &self.defaults,
        ];
        single.into_iter().for_each(Section::finish);
        self.apps.iter().for_each(Section::finish);
        for (agent, keys) in &self.agents {
            agent.finish();
            keys.iter().for_each(Section::finish);
        }
    }

    /// Only asked when every section became a value, so the indices agree.
    fn at(&self, place: Place) -> &Section<'d> {
        match place {
            Place::Gateway => &self.gateway,
            Place::Public => &self.public,
            Place::Tunnel => &self.tunnel,
            Place::Admin => &self.admin,
            Place::Limits => &self.limits,
            Place::Agent(index) => self
                .agents
                .get(index)
                .map_or(&self.root, |(agent, _)| agent),
            Place::AgentKey(index, key) => (self.agents.get(index))
                .and_then(|(_, keys)| keys.get(key))
                .unwrap_or(&self.root),
            Place::App(index) => self.apps.get(index).unwrap_or(&self.root),
        }
    }
}

fn gateway(section: &Section<'_>) -> GatewaySettings {
    let default = GatewaySettings::default();
    GatewaySettings {
        node: (section.read("node", |v| names::parse_id(v.text()?))).unwrap_or(default.node),
        workers: (section.read("workers", |v| count(v, 0..=1024))).unwrap_or(default.workers),
        memory: section.read("memory", memory).unwrap_or(default.memory),
        grace: section
            .read("grace", Value::duration)
            .unwrap_or(default.grace),
        drain_delay: section
            .read("drain_delay", Value::duration)
            .unwrap_or(default.drain_delay),
        hosts: section.list("hosts", host).unwrap_or_default(),
    }
}

fn public(section: &Section<'_>, base: &Path) -> PublicSettings {
    let default = PublicSettings::default();
    let http = section.list("http", listener);
    let https = section.list("https", listener);
    let tls = certificates(section, base);
    let default_https = match tls.is_empty() {
        true => Vec::new(),
        false => vec![defaults::everywhere(defaults::HTTPS_PORT)],
    };
    PublicSettings {
        http: http.unwrap_or(default.http),
        https: https.unwrap_or(default_https),
        domain: section.read("domain", domain),
        tls,
        trusted_proxies: (section.list("trusted_proxies", |v| Cidr::parse(v.text()?)))
            .unwrap_or_default(),
        proxy_protocol: (section.read("proxy_protocol", |v| {
            one_of(
                v,
                &[
                    ("off", ProxyProtocol::Off),
                    ("from_trusted", ProxyProtocol::FromTrusted),
                ],
            )
        }))
        .unwrap_or(default.proxy_protocol),
        catch_all: None,
    }
}

fn tunnel(section: &Section<'_>, base: &Path, public: &[CertificateFiles]) -> TunnelSettings {
    let default = TunnelSettings::default();
    let plain = section
        .read("plain", Value::switch)
        .unwrap_or(default.plain);
    let own = certificates(section, base);
    let tls = match own.is_empty() && !plain {
        true => public.to_vec(),
        false => own,
    };
    let number = |key, default| {
        let read = section.read(key, |v| count(v, 1..=1_000_000));
        read.unwrap_or(default)
    };
    TunnelSettings {
        listen: section.list("listen", listener).unwrap_or(default.listen),
        tls,
        agent_ca: agent_ca(section, base),
        plain,
        resume_window: (section.read("resume_window", Value::duration))
            .unwrap_or(default.resume_window),
        handshake: section.read("handshake", span).unwrap_or(default.handshake),
        handshakes_per_ip: number("handshakes_per_ip", default.handshakes_per_ip),
        tunnels_per_agent: number("tunnels_per_agent", default.tunnels_per_agent),
        apps_per_agent: number("apps_per_agent", default.apps_per_agent),
    }
}

fn agent_ca(section: &Section<'_>, base: &Path) -> Option<AgentCa> {
    let file = section.read("agent_ca", |v| Ok(base.join(v.text()?)));
    let words = [
        ("required", Demand::Required),
        ("optional", Demand::Optional),
    ];
    let demand = section.read("agent_cert", |v| one_of(v, &words));
    if demand.is_some() && !section.has("agent_ca") {
        let mend = "name their CA: agent_ca = \"agents-ca.pem\"";
        section.report("agent_cert", Fault::new("has no CA to go by", mend));
    }
    file.map(|file| AgentCa {
        file,
        demand: demand.unwrap_or(Demand::Required),
    })
}

fn admin(section: &Section<'_>) -> AdminSettings {
    AdminSettings {
        listen: (section.read("listen", listener)).unwrap_or(AdminSettings::default().listen),
        token_hash: section.read("token_hash", |v| secret::parse_hash(v.text()?)),
    }
}

fn limits(section: &Section<'_>) -> Limits {
    let d = Limits::default();
    let time = |key, default| section.read(key, span).unwrap_or(default);
    let size = |key, default| section.read(key, bytes).unwrap_or(default);
    let number = |key, default| {
        section
            .read(key, |v| count(v, 1..=10_000_000))
            .unwrap_or(default)
    };
    let window = |key, default| section.read(key, h2_window).unwrap_or(default);
    let head_size = size("head_size", d.head_size);
    Limits {
        head_size,
        // The parser's table of fields has 256 places.
        head_fields: (section.read("head_fields", |v| count(v, 1..=256))).unwrap_or(d.head_fields),
        uri_size: size("uri_size", d.uri_size.min(head_size)),
        head_time: time("head_time", d.head_time),
        upload_idle: time("upload_idle", d.upload_idle),
        upload_rate: size("upload_rate", d.upload_rate),
        upload_rate_after: time("upload_rate_after", d.upload_rate_after),
        write_stall: time("write_stall", d.write_stall),
        keep_alive_idle: time("keep_alive_idle", d.keep_alive_idle),
        connections: number("connections", d.connections),
        connections_per_ip: number("connections_per_ip", d.connections_per_ip),
        tls_handshake: time("tls_handshake", d.tls_handshake),
        app_connect: time("app_connect", d.app_connect),
        app_keep_alive_idle: time("app_keep_alive_idle", d.app_keep_alive_idle),
        app_idle_connections: (section.read("app_idle_connections", |v| count(v, 0..=10_000)))
            .unwrap_or(d.app_idle_connections),
        h2_streams: (section.read("h2_streams", |v| count(v, 1..=100_000)))
            .and_then(|streams| u32::try_from(streams).ok())
            .unwrap_or(d.h2_streams),
        h2_stream_window: window("h2_stream_window", d.h2_stream_window),
        h2_connection_window: window("h2_connection_window", d.h2_connection_window),
        h2_send_buffer: (section.read("h2_send_buffer", h2_send_buffer))
            .unwrap_or(d.h2_send_buffer),
        h2_pending_resets: number("h2_pending_resets", d.h2_pending_resets),
        h2_held: size("h2_held", d.h2_held),
        h2_ping: time("h2_ping", d.h2_ping),
        h2_ping_timeout: time("h2_ping_timeout", d.h2_ping_timeout),
    }
}

fn app_settings(section: &Section<'_>, inherited: &AppSettings) -> AppSettings {
    AppSettings {
        first_frame_window: (section.read("first_frame_window", span))
            .unwrap_or(inherited.first_frame_window),
        stall_window: section
            .read("stall_window", span)
            .unwrap_or(inherited.stall_window),
        streaming_stall_window: (section.read("streaming_stall_window", span))
            .unwrap_or(inherited.streaming_stall_window),
        streaming_types: (section.list("streaming_types", |v| media::parse(v.text()?)))
            .map_or_else(|| inherited.streaming_types.clone(), MediaTypes::new),
        hold: section
            .read("hold", Value::duration)
            .unwrap_or(inherited.hold),
        go: (section.read("go", |v| {
            one_of(
                v,
                &[
                    ("always", Go::Always),
                    ("unsafe", Go::Unsafe),
                    ("never", Go::Never),
                ],
            )
        }))
        .unwrap_or(inherited.go),
        repeat_reads: (section.read("repeat_reads", Value::switch))
            .unwrap_or(inherited.repeat_reads),
        cors: section
            .read("cors", Value::switch)
            .unwrap_or(inherited.cors),
        max_body: section
            .read("max_body", max_body)
            .unwrap_or(inherited.max_body),
        host_header: (section.read("host_header", host_header))
            .unwrap_or_else(|| inherited.host_header.clone()),
        admission: admission::read(section, &inherited.admission),
    }
}

fn agent(section: &Section<'_>, keys: &[Section<'_>]) -> Option<AgentEntry> {
    let id = required(section, "id", "the agent's name, such as \"laptop\"", |v| {
        names::parse_id(v.text()?)
    });
    let apps = required_list(
        section,
        "apps",
        "the apps it may serve, such as [\"demo\"]",
        |v| names::parse_pattern(v.text()?),
    );
    let keys: Vec<AgentKey> = keys.iter().filter_map(agent_key).collect();
    Some(AgentEntry {
        id: id?,
        keys,
        apps: apps?,
    })
}

fn agent_key(section: &Section<'_>) -> Option<AgentKey> {
    let id = required(
        section,
        "id",
        "the part of the token between bh_ and the last _",
        |v| names::parse_id(v.text()?),
    );
    let hash = required(
        section,
        "hash",
        "what `bh-gateway token new` printed",
        |v| secret::parse_hash(v.text()?),
    );
    let expires = section.read("expires", |v| units::parse_date(&v.date()?));
    Some(AgentKey {
        id: id?,
        hash: hash?,
        expires,
    })
}

fn app(section: &Section<'_>, defaults: &AppSettings) -> Option<AppEntry> {
    let name = required(section, "name", "the app's name, such as \"demo\"", |v| {
        AppName::parse(v.text()?)
    });
    let hosts = section.list("hosts", host).unwrap_or_default();
    let paths = section.list("paths", |v| {
        PathPrefix::parse(v.text()?)
            .map_err(|error| Fault::new(format!("the path {error}"), "write for example \"/api\""))
    });
    let kinds = [
        ("http1", AppKind::Http1),
        ("h2c", AppKind::H2c),
        ("tcp", AppKind::Tcp),
    ];
    let kind = (section.read("protocol", |v| one_of(v, &kinds))).unwrap_or(AppKind::Http1);
    let port = section.read("port", port);
    let settings = app_settings(section, defaults);
    let everything = match kind {
        AppKind::Http1 | AppKind::H2c => vec![PathPrefix::root()],
        AppKind::Tcp => Vec::new(),
    };
    Some(AppEntry {
        name: name?,
        hosts,
        paths: paths.unwrap_or(everything),
        kind,
        port,
        settings,
    })
}

fn certificates(section: &Section<'_>, base: &Path) -> Vec<CertificateFiles> {
    let mut pairs = Vec::new();
    for pair in section.tables("tls") {
        let file = |key, mend| {
            required(
                &pair,
                key,
                mend,
                |v| Ok(base.join(PathBuf::from(v.text()?))),
            )
        };
        let cert = file("cert", "the path of the certificate chain, PEM");
        let key = file("key", "the path of the private key, PEM");
        pair.finish();
        if let (Some(cert), Some(key)) = (cert, key) {
            pairs.push(CertificateFiles { cert, key });
        }
    }
    pairs
}

fn required<'d, T>(
    section: &Section<'d>,
    key: &'static str,
    mend: &str,
    read: impl FnOnce(&Value<'d>) -> Result<T, Fault>,
) -> Option<T> {
    if !section.has(key) {
        section.report(key, Fault::new("is missing", format!("add {mend}")));
    }
    section.read(key, read)
}

fn required_list<'d, T>(
    section: &Section<'d>,
    key: &'static str,
    mend: &str,
    read: impl Fn(&Value<'d>) -> Result<T, Fault>,
) -> Option<Vec<T>> {
    if !section.has(key) {
        section.report(key, Fault::new("is missing", format!("add {mend}")));
    }
    section.list(key, read)
}

fn host(value: &Value<'_>) -> Result<Host, Fault> {
    let text = value.text()?;
    Host::parse(text).map_err(|error| {
        let mend = match text.contains('*') {
            true => "name each host; a whole domain is served through [public].domain",
            false => "write for example \"shop.example.com\", without a port",
        };
        Fault::new(format!("the host \"{text}\" {error}"), mend)
    })
}

fn domain(value: &Value<'_>) -> Result<Host, Fault> {
    let host = host(value)?;
    match host.is_address() {
        true => Err(Fault::new(
            "an address has no sub-domains",
            "write a domain name",
        )),
        false => Ok(host),
    }
}

fn host_header(value: &Value<'_>) -> Result<HostHeader, Fault> {
    let text = value.text()?;
    match text {
        "keep" => return Ok(HostHeader::Keep),
        "upstream" => return Ok(HostHeader::Upstream),
        _ => {}
    }
    let authority = Authority::parse(text).map_err(|error| {
        Fault::new(
            format!("the host \"{text}\" {error}"),
            "write \"keep\", \"upstream\" or a host such as \"shop.internal:3000\"",
        )
    })?;
    Ok(HostHeader::Literal(authority.to_string()))
}

fn listener(value: &Value<'_>) -> Result<std::net::SocketAddr, Fault> {
    net::parse_listener(value.text()?)
}

fn memory(value: &Value<'_>) -> Result<MemoryBudget, Fault> {
    let text = value.text()?;
    if !text.ends_with('%') {
        return bytes(value).map(MemoryBudget::Bytes);
    }
    match Percent::parse(text) {
        Some(percent) => Ok(MemoryBudget::Percent(percent)),
        None => Err(Fault::new(
            format!("\"{text}\" is not a share of the memory"),
            "write for example \"75%\" or \"2GiB\"",
        )),
    }
}

fn max_body(value: &Value<'_>) -> Result<Option<u64>, Fault> {
    match value.text()? {
        "unlimited" => Ok(None),
        _ => value.size().map(Some),
    }
}

/// A duration above zero: a window or limit of zero would end everything at once.
fn span(value: &Value<'_>) -> Result<Duration, Fault> {
    let span = value.duration()?;
    match span.is_zero() {
        true => Err(Fault::new(
            "zero would end everything at once",
            "write a longer time",
        )),
        false => Ok(span),
    }
}

/// A size above zero.
fn bytes(value: &Value<'_>) -> Result<u64, Fault> {
    NonZeroU64::new(value.size()?)
        .map(NonZeroU64::get)
        .ok_or_else(|| Fault::new("zero lets nothing pass", "write a size above zero"))
}

/// More than a window lets through is never used, and beyond 32 bits `h2` panics.
fn h2_send_buffer(value: &Value<'_>) -> Result<u64, Fault> {
    match value.size()? {
        size @ 1..=0x7fff_ffff => Ok(size),
        _ => Err(Fault::new(
            "not a buffer of a stream of HTTP/2",
            "write 1B to 2047MiB",
        )),
    }
}

/// RFC 9113: a window is at most 2³¹−1; below 16 KiB one frame would not fit.
fn h2_window(value: &Value<'_>) -> Result<u32, Fault> {
    match u32::try_from(value.size()?) {
        Ok(size @ 0x4000..=0x7fff_ffff) => Ok(size),
        _ => Err(Fault::new(
            "not a window of HTTP/2",
            "write 16KiB to 2047MiB",
        )),
    }
}

fn port(value: &Value<'_>) -> Result<u16, Fault> {
    u16::try_from(value.whole()?)
        .map_err(|_| Fault::new("not a port", "write 1 to 65535, or 0 for any free one"))
}

fn count(value: &Value<'_>, range: std::ops::RangeInclusive<u64>) -> Result<usize, Fault> {
    let number = value.whole()?;
    let fault = || {
        let (low, high) = (range.start(), range.end());
        Fault::new(
            format!("{number} is out of range"),
            format!("write {low} to {high}"),
        )
    };
    match range.contains(&number) {
        true => usize::try_from(number).map_err(|_| fault()),
        false => Err(fault()),
    }
}

fn one_of<T: Copy>(value: &Value<'_>, choices: &[(&str, T)]) -> Result<T, Fault> {
    let text = value.text()?;
    let found = choices.iter().find(|(word, _)| *word == text);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Fault::new(
            format!("\"{text}\" is none of the choices"),
            format!("write {}", words.join(" | ")),
        )
    })
}
