//! The two commands as a person meets them: clear mistakes, exit codes, `dev`, tokens, codes.

use std::process::Command;
use std::time::Duration;

use bridgehead_tests::app::{self, App};
use bridgehead_tests::process::{self, Finished, Process, Stream};
use bridgehead_tests::world::{Folder, Places, Token};
use bridgehead_tests::{binaries, client, pki, wait};
use serde_json::Value;

fn gateway(args: &[&str]) -> Finished {
    let mut command = Command::new(binaries::gateway());
    command.args(args);
    process::run_to_end("bh-gateway", command, wait::SOON)
}

fn agent(args: &[&str]) -> Finished {
    let mut command = Command::new(binaries::agent());
    command.args(args);
    process::run_to_end("bh-agent", command, wait::SOON)
}

/// Exit code 2 and one clear line that names what is wrong, on stderr alone.
#[track_caller]
fn mistake(done: &Finished, named: &str) {
    let said = done.stderr.trim();
    assert_eq!(done.code, Some(2), "{done:?}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    assert!(said.contains(named), "{named:?} is named: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(
        !done.stdout.contains("ready "),
        "nothing was started: {}",
        done.stdout
    );
}

const GOOD: &str = "[public]\nhttp = [\"127.0.0.1:0\"]\ndomain = \"localhost\"\n[tunnel]\nlisten = \"127.0.0.1:0\"\nplain = true\n\
                    [admin]\nlisten = \"127.0.0.1:0\"\n[[app]]\nname = \"demo\"\n";

fn path(path: &std::path::Path) -> &str {
    path.to_str().expect("a path in Unicode")
}

#[test]
fn unknown_flags_are_mistakes() {
    mistake(&gateway(&["serve", "--nonsense"]), "--nonsense");
    mistake(&gateway(&["dev", "--hold", "soon"]), "soon");
    mistake(&gateway(&["frobnicate"]), "frobnicate");
    mistake(&agent(&["run", "--nonsense"]), "--nonsense");
}

#[test]
fn an_address_or_a_target_that_makes_no_sense_is_a_mistake() {
    let folder = Folder::new();
    let file = folder.write("token", &Token::make("a1", &["demo"]).secret);
    let run = |gateway: &str, app: &str| {
        let flags = ["--insecure-plain", "--token-file", path(&file)];
        agent(&[&["run", "--gateway", gateway, "--app", app][..], &flags].concat())
    };
    mistake(&run("ftp://x", "demo=http://127.0.0.1:1"), "ftp");
    mistake(&run("tcp://127.0.0.1:1", "demo"), "demo");
    mistake(
        &run("tcp://127.0.0.1:1", "De_Mo=http://127.0.0.1:1"),
        "De_Mo",
    );
    mistake(
        &run("tcp://127.0.0.1:1", "demo=gopher://127.0.0.1:1"),
        "gopher",
    );
}

#[test]
fn a_configuration_mistake_names_its_place_and_its_cure() {
    let folder = Folder::new();
    let check = |text: &str| {
        let file = folder.write("gw.toml", text);
        let checked = gateway(&["check", "--config", path(&file)]);
        let served = gateway(&["serve", "--config", path(&file)]);
        (checked, served)
    };
    let cases = [
        (GOOD.replace("domain", "domian"), "domain"),
        (
            format!("{GOOD}first_frame_windw = \"1s\"\n"),
            "first_frame_window",
        ),
        (GOOD.replace("plain = true", "plain = \"yes\""), "plain"),
        (GOOD.replace("\"demo\"", "\"De Mo\""), "name"),
        (format!("{GOOD}hold = \"10 parsecs\"\n"), "hold"),
        (GOOD.replace("[public]", "[public"), "line 1"),
        (format!("{GOOD}[[app]]\nname = \"demo\"\n"), "demo"),
    ];
    for (text, named) in cases {
        let (checked, served) = check(&text);
        mistake(&checked, named);
        mistake(&served, named);
    }
    let (checked, _) = check_only(&folder, GOOD);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    mistake(
        &gateway(&["serve", "--config", "no-such-file.toml"]),
        "no-such-file.toml",
    );
}

fn check_only(folder: &Folder, text: &str) -> (Finished, ()) {
    let file = folder.write("good.toml", text);
    (gateway(&["check", "--config", path(&file)]), ())
}

#[test]
fn a_bad_certificate_is_a_mistake_and_nothing_starts() {
    let folder = Folder::new();
    let one = pki::make(folder.path(), "one", &["localhost"]);
    let two = pki::make(folder.path(), "two", &["localhost"]);
    let garbage = folder.write("garbage.pem", "this is no certificate\n");
    let with = |cert: &std::path::Path, key: &std::path::Path| {
        let tls = format!(
            "https = [\"127.0.0.1:0\"]\ntls = [{{ cert = {cert:?}, key = {key:?} }}]\ndomain"
        );
        let file = folder.write("tls.toml", &GOOD.replacen("domain", &tls, 1));
        gateway(&["serve", "--config", path(&file)])
    };
    mistake(
        &with(&folder.path().join("absent.crt"), &one.key),
        "absent.crt",
    );
    mistake(&with(&garbage, &one.key), "garbage.pem");
    mistake(&with(&one.cert, &two.key), "key");
}

#[test]
fn a_bad_token_is_a_mistake_that_is_never_repeated() {
    let folder = Folder::new();
    let file = folder.write("token", "bh_short_canary-secret-81\n");
    let run = [
        "run",
        "--gateway",
        "tcp://127.0.0.1:1",
        "--insecure-plain",
        "--app",
        "demo=http://127.0.0.1:1",
        "--token-file",
    ];
    let done = agent(&[&run[..], &[path(&file)]].concat());
    mistake(&done, "token");
    assert!(!done.stderr.contains("canary-secret-81"), "{}", done.stderr);
    mistake(
        &agent(&[&run[..], &["absent-token-file"]].concat()),
        "absent-token-file",
    );
}

#[test]
fn a_plain_tunnel_to_elsewhere_needs_a_word_of_consent() {
    let folder = Folder::new();
    let file = folder.write("token", &Token::make("a1", &["demo"]).secret);
    let done = agent(&[
        "run",
        "--gateway",
        "tcp://gateway.invalid:7000",
        "--app",
        "demo=http://127.0.0.1:1",
        "--token-file",
        path(&file),
    ]);
    mistake(&done, "--insecure-plain");
}

#[test]
fn a_port_that_is_taken_is_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let addr = taken.local_addr().expect("an address").to_string();
    let folder = Folder::new();
    let file = folder.write("gw.toml", &GOOD.replacen("127.0.0.1:0", &addr, 1));
    let done = gateway(&["serve", "--config", path(&file)]);
    assert!(matches!(done.code, Some(1 | 2)), "{done:?}");
    assert!(done.stderr.contains(&addr), "{}", done.stderr);
    assert!(!done.stdout.contains("ready "));
}

