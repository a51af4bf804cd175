//! What a stranger reads is a contract: the README, the handbook and the files of `deploy` say what
//! the programs do, and nothing else.
//!
//! Tables are compared with the code they describe, commands are parsed by the programs themselves,
//! configurations are read by them, links are followed. Prose is not judged.

mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use bridgehead_gateway::clock::Clock;
use bridgehead_gateway::config::Config;
use bridgehead_gateway::error::Failure;
use bridgehead_gateway::request::front::ClientProtocol;
use bridgehead_gateway::telemetry::{ExchangeGuard, Metrics, Protocol, Sinks};
use bridgehead_protocol::verdict::{Advice, Code, Delivery, Reason, RetryAfter, Stage};
use clap::CommandFactory as _;

use markdown::{Document, read, root, simple_commands};

fn readme() -> Document {
    Document::open("README.md")
}

fn handbook() -> Document {
    Document::open("deploy/handbook.md")
}

fn documents() -> [Document; 3] {
    [readme(), handbook(), Document::open("CHANGELOG.md")]
}

/// The text in the only pair of backquotes of a cell.
fn name(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

#[test]
fn the_readme_s_table_of_codes_is_the_program_s() {
    let written: Vec<Vec<String>> = readme()
        .table("Code")
        .into_iter()
        .map(|mut row| {
            row.truncate(6);
            row
        })
        .collect();
    let expected: Vec<Vec<String>> = Code::ALL
        .iter()
        .map(|code| {
            let row = code.row();
            let pause = match (row.retry_after, row.default_retry) {
                (RetryAfter::Always, Some(seconds)) => format!("{seconds} s"),
                (kind, _) => kind.as_str().to_owned(),
            };
            vec![
                format!("`{code}`"),
                row.status.to_string(),
                row.reached.as_str().to_owned(),
                format!("`{}`", row.read.as_str()),
                format!("`{}`", row.write.as_str()),
                pause,
            ]
        })
        .collect();
    assert_eq!(written, expected);
}

#[test]
fn the_words_of_a_verdict_are_all_explained() {
    let first = |table: &str| -> Vec<String> {
        let rows = readme().table(table);
        rows.iter().map(|row| name(&row[0])).collect()
    };
    let deliveries: Vec<&str> = Delivery::ALL.iter().map(|d| d.as_str()).collect();
    assert_eq!(first("`delivery`"), deliveries);
    let advice: Vec<&str> = Advice::ALL.iter().map(|a| a.as_str()).collect();
    assert_eq!(first("Advice"), advice);
    let spans = readme().spans();
    for stage in Stage::ALL {
        assert!(spans.contains(&stage.as_str().to_owned()), "{stage}");
    }
}

/// Sources in which an exchange gets its failure, without their tests. Where all codes are listed
/// (answers, telemetry, the command line) says nothing about what happens.
fn sources_of_failures() -> String {
    let mut text = String::new();
    let from = root().join("gateway/src");
    let mut folders = vec![from.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of the gateway") {
            let path = entry.expect("an entry").path();
            let inner = path.strip_prefix(&from).expect("below").to_string_lossy();
            let aside = ["answer", "telemetry", "cli", "dev"];
            if aside.iter().any(|room| inner.starts_with(room)) || inner.contains("tests") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let source = std::fs::read_to_string(path).expect("a source");
                // A test module that lies in a file of its own ends nothing here.
                let inline = "#[cfg(test)]\nmod tests {";
                text.push_str(source.split(inline).next().unwrap_or_default());
            }
        }
    }
    text
}

/// `BH_APP_TIMEOUT` or `no_agent` as its variant is written.
fn variant(of: &str, word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let (first, rest) = part.split_at(1);
        format!("{}{}", first.to_uppercase(), rest.to_lowercase())
    });
    format!("{of}::{}", parts.collect::<String>())
}

fn is_made(sources: &str, variant: &str) -> bool {
    let mut found = sources.match_indices(variant);
    found.any(|(at, _)| {
        let before = sources[..at].chars().next_back();
        let after = sources[at + variant.len()..].chars().next();
        let mut around = [before, after].into_iter().flatten();
        !around.any(char::is_alphanumeric)
    })
}

#[test]
fn what_is_said_to_be_for_later_is_not_made_and_the_rest_is() {
    let sources = sources_of_failures();
    for row in readme().table("Code") {
        let made = is_made(&sources, &variant("Code", &name(&row[0])));
        let said = if made { "yes" } else { "later" };
        assert_eq!(row[6], said, "README, {}", row[0]);
    }
    for row in handbook().table("Reason") {
        let made = is_made(&sources, &variant("Reason", &name(&row[0])));
        assert_eq!(row[1] != "reserved", made, "handbook, {}", row[0]);
    }
}

