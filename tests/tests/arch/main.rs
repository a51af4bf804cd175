//! The architecture, enforced: imports, sizes, headers, words, and where files may lie.
//!
//! Every rule is run twice: over the workspace, and over a planted violation that it must catch.

mod rules;
mod source;
mod tree;

use std::path::Path;

/// Stops with every fault found, one a line.
fn none(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

fn sources() -> Vec<(std::path::PathBuf, String)> {
    let rust = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "rs");
    let read = |path: std::path::PathBuf| tree::text(&path).map(|text| (path, text));
    let found: Vec<_> = tree::files()
        .into_iter()
        .filter(rust)
        .filter_map(read)
        .collect();
    assert!(found.len() > 20, "only {} sources were found", found.len());
    found
}

fn named(path: &Path, text: &str) -> Vec<source::Named> {
    let module = tree::module(path).unwrap_or_else(|| vec!["bridgehead_tests".into()]);
    source::paths(text, &module).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Test code beside the code it tests, in a file of its own.
fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests" || stem.ends_with("_tests") || stem == "properties"
}

fn import_faults(path: &Path, text: &str) -> Vec<String> {
    let Some(module) = tree::module(path).filter(|_| !is_test_file(path)) else {
        return Vec::new();
    };
    let module = module.join("::");
    let judge = |n: &source::Named| {
        let fault = rules::import_fault(&module, n)?;
        Some(format!("{}:{}: {fault}", path.display(), n.line))
    };
    named(path, text).iter().filter_map(judge).collect()
}

/// Test code is everything under `tests/` and what `#[cfg(test)]` hides; the one file of waits is exempt.
fn sleep_faults(path: &Path, text: &str) -> Vec<String> {
    if path == Path::new("tests/src/wait.rs") || path.starts_with("tests/bench") {
        return Vec::new();
    }
    let whole = path.starts_with("tests") || is_test_file(path);
    // Under paused time a sleep is an event like any other: it takes no time and races nothing.
    // Every runtime of the simulation is paused from its first moment.
    let simulated = path.starts_with("tests/tests/sim");
    let paused = simulated || text.contains("start_paused = true");
    let judge = |n: &source::Named| {
        rules::sleep_fault(n, paused).map(|fault| format!("{}: {fault}", path.display()))
    };
    named(path, text)
        .iter()
        .filter(|n| whole || n.test)
        .filter_map(judge)
        .collect()
}

/// Modules declared for tests only, wherever their parents lie.
fn test_modules(sources: &[(std::path::PathBuf, String)]) -> Vec<String> {
    let of = |(path, text): &(std::path::PathBuf, String)| {
        let module = tree::module(path)?;
        Some(source::test_modules(text, &module).unwrap_or_else(|error| panic!("{error}")))
    };
    sources.iter().filter_map(of).flatten().collect()
}

#[test]
fn each_room_imports_only_what_it_may() {
    let sources = sources();
    let tests = test_modules(&sources);
    let for_tests = |path: &Path| {
        let module = tree::module(path).unwrap_or_default().join("::");
        tests.iter().any(|test| rules::below(&module, test))
    };
    let production = sources.iter().filter(|(path, _)| !for_tests(path));
    let faults: Vec<String> = production
        .flat_map(|(path, text)| import_faults(path, text))
        .collect();
    none(&faults);
}

#[test]
fn a_module_declared_for_tests_is_known_as_one() {
    let sources = |text: &str| vec![("gateway/src/route/mod.rs".into(), text.to_owned())];
    let found = test_modules(&sources("#[cfg(test)]\nmod testing;\nmod host;"));
    assert_eq!(found, ["bridgehead_gateway::route::testing"]);
    assert!(test_modules(&sources("mod testing;")).is_empty());
}

