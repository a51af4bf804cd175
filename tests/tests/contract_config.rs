//! The configuration and the command line are contracts: examples that ship are valid, the
//! reference names every key with its default, help shows commands that parse.
//!
//! What stands in the tables here is written out by hand, so that renaming a key or a flag has to
//! be done twice, on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bridgehead_agent::carrier::address::Plain;
use bridgehead_agent::cli::LogFormat;
use bridgehead_agent::config::file::{self, FileSettings};
use bridgehead_agent::config::options;
use bridgehead_gateway::cli;
use bridgehead_gateway::config::{
    AdminSettings, AppSettings, Config, GatewaySettings, Limits, TunnelSettings,
};
use clap::CommandFactory as _;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples")
}

fn read(name: &str) -> String {
    let path = examples().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(name: &str, text: &str) -> Config {
    Config::from_toml(text, name, &examples()).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The single line an invalid text is refused with.
fn complaint(text: &str) -> String {
    let errors = Config::from_toml(text, "gw.toml", Path::new("/")).expect_err("invalid");
    assert_eq!(errors.as_slice().len(), 1, "{errors}");
    errors.to_string()
}

const GATEWAYS: [&str; 4] = [
    "gateway-minimal.toml",
    "gateway-public.toml",
    "gateway-behind-proxy.toml",
    "gateway-reference.toml",
];

/// Keys that take effect, by section.
#[rustfmt::skip]
const KEYS: [(&str, &[&str]); 9] = [
    ("[gateway]", &["node", "workers", "memory", "grace", "drain_delay", "hosts"]),
    ("[public]", &["http", "https", "domain", "tls", "trusted_proxies", "proxy_protocol"]),
    ("[tunnel]", &[
        "listen", "tls", "agent_ca", "agent_cert", "plain", "resume_window", "handshake",
        "handshakes_per_ip", "tunnels_per_agent", "apps_per_agent",
    ]),
    ("[admin]", &["listen", "token_hash"]),
    ("[limits]", &[
        "head_size", "head_fields", "uri_size", "head_time", "upload_idle", "upload_rate",
        "upload_rate_after", "write_stall", "keep_alive_idle", "connections", "connections_per_ip",
        "tls_handshake", "app_connect", "app_keep_alive_idle", "app_idle_connections",
        "h2_streams", "h2_stream_window", "h2_connection_window", "h2_send_buffer",
        "h2_pending_resets", "h2_held", "h2_ping", "h2_ping_timeout",
    ]),
    ("[defaults]", &[
        "first_frame_window", "stall_window", "streaming_stall_window", "streaming_types", "hold", "go",
        "repeat_reads", "cors", "max_body", "host_header", "allow", "deny", "rate", "client_rate",
        "quarantine", "error_loop", "large_body", "large_body_slots", "in_flight", "queue",
        "queue_wait", "long_lived", "client_share",
    ]),
    ("[[agent]]", &["id", "keys", "apps"]),
    ("[[app]]", &["name", "hosts", "paths", "protocol", "port"]),
    ("", &["gateway", "public", "tunnel", "admin", "limits", "defaults", "agent", "app"]),
];

#[test]
fn every_example_that_ships_is_valid_and_tested_here() {
    let mut shipped: Vec<String> = std::fs::read_dir(examples())
        .expect("the examples")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    shipped.sort();
    let mut tested: Vec<&str> = GATEWAYS.to_vec();
    tested.extend(AGENTS);
    tested.sort_unstable();
    assert_eq!(shipped, tested);
    for name in GATEWAYS {
        let config = parse(name, &read(name));
        assert!(
            !config.apps.is_empty() && !config.agents.is_empty(),
            "{name}"
        );
    }
    for name in AGENTS {
        assert_eq!(agent(name).apps.len(), 2, "{name}");
    }
}

const AGENTS: [&str; 2] = ["agent.toml", "agent-reference.toml"];

/// Keys of the agent's file, by section.
#[rustfmt::skip]
const AGENT_KEYS: [(&str, &[&str]); 2] = [
    ("", &[
        "gateway", "token", "token_file", "agent", "tunnels", "ca", "cert", "key", "insecure_plain", "proxy",
        "grace", "max_streams", "health", "log", "log_level", "command", "app",
    ]),
    ("[[app]]", &["name", "target", "weight", "host", "ca", "verify"]),
];

fn agent(name: &str) -> FileSettings {
    file::read(&examples().join(name), Plain::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// What the agent's reference says of each key, by section: value and comment. A key that cannot stand
/// beside another one, or names a file that is read at once, is there as a comment itself.
fn agent_reference() -> BTreeMap<&'static str, BTreeMap<String, String>> {
    let text = read("agent-reference.toml");
    let mut told: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with("[[app]]") {
            section = "[[app]]";
        }
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let Some((key, rest)) = bare.split_once(" = ") else {
            continue;
        };
        if key.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            let keys = told.entry(section).or_default();
            // The second [[app]] is there to show that there may be one.
            keys.entry(key.to_owned()).or_insert(rest.to_owned());
        }
    }
    told
}

#[test]
fn the_agents_reference_explains_every_key_and_no_other() {
    let told = agent_reference();
    for (section, keys) in AGENT_KEYS {
        let known: BTreeSet<&str> = keys.iter().copied().filter(|key| *key != "app").collect();
        let found: BTreeSet<&str> = told[section].keys().map(String::as_str).collect();
        assert_eq!(found, known, "{section}");
        for (key, rest) in &told[section] {
            assert!(rest.contains("# "), "{section} {key} has no comment");
        }
    }
}

#[test]
fn the_agents_known_keys_are_exactly_these() {
    for (section, keys) in AGENT_KEYS {
        let text =
            format!("{section}\nname = \"a\"\ntarget = \"1\"\nqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n");
        let text = match section {
            "" => "qqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n",
            _ => text.as_str(),
        };
        let errors = file::parse(text, "agent.toml", Path::new("/"), Plain::default());
        let said = errors.expect_err("invalid").to_string();
        let listed = said.split_once("known here: ");
        let (_, listed) = listed.unwrap_or_else(|| panic!("{said}"));
        let listed: BTreeSet<&str> = listed.split(", ").collect();
        assert_eq!(listed, keys.iter().copied().collect(), "{section}");
    }
}

#[test]
fn the_agents_reference_shows_the_defaults() {
    let shown = agent("agent-reference.toml");
    assert_eq!(shown.tunnels, Some(options::DEFAULT_TUNNELS));
    assert_eq!(shown.grace, Some(options::DEFAULT_GRACE));
    assert_eq!(shown.max_streams, Some(options::DEFAULT_STREAMS));
    assert_eq!(shown.log, Some(LogFormat::default()));
    let most = format!("1 to {};", options::MOST_TUNNELS);
    assert!(agent_reference()[""]["tunnels"].contains(&most));
}

#[test]
fn every_flag_of_a_running_agent_is_a_key_of_its_file_with_a_variable_of_that_name() {
    let command = bridgehead_agent::cli::Cli::command();
    let run = command.find_subcommand("run").expect("the command");
    let (_, keys) = AGENT_KEYS[0];
    let mut seen = 0;
    for flag in run.get_arguments() {
        let Some(long) = flag.get_long().filter(|long| *long != "config") else {
            continue;
        };
        let key = long.replace('-', "_");
        assert!(keys.contains(&key.as_str()), "--{long}");
        let variable = flag.get_env().expect("a variable").to_string_lossy();
        assert_eq!(variable, format!("BH_{}", key.to_uppercase()));
        seen += 1;
    }
    assert!(seen >= 14, "{seen}");
}

#[test]
fn every_example_says_what_it_is_for() {
    for name in GATEWAYS.into_iter().chain(AGENTS) {
        assert!(read(name).starts_with("# "), "{name} begins with a comment");
    }
}

#[test]
fn the_reference_explains_every_key_beside_it() {
    let text = read("gateway-reference.toml");
    for (section, keys) in KEYS.into_iter().filter(|(section, _)| !section.is_empty()) {
        // A section may appear twice ([[app]]); its keys may stand in either.
        let parts: Vec<&str> = (text.split("\n["))
            .filter(|part| format!("[{part}").starts_with(section))
            .collect();
        for key in keys {
            let line = parts
                .iter()
                .flat_map(|part| part.lines())
                .find(|line| line.starts_with(&format!("{key} = ")));
            let line = line.unwrap_or_else(|| panic!("{section}.{key} is missing"));
            assert!(
                line.contains("# "),
                "{section}.{key} has no comment: {line}"
            );
        }
    }
}

#[test]
fn the_reference_shows_the_defaults() {
    let config = parse("gateway-reference.toml", &read("gateway-reference.toml"));
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.defaults, AppSettings::default());
    assert_eq!(config.apps[0].settings, AppSettings::default());
    let plain = GatewaySettings {
        hosts: Vec::new(),
        ..config.gateway
    };
    assert_eq!(plain, GatewaySettings::default());
    let tunnel = TunnelSettings {
        tls: Vec::new(),
        agent_ca: None,
        ..config.tunnel
    };
    assert_eq!(tunnel, TunnelSettings::default());
    assert_eq!(config.admin.listen, AdminSettings::default().listen);
    let bare = "[public]\ndomain = \"a.org\"\ntls = [{ cert = \"c\", key = \"k\" }]\n";
    let public = parse("bare", bare).public;
    assert_eq!(config.public.http, public.http);
    assert_eq!(config.public.https, public.https);
    assert_eq!(config.public.proxy_protocol, public.proxy_protocol);
}

