//! Configuration → table, and a table with the apps that agents brought.
//!
//! Pure. Invariant: an app that is configured keeps its settings whatever an agent offers.

use std::sync::Arc;

use super::path::PathPrefix;
use super::table::{AppRoute, Branch, RouteTable};
use crate::config::{AppEntry, AppKind, AppName, Config};

impl RouteTable {
    /// The table of a validated configuration; apps of agents are added by [`Self::with_brought`].
    #[must_use]
    pub fn build(config: &Config) -> Self {
        let mut table = Self {
            own: config.gateway.hosts.iter().cloned().collect(),
            first_own: config.gateway.hosts.first().cloned(),
            domain: config.public.domain.clone(),
            patterns: (config.agents.iter())
                .flat_map(|agent| agent.apps.iter().cloned())
                .collect(),
            defaults: config.defaults.clone(),
            ..Self::default()
        };
        for entry in &config.apps {
            table.add_entry(entry);
        }
        for branches in table.hosts.values_mut() {
            sort_longest_first(branches);
        }
        let catch_all = config.public.catch_all.as_ref();
        table.catch_all = catch_all.and_then(|name| table.apps.get(name)).cloned();
        table
    }

    /// The same table with exactly these apps of agents, as far as some agent's pattern allows them. They
    /// inherit `[defaults]` and answer at `<name>.<domain>`; configured apps stay as they are, TCP offers
    /// are left out, because only a configuration gives a port.
    #[must_use]
    pub fn with_brought<'n>(
        &self,
        names: impl IntoIterator<Item = (&'n AppName, AppKind)>,
    ) -> Self {
        let mut table = self.clone();
        table.apps.retain(|_, route| route.configured);
        let configured = &table.apps;
        table.names.retain(|name, _| configured.contains_key(name));
        for (name, kind) in names {
            let allowed = (table.patterns.iter()).any(|pattern| pattern.matches(name.as_str()));
            let speaks_http = match kind {
                AppKind::Http1 | AppKind::H2c => true,
                AppKind::Tcp => false,
            };
            if !allowed || !speaks_http || table.apps.contains_key(name) {
                continue;
            }
            let same = self.apps.get(name);
            let same = same.filter(|route| !route.configured && route.kind == kind);
            let route = same.cloned().unwrap_or_else(|| {
                Arc::new(AppRoute {
                    name: name.clone(),
                    kind,
                    port: None,
                    configured: false,
                    settings: table.defaults.clone(),
                })
            });
            table.add_name(route, &[PathPrefix::root()]);
        }
        table
    }

    fn add_entry(&mut self, entry: &AppEntry) {
        let route = Arc::new(AppRoute {
            name: entry.name.clone(),
            kind: entry.kind,
            port: entry.port,
            configured: true,
            settings: entry.settings.clone(),
        });
        for host in &entry.hosts {
            let branches = self.hosts.entry(host.clone()).or_default();
            branches.extend(branches_of(&route, &entry.paths));
        }
        self.add_name(route, &entry.paths);
    }

    fn add_name(&mut self, route: Arc<AppRoute>, paths: &[PathPrefix]) {
        let mut branches: Vec<Branch> = branches_of(&route, paths).collect();
        sort_longest_first(&mut branches);
        if !branches.is_empty() {
            self.names.insert(route.name.clone(), branches);
        }
        self.apps.insert(route.name.clone(), route);
    }
}

fn branches_of<'r>(
    route: &'r Arc<AppRoute>,
    paths: &'r [PathPrefix],
) -> impl Iterator<Item = Branch> + 'r {
    paths.iter().map(|prefix| Branch {
        prefix: prefix.clone(),
        app: Arc::clone(route),
    })
}

fn sort_longest_first(branches: &mut [Branch]) {
    branches.sort_by_key(|branch| std::cmp::Reverse(branch.prefix.as_str().len()));
}