#[test]
fn a_planted_import_is_caught() {
    let pure = Path::new("gateway/src/route/host.rs");
    let caught = |path: &Path, text: &str| !import_faults(path, text).is_empty();
    assert!(caught(pure, "use tokio::net::TcpStream;"));
    assert!(
        caught(pure, "use std::{fmt, time::{Duration, Instant}};"),
        "nested trees are flattened"
    );
    assert!(
        caught(pure, "fn f() { let _ = std::time::Instant::now(); }"),
        "paths in code count"
    );
    assert!(
        caught(pure, "fn f() { crate::telemetry::count(); }"),
        "`crate::` paths count"
    );
    assert!(
        caught(pure, "use super::super::tunnel::pick::Pick;"),
        "`super::` is resolved"
    );
    assert!(caught(pure, "use crate::admit::Permit;"));
    assert!(caught(
        Path::new("protocol/src/conn/mod.rs"),
        "use tokio::time::sleep;"
    ));
    assert!(caught(
        Path::new("protocol/src/conn/mod.rs"),
        "use crate::io::driver;"
    ));
    assert!(caught(
        Path::new("agent/src/session/core.rs"),
        "use bridgehead_protocol::io::Carrier;"
    ));
    assert!(caught(
        Path::new("gateway/src/admin/mod.rs"),
        "use crate::request::corridor;"
    ));
    assert!(caught(
        Path::new("protocol/src/io/driver.rs"),
        "use bridgehead_gateway::route;"
    ));
}

#[test]
fn what_is_allowed_is_not_caught() {
    let pure = Path::new("gateway/src/route/host.rs");
    for text in [
        "use std::time::Duration; use http::Method; use crate::error::Failure; use super::table::Table;",
        "use bridgehead_protocol::verdict::Code;",
        "// use tokio::net::TcpStream;",
        "const A: &str = \"std::time::Instant::now()\";",
        "#[cfg(test)] mod tests { use tokio::net::TcpStream; }",
        "fn f() { Local::new(); }",
    ] {
        none(&import_faults(pure, text));
    }
}

#[test]
fn tests_wait_for_events_and_never_sleep() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|(path, text)| sleep_faults(path, text))
        .collect();
    none(&faults);
}

#[test]
fn a_planted_sleep_is_caught() {
    let lines = "async fn f() { tokio::time::sleep(d).await; std::thread::sleep(d); }";
    assert_eq!(
        sleep_faults(Path::new("tests/tests/e2e/main.rs"), lines).len(),
        2
    );
    let hidden = format!("#[cfg(test)] mod tests {{ {lines} }}");
    assert_eq!(
        sleep_faults(Path::new("gateway/src/clock.rs"), &hidden).len(),
        2
    );
    none(&sleep_faults(Path::new("gateway/src/clock.rs"), lines));
    let paused = format!("#[tokio::test(start_paused = true)] {lines}");
    let faults = sleep_faults(Path::new("gateway/src/tests.rs"), &paused);
    assert_eq!(faults.len(), 1, "a thread sleeps in real time all the same");
}

#[test]
fn each_source_is_short_and_says_what_it_owns() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        faults.extend(
            rules::shape_faults(&text)
                .iter()
                .map(|fault| format!("{}: {fault}", path.display())),
        );
    }
    none(&faults);
}

#[test]
fn a_planted_giant_without_a_header_is_caught() {
    let long = "fn f() {}\n".repeat(rules::MAX_LINES + 1);
    assert_eq!(rules::shape_faults(&long).len(), 2);
    none(&rules::shape_faults("//! Owns an example.\n\nfn f() {}\n"));
}

#[test]
fn the_top_level_holds_only_what_belongs_there() {
    let entries = std::fs::read_dir(tree::root()).expect("the workspace can be listed");
    let names = entries.map(|e| {
        e.expect("an entry can be read")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let faults: Vec<String> = names
        .filter_map(|name| rules::top_level_fault(&name))
        .collect();
    none(&faults);
}

#[test]
fn a_planted_entry_is_caught() {
    assert!(rules::top_level_fault("scripts").is_some());
    assert!(rules::top_level_fault("deny.toml").is_some());
    assert!(rules::top_level_fault(".cargo").is_none());
    assert!(rules::top_level_fault("LICENSE").is_none());
    assert!(rules::top_level_fault("LICENSE-MIT").is_some());
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let mut faults = Vec::new();
    for path in tree::files() {
        let Some(text) = tree::text(&path) else {
            continue;
        };
        let found = if path == Path::new("Cargo.lock") {
            rules::lock_faults(&text)
        } else {
            rules::word_faults(&text)
        };
        faults.extend(
            found
                .iter()
                .map(|fault| format!("{}: {fault}", path.display())),
        );
    }
    none(&faults);
}

#[test]
fn a_planted_machine_path_is_caught() {
    let path = ["see /ro", "ot/notes"].concat();
    assert_eq!(rules::word_faults(&path).len(), 1);
    none(&rules::word_faults("see the README"));
    assert_eq!(
        rules::lock_faults("source = \"git+https://example.com/x\"\n").len(),
        1
    );
}