#[test]
fn the_handbook_explains_every_reason_and_no_other() {
    let rows = handbook().table("Reason");
    let written: Vec<String> = rows.iter().map(|row| name(&row[0])).collect();
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(written, known);
}

/// Type and labels of each metric, as rendered after one failed exchange.
fn metrics() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let (clock, metrics) = (Clock::start(), Metrics::new());
    drop(failed_exchange(&clock, &metrics).1);
    let certificates = [("public", "gw.pem", 1_800_000_000)];
    metrics.process().set_certificates(certificates.into_iter());
    metrics.set_agents([("demo", 1)].into_iter());
    let text = metrics.render().expect("consistent families");
    let mut families = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            continue;
        }
        let Some((series, labels)) = line.split_once('{') else {
            continue;
        };
        let ends = ["_bucket", "_sum", "_count", ""];
        let base = ends
            .iter()
            .filter_map(|end| series.strip_suffix(end))
            .find(|base| families.contains_key(*base));
        let family = base.and_then(|base| families.get_mut(base));
        let (_, known) = family.expect("declared before its samples");
        let pairs = labels.split('}').next().unwrap_or_default().split(',');
        let names = pairs.filter_map(|pair| pair.split('=').next());
        known.extend(names.filter(|name| *name != "le").map(str::to_owned));
    }
    families
}

fn failed_exchange(clock: &Clock, metrics: &Arc<Metrics>) -> (Arc<Sinks>, ExchangeGuard) {
    let sinks = Sinks::new(*clock, Arc::clone(metrics), None);
    let mut guard = ExchangeGuard::new(
        Arc::clone(&sinks),
        uuid::Uuid::now_v7(),
        clock.now(),
        Ipv4Addr::LOCALHOST.into(),
        Protocol::Http(ClientProtocol::Http11),
    );
    guard.app(&"demo".into(), &metrics.app("demo"));
    guard.retried(Reason::ConnectRefused);
    guard.failed(&Failure::refused(Code::BhAppStarting, Reason::NoAgent));
    (sinks, guard)
}

#[test]
fn the_handbook_lists_every_metric_with_its_type_and_labels() {
    let written: BTreeMap<String, (String, BTreeSet<String>)> = handbook()
        .table("Name")
        .into_iter()
        .map(|row| {
            let labels = row[2].split(", ").filter(|label| *label != "–");
            let labels = labels.map(str::to_owned).collect();
            (name(&row[0]), (row[1].clone(), labels))
        })
        .collect();
    assert_eq!(written, metrics());
}

/// Each metric that a text names, with the labels that are asked of it.
fn named_metrics(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let found = text.match_indices("bridgehead_");
    let found = found.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.map_or("", |(matchers, _)| matchers).split(',');
        let labels = matchers.filter_map(|one| one.trim().split(['=', '!']).next());
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        (name.to_owned(), labels.collect())
    });
    found.collect()
}

#[test]
fn alerts_and_the_board_ask_for_metrics_and_labels_that_exist() {
    let known = metrics();
    let board = read("deploy/grafana/bridgehead.json");
    let parsed: serde_json::Value = serde_json::from_str(&board).expect("the board is JSON");
    let panels = parsed["panels"].as_array().expect("a board has panels");
    let asked = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("a panel asks");
        targets.iter().map(|target| {
            let asked = target["expr"].as_str().expect("an expression");
            ("the board", asked.to_owned())
        })
    });
    let alerts = read("deploy/prometheus/alerts.yml");
    let rules = alerts.lines().filter_map(|line| {
        let asked = line.trim().strip_prefix("expr: ")?;
        Some(("the alerts", asked.to_owned()))
    });
    let mut seen = 0;
    for (place, asked) in asked.chain(rules) {
        let named = named_metrics(&asked);
        assert!(
            !named.is_empty() || asked.starts_with("up{"),
            "{place}: {asked}"
        );
        for (name, labels) in named {
            let ends = ["", "_bucket", "_sum", "_count"];
            let family = ends
                .iter()
                .filter_map(|end| known.get(name.strip_suffix(end)?))
                .next();
            let (_, has) = family.unwrap_or_else(|| panic!("{place}: {name} does not exist"));
            for label in labels {
                assert!(has.contains(&label), "{place}: {name} has no {label}");
            }
            seen += 1;
        }
        let opened = asked.matches(['(', '{', '[']).count();
        assert_eq!(opened, asked.matches([')', '}', ']']).count(), "{asked}");
    }
    assert!(seen >= 30, "only {seen} were found");
    assert_eq!(
        alerts.matches("- alert: ").count(),
        alerts.matches("expr: ").count()
    );
}

