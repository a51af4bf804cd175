//! The metrics of a kind of listener: connections that came to nothing, by the reason.
//!
//! Registered by the file above; the same rules hold.

use prometheus::IntCounter;

use super::{Families, each};
use crate::telemetry::labels::{ConnectionRefused, Listener, TlsFailure};

/// The counters of one kind of listener.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    refused: Vec<IntCounter>,
    tls: Vec<IntCounter>,
}

impl ListenerMetrics {
    /// Those of each kind, in the order of the labels.
    pub(super) fn register(families: &Families) -> Vec<Self> {
        let refused = families.counters(
            "connections_refused_total",
            "Connections refused before anything was asked over them",
            &["listener", "reason"],
        );
        let tls = families.counters(
            "tls_failures_total",
            "TLS handshakes that came to nothing",
            &["listener", "reason"],
        );
        each(Listener::ALL, |listener| Self {
            refused: each(ConnectionRefused::ALL, |reason| {
                refused.with_label_values(&[listener.as_str(), reason.as_str()])
            }),
            tls: each(TlsFailure::ALL, |failure| {
                tls.with_label_values(&[listener.as_str(), failure.as_str()])
            }),
        })
    }

    /// Count a refused connection.
    pub fn refused(&self, reason: ConnectionRefused) {
        self.refused[reason as usize].inc();
    }

    /// Connections refused for that reason.
    #[cfg(test)]
    pub(crate) fn refused_now(&self, reason: ConnectionRefused) -> u64 {
        self.refused[reason as usize].get()
    }

    /// Count a TLS handshake that came to nothing.
    pub fn tls_failed(&self, failure: TlsFailure) {
        self.tls[failure as usize].inc();
    }
}
