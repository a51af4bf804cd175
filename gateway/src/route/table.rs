//! The table itself and its lookup.
//!
//! An immutable snapshot; a change makes a new one. Invariants: prefixes of a host are sorted
//! longest first, so the first match is the most specific; own hosts never lead to an app.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::host::Host;
use super::path::PathPrefix;
use crate::config::{AppKind, AppName, AppPattern, AppSettings};

/// An app as requests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppRoute {
    /// Name.
    pub name: AppName,
    /// How the agent speaks to it.
    pub kind: AppKind,
    /// Public port of a TCP app.
    pub port: Option<u16>,
    /// False for an app that is known only because an agent offered it.
    pub configured: bool,
    /// Windows, hold and the rest.
    pub settings: AppSettings,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The gateway itself answers.
    Own,
    /// An app.
    App(Arc<AppRoute>),
    /// No such route.
    None,
}

/// A route of one host.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) prefix: PathPrefix,
    pub(super) app: Arc<AppRoute>,
}

/// All routes of a gateway.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    pub(super) own: HashSet<Host>,
    /// The own host that addresses are given on.
    pub(super) first_own: Option<Host>,
    /// Looked up, never iterated: its order means nothing.
    pub(super) hosts: HashMap<Host, Vec<Branch>>,
    pub(super) domain: Option<Host>,
    /// Branches of `<name>.<domain>`.
    pub(super) names: BTreeMap<AppName, Vec<Branch>>,
    /// TCP apps have a name and no branch.
    pub(super) apps: BTreeMap<AppName, Arc<AppRoute>>,
    pub(super) catch_all: Option<Arc<AppRoute>>,
    pub(super) patterns: Vec<AppPattern>,
    pub(super) defaults: AppSettings,
}

impl RouteTable {
    /// Finds the route of a canonical host and the path (without query) that passed
    /// [`super::path::check_path_and_query`], or `*`.
    #[must_use]
    pub fn find(&self, host: &Host, path: &str) -> Found {
        if self.own.contains(host) {
            return Found::Own;
        }
        if let Some(branches) = self.branches(host) {
            let branch = branches.iter().find(|branch| branch.prefix.matches(path));
            return match branch {
                Some(branch) => Found::App(Arc::clone(&branch.app)),
                None => Found::None,
            };
        }
        match &self.catch_all {
            Some(app) => Found::App(Arc::clone(app)),
            None => Found::None,
        }
    }

    /// The own host that is named first, for addresses that the gateway gives.
    #[must_use]
    pub fn first_own(&self) -> Option<&Host> {
        self.first_own.as_ref()
    }

    /// The app of that name, whatever its protocol.
    #[must_use]
    pub fn app(&self, name: &str) -> Option<&Arc<AppRoute>> {
        self.apps.get(name)
    }

    /// Every app, by name.
    pub fn apps(&self) -> impl Iterator<Item = &Arc<AppRoute>> {
        self.apps.values()
    }

    /// Hosts that lead to an app, sorted; for people.
    #[must_use]
    pub fn hosts_of(&self, app: &str) -> Vec<String> {
        let leads = |branches: &Vec<Branch>| {
            branches
                .iter()
                .any(|branch| branch.app.name.as_str() == app)
        };
        let mut hosts: Vec<String> = (self.hosts.iter())
            .filter(|(_, branches)| leads(branches))
            .map(|(host, _)| host.to_string())
            .collect();
        if let Some(domain) = self
            .domain
            .as_ref()
            .filter(|_| self.names.contains_key(app))
        {
            hosts.push(format!("{app}.{domain}"));
        }
        hosts.sort();
        hosts
    }

    fn branches(&self, host: &Host) -> Option<&Vec<Branch>> {
        if let Some(branches) = self.hosts.get(host) {
            return Some(branches);
        }
        let label = host.label_under(self.domain.as_ref()?)?;
        self.names.get(label)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