#[test]
fn the_known_keys_are_exactly_these() {
    let start = "[tunnel]\nplain = true\n";
    for (section, keys) in KEYS {
        // A key that no known one is near to makes the parser list them all.
        let text = match section {
            "" => format!("qqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n{start}"),
            "[tunnel]" => format!("{start}qqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"),
            "[[agent]]" => format!(
                "{start}[[agent]]\nid = \"a\"\nkeys = []\napps = [\"*\"]\nqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"
            ),
            "[[app]]" => {
                format!("{start}[[app]]\nname = \"a\"\nqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n")
            }
            _ => format!("{start}{section}\nqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"),
        };
        let said = complaint(&text);
        let (_, listed) = said
            .split_once("known here: ")
            .unwrap_or_else(|| panic!("{said}"));
        let mut listed: Vec<&str> = listed.split(", ").collect();
        listed.sort_unstable();
        let mut expected: Vec<&str> = keys.to_vec();
        if section == "[[app]]" {
            let (_, inherited) = KEYS[5];
            expected.extend(inherited);
        }
        expected.sort_unstable();
        assert_eq!(listed, expected, "{section}");
    }
}

#[test]
fn an_unknown_key_names_its_path_and_the_nearest_key() {
    let minimal = read("gateway-minimal.toml");
    for (text, expected) in [
        (
            format!("{minimal}first_frame_windw = \"5s\"\n"),
            "[[app]].first_frame_windw: unknown key, did you mean first_frame_window?",
        ),
        (
            minimal.replace("domain =", "domian ="),
            "[public].domian: unknown key, did you mean domain?",
        ),
        (
            minimal.replace("[[app]]", "[[apps]]"),
            "apps: unknown key, did you mean app?",
        ),
        (
            minimal.replace("hash =", "hsah ="),
            "[[agent]].keys.hsah: unknown key, did you mean hash?",
        ),
    ] {
        let errors = Config::from_toml(&text, "gw.toml", Path::new("/")).expect_err("invalid");
        let found = errors.to_string();
        assert!(
            found.lines().any(|line| line.ends_with(expected)),
            "{found}"
        );
    }
}

