//! The two programs as their users start them.

use std::process::Command;
use std::time::Duration;

use bridgehead_tests::process::{Process, Stream, run_to_end};
use bridgehead_tests::{binaries, wait};
use serde_json::Value;

use crate::stage::patient;

fn tool(name: &str) -> Command {
    Command::new(binaries::tool(name))
}

fn usage(name: &str, args: &[&str]) -> String {
    let mut command = tool(name);
    command.args(args);
    let done = run_to_end(name, command, wait::SOON);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(2), ""),
        "{args:?}: {}",
        done.stderr
    );
    done.stderr
}

#[test]
fn a_wrong_command_line_is_told_and_starts_nothing() {
    for (args, said) in [
        (&["--listen", "127.0.0.1:0"][..], "--to"),
        (
            &["--listen", "127.0.0.1:0", "--to", "gw"],
            "write HOST:PORT",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                "gw:1",
                "--fault",
                "now: cut",
            ],
            "line 1, column 1: expected `always`",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                "gw:1",
                "--script",
                "absent.txt",
            ],
            "absent.txt",
        ),
        (
            &["--listen", "127.0.0.1:0", "--to", "gw:1", "--tls-cert", "x"],
            "--tls-key",
        ),
    ] {
        let found = usage("bh-chaos", args);
        assert!(found.contains(said), "{args:?}: {found}");
    }
    for (args, said) in [
        (&["--gateway", "127.0.0.1:1"][..], "write http://HOST:PORT"),
        (&["--gateway", "https://127.0.0.1:1"], "needs --ca FILE"),
        (
            &["--gateway", "http://127.0.0.1:1", "--mix", "put=1"],
            "`put` is no kind",
        ),
        (
            &["--gateway", "http://127.0.0.1:1", "--rate", "0"],
            "requests a second",
        ),
        (
            &["--gateway", "http://127.0.0.1:1", "--app-faults", "5"],
            "a share such as 5%",
        ),
    ] {
        let found = usage("bh-load", args);
        assert!(found.contains(said), "{args:?}: {found}");
    }
}

#[test]
fn the_grammar_is_printed_and_a_script_is_checked() {
    let mut command = tool("bh-chaos");
    command.arg("grammar");
    let done = run_to_end("bh-chaos grammar", command, wait::SOON);
    assert_eq!(done.code, Some(0));
    assert!(
        done.stdout.contains("RULE    = WHEN \":\" FAULT") && done.stdout.contains("every 1s: cut")
    );
}

#[test]
fn a_load_that_reaches_no_app_says_so() {
    let mut command = tool("bh-load");
    command.args([
        "--gateway",
        "http://127.0.0.1:9",
        "--oracle",
        "127.0.0.1:0",
        "--wait",
        "300ms",
    ]);
    let done = run_to_end("bh-load", command, wait::SOON);
    assert_eq!(done.code, Some(1));
    assert!(
        done.stderr.contains(
            "the app did not answer at http://127.0.0.1:9 as demo.localhost within 300ms"
        )
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_programs_work_together_and_write_what_they_saw() {
    let world = patient().start().await;
    let report = world.folder.path().join("chaos.json");
    let mut command = tool("bh-chaos");
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--to",
        &world.places.tunnel.to_string(),
    ]);
    command
        .args([
            "--fault",
            "on each BEGIN: delay 3ms for 10ms",
            "--fault",
            "on REPORT: cut",
            "--report",
        ])
        .arg(&report);
    let mut chaos = Process::start("bh-chaos", command);
    let ready = chaos.line("that it is ready", |line| line.starts_with("ready "));
    let listen = ready
        .split("listen=")
        .nth(1)
        .and_then(|l| l.split(' ').next())
        .expect("an address")
        .to_owned();

    let json = world.folder.path().join("load.json");
    let mut command = tool("bh-load");
    command.args([
        "--gateway",
        &format!("http://{}", world.places.public),
        "--host",
        &world.host("demo"),
    ]);
    command.args([
        "--oracle",
        "127.0.0.1:0",
        "--rate",
        "50",
        "--duration",
        "1s",
        "--mix",
        "get=3,post=1",
        "--json",
    ]);
    command.arg(&json);
    let mut load = Process::start("bh-load", command);
    let told = load.line("where its app listens", |line| {
        line.starts_with("the oracle app listens at ")
    });
    let app = told
        .split(' ')
        .nth(5)
        .expect("an address")
        .trim_end_matches(';')
        .to_owned();

    let mut command = Command::new(binaries::agent());
    let token = world.folder.write("t.token", &world.token("a1").secret);
    command.args([
        "run",
        "--insecure-plain",
        "--gateway",
        &format!("tcp://{listen}"),
        "--app",
        &format!("demo={app}"),
    ]);
    command.arg("--token-file").arg(token);
    let _agent = Process::start("bh-agent", command);

    assert_eq!(
        load.wait_exit(Duration::from_secs(60)).code(),
        Some(0),
        "{}",
        load.logs()
    );
    let read = |path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).expect("a report")).expect("JSON")
    };
    let found = read(&json);
    assert_eq!(
        (&found["lies"], &found["failed"], &found["broken"]),
        (&0.into(), &0.into(), &0.into()),
        "{found}"
    );
    assert!(found["right"].as_u64().is_some_and(|n| n > 30), "{found}");

    chaos.signal("TERM");
    assert_eq!(
        chaos.wait_exit(wait::SOON).code(),
        Some(3),
        "a rule never fired"
    );
    let text = chaos.text(Stream::Out);
    assert!(text.contains("on REPORT: cut  ->  NEVER FIRED"), "{text}");
    let found = read(&report);
    assert!(
        found["faults"]["delay"].as_u64().is_some_and(|n| n > 0),
        "{found}"
    );
    assert!(
        found["to_agent"]["frames"]["BEGIN"]
            .as_u64()
            .is_some_and(|n| n > 30),
        "{found}"
    );
}