#[test]
fn codes_explains_one_code_and_lists_all() {
    let one = gateway(&["codes", "BH_APP_TIMEOUT"]);
    assert_eq!(one.code, Some(0));
    assert!(
        one.stdout.contains("504") && one.stdout.contains("verify_first"),
        "{}",
        one.stdout
    );
    let all: Value = serde_json::from_str(&gateway(&["codes", "--json"]).stdout).expect("JSON");
    assert!(all["codes"].as_array().expect("a list").len() >= 16);
    mistake(&gateway(&["codes", "NO_SUCH_CODE"]), "NO_SUCH_CODE");
}

#[test]
fn a_new_token_is_shown_once_with_the_stanza_to_paste() {
    let token = Token::make("laptop", &["demo", "shop-*"]);
    let other = Token::make("laptop", &["demo"]);
    assert_eq!(
        token.secret.len(),
        "bh__".len() + token.key.len() + 43,
        "{} characters",
        token.secret.len()
    );
    assert_ne!(token.secret, other.secret);
    assert_ne!(token.hash, other.hash);
    mistake(
        &gateway(&["token", "new", "--agent", "laptop", "--app", "No Such Name"]),
        "No Such Name",
    );
}

#[test]
fn help_version_and_completions_answer() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["dev", "--help"],
        &["completions", "bash"],
    ] {
        let done = gateway(args);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
        assert!(!done.stdout.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert_eq!(agent(args).code, Some(0), "{args:?}");
    }
}

