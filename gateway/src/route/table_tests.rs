//! Tests of the route table.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use bridgehead_protocol::handshake::Token;
use proptest::prelude::*;

use super::*;
use crate::config::{AgentKey, Config, DevOptions};

fn key() -> AgentKey {
    AgentKey::for_token(&Token::generate("k", &[7; 32]).unwrap())
}

fn config(text: &str) -> Config {
    Config::from_toml(text, "gw.toml", Path::new("/")).unwrap()
}

fn table(text: &str) -> RouteTable {
    RouteTable::build(&config(text))
}

/// Where a request goes: an app's name, `own`, or `-`.
fn goes(table: &RouteTable, host: &str, path: &str) -> String {
    match table.find(&Host::parse(host).unwrap(), path) {
        Found::Own => "own".to_owned(),
        Found::App(app) => app.name.to_string(),
        Found::None => "-".to_owned(),
    }
}

const SITE: &str = r#"
[gateway]
hosts = ["gw.example.com"]
[public]
domain = "example.com"
[tunnel]
plain = true
[[agent]]
id = "a"
keys = [{ id = "k", hash = "blake3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }]
apps = ["site", "shop-*"]
[[app]]
name = "site"
hosts = ["www.site.org"]
[[app]]
name = "api"
hosts = ["www.site.org"]
paths = ["/api"]
[[app]]
name = "api-v2"
hosts = ["www.site.org"]
paths = ["/api/v2", "/next"]
[[app]]
name = "db"
protocol = "tcp"
port = 5432
"#;

#[test]
fn the_longest_prefix_of_whole_segments_wins() {
    let table = table(SITE);
    for (path, app) in [
        ("/", "site"),
        ("/apix", "site"),
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/v1", "api"),
        ("/api/v2", "api-v2"),
        ("/api/v2/x", "api-v2"),
        ("/api/v22", "api"),
        ("/next", "api-v2"),
        ("/API", "site"),
        ("*", "site"),
    ] {
        assert_eq!(goes(&table, "www.site.org", path), app, "{path}");
    }
}

#[test]
fn an_app_answers_under_the_domain_within_its_paths() {
    let table = table(SITE);
    assert_eq!(goes(&table, "site.example.com", "/x"), "site");
    assert_eq!(goes(&table, "SITE.example.com", "/x"), "site");
    assert_eq!(goes(&table, "api.example.com", "/api/x"), "api");
    assert_eq!(goes(&table, "api.example.com", "/secret"), "-");
    assert_eq!(goes(&table, "unknown.example.com", "/"), "-");
    assert_eq!(goes(&table, "x.site.example.com", "/"), "-");
    assert_eq!(goes(&table, "example.com", "/"), "-");
    assert_eq!(goes(&table, "site.example.org", "/"), "-");
}

#[test]
fn own_hosts_lead_to_the_gateway_and_nowhere_else() {
    let table = table(SITE);
    assert_eq!(goes(&table, "gw.example.com", "/anything"), "own");
    let offered = AppName::new("gw").unwrap();
    let any = RouteTable {
        patterns: vec![AppPattern::parse("*").unwrap()],
        ..table
    };
    let seen = any.with_brought([(&offered, AppKind::Http1)]);
    assert_eq!(goes(&seen, "gw.example.com", "/"), "own");
}

#[test]
fn a_tcp_app_has_a_name_and_no_host() {
    let table = table(SITE);
    assert_eq!(goes(&table, "db.example.com", "/"), "-");
    assert_eq!(table.app("db").unwrap().port, Some(5432));
}

#[test]
fn an_offered_app_gets_a_route_only_inside_the_patterns() {
    let table = table(SITE);
    let shop = AppName::new("shop-7").unwrap();
    let foreign = AppName::new("bank").unwrap();
    let raw = AppName::new("shop-raw").unwrap();
    let seen = table.with_brought([
        (&shop, AppKind::H2c),
        (&foreign, AppKind::Http1),
        (&raw, AppKind::Tcp),
    ]);
    assert_eq!(goes(&seen, "shop-7.example.com", "/"), "shop-7");
    let route = seen.app("shop-7").unwrap();
    assert!(!route.configured && route.kind == AppKind::H2c);
    assert_eq!(goes(&seen, "bank.example.com", "/"), "-");
    assert!(seen.app("shop-raw").is_none());
    assert_eq!(
        goes(&table, "shop-7.example.com", "/"),
        "-",
        "the old snapshot is untouched"
    );
}

#[test]
fn an_app_that_is_no_longer_brought_has_no_route() {
    let (one, two) = (AppName::new("shop-1"), AppName::new("shop-2"));
    let (one, two) = (one.unwrap(), two.unwrap());
    let first = table(SITE).with_brought([(&one, AppKind::Http1)]);
    let next = first.with_brought([(&two, AppKind::Http1)]);
    assert_eq!(goes(&next, "shop-1.example.com", "/"), "-");
    assert_eq!(goes(&next, "shop-2.example.com", "/"), "shop-2");
    let none = next.with_brought([]);
    assert_eq!(none.apps().count(), table(SITE).apps().count());
    assert_eq!(goes(&none, "site.example.com", "/x"), "site");
}

#[test]
fn an_offer_changes_nothing_of_a_configured_app() {
    let table = table(SITE);
    let site = AppName::new("site").unwrap();
    let seen = table.with_brought([(&site, AppKind::H2c)]);
    assert_eq!(seen.app("site"), table.app("site"));
}

#[test]
fn in_dev_every_host_that_is_not_anothers_leads_to_the_only_app() {
    let options = DevOptions::new(AppName::new("demo").unwrap());
    let config = Config::for_dev(&options, "dev", key()).unwrap();
    let joined = AppName::new("second").unwrap();
    let table = RouteTable::build(&config).with_brought([(&joined, AppKind::Http1)]);
    for host in [
        "demo.localhost",
        "127.0.0.1",
        "[::1]",
        "localhost",
        "laptop.lan",
    ] {
        assert_eq!(goes(&table, host, "/x"), "demo", "{host}");
    }
    assert_eq!(goes(&table, "second.localhost", "/"), "second");
    assert_eq!(goes(&table, "gateway.localhost", "/"), "own");
}

proptest! {
    #[test]
    fn a_lookup_never_leaves_the_prefixes_of_the_app_it_finds(path in "/[a-z/0-9]{0,12}") {
        let table = table(SITE);
        let prefixes = |app: &str| match app {
            "api" => vec!["/api"],
            "api-v2" => vec!["/api/v2", "/next"],
            _ => vec!["/"],
        };
        let app = goes(&table, "www.site.org", &path);
        let fits = prefixes(&app).iter().any(|prefix| {
            *prefix == "/" || path == *prefix || path.starts_with(&format!("{prefix}/"))
        });
        prop_assert!(fits, "{} went to {}", path, app);
    }
}
