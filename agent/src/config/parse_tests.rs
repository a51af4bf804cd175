//! Tests of flags over file, and of what is said about each mistake.

use std::time::Duration;

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

const TOKEN: &str = "bh_k1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

fn args(line: &[&str]) -> RunArgs {
    let words = ["bh-agent", "run"].into_iter().chain(line.iter().copied());
    match Cli::try_parse_from(words).expect("command line").command {
        Command::Run(run) => run,
        other => panic!("not run: {other:?}"),
    }
}

fn with_token(name: &str) -> Option<String> {
    (name == "BH_TOKEN").then(|| TOKEN.to_owned())
}

fn parsed(line: &[&str]) -> Result<Settings, ConfigError> {
    settings(args(line), &with_token)
}

fn said(line: &[&str]) -> String {
    match parsed(line) {
        Ok(_) => panic!("accepted: {line:?}"),
        Err(error) => error.to_string(),
    }
}

fn file(text: &str) -> tempfile::TempPath {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), text).expect("write");
    file.into_temp_path()
}

const GATEWAY: [&str; 2] = ["--gateway", "tls://gw"];

#[test]
fn flags_alone_are_enough() {
    let line = [
        &GATEWAY[..],
        &[
            "--app",
            "demo=3000",
            "--app",
            "db=tcp://db:5432",
            "--",
            "npm",
            "start",
        ],
    ]
    .concat();
    let run = parsed(&line).expect("settings").run;
    assert_eq!(run.gateways[0].to_string(), "tls://gw:7000");
    assert_eq!(
        run.apps
            .iter()
            .map(|app| app.name.as_str())
            .collect::<Vec<_>>(),
        ["demo", "db"]
    );
    assert_eq!(run.tunnels, DEFAULT_TUNNELS);
    assert_eq!(run.grace, DEFAULT_GRACE);
    assert_eq!(run.command, ["npm", "start"]);
    assert!(run.agent.starts_with("agent-"));
}

#[test]
fn a_flag_comes_before_the_file_and_the_file_before_the_default() {
    let path = file(&format!(
        "gateway = \"tls://file\"\ntoken = \"{TOKEN}\"\ntunnels = 3\ngrace = \"5s\"\nagent = \"a\"\nlog = \"json\"\n\
         [[app]]\nname = \"demo\"\ntarget = \"3000\"\nweight = 7\n[[app]]\nname = \"shop\"\ntarget = \"3001\"\nhost = \"shop.local\""
    ));
    let path = path.to_str().expect("path");
    let line = ["--config", path, "--tunnels", "1", "--app", "demo=4000"];
    let found = settings(args(&line), &|_| None).expect("settings");
    assert_eq!(
        found.log,
        LogOptions {
            format: LogFormat::Json,
            level: "info".to_owned()
        }
    );
    let run = found.run;
    assert_eq!(run.gateways[0].host, "file");
    assert_eq!(
        (run.tunnels.get(), run.grace, run.agent.as_str()),
        (1, Duration::from_secs(5), "a")
    );
    let apps: Vec<_> = run
        .apps
        .iter()
        .map(|app| (app.name.as_str(), app.target.to_string(), app.weight))
        .collect();
    assert_eq!(
        apps,
        [
            ("shop", "http://localhost:3001".to_owned(), 1),
            ("demo", "http://localhost:4000".to_owned(), 1)
        ]
    );
    assert_eq!(run.apps[0].host, "shop.local");
}

#[test]
fn a_token_file_beside_the_configuration_is_found() {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("token"), TOKEN).expect("token");
    let config = folder.path().join("agent.toml");
    let text =
        "gateway = \"tls://gw\"\ntoken_file = \"token\"\n[[app]]\nname = \"a\"\ntarget = \"1\"";
    std::fs::write(&config, text).expect("config");
    let run = settings(args(&["--config", config.to_str().expect("path")]), &|_| {
        None
    })
    .expect("settings")
    .run;
    assert_eq!(run.token.load().expect("token").reveal(), TOKEN);
}

#[test]
fn each_mistake_is_told_with_its_flag_on_one_line() {
    let app = ["--app", "a=1"];
    let cases: [(&[&str], &str); 13] = [
        (&app, "--gateway is missing"),
        (&GATEWAY, "--app is missing"),
        (&[GATEWAY[0], "http://gw", app[0], app[1]], "--gateway:"),
        (
            &[GATEWAY[0], "tcp://gw", app[0], app[1]],
            "--insecure-plain",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], "--app", "Demo=1"],
            "`Demo` is not an app name",
        ),
        (&[GATEWAY[0], GATEWAY[1], "--app", "demo"], "NAME=TARGET"),
        (
            &[GATEWAY[0], GATEWAY[1], "--app", "a=ftp://x:1"],
            "`ftp` is unknown",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], "--app", "a=1", "--app", "a=2"],
            "`a` is given twice",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], app[0], app[1], "--tunnels", "0"],
            "--tunnels: 0",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], app[0], app[1], "--grace", "5"],
            "--grace: \"5\" is not a duration, write 5s",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], app[0], app[1], "--health", "9091"],
            "--health: `9091`",
        ),
        (
            &[
                GATEWAY[0],
                GATEWAY[1],
                app[0],
                app[1],
                "--ca",
                "/nowhere.pem",
            ],
            "/nowhere.pem",
        ),
        (
            &[GATEWAY[0], GATEWAY[1], app[0], app[1], "--agent", "a b"],
            "--agent: `a b`",
        ),
    ];
    for (line, expected) in cases {
        let said = said(line);
        assert!(said.contains(expected), "{line:?}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn a_missing_token_says_how_to_get_one() {
    let line = [GATEWAY[0], GATEWAY[1], "--app", "a=1"];
    let said = settings(args(&line), &|_| None)
        .expect_err("no token")
        .to_string();
    assert!(said.contains("bh-gateway token new"), "{said}");
}
