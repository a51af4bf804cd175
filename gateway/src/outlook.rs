//! What a valid configuration will run into: certificates that run out or are made for other names,
//! fewer open files than connections.
//!
//! Said by `check`, at the start and after each reload, and never a reason not to start. Pure: the
//! clock and the system's limit come in.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use crate::cert::{CertStore, Validity};
use crate::clock::rfc3339;
use crate::config::{AppKind, CertificateFiles, Config};

/// A certificate is spoken of so many seconds before it ends: time to mend a renewal that fails.
const SOON: i64 = 14 * DAY;
const DAY: i64 = 86_400;

/// Descriptors beside those of clients' connections: tunnels, listeners, files. A gateway with more
/// tunnels than that has operators who count.
const BESIDE_CLIENTS: u64 = 1_000;

/// Names told of those that no certificate covers.
const NAMES_TOLD: usize = 5;

/// One certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// `public` or `tunnel`.
    pub listener: &'static str,
    /// Its file, as the configuration names it.
    pub file: String,
    /// From when to when it is good, if it can be told.
    pub validity: Option<Validity>,
}

/// Certificates by listener, in the order of the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stores<'a> {
    /// Those of `[public].https`.
    pub public: Option<&'a CertStore>,
    /// Those of `[tunnel].listen`.
    pub tunnel: Option<&'a CertStore>,
}

/// Files of the tunnel's certificates: its own, or those of the public side.
#[must_use]
pub fn tunnel_certificates(config: &Config) -> &[CertificateFiles] {
    match config.tunnel.tls.is_empty() {
        true => &config.public.tls,
        false => &config.tunnel.tls,
    }
}

/// Every certificate in use.
#[must_use]
pub fn certificates(config: &Config, stores: Stores<'_>) -> Vec<InUse> {
    let of = |listener, store: Option<&CertStore>, files: &[CertificateFiles]| {
        let validities = store.map(CertStore::validities).unwrap_or_default();
        let pairs = files.iter().zip(validities);
        let shown = pairs.map(|(files, validity)| InUse {
            listener,
            file: files.cert.display().to_string(),
            validity,
        });
        shown.collect::<Vec<_>>()
    };
    let mut all = of("public", stores.public, &config.public.tls);
    all.extend(of("tunnel", stores.tunnel, tunnel_certificates(config)));
    all
}

/// One line for each thing that an operator will want to mend. `now` is the second of the epoch,
/// `open_files` how many this process may have, `None` without a limit.
#[must_use]
pub fn warnings(
    config: &Config,
    stores: Stores<'_>,
    now: i64,
    open_files: Option<u64>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut told = Vec::new();
    for certificate in certificates(config, stores) {
        let warning = certificate
            .validity
            .and_then(|validity| term(validity, now));
        // The tunnel's are those of the public side unless it has its own.
        if let Some(warning) = warning.filter(|_| !told.contains(&certificate.file)) {
            found.push(format!("the certificate {} {warning}", certificate.file));
            told.push(certificate.file);
        }
    }
    found.extend(stores.public.and_then(|store| uncovered(config, store)));
    found.extend(open_files.and_then(|most| files(config, most)));
    found
}

fn term(validity: Validity, now: i64) -> Option<String> {
    let day = |second: i64| {
        let second = u64::try_from(second).unwrap_or(0);
        let text = rfc3339(UNIX_EPOCH + Duration::from_secs(second));
        text.split('T').next().unwrap_or_default().to_owned()
    };
    if now > validity.until {
        return Some(format!("expired on {}", day(validity.until)));
    }
    if now < validity.from {
        return Some(format!("is not valid before {}", day(validity.from)));
    }
    let left = validity.until - now;
    (left < SOON).then(|| format!("expires on {}, in {} days", day(validity.until), left / DAY))
}

/// Names that clients will ask for over TLS and that no certificate is made for.
fn uncovered(config: &Config, store: &CertStore) -> Option<String> {
    let own = config.gateway.hosts.iter().map(ToString::to_string);
    let mut names: Vec<String> = own.collect();
    let web = |kind| matches!(kind, AppKind::Http1 | AppKind::H2c);
    let apps = || config.apps.iter().filter(|app| web(app.kind));
    if let Some(domain) = &config.public.domain {
        names.extend(apps().map(|app| format!("{}.{domain}", app.name)));
        if apps().next().is_none() {
            // Apps that agents bring; one name stands for all of them.
            names.push(format!("app.{domain}"));
        }
    }
    names.extend(apps().flat_map(|app| app.hosts.iter().map(ToString::to_string)));
    let mut seen = BTreeSet::new();
    names.retain(|name| !store.covers(name) && seen.insert(name.clone()));
    if names.is_empty() {
        return None;
    }
    let more = match names.len().saturating_sub(NAMES_TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(NAMES_TOLD);
    let names = names.join(", ");
    Some(format!(
        "no certificate of [public].tls is made for {names}{more}"
    ))
}

fn files(config: &Config, most: u64) -> Option<String> {
    let connections = config.limits.connections;
    let needed = u64::try_from(connections).unwrap_or(u64::MAX);
    let needed = needed.saturating_add(BESIDE_CLIENTS);
    (needed > most).then(|| {
        format!(
            "{most} open files are too few for {connections} connections ([limits].connections) \
             beside tunnels; raise the limit (ulimit -n, LimitNOFILE) to {needed} or more"
        )
    })
}

#[cfg(test)]
#[path = "outlook_tests.rs"]
mod tests;