/// Every flag and argument of the contract.
#[rustfmt::skip]
const COMMANDS: [(&[&str], &[&str]); 7] = [
    (&["dev"], &[
        "--app <URL>", "--name <NAME>", "--public <ADDR>", "--tunnel <ADDR>", "--admin <ADDR>",
        "--first-frame-window <DUR>", "--stall-window <DUR>", "--hold <DUR>", "--json", "--log <FORMAT>",
    ]),
    (&["serve"], &["--config <FILE>", "--log <FORMAT>", "--log-level <LEVEL>"]),
    (&["check"], &["--config <FILE>"]),
    (&["token", "new"], &["--agent <ID>", "--app <NAME>...", "--expires <DUR>"]),
    (&["codes"], &["[CODE]", "--json"]),
    (&["completions"], &["<SHELL>"]),
    (&["man"], &["<DIR>"]),
];

fn help_of(path: &[&str]) -> String {
    let mut command = cli::command();
    command.build();
    let mut found = &mut command;
    for name in path {
        found = found
            .find_subcommand_mut(name)
            .unwrap_or_else(|| panic!("no command {name}"));
    }
    found.render_long_help().to_string()
}

#[test]
fn help_names_every_flag_of_the_contract_and_shows_an_example() {
    for (path, flags) in COMMANDS {
        let help = help_of(path);
        for flag in flags {
            assert!(help.contains(flag), "{path:?} misses {flag}:\n{help}");
        }
        assert!(help.contains("Example"), "{path:?} shows an example");
        assert!(
            help.contains(&format!("bh-gateway {}", path.join(" "))),
            "{path:?}:\n{help}"
        );
    }
    let root = help_of(&[]);
    for (path, _) in COMMANDS {
        assert!(root.contains(path[0]), "{root}");
    }
    assert!(root.contains("Exit codes: 0 all went well, 1 failed while running, 2 wrong"));
}

#[test]
fn every_command_that_help_shows_parses() {
    let mut tried = 0;
    let all = COMMANDS.into_iter().map(|(path, _)| path).chain([&[][..]]);
    for line in all.flat_map(|path| {
        let lines: Vec<String> = help_of(path).lines().map(str::to_owned).collect();
        lines
    }) {
        let Some(shown) = line.strip_prefix("  bh-gateway ") else {
            continue;
        };
        // Shell around the command, and explanations behind two blanks.
        for part in format!("bh-gateway {shown}").split(" && ") {
            let bare = part
                .split("  ")
                .next()
                .unwrap_or(part)
                .split(" > ")
                .next()
                .unwrap_or(part);
            let words: Vec<String> = bare
                .split_whitespace()
                .map(|w| w.replace('\'', ""))
                .collect();
            let parsed = cli::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{bare}: {}", parsed.expect_err("a mistake"));
            tried += 1;
        }
    }
    assert!(tried >= 15, "only {tried} examples were found");
}

#[test]
fn flags_that_can_be_environment_variables_begin_with_bh() {
    let mut seen = 0;
    for name in ["dev", "serve", "check"] {
        let command = cli::command();
        let command = command.find_subcommand(name).expect("the command");
        for flag in command
            .get_arguments()
            .filter(|arg| arg.get_long().is_some())
        {
            if flag.get_id() == "help" || flag.get_id() == "version" {
                continue;
            }
            let variable = flag
                .get_env()
                .map(|name| name.to_string_lossy().into_owned());
            assert!(
                variable.is_some_and(|v| v.starts_with("BH_")),
                "--{} of {name}",
                flag.get_id()
            );
            seen += 1;
        }
    }
    assert!(seen >= 14, "{seen}");
}