fn dev(args: &[&str]) -> Process {
    let mut command = Command::new(binaries::gateway());
    command
        .args([
            "dev",
            "--public",
            "127.0.0.1:0",
            "--tunnel",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ])
        .args(args);
    Process::start("bh-gateway dev", command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_serves_an_app_by_name_and_at_the_bare_address() {
    let app = App::start(app::echo).await;
    let process = dev(&["--app", &app.target(), "--name", "shop"]);
    let line = process.line("that it is ready", |l| l.starts_with("ready "));
    assert!(line.contains("app=shop"), "{line}");
    let places = Places::parse(&line);
    for host in [
        format!("shop.localhost:{}", places.public.port()),
        places.public.to_string(),
    ] {
        let answer = client::ask(places.public, "GET", "/hello", &host).await;
        assert_eq!(answer.status, 200, "{host}: {}", answer.text());
    }
    assert_eq!(app.text().matches("GET /hello").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_without_an_app_shows_a_demo_of_its_own() {
    let process = dev(&["--json"]);
    let line = process.line("that it is ready", |l| l.starts_with('{'));
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(ready["ready"], true);
    assert!(
        ready["token"]
            .as_str()
            .is_some_and(|t| t.starts_with("bh_")),
        "{ready}"
    );
    let public = ready["public"].as_str().expect("a URL");
    let port: u16 = public
        .trim_end_matches('/')
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse()
        .expect("a port");
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let answer = client::ask(addr, "GET", "/", &addr.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        !answer.made_by_gateway(),
        "the demo is an app behind the tunnel"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_can_join_dev_with_the_token_made_for_it() {
    let process = dev(&["--json"]);
    let line = process.line("that it is ready", |l| l.starts_with('{'));
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    let text = |name: &str| {
        ready[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name}: {ready}"))
            .to_owned()
    };
    let app = App::start(app::echo).await;
    let folder = Folder::new();
    let token = folder.write("token", &text("token"));
    let tunnel = text("tunnel");
    let gateway = format!("tcp://{}", tunnel.trim_start_matches("tcp://"));
    let mut command = Command::new(binaries::agent());
    command.args([
        "run",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        &format!("joined={}", app.target()),
    ]);
    command.arg("--token-file").arg(token);
    let _agent = Process::start("bh-agent", command);
    let port: u16 = text("public")
        .trim_end_matches('/')
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse()
        .expect("a port");
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let served = || async {
        let answer = client::ask(addr, "GET", "/", &format!("joined.localhost:{port}")).await;
        (answer.status == 200).then_some(())
    };
    wait::until(wait::SOON, "the second agent's app being served", served).await;
    assert!(!process.text(Stream::Err).contains("panicked"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_gateway_ends_in_order() {
    let mut process = dev(&[]);
    process.line("that it is ready", |l| l.starts_with("ready "));
    process.signal("TERM");
    assert!(
        process.wait_exit(Duration::from_secs(15)).success(),
        "an orderly end is a success"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_check_says_what_is_wrong() {
    let folder = Folder::new();
    let token = folder.write("token", &Token::make("a1", &["demo"]).secret);
    let closed = app::ClosedPort::take();
    let gateway = format!("tcp://{}", closed.addr());
    let args = [
        "check",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        "demo=http://127.0.0.1:1",
        "--token-file",
    ];
    let done = agent(&[&args[..], &[path(&token)]].concat());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        (done.stdout + &done.stderr).contains("refused"),
        "the cause is named"
    );
}