#[test]
fn the_handbook_lists_every_field_of_an_access_line_in_order() {
    let (clock, metrics) = (Clock::start(), Metrics::new());
    let (sinks, guard) = failed_exchange(&clock, &metrics);
    let view = sinks.exchange(guard.id()).expect("it runs");
    let rows = handbook().table("Field");
    let mut rest = view.as_str();
    for row in &rows {
        let key = format!("\"{}\":", name(&row[0]));
        let at = rest.find(&key);
        let at = at.unwrap_or_else(|| panic!("{key} is not in its place: {view}"));
        rest = &rest[at + key.len()..];
    }
    let line: serde_json::Value = serde_json::from_str(&view).expect("JSON");
    // The view says one thing more than the line: whether the exchange still runs.
    assert_eq!(
        line.as_object().map(|line| line.len() - 1),
        Some(rows.len())
    );
}

#[test]
fn the_handbook_lists_every_address_of_the_admin_listener() {
    let written: BTreeSet<String> = handbook()
        .table("Address")
        .iter()
        .map(|row| name(&row[0]))
        .collect();
    let source = read("gateway/src/admin/routes.rs");
    let routes = source.split(".route(\"").skip(1).map(|rest| {
        let (path, rest) = rest.split_once("\", ").expect("a path and a handler");
        let method = rest.split('(').next().unwrap_or_default();
        format!("{} {path}", method.to_uppercase())
    });
    assert_eq!(written, routes.collect());
}

fn programs() -> BTreeMap<&'static str, clap::Command> {
    let mut gateway = bridgehead_gateway::cli::command();
    let mut agent = bridgehead_agent::cli::Cli::command();
    gateway.build();
    agent.build();
    let mut chaos = bridgehead_tests::chaos::cli::command();
    let mut load = bridgehead_tests::load::cli::command();
    chaos.build();
    load.build();
    BTreeMap::from([
        ("bh-gateway", gateway),
        ("bh-agent", agent),
        ("bh-chaos", chaos),
        ("bh-load", load),
    ])
}

/// The part of a command line that is ours: the program, its words.
fn ours(words: &[String]) -> Option<Vec<String>> {
    if words.starts_with(&["cargo", "run", "--release", "--", "dev"].map(str::to_owned)) {
        let rest = words[4..].iter().cloned();
        return Some(
            std::iter::once("bh-gateway".to_owned())
                .chain(rest)
                .collect(),
        );
    }
    let (program, rest) = words.split_first()?;
    let program = Path::new(program).file_name()?.to_str()?.to_owned();
    let known = matches!(
        program.as_str(),
        "bh-gateway" | "bh-agent" | "bh-chaos" | "bh-load"
    );
    known.then(|| {
        std::iter::once(program)
            .chain(rest.iter().cloned())
            .collect()
    })
}

/// Fails unless the program takes the command line.
fn parse(place: &str, words: &[String]) {
    let mut programs = programs();
    let program = programs.get_mut(words[0].as_str()).expect("one of ours");
    if let Err(error) = program.try_get_matches_from_mut(words) {
        panic!("{place}: {}: {error}", words.join(" "));
    }
}

#[test]
fn every_command_in_a_block_is_one_that_the_programs_take() {
    let mut tried = 0;
    for document in documents() {
        for words in document.commands().iter().filter_map(|line| ours(line)) {
            parse(document.path, &words);
            tried += 1;
        }
    }
    assert!(tried >= 11, "only {tried} commands were found");
}

