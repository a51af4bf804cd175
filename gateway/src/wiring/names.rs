//! The apps that agents bring: their names behind a lock, and what follows from a change of them.
//!
//! A change makes new routes and forgets what was known of apps that have none any more; so whatever names
//! an agent takes, what the gateway keeps of them is bounded. Invariant: the routes of agents' apps are
//! made from the book and from nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bridgehead_protocol::wire::{AppKind as WireKind, AppOffer};

use crate::config::{AppKind, AppName, Config};
use crate::request::apps::Apps;
use crate::route::RouteTable;
use crate::route::brought::{Brought, Change};
use crate::tunnel::offered::TooManyApps;

/// The book of names. It alone changes the routes, under its lock.
pub(super) struct Names {
    book: Mutex<Brought>,
    /// How many a token subject may bring.
    most: AtomicUsize,
    routes: Arc<ArcSwap<RouteTable>>,
    apps: Arc<Apps>,
}

impl Names {
    /// Nobody brought any yet.
    pub(super) fn new(
        config: &Config,
        routes: &Arc<ArcSwap<RouteTable>>,
        apps: &Arc<Apps>,
    ) -> Self {
        Self {
            book: Mutex::default(),
            most: AtomicUsize::new(config.tunnel.apps_per_agent),
            routes: Arc::clone(routes),
            apps: Arc::clone(apps),
        }
    }

    /// A tunnel of `subject` offers `after` instead of `before`.
    ///
    /// # Errors
    /// [`TooManyApps`]; nothing has changed then.
    pub(super) fn offered(
        &self,
        subject: &str,
        before: &[AppOffer],
        after: &[AppOffer],
    ) -> Result<(), TooManyApps> {
        let before: Vec<AppName> = before.iter().filter_map(routed).map(|(n, _)| n).collect();
        let after: Vec<(AppName, AppKind)> = after.iter().filter_map(routed).collect();
        let most = self.most.load(Ordering::Relaxed);
        let mut book = self.book();
        let routes = self.routes.load();
        let counts = |name: &AppName| {
            let route = routes.app(name.as_str());
            route.is_none_or(|route| !route.configured)
        };
        let change = book.replace(subject, &before, &after, most, counts);
        match change.map_err(|_| TooManyApps { most })? {
            Change::None => {}
            Change::Some => {
                let table = routes.with_brought(book.names());
                self.routes.store(Arc::new(table));
                self.forget_apps();
            }
        }
        Ok(())
    }

    /// Puts the routes of a newer configuration in place, with those of the names that agents brought. One
    /// that lost its `[[app]]` while it is offered becomes such a name.
    pub(super) fn configure(&self, next: &Config) {
        self.most
            .store(next.tunnel.apps_per_agent, Ordering::Relaxed);
        let book = self.book();
        let table = RouteTable::build(next).with_brought(book.names());
        self.routes.store(Arc::new(table));
        self.forget_apps();
    }

    fn forget_apps(&self) {
        let routes = self.routes.load();
        self.apps.retain(|name| routes.app(name).is_some());
    }

    fn book(&self) -> MutexGuard<'_, Brought> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What gets a route although no configuration names it: not a TCP app, which would have no port.
fn routed(offer: &AppOffer) -> Option<(AppName, AppKind)> {
    let kind = match offer.kind {
        WireKind::Http1 => AppKind::Http1,
        WireKind::H2c => AppKind::H2c,
        WireKind::Tcp => return None,
    };
    AppName::new(&offer.name).map(|name| (name, kind))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bridgehead_protocol::wire::AppHealth;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    const TOML: &str = "[public]\ndomain = \"example.com\"\n[tunnel]\nplain = true\napps_per_agent = 2\n\
        [[agent]]\nid = \"edge\"\napps = [\"*\"]\nkeys = [{ id = \"k\", hash = \
        \"blake3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" }]\n\
        [[app]]\nname = \"shop\"\n";

    fn config(more: &str) -> Config {
        let text = format!("{TOML}{more}");
        Config::from_toml(&text, "gw.toml", Path::new("/")).expect("a configuration")
    }

    fn offers(names: &[&str]) -> Vec<AppOffer> {
        let offer = |name: &&str| AppOffer {
            name: (*name).into(),
            kind: WireKind::Http1,
            weight: 1,
            health: AppHealth::Ready,
            upstream_host: String::new(),
        };
        names.iter().map(offer).collect()
    }

    fn names() -> Names {
        let config = config("");
        let routes = Arc::new(ArcSwap::from_pointee(RouteTable::build(&config)));
        Names::new(&config, &routes, &Arc::new(Apps::new(Metrics::new())))
    }

    fn routed_apps(names: &Names) -> Vec<String> {
        let routes = names.routes.load();
        routes.apps().map(|route| route.name.to_string()).collect()
    }

    #[test]
    fn names_get_routes_until_there_are_as_many_as_may_be() {
        let names = names();
        let told = names.offered("edge", &[], &offers(&["shop", "a", "b"]));
        assert_eq!(
            (told, routed_apps(&names)),
            (Ok(()), vec!["a".into(), "b".into(), "shop".to_owned()])
        );
        let more = names.offered("edge", &[], &offers(&["c"]));
        assert_eq!(more, Err(TooManyApps { most: 2 }));
        assert_eq!(routed_apps(&names), ["a", "b", "shop"]);
    }

    #[test]
    fn what_was_known_of_an_app_goes_with_its_route() {
        let names = names();
        assert_eq!(names.offered("edge", &[], &offers(&["a", "b"])), Ok(()));
        let known = |name: &str| names.apps.known(name).is_some();
        drop((names.apps.state("a"), names.apps.state("shop")));
        assert_eq!(names.offered("edge", &offers(&["a", "b"]), &[]), Ok(()));
        assert!(known("a"), "its route stays");
        assert_eq!(names.offered("edge", &[], &offers(&["c", "d"])), Ok(()));
        assert_eq!(routed_apps(&names), ["c", "d", "shop"]);
        assert!(known("shop") && !known("a"));
    }

    #[test]
    fn a_reload_keeps_the_names_and_takes_their_new_settings() {
        let names = names();
        assert_eq!(names.offered("edge", &[], &offers(&["a"])), Ok(()));
        names.configure(&config("[[app]]\nname = \"a\"\nhold = \"1s\"\n"));
        let configured = |name: &str| names.routes.load().app(name).map(|route| route.configured);
        assert_eq!(
            (configured("a"), configured("shop")),
            (Some(true), Some(true))
        );
        names.configure(&config(""));
        assert_eq!(configured("a"), Some(false));
    }
}
