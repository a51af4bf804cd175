//! Tests of the configuration as an operator meets it: texts in, values or lines out.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use bridgehead_protocol::handshake::Token;
use proptest::prelude::*;

use super::*;
use crate::route::host::Host;

const HASH: &str = "blake3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn key() -> AgentKey {
    AgentKey::for_token(&Token::generate("k", &[7; 32]).unwrap())
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::from_toml(text, "gw.toml", Path::new("/etc/bridgehead"))
}

/// The smallest complete configuration, with `more` behind it.
fn with(more: &str) -> String {
    format!("[public]\ndomain = \"example.com\"\n[tunnel]\nplain = true\n{more}")
}

fn complaint(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_small_file_gets_every_default() {
    let config = parse(&with("[[app]]\nname = \"demo\"\n")).unwrap();
    assert_eq!(config.gateway, GatewaySettings::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.public.http, vec!["0.0.0.0:8080".parse().unwrap()]);
    assert!(config.public.https.is_empty());
    assert_eq!(config.tunnel.listen, vec!["0.0.0.0:7000".parse().unwrap()]);
    assert_eq!(config.tunnel.resume_window, Duration::from_secs(20));
    assert_eq!(config.admin.listen, "127.0.0.1:9090".parse().unwrap());
    let app = &config.apps[0];
    assert_eq!(app.settings, AppSettings::default());
    assert_eq!(app.settings.first_frame_window, Duration::from_secs(30));
    assert_eq!(app.settings.stall_window, Duration::from_secs(15));
    assert_eq!(app.paths.len(), 1);
}

#[test]
fn every_key_of_the_interface_that_works_is_accepted() {
    let text = format!(
        r#"
[gateway]
node = "gw-7"
workers = 2
memory = "2GiB"
grace = "45s"
hosts = ["gw.example.com"]
[public]
http = ["127.0.0.1:8080", "[::1]:8080"]
https = [":8443"]
domain = "Apps.Example.com"
tls = [{{ cert = "cert.pem", key = "/keys/key.pem" }}]
trusted_proxies = ["10.0.0.0/8", "fd00::/8"]
proxy_protocol = "from_trusted"
[tunnel]
listen = ":7000"
tls = [{{ cert = "tunnel.pem", key = "tunnel.key" }}]
plain = false
resume_window = "0s"
handshake = "10s"
[admin]
listen = ":9090"
token_hash = "{HASH}"
[limits]
head_size = "16KiB"
head_fields = 50
uri_size = "4KiB"
head_time = "5s"
upload_idle = "20s"
upload_rate = "2KiB"
upload_rate_after = "5s"
write_stall = "20s"
keep_alive_idle = "30s"
connections = 500
connections_per_ip = 50
tls_handshake = "3s"
app_connect = "2s"
app_keep_alive_idle = "3s"
app_idle_connections = 8
h2_streams = 50
h2_stream_window = "32KiB"
h2_connection_window = "512KiB"
h2_send_buffer = "64KiB"
h2_pending_resets = 10
h2_ping = "15s"
h2_ping_timeout = "5s"
[defaults]
hold = "5s"
go = "always"
max_body = "10MiB"
[[agent]]
id = "laptop"
keys = [{{ id = "k1", hash = "{HASH}", expires = 2027-01-31T00:00:00Z }}, {{ id = "k2", hash = "{HASH}" }}]
apps = ["demo", "shop-*"]
[[app]]
name = "demo"
hosts = ["Shop.example.org"]
paths = ["/api", "/static"]
protocol = "h2c"
first_frame_window = "500ms"
stall_window = "1m"
streaming_stall_window = "1h"
streaming_types = ["Application/JSON-seq", "audio/*"]
hold = "0s"
go = "never"
repeat_reads = true
cors = false
max_body = "unlimited"
host_header = "shop.internal:3000"
[[app]]
name = "db"
protocol = "tcp"
port = 5432
"#
    );
    let config = parse(&text).unwrap();
    assert_eq!(config.gateway.memory, MemoryBudget::Bytes(2 << 30));
    assert_eq!(
        config.public.domain,
        Some(Host::parse("apps.example.com").unwrap())
    );
    assert_eq!(
        config.public.tls[0].cert,
        Path::new("/etc/bridgehead/cert.pem")
    );
    assert_eq!(config.public.tls[0].key, Path::new("/keys/key.pem"));
    assert_eq!(config.public.proxy_protocol, ProxyProtocol::FromTrusted);
    assert_eq!(config.limits.h2_stream_window, 32 * 1024);
    assert_eq!(config.limits.connections_per_ip, 50);
    assert_ne!(config.limits, Limits::default());
    assert_eq!(config.agents[0].keys[0].expires, Some(1_801_353_600));
    assert_eq!(config.agents[0].keys[1].expires, None);
    assert!(config.agents[0].apps[1].matches("shop-9"));
    let demo = &config.apps[0];
    assert_eq!(demo.kind, AppKind::H2c);
    assert_eq!(demo.settings.go, Go::Never);
    assert_eq!(demo.settings.max_body, None);
    assert_eq!(demo.settings.hold, Duration::ZERO);
    assert_eq!(
        demo.settings.host_header,
        HostHeader::Literal("shop.internal:3000".into())
    );
    let streaming = &demo.settings.streaming_types;
    assert!(streaming.has("application/json-seq") && streaming.has("audio/mpeg"));
    assert!(
        !streaming.has("text/event-stream"),
        "a list replaces the list"
    );
    let db = &config.apps[1];
    assert_eq!(
        db.settings.streaming_types,
        AppSettings::default().streaming_types
    );
    assert_eq!((db.kind, db.port), (AppKind::Tcp, Some(5432)));
    assert_eq!(db.settings.go, Go::Always, "inherited from [defaults]");
    assert_eq!(db.settings.max_body, Some(10 << 20));
    assert_eq!(config.defaults.hold, Duration::from_secs(5));
}

#[test]
fn an_unknown_key_names_its_line_its_path_and_the_key_that_was_meant() {
    let text = with("[[app]]\nname = \"demo\"\nfirst_frame_windw = \"5s\"\n");
    assert_eq!(
        complaint(&text),
        "gw.toml:7: [[app]].first_frame_windw: unknown key, did you mean first_frame_window?"
    );
    assert_eq!(
        complaint(&with("[limts]\nhead_size = \"1KiB\"\n")),
        "gw.toml:5: limts: unknown key, did you mean limits?"
    );
    let far = complaint(&with("[admin]\nzebra = 1\n"));
    assert_eq!(
        far,
        "gw.toml:6: [admin].zebra: unknown key, known here: listen, token_hash"
    );
    let inline = complaint(
        "[public]\ndomain = \"example.com\"\ntls = [{ crt = \"a\", cert = \"b\", key = \"c\" }]\n",
    );
    assert!(
        inline.contains("[public].tls.crt: unknown key, did you mean cert?"),
        "{inline}"
    );
    let key = complaint(&with(&format!(
        "[[agent]]\nid = \"a\"\napps = [\"*\"]\nkeys = [{{ id = \"k\", hash = \"{HASH}\", expire = 2027-01-01 }}]\n"
    )));
    assert!(
        key.contains("[[agent]].keys.expire: unknown key, did you mean expires?"),
        "{key}"
    );
}

#[test]
fn the_limits_of_an_app_are_read_inherited_and_replaced() {
    let text = with(concat!(
        "[defaults]\nallow = [\"10.0.0.0/8\"]\nrate = \"100/s burst 20\"\nin_flight = 5\nquarantine = true\n",
        "[[app]]\nname = \"demo\"\nallow = []\nclient_rate = \"10/m by X-Api-Key\"\nerror_loop = true\n",
        "queue = 0\nqueue_wait = \"5s\"\nlarge_body = \"1KiB\"\nlarge_body_slots = 2\nlong_lived = 7\n",
        "client_share = \"100%\"\n",
        "[[app]]\nname = \"other\"\nrate = \"unlimited\"\nquarantine = \"2s\"\nerror_loop = 5\n",
    ));
    let config = parse(&text).unwrap();
    let (demo, other) = (
        &config.apps[0].settings.admission,
        &config.apps[1].settings.admission,
    );
    assert!(demo.allow.is_empty() && other.allow.len() == 1);
    assert_eq!(demo.rate.map(|rate| rate.burst), Some(20));
    assert_eq!(other.rate, None);
    let by = demo.client_rate.as_ref().and_then(|limit| limit.by.clone());
    assert_eq!(by, Some(http::HeaderName::from_static("x-api-key")));
    assert_eq!(demo.quarantine, Some(Duration::from_secs(30)));
    assert_eq!(other.quarantine, Some(Duration::from_secs(2)));
    assert_eq!((demo.error_loop, other.error_loop), (Some(12), Some(5)));
    assert_eq!((demo.in_flight, demo.queue, demo.long_lived), (5, 0, 7));
    let share = |limits: &Admission| limits.client_share.value();
    assert_eq!((share(demo), share(other)), (100, 50));
    assert_eq!((demo.large_body, demo.large_body_slots), (1024, 2));
    assert_eq!(demo.queue_wait, Duration::from_secs(5));
}

#[test]
fn a_smaller_head_takes_the_address_along_unless_it_is_said_otherwise() {
    let config = parse(&with("[limits]\nhead_size = \"4KiB\"\n")).unwrap();
    assert_eq!(
        (config.limits.head_size, config.limits.uri_size),
        (4096, 4096)
    );
    let config = parse(&with("[limits]\nh2_send_buffer = \"2047MiB\"\n")).unwrap();
    assert_eq!(config.limits.h2_send_buffer, 2047 << 20);
}

#[test]
fn a_limit_that_could_refuse_nothing_or_let_nothing_pass_says_how_to_mend_it() {
    for (line, end) in [
        (
            "rate = \"0/s\"",
            "write for example \"100/s\", \"600/m\" or \"100/s burst 20\"",
        ),
        (
            "client_rate = \"1/s by a b\"",
            "write for example \"10/s by x-api-key\"",
        ),
        ("in_flight = 0", "write 1 to 1000000"),
        (
            "client_share = \"0%\"",
            "write \"1%\" to \"100%\"; \"100%\" lets one client take every place",
        ),
        ("queue_wait = \"0s\"", "write a longer time, or queue = 0"),
        (
            "quarantine = \"soon\"",
            "write true, or for example \"30s\"",
        ),
        ("error_loop = 1", "write true, or 2 to 1000"),
        (
            "deny = [\"everyone\"]",
            "write for example 10.0.0.0/8, 192.0.2.7 or fd00::/8",
        ),
    ] {
        let said = complaint(&with(&format!("[[app]]\nname = \"demo\"\n{line}\n")));
        assert!(said.ends_with(end), "{said}");
    }
}

#[test]
fn every_mistake_is_reported_in_the_order_of_the_file() {
    let said = complaint(&with(
        "[limits]\nhead_size = 64\n[[app]]\nname = \"Demo\"\nhold = \"10\"\ngo = \"sometimes\"\n",
    ));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "gw.toml:6: [limits].head_size: 64 has no unit, write \"64B\" or \"64KiB\"",
            "gw.toml:8: [[app]].name: \"Demo\" is not an app name, use 1 to 40 of a-z, 0-9 and -",
            "gw.toml:9: [[app]].hold: \"10\" is not a duration, write 10s",
            "gw.toml:10: [[app]].go: \"sometimes\" is none of the choices, write always | unsafe | never",
        ]
    );
}

