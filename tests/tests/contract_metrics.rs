//! The contract of the metrics: names, types and labels are what operators build alerts on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use bridgehead_gateway::clock::Clock;
use bridgehead_gateway::error::Failure;
use bridgehead_gateway::request::front::ClientProtocol;
use bridgehead_gateway::telemetry::{ExchangeGuard, Metrics, Protocol, Sinks};
use bridgehead_protocol::verdict::{Code, Reason};

/// Name, type, labels. A change here is a change of the contract.
const LIST: &[(&str, &str, &[&str])] = &[
    ("bridgehead_access_log_dropped_total", "counter", &[]),
    ("bridgehead_agent_limits_total", "counter", &["limit"]),
    ("bridgehead_app_agents", "gauge", &["app"]),
    ("bridgehead_build_info", "gauge", &["version"]),
    ("bridgehead_bytes_total", "counter", &["app", "direction"]),
    ("bridgehead_carriers", "gauge", &["kind"]),
    (
        "bridgehead_certificate_expiry_seconds",
        "gauge",
        &["file", "listener"],
    ),
    (
        "bridgehead_client_share_total",
        "counter",
        &["app", "places"],
    ),
    ("bridgehead_connections", "gauge", &["kind"]),
    (
        "bridgehead_connections_refused_total",
        "counter",
        &["listener", "reason"],
    ),
    ("bridgehead_descriptors", "gauge", &["kind"]),
    (
        "bridgehead_exchange_seconds",
        "histogram",
        &["app", "phase"],
    ),
    (
        "bridgehead_exchanges_total",
        "counter",
        &["app", "code", "delivery", "outcome"],
    ),
    ("bridgehead_handshakes_total", "counter", &["result"]),
    ("bridgehead_held", "gauge", &["app"]),
    ("bridgehead_holds_total", "counter", &["app", "result"]),
    ("bridgehead_in_flight", "gauge", &["app"]),
    ("bridgehead_ledger_entries", "gauge", &["state"]),
    ("bridgehead_ledger_resolve_seconds", "histogram", &["state"]),
    ("bridgehead_ledger_resolved_total", "counter", &["state"]),
    ("bridgehead_long_lived", "gauge", &["app"]),
    ("bridgehead_memory_bytes", "gauge", &["kind"]),
    ("bridgehead_queue_depth", "gauge", &["app"]),
    ("bridgehead_queue_wait_seconds", "histogram", &["app"]),
    (
        "bridgehead_refusals_total",
        "counter",
        &["app", "code", "reason"],
    ),
    ("bridgehead_reload_success", "gauge", &[]),
    ("bridgehead_reload_timestamp_seconds", "gauge", &[]),
    ("bridgehead_resumed_bytes_total", "counter", &[]),
    ("bridgehead_resumes_total", "counter", &["result"]),
    ("bridgehead_retries_total", "counter", &["app", "reason"]),
    ("bridgehead_start_time_seconds", "gauge", &[]),
    ("bridgehead_starved_streams_total", "counter", &[]),
    ("bridgehead_streams", "gauge", &["state"]),
    (
        "bridgehead_tls_failures_total",
        "counter",
        &["listener", "reason"],
    ),
    ("bridgehead_tunnels", "gauge", &["state"]),
    (
        "bridgehead_windows_fired_total",
        "counter",
        &["app", "window"],
    ),
];

