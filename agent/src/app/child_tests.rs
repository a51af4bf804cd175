//! Tests with real processes (`sh` stands for an app).

use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

fn sh(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

/// Starts `script` with `$READY` naming a pipe that tells when the script is set up.
async fn started(script: &str) -> AppProcess {
    let folder = tempfile::tempdir().expect("folder");
    let pipe = folder.path().join("ready");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    let script = script.replace("$READY", &pipe.display().to_string());
    let process = AppProcess::start(&sh(&script)).expect("started");
    // Opening a pipe waits for its other end.
    let mut lines = BufReader::new(tokio::fs::File::open(&pipe).await.expect("pipe")).lines();
    assert_eq!(
        lines.next_line().await.expect("line").as_deref(),
        Some("ready")
    );
    process
}

#[tokio::test]
async fn the_agent_ends_with_the_commands_code() {
    let mut process = AppProcess::start(&sh("exit 7")).expect("started");
    assert_eq!(exit_code(process.ended().await.expect("ended")), 7);
    assert_eq!(exit_code(process.ended().await.expect("again")), 7);
    let mut process = AppProcess::start(&sh("kill -9 $$")).expect("started");
    assert_eq!(exit_code(process.ended().await.expect("ended")), 137);
}

#[test]
fn the_agents_secrets_are_not_the_commands() {
    let builder = builder(&sh("exit 0")).expect("a command");
    let changed: Vec<_> = builder.as_std().get_envs().collect();
    for name in SECRETS {
        assert!(changed.contains(&(name.as_ref(), None)), "{changed:?}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_an_error() {
    let error = AppProcess::start(&["/nowhere/app".into()]).expect_err("missing");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(AppProcess::start(&[]).is_err());
}

#[tokio::test]
async fn a_stop_asks_first() {
    let mut process =
        started("trap 'exit 5' TERM; echo ready > $READY; while :; do sleep 0.05; done").await;
    let status = process
        .stop(Duration::from_secs(60))
        .await
        .expect("stopped");
    assert_eq!(exit_code(status), 5);
}

#[tokio::test]
async fn a_command_that_ignores_the_stop_is_killed_after_the_grace() {
    let mut process =
        started("trap '' TERM; echo ready > $READY; while :; do sleep 0.05; done").await;
    let status = process
        .stop(Duration::from_millis(50))
        .await
        .expect("stopped");
    assert_eq!(exit_code(status), 137);
}

#[tokio::test]
async fn a_signal_is_passed_on() {
    // Not HUP: a shell cannot trap what was ignored when it began, as under `nohup`.
    let mut process =
        started("trap 'exit 9' USR1; echo ready > $READY; while :; do sleep 0.05; done").await;
    process.signal(ChildSignal::User1);
    assert_eq!(exit_code(process.ended().await.expect("ended")), 9);
}

#[tokio::test]
async fn the_commands_children_end_with_it() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("alive");
    let made = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    // The background child holds the pipe's write end for as long as it lives.
    let script = format!("(echo up; exec sleep 600) > {} & wait", path.display());
    let mut process = AppProcess::start(&sh(&script)).expect("started");
    let mut lines = BufReader::new(tokio::fs::File::open(&path).await.expect("pipe")).lines();
    assert_eq!(
        lines.next_line().await.expect("line").as_deref(),
        Some("up")
    );
    process
        .stop(Duration::from_secs(60))
        .await
        .expect("stopped");
    assert_eq!(lines.next_line().await.expect("end of pipe"), None);
}
