//! The configuration read again while the gateway runs: all of it, or nothing.
//!
//! Everything that can fail happens first; then routes, tokens, certificates, bounds and the admin
//! token are put in place, each as one swap. An exchange that runs keeps the route it began with.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use bridgehead_protocol::io::descriptors;

use super::bound::{Certs, own_hosts};
use super::knobs::Knobs;
use super::names::Names;
use crate::admin::{Access, Reloaded};
use crate::cert::{CertError, CertStore, Prepared};
use crate::config::{CertificateFiles, Changes, Config};
use crate::outlook::{self, tunnel_certificates};
use crate::request::Shared;

/// What a reload reads, and what it puts in place.
pub(super) struct Reloader {
    /// Where the configuration came from; `dev` has none.
    file: Option<PathBuf>,
    shared: Arc<Shared>,
    names: Arc<Names>,
    knobs: Knobs,
    certs: Certs,
    access: Arc<ArcSwap<Access>>,
    running: Mutex<Config>,
}

/// Certificates that are ready to take over.
type Renewed = Option<(Arc<CertStore>, Prepared)>;

impl Reloader {
    pub(super) fn new(
        file: Option<PathBuf>,
        shared: Arc<Shared>,
        names: Arc<Names>,
        knobs: Knobs,
        certs: Certs,
        access: Arc<ArcSwap<Access>>,
        running: Config,
    ) -> Self {
        Self {
            file,
            shared,
            names,
            knobs,
            certs,
            access,
            running: Mutex::new(running),
        }
    }

    /// How long a drain that begins now waits.
    pub(super) fn grace(&self) -> Duration {
        self.running().gateway.grace
    }

    /// How long clients are still accepted before a drain that begins now.
    pub(super) fn drain_delay(&self) -> Duration {
        self.running().gateway.drain_delay
    }

    fn running(&self) -> MutexGuard<'_, Config> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the running configuration will run into, in the log and by metrics.
    pub(super) fn look_ahead(&self) {
        let running = self.running();
        let stores = self.certs.stores();
        let metrics = self.shared.sinks.metrics();
        let certificates = outlook::certificates(&running, stores);
        metrics
            .process()
            .set_certificates(certificates.iter().filter_map(|certificate| {
                let until = certificate.validity?.until;
                Some((certificate.listener, certificate.file.as_str(), until))
            }));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
        for error in outlook::warnings(&running, stores, now, descriptors::limit()) {
            tracing::warn!(error, "the configuration needs a look");
        }
    }

    /// Reads the file again and puts it in place, or says all that is wrong with it. Reads files.
    pub(super) fn reload(&self) -> Result<Reloaded, Vec<String>> {
        let told = self.try_reload();
        match &told {
            Ok(reloaded) => {
                let (changed, needs_restart) = (&reloaded.changed, &reloaded.needs_restart);
                tracing::info!(?changed, ?needs_restart, "configuration reloaded");
                let metrics = self.shared.sinks.metrics();
                metrics.process().reload_succeeded(SystemTime::now());
                self.look_ahead();
            }
            Err(errors) => {
                self.shared.sinks.metrics().process().reload_failed();
                for error in errors {
                    tracing::error!(error, "configuration not reloaded");
                }
            }
        }
        told
    }

    fn try_reload(&self) -> Result<Reloaded, Vec<String>> {
        let Some(file) = &self.file else {
            return Err(vec!["this gateway was started without a file".to_owned()]);
        };
        // Held to the end: two reloads at once must not mix.
        let mut running = self.running();
        let wanted = Config::load(file).map_err(|errors| {
            let lines = errors.as_slice().iter();
            lines.map(ToString::to_string).collect::<Vec<_>>()
        })?;
        let Changes {
            mut changed,
            needs_restart,
        } = Changes::between(&running, &wanted);
        let next = running.reloaded(&wanted);
        let fault = |error: CertError| vec![error.to_string()];
        let public = renewed(self.certs.public.as_ref(), &next.public.tls).map_err(fault)?;
        let tunnel =
            renewed(self.certs.tunnel.as_ref(), tunnel_certificates(&next)).map_err(fault)?;
        let issuers = self.certs.issuers.prepare(next.tunnel.agent_ca.as_ref());
        let issuers = issuers.map_err(fault)?;
        // From here on nothing fails.
        let known = "[tunnel].agent_ca".to_owned();
        if issuers.differs() && !changed.contains(&known) {
            changed.push(known);
        }
        self.certs.issuers.replace(issuers);
        let required = self.certs.issuers.are_required();
        self.shared.enroll.require_certificates(required);
        if let Some(terms) = &self.certs.terms {
            terms.rename(own_hosts(&next));
        }
        for (name, renewed) in [("[public].tls", public), ("[tunnel].tls", tunnel)] {
            if let Some((store, prepared)) = renewed.filter(|(_, prepared)| prepared.differs()) {
                store.replace(prepared);
                changed.push(name.to_owned());
            }
        }
        self.access.store(Arc::new(Access::configured(&next)));
        self.knobs.turn(&next, &self.shared);
        let other_kinds = self.replace_routes(&next);
        let cut = self.shared.enroll.replace_tokens(&next.agents);
        if cut > 0 {
            tracing::warn!(count = cut, "tunnels cut, their tokens are gone");
        }
        if other_kinds {
            self.drop_kept_connections();
        }
        *running = next;
        Ok(Reloaded {
            changed,
            needs_restart,
        })
    }

    /// Answers whether an app speaks another protocol now.
    fn replace_routes(&self, next: &Config) -> bool {
        let before = self.shared.routes.load_full();
        self.names.configure(next);
        let after = self.shared.routes.load();
        before.apps().any(|old| {
            let now = after.app(old.name.as_str());
            now.is_some_and(|new| new.kind != old.kind)
        })
    }

    /// What is kept speaks the old protocol.
    fn drop_kept_connections(&self) {
        for (_, live) in self.shared.tunnels.snapshot().tunnels() {
            live.pool.close_tunnel(live.number);
        }
    }
}

fn renewed(
    store: Option<&Arc<CertStore>>,
    files: &[CertificateFiles],
) -> Result<Renewed, CertError> {
    // Without a store there is no TLS listener; the listener itself needs a restart.
    let Some(store) = store else { return Ok(None) };
    Ok(Some((Arc::clone(store), store.prepare(files)?)))
}