#[test]
fn the_units_start_what_the_programs_take() {
    let mut tried = 0;
    for unit in ["bh-gateway.service", "bh-agent.service"] {
        let path = format!("deploy/systemd/{unit}");
        let text = read(&path);
        let starts = text.lines().filter(|line| line.starts_with("Exec"));
        for line in starts
            .filter_map(|line| line.split_once('='))
            .map(|(_, line)| line)
        {
            let words = &simple_commands(line)[0];
            if words[0] != "/bin/kill" {
                parse(&path, &ours(words).expect("one of ours"));
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 3);
}

/// Every flag of a command and of those below it, with dashes.
fn flags(command: &clap::Command, all: &mut BTreeSet<String>) {
    let longs = command.get_arguments().filter_map(clap::Arg::get_long);
    all.extend(longs.map(|long| format!("--{long}")));
    for inner in command.get_subcommands() {
        flags(inner, all);
    }
}

#[test]
fn every_flag_and_command_in_the_prose_exists() {
    let programs = programs();
    let mut all = BTreeSet::new();
    programs
        .values()
        .for_each(|program| flags(program, &mut all));
    let mut seen = 0;
    for document in documents() {
        for span in document.spans() {
            let words: Vec<String> = span.split(' ').map(str::to_owned).collect();
            let (mut known, mut rest) = (all.clone(), words.as_slice());
            if let Some(mut command) = programs.get(words[0].as_str()) {
                rest = &rest[1..];
                while let Some(inner) = rest.first().and_then(|w| command.find_subcommand(w)) {
                    (command, rest) = (inner, &rest[1..]);
                }
                let is_word = |word: &String| word.chars().all(|c| c.is_ascii_lowercase());
                assert!(
                    command.get_subcommands().next().is_none()
                        || rest.first().is_none_or(|w| !is_word(w)),
                    "{}: `{span}` names no command",
                    document.path
                );
                known = BTreeSet::new();
                flags(command, &mut known);
            } else if !span.starts_with("--") {
                continue;
            }
            for flag in rest
                .iter()
                .filter(|word| word.starts_with("--") && word.len() > 2)
            {
                assert!(known.contains(flag), "{}: `{span}`: {flag}", document.path);
            }
            seen += 1;
        }
    }
    assert!(seen >= 20, "only {seen} were found");
}

/// Every environment variable of a command and of those below it.
fn variables(command: &clap::Command, all: &mut BTreeSet<String>) {
    let named = command.get_arguments().filter_map(clap::Arg::get_env);
    all.extend(named.map(|name| name.to_string_lossy().into_owned()));
    for inner in command.get_subcommands() {
        variables(inner, all);
    }
}

#[test]
fn every_environment_variable_that_is_named_exists() {
    // The token has no flag, since a command line can be read by others; the others are of our tests.
    let mut known =
        BTreeSet::from(["BH_TOKEN", "BH_DEEP", "BH_SIM", "BH_BIN_DIR"].map(str::to_owned));
    programs()
        .values()
        .for_each(|program| variables(program, &mut known));
    let files = [
        "deploy/compose.yaml",
        "deploy/agent.Dockerfile",
        "deploy/gateway.Dockerfile",
    ];
    let texts = documents()
        .map(|d| d.text)
        .into_iter()
        .chain(files.map(read));
    let mut seen = 0;
    for text in texts {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for word in words.filter(|word| word.starts_with("BH_") && Code::parse(word).is_none()) {
            assert!(known.contains(word), "{word}");
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} were found");
}

/// Configurations of the gateway in a document: TOML blocks, and files written by a shell block.
fn configurations(document: &Document) -> Vec<String> {
    let blocks = document.blocks();
    let whole = blocks.iter().filter(|block| block.language == "toml");
    let written = blocks.iter().filter_map(|block| {
        let (_, rest) = block.text.split_once("<<'TOML'\n")?;
        rest.split_once("\nTOML\n").map(|(text, _)| text.to_owned())
    });
    whole
        .map(|block| block.text.clone())
        .chain(written)
        .collect()
}

#[test]
fn every_configuration_in_a_document_is_valid() {
    let mut tried = 0;
    for document in documents() {
        for text in configurations(&document) {
            let read = Config::from_toml(&text, document.path, Path::new("/"));
            let config = read.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            assert!(!config.apps.is_empty(), "{}:\n{text}", document.path);
            tried += 1;
        }
    }
    assert!(tried >= 4, "only {tried} were found");
}

#[test]
fn every_configuration_key_in_the_prose_exists() {
    let reference: toml::Table = read("deploy/examples/gateway-reference.toml")
        .parse()
        .expect("the reference is TOML");
    let has = |section: &str, key: &str| {
        let inherited = ["app", "defaults"].contains(&section);
        let sections = if inherited {
            vec!["app", "defaults"]
        } else {
            vec![section]
        };
        sections
            .iter()
            .any(|section| match reference.get(*section) {
                Some(toml::Value::Table(table)) => table.contains_key(key),
                Some(toml::Value::Array(tables)) => {
                    tables.iter().any(|table| table.get(key).is_some())
                }
                _ => false,
            })
    };
    let mut seen = 0;
    for document in documents() {
        for span in document.spans().iter().filter(|span| span.starts_with('[')) {
            let inner = span.trim_start_matches('[');
            let (section, rest) = inner.split_once(']').expect("a section ends");
            let rest = rest.trim_start_matches(']');
            let known = match rest.strip_prefix('.') {
                Some(key) => has(section, key),
                None => reference.contains_key(section),
            };
            assert!(known, "{}: `{span}`", document.path);
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} were found");
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for document in documents() {
        let folder = root().join(document.path);
        let folder = folder.parent().expect("a file lies in a folder");
        for link in document.links() {
            if link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                root().join(document.path)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{}: {link}", document.path);
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).expect("a document");
                let anchors = Document { path: "", text }.anchors();
                assert!(
                    anchors.contains(&anchor.to_owned()),
                    "{}: {link}",
                    document.path
                );
            }
            seen += 1;
        }
    }
    assert!(seen >= 20, "only {seen} were found");
}