/// Label values that a series may have, where the list is closed.
const VALUES: &[(&str, &str, &[&str])] = &[
    (
        "bridgehead_exchange_seconds",
        "phase",
        &["admit", "first_byte", "open", "total"],
    ),
    ("bridgehead_bytes_total", "direction", &["in", "out"]),
    (
        "bridgehead_client_share_total",
        "places",
        &["in_flight", "large_body_slots", "long_lived", "queue"],
    ),
    (
        "bridgehead_holds_total",
        "result",
        &["client_left", "expired", "refused", "released"],
    ),
    (
        "bridgehead_windows_fired_total",
        "window",
        &["first_frame", "stall"],
    ),
    ("bridgehead_carriers", "kind", &["tcp", "tls", "ws", "wss"]),
    ("bridgehead_descriptors", "kind", &["limit", "open"]),
    (
        "bridgehead_streams",
        "state",
        &["closing", "open", "opening"],
    ),
    (
        "bridgehead_tunnels",
        "state",
        &["draining", "live", "suspended"],
    ),
    (
        "bridgehead_resumes_total",
        "result",
        &["gone", "lapsed", "resumed", "stale"],
    ),
    (
        "bridgehead_connections",
        "kind",
        &["admin", "http1", "http2", "pending", "tcp", "tunnel"],
    ),
    (
        "bridgehead_agent_limits_total",
        "limit",
        &["apps", "memory", "news", "pace", "tunnels"],
    ),
    (
        "bridgehead_connections_refused_total",
        "listener",
        &["public", "tunnel"],
    ),
    (
        "bridgehead_connections_refused_total",
        "reason",
        &["connections", "per_ip", "proxy_header"],
    ),
    (
        "bridgehead_tls_failures_total",
        "reason",
        &["closed", "failed", "timed_out"],
    ),
    (
        "bridgehead_handshakes_total",
        "result",
        &[
            "accepted",
            "closed",
            "denied",
            "malformed",
            "refused",
            "timed_out",
        ],
    ),
    (
        "bridgehead_memory_bytes",
        "kind",
        &["budget", "resident", "streams"],
    ),
    (
        "bridgehead_ledger_entries",
        "state",
        &["answered", "not_delivered", "pending", "unknown"],
    ),
    (
        "bridgehead_ledger_resolve_seconds",
        "state",
        &["answered", "not_delivered"],
    ),
    (
        "bridgehead_ledger_resolved_total",
        "state",
        &["answered", "not_delivered", "unknown"],
    ),
];

/// The text of a gateway that has seen one exchange of each kind that makes series.
fn rendered() -> String {
    let clock = Clock::start();
    let metrics = Metrics::new();
    let sinks = Sinks::new(clock, Arc::clone(&metrics), None);
    let mut guard = ExchangeGuard::new(
        sinks,
        uuid_of(1),
        clock.now(),
        Ipv4Addr::LOCALHOST.into(),
        Protocol::Http(ClientProtocol::Http2),
    );
    guard.app(&"demo".into(), &metrics.app("demo"));
    guard.retried(Reason::ConnectRefused);
    guard.failed(&Failure::refused(Code::BhAppStarting, Reason::NoAgent));
    drop(guard);
    let certificates = [("public", "gw.pem", 1_800_000_000)];
    metrics.process().set_certificates(certificates.into_iter());
    metrics.set_agents([("demo", 1)].into_iter());
    metrics.render().expect("consistent families")
}

fn uuid_of(n: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([n; 16])
}

struct Family {
    kind: String,
    labels: BTreeSet<String>,
    values: BTreeMap<String, BTreeSet<String>>,
}

/// Read the text format back: types, and the label names and values of every sample.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("name and type");
            let family = Family {
                kind: kind.to_owned(),
                labels: BTreeSet::new(),
                values: BTreeMap::new(),
            };
            families.insert(name.to_owned(), family);
        } else if !line.starts_with('#') {
            let (series, _) = line.rsplit_once(' ').expect("series and value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|base| families.contains_key(*base))
                .unwrap_or(name);
            let family = families.get_mut(base).expect("declared before its samples");
            for pair in labels
                .trim_end_matches('}')
                .split(',')
                .filter(|p| !p.is_empty())
            {
                let (label, value) = pair.split_once('=').expect("label and value");
                if label != "le" {
                    family.labels.insert(label.to_owned());
                    let values = family.values.entry(label.to_owned()).or_default();
                    values.insert(value.trim_matches('"').to_owned());
                }
            }
        }
    }
    families
}

#[test]
fn the_names_types_and_labels_are_the_listed_ones() {
    let families = families(&rendered());
    let found: Vec<(String, String, Vec<String>)> = families
        .into_iter()
        .map(|(name, family)| (name, family.kind, family.labels.into_iter().collect()))
        .collect();
    let listed: Vec<(String, String, Vec<String>)> = LIST
        .iter()
        .map(|(name, kind, labels)| {
            let labels = labels.iter().map(|l| (*l).to_owned()).collect();
            ((*name).to_owned(), (*kind).to_owned(), labels)
        })
        .collect();
    assert_eq!(found, listed);
}

#[test]
fn closed_label_values_are_all_there_from_the_start() {
    let families = families(&rendered());
    for (name, label, values) in VALUES {
        let found: Vec<&str> = families[*name].values[*label]
            .iter()
            .map(String::as_str)
            .collect();
        assert_eq!(found, *values, "{name} {label}");
    }
}
