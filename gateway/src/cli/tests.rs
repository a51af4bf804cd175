//! Tests of the command line: what is printed where, and with which exit code.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use clap::CommandFactory as _;

use super::*;

/// Runs a command line: outcome, output stream, error stream.
fn type_in(args: &[&str]) -> (Outcome, String, String) {
    let args = std::iter::once("bh-gateway").chain(args.iter().copied());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = run(args.map(OsString::from), &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (outcome, text(out), text(err))
}

/// A command line that must be refused with one line.
fn mistake(args: &[&str]) -> String {
    let (outcome, out, err) = type_in(args);
    assert!(
        matches!(outcome, Outcome::Exit(EXIT_USAGE)),
        "{args:?}: {outcome:?}"
    );
    assert_eq!(out, "", "{args:?}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: "), "{err}");
    err
}

fn done(args: &[&str]) -> (String, String) {
    let (outcome, out, err) = type_in(args);
    assert!(
        matches!(outcome, Outcome::Exit(EXIT_OK)),
        "{args:?}: {outcome:?} {err}"
    );
    (out, err)
}

fn dev_run(args: &[&str]) -> DevRun {
    match type_in(args) {
        (Outcome::Work(work), out, err) if out.is_empty() && err.is_empty() => match *work {
            Work::Dev(run) => run,
            Work::Serve(_) => panic!("serve instead of dev"),
        },
        (outcome, out, err) => panic!("{outcome:?} {out} {err}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn usage_mistakes_are_one_line_that_names_them_and_where_to_look() {
    assert_eq!(
        mistake(&["serve", "--nonsense"]),
        "error: unexpected argument '--nonsense' found (see `bh-gateway serve --help`)\n"
    );
    assert_eq!(
        mistake(&["serve", "--cofig", "x"]),
        "error: unexpected argument '--cofig' found; a similar argument exists: '--config' (see `bh-gateway serve --help`)\n"
    );
    assert!(mistake(&["frobnicate"]).contains("frobnicate"));
    assert!(mistake(&["serve"]).contains("--config <FILE>"));
    assert!(mistake(&["dev", "--hold", "soon"]).contains("\"soon\" is not a duration, write"));
    assert!(mistake(&["dev", "--stall-window", "0s"]).contains("zero"));
    assert!(mistake(&["dev", "--public", "8080"]).contains("127.0.0.1:8080"));
    assert!(mistake(&["dev", "--app", "ftp://x"]).contains("ftp"));
    assert!(mistake(&["dev", "--app", "tcp://127.0.0.1:5432"]).contains("use serve"));
    assert!(mistake(&["dev", "--name", "Shop"]).contains("\"Shop\" is not an app name"));
    assert!(mistake(&["dev", "--public", ":80", "--tunnel", ":80"]).contains("--tunnel: "));
    assert!(mistake(&["dev", "--admin", ":9090"]).contains("listen on 127.0.0.1"));
    assert!(mistake(&["completions", "tcsh"]).contains("tcsh"));
}

#[test]
fn without_a_command_help_is_shown_as_a_mistake() {
    let (outcome, out, err) = type_in(&[]);
    assert!(matches!(outcome, Outcome::Exit(EXIT_USAGE)));
    assert!(out.is_empty() && err.contains("Start here:"));
}

#[test]
fn dev_needs_nothing_and_takes_every_flag() {
    let run = dev_run(&["dev"]);
    assert_eq!(run.name.as_str(), "demo");
    assert!(run.target.is_none() && !run.json);
    assert_eq!(run.config.public.http, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(run.log.format, Format::Text);
    let run = dev_run(&[
        "dev",
        "--app",
        "h2c://127.0.0.1:3000",
        "--name",
        "shop",
        "--public",
        "127.0.0.1:0",
        "--tunnel",
        "localhost:0",
        "--admin",
        "127.0.0.1:0",
        "--first-frame-window",
        "2s",
        "--stall-window",
        "500ms",
        "--hold",
        "0s",
        "--json",
        "--log",
        "json",
    ]);
    let settings = &run.config.apps[0].settings;
    assert_eq!(settings.first_frame_window, Duration::from_secs(2));
    assert_eq!(settings.stall_window, Duration::from_millis(500));
    assert_eq!(settings.hold, Duration::ZERO);
    assert_eq!(run.config.apps[0].kind, crate::config::AppKind::H2c);
    assert_eq!(run.config.public.catch_all, Some(run.name));
    assert!(run.json && run.log.format == Format::Json);
    let key = &run.config.agents[0].keys[0];
    assert!(
        key.hash.matches(&run.token),
        "the gateway knows the token of the run"
    );
}

#[test]
fn two_runs_have_two_tokens() {
    assert_ne!(
        dev_run(&["dev"]).token.reveal(),
        dev_run(&["dev"]).token.reveal()
    );
}

#[test]
fn a_new_token_is_printed_once_and_its_stanza_is_a_valid_configuration() {
    let (out, err) = done(&[
        "token",
        "new",
        "--agent",
        "laptop",
        "--app",
        "demo",
        "shop-*",
        "--app",
        "docs",
        "--expires",
        "90d",
    ]);
    let token = Token::parse(out.trim_end()).unwrap();
    assert!(!err.contains(out.trim_end()), "the secret is not repeated");
    let stanza = format!("[public]\ndomain = \"example.com\"\n[tunnel]\nplain = true\n{err}");
    let config = Config::from_toml(&stanza, "pasted", std::path::Path::new("/")).unwrap();
    let agent = &config.agents[0];
    assert_eq!(agent.id, "laptop");
    assert!(agent.keys[0].hash.matches(&token));
    assert_eq!(agent.keys[0].id, token.key_id());
    assert!(agent.keys[0].expires.is_some());
    for app in ["demo", "shop-7", "docs"] {
        assert!(
            agent.apps.iter().any(|pattern| pattern.matches(app)),
            "{app}"
        );
    }
}

#[test]
fn a_token_needs_an_agent_an_app_and_a_sensible_end() {
    assert!(mistake(&["token", "new", "--agent", "a"]).contains("--app <NAME>"));
    assert!(mistake(&["token", "new", "--app", "demo"]).contains("--agent <ID>"));
    assert!(mistake(&["token", "new", "--agent", "a b", "--app", "demo"]).contains("a b"));
    assert!(mistake(&["token", "new", "--agent", "a", "--app", "No Such"]).contains("No Such"));
    let far = [
        "token",
        "new",
        "--agent",
        "a",
        "--app",
        "x",
        "--expires",
        "99999d",
    ];
    assert!(mistake(&far).contains("hundred years"));
}

#[test]
fn codes_lists_all_explains_one_and_suggests_the_one_that_was_meant() {
    let (all, _) = done(&["codes"]);
    assert!(all.contains("BH_APP_TIMEOUT") && all.contains("QUEUE_OVERFLOW"));
    let (one, _) = done(&["codes", "bh_app_timeout"]);
    assert!(one.contains("504") && !one.contains("QUEUE_OVERFLOW"));
    let (json, _) = done(&["codes", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["codes"].as_array().unwrap().len() > 16);
    assert!(mistake(&["codes", "BH_APP_TIMOUT"]).contains("did you mean BH_APP_TIMEOUT?"));
    assert!(mistake(&["codes", "XYZ"]).contains("\"XYZ\" is not a code"));
}

#[test]
fn check_sums_a_file_up_or_says_one_line_a_mistake() {
    let folder = std::env::temp_dir().join(format!("bh-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("gw.toml");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        "[public]\ndomain = \"example.com\"\n[tunnel]\nplain = true\n[[app]]\nname = \"demo\"\n",
    )
    .unwrap();
    let (out, err) = done(&["check", "--config", path]);
    assert!(
        out.contains("is valid") && out.contains("demo.example.com"),
        "{out}"
    );
    assert!(
        out.contains("warning") && out.contains("nobody can dial in"),
        "{out}"
    );
    assert_eq!(err, "");
    let (outcome, ..) = type_in(&["serve", "--config", path]);
    match outcome {
        Outcome::Work(work) => assert!(matches!(*work, Work::Serve(_))),
        Outcome::Exit(code) => panic!("exit {code}"),
    }
    std::fs::write(&file, "[public]\ndomian = \"a.org\"\n").unwrap();
    for command in ["check", "serve"] {
        let said = mistake(&[command, "--config", path]);
        assert!(
            said.contains("gw.toml:2: [public].domian: unknown key, did you mean domain?"),
            "{said}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(mistake(&["check", "--config", path]).contains("cannot be read"));
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = done(&["completions", shell]);
        assert!(script.contains("first-frame-window"), "{shell}");
    }
    let folder = std::env::temp_dir().join(format!("bh-man-{}", std::process::id()));
    done(&["man", folder.to_str().unwrap()]);
    for page in ["bh-gateway.1", "bh-gateway-dev.1", "bh-gateway-token-new.1"] {
        assert!(folder.join(page).exists(), "{page}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_closed_output_is_no_failure_and_a_full_disk_is_one() {
    struct Broken(std::io::ErrorKind);
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let codes = || ["bh-gateway", "codes"].map(OsString::from);
    let mut closed = Broken(std::io::ErrorKind::BrokenPipe);
    assert!(matches!(
        run(codes(), &mut closed, &mut Vec::new()),
        Outcome::Exit(EXIT_OK)
    ));
    let mut full = Broken(std::io::ErrorKind::StorageFull);
    assert!(matches!(
        run(codes(), &mut full, &mut Vec::new()),
        Outcome::Exit(EXIT_FAILED)
    ));
}