#[test]
fn broken_toml_names_the_line() {
    let said = complaint("[gateway]\nnode = \n");
    assert!(
        said.starts_with("gw.toml:2: not TOML at line 2: "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn rules_between_keys_say_where_and_how_to_mend() {
    let agent =
        format!("id = \"a\"\napps = [\"*\"]\nkeys = [{{ id = \"k\", hash = \"{HASH}\" }}]\n");
    let cases = [
        (
            "[public]\ndomain = \"example.com\"\n".to_owned(),
            "[tunnel].tls: is missing",
        ),
        (
            with("resume_window = \"10s\"\n"),
            "gw.toml:5: [tunnel].resume_window: is over before a dead connection is noticed (6s) and another one stands (5s), give it 11s or more, or 0s",
        ),
        (
            with("[admin]\nlisten = \":9090\"\n"),
            "[admin].token_hash: is missing",
        ),
        (
            with("[[app]]\nname = \"a\"\n[[app]]\nname = \"a\"\n"),
            "gw.toml:8: [[app]].name: \"a\" is another app's name",
        ),
        (
            with(
                "[[app]]\nname = \"a\"\nhosts = [\"x.org\"]\n[[app]]\nname = \"b\"\nhosts = [\"X.org\"]\n",
            ),
            "x.org/ already leads to the app a",
        ),
        (
            with("[[app]]\nname = \"a\"\nhosts = [\"b.example.com\"]\n[[app]]\nname = \"b\"\n"),
            "b.example.com is already the host of the app b",
        ),
        (
            with("[[app]]\nname = \"a\"\nprotocol = \"tcp\"\n"),
            "[[app]].port: is missing",
        ),
        (
            with("[[app]]\nname = \"a\"\nport = 5\n"),
            "gw.toml:7: [[app]].port: is for protocol = \"tcp\" only",
        ),
        (
            with("[[app]]\nname = \"a\"\nprotocol = \"tcp\"\nport = 8080\n"),
            "0.0.0.0:8080 clashes with the listener 0.0.0.0:8080",
        ),
        (
            with("listen = [\"127.0.0.1:9090\"]\n"),
            "[admin].listen: 127.0.0.1:9090 clashes with the listener 127.0.0.1:9090",
        ),
        (
            with("[gateway]\nhosts = [\"a.example.com\"]\n[[app]]\nname = \"a\"\n"),
            "[gateway].hosts: a.example.com is already the host of the app a",
        ),
        (
            with("[gateway]\nhosts = [\"gw.org\"]\n[[app]]\nname = \"a\"\nhosts = [\"gw.org\"]\n"),
            "[[app]].hosts: gw.org is one of the gateway's own hosts",
        ),
        (
            with(&format!("[[agent]]\n{agent}[[agent]]\n{agent}")),
            "[[agent]].id: \"a\" is another agent's id",
        ),
        (
            with("[[agent]]\nid = \"a\"\napps = [\"*\"]\n"),
            "[[agent]].keys: has no token",
        ),
        (
            "[public]\nhttps = [\":8443\"]\n[tunnel]\nplain = true\n".to_owned(),
            "[public].https: needs a certificate",
        ),
        (
            "[tunnel]\nplain = true\n[[app]]\nname = \"a\"\n".to_owned(),
            "[[app]].hosts: are missing",
        ),
        (
            "[public]\nproxy_protocol = \"from_trusted\"\n[tunnel]\nplain = true\n".to_owned(),
            "from_trusted has nobody to trust",
        ),
        (
            with("[limits]\nhead_size = \"4KiB\"\nuri_size = \"5KiB\"\n"),
            "[limits].uri_size: is above head_size (4096B)",
        ),
        (
            with("[limits]\nh2_send_buffer = \"4GiB\"\n"),
            "[limits].h2_send_buffer: not a buffer of a stream of HTTP/2, write 1B to 2047MiB",
        ),
        (
            with("[[app]]\nname = \"a\"\nclient_rate = \"1/s by Host\"\n"),
            "[[app]].client_rate: the field host is not there any more",
        ),
    ];
    for (text, expected) in cases {
        let said = complaint(&text);
        assert!(said.contains(expected), "wanted {expected:?} in {said:?}");
        assert!(
            said.lines()
                .all(|line| line.starts_with("gw.toml") && line.contains(", ")),
            "{said}"
        );
    }
}

#[test]
fn one_host_may_lead_to_several_apps_by_path() {
    let text = with(
        "[[app]]\nname = \"a\"\nhosts = [\"x.org\"]\npaths = [\"/api\"]\n[[app]]\nname = \"b\"\nhosts = [\"x.org\"]\n",
    );
    assert_eq!(parse(&text).unwrap().apps.len(), 2);
}

#[test]
fn resumption_can_be_turned_off_or_last_long_enough() {
    let windows = [
        "resume_window = \"0s\"",
        "resume_window = 0",
        "resume_window = \"11s\"",
        "resume_window = \"7s\"\nhandshake = \"1s\"",
        "resume_window = \"5m\"",
    ];
    for window in windows {
        assert!(parse(&with(&format!("{window}\n"))).is_ok(), "{window}");
    }
}

#[test]
fn the_tunnel_shares_the_public_certificate_and_https_listens_once_there_is_one() {
    let config =
        parse("[public]\ndomain = \"example.com\"\ntls = [{ cert = \"c\", key = \"k\" }]\n")
            .unwrap();
    assert_eq!(config.tunnel.tls, config.public.tls);
    assert_eq!(config.public.https, vec!["0.0.0.0:8443".parse().unwrap()]);
}

#[test]
fn a_token_pasted_instead_of_its_hash_is_not_repeated() {
    let said = complaint(&with("[admin]\ntoken_hash = \"bh_k_canary\"\n"));
    assert!(!said.contains("canary"), "{said}");
    assert!(said.contains("bh-gateway token new"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_one_line() {
    let said = Config::load(Path::new("/nowhere/gw.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("/nowhere/gw.toml: cannot be read ("),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn certificates_must_be_readable_and_fit_their_key() {
    let folder = std::env::temp_dir().join(format!("bh-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let make = || rcgen::generate_simple_self_signed(vec!["example.com".to_owned()]).unwrap();
    let (one, two) = (make(), make());
    std::fs::write(folder.join("cert.pem"), one.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), one.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("other.pem"), two.signing_key.serialize_pem()).unwrap();
    let load = |cert: &str, key: &str| {
        let text = format!(
            "[public]\ndomain = \"example.com\"\ntls = [{{ cert = \"{cert}\", key = \"{key}\" }}]\n"
        );
        let file = folder.join("gw.toml");
        std::fs::write(&file, text).unwrap();
        Config::load(&file).map_err(|errors| errors.to_string())
    };
    assert!(load("cert.pem", "key.pem").is_ok());
    let missing = load("absent.pem", "key.pem").unwrap_err();
    assert!(missing.contains("[public].tls: the certificate") && missing.contains("absent.pem"));
    assert!(
        load("key.pem", "key.pem")
            .unwrap_err()
            .contains("no certificate inside")
    );
    assert!(
        load("cert.pem", "cert.pem")
            .unwrap_err()
            .contains("the key")
    );
    let foreign = load("cert.pem", "other.pem").unwrap_err();
    assert!(foreign.contains("do not make a usable pair"), "{foreign}");
    assert_eq!(
        foreign.lines().count(),
        1,
        "the shared certificate is told once"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn dev_makes_a_configuration_that_a_file_could_hold() {
    let name = AppName::new("demo").unwrap();
    let options = DevOptions {
        first_frame_window: Some(Duration::from_secs(2)),
        ..DevOptions::new(name.clone())
    };
    let config = Config::for_dev(&options, "dev", key()).unwrap();
    assert!(config.tunnel.plain);
    assert_eq!(config.public.catch_all, Some(name));
    assert_eq!(
        config.apps[0].settings.first_frame_window,
        Duration::from_secs(2)
    );
    assert!(config.public.http[0].ip().is_loopback());
    assert!(config.tunnel.listen[0].ip().is_loopback());
}

#[test]
fn dev_tells_its_mistakes_in_flags() {
    let base = DevOptions::new(AppName::new("demo").unwrap());
    let complain = |options: DevOptions| {
        Config::for_dev(&options, "dev", key())
            .unwrap_err()
            .to_string()
    };
    let clash = DevOptions {
        tunnel: base.public,
        ..base.clone()
    };
    assert!(complain(clash).starts_with("--tunnel: 127.0.0.1:8080 clashes"));
    let open = DevOptions {
        admin: "0.0.0.0:9090".parse().unwrap(),
        ..base.clone()
    };
    assert!(complain(open).ends_with("listen on 127.0.0.1"));
    let own = DevOptions {
        name: AppName::new("gateway").unwrap(),
        ..base
    };
    assert!(complain(own).starts_with("--name: gateway.localhost is already"));
}

proptest! {
    #[test]
    fn any_text_gives_values_or_one_line_a_mistake(text in "[ -~\\n]{0,200}") {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.as_slice().is_empty());
            prop_assert_eq!(errors.to_string().lines().count(), errors.as_slice().len());
        }
    }
}
