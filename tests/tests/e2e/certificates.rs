//! Agents that show a certificate: who is let in over which carrier, what both sides are told when
//! one is missing, foreign or expired, and that the issuers change under a running gateway.

use std::path::PathBuf;
use std::process::Command;

use bridgehead_tests::app::{self, App};
use bridgehead_tests::binaries;
use bridgehead_tests::pki::{Authority, Validity};
use bridgehead_tests::process::Process;
use bridgehead_tests::world::{Folder, Token, World, setup};
use serde_json::json;

/// A gateway that wants certificates, and those who issue them.
struct Scene {
    app: App,
    world: World,
    trusted: Authority,
    folder: Folder,
}

impl Scene {
    async fn start() -> Self {
        let folder = Folder::new();
        let trusted = Authority::new(folder.path(), "agents-ca");
        let wanted = format!("agent_ca = {:?}", trusted.cert);
        let world = setup().tls().tunnel_tls().section("tunnel", &wanted);
        Self {
            app: App::start(app::echo).await,
            world: world.start().await,
            trusted,
            folder,
        }
    }

    /// Over raw TLS.
    fn raw(&self, token: &Token) -> Command {
        let mut command = self.world.agent_command_with("raw", token);
        command.args(["--app", &format!("demo={}", self.app.target())]);
        command
    }

    /// Over a WebSocket on the public port.
    fn websocket(&self, token: &Token) -> Command {
        let port = self.world.places.public_tls.expect("a TLS listener").port();
        let file = self.world.folder.write("websocket.token", &token.secret);
        let mut command = Command::new(binaries::agent());
        command.args(["run", "--gateway", &format!("wss://localhost:{port}")]);
        command.arg("--token-file").arg(file);
        command.arg("--ca").arg(&self.world.certificate.cert);
        command.args(["--app", &format!("demo={}", self.app.target())]);
        command
    }

    fn token(&self) -> &Token {
        self.world.token("a1")
    }

    async fn denied(&self) -> f64 {
        let now = self.world.metrics().await;
        now.sum("handshakes_total", &[("result", "denied")])
    }
}

fn showing(mut command: Command, files: &(PathBuf, PathBuf)) -> Command {
    command.arg("--cert").arg(&files.0);
    command.arg("--key").arg(&files.1);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_certificate_and_a_token_serves_over_both_carriers() {
    let scene = Scene::start().await;
    let mine = scene.trusted.issue("a1", Validity::Now);
    for command in [scene.raw(scene.token()), scene.websocket(scene.token())] {
        let agent = scene.world.run_agent("a1", showing(command, &mine)).await;
        assert_eq!(scene.world.get("/").await.status, 200);
        agent.stop();
        scene.world.until_tunnels(0).await;
    }
    assert_eq!(scene.denied().await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_certificate_of_the_ca_nobody_is_let_in_and_both_sides_are_told_why() {
    let scene = Scene::start().await;
    let stranger = Authority::new(scene.folder.path(), "other-ca");
    let foreign = stranger.issue("foreign", Validity::Now);
    let expired = scene.trusted.issue("expired", Validity::Over);
    let token = scene.token();
    let wanted = "--cert and --key";
    let cases = [
        ("none, raw", scene.raw(token), wanted, "no certificates"),
        (
            "none, wss",
            scene.websocket(token),
            wanted,
            "has to show a certificate",
        ),
        (
            "foreign, raw",
            showing(scene.raw(token), &foreign),
            "not from the CA that the gateway trusts",
            "UnknownIssuer",
        ),
        (
            "foreign, wss",
            showing(scene.websocket(token), &foreign),
            "not from the CA that the gateway trusts",
            "UnknownIssuer",
        ),
        (
            "expired, raw",
            showing(scene.raw(token), &expired),
            "has expired",
            "certificate expired",
        ),
    ];
    for (case, command, agent_reads, gateway_reads) in cases {
        let before = scene.denied().await;
        let agent = Process::start(&format!("bh-agent ({case})"), command);
        agent.line(agent_reads, |line| line.contains(agent_reads));
        let told = |line: &str| line.contains("not let in") && line.contains(gateway_reads);
        if !case.ends_with("wss") || case.starts_with("none") {
            scene.world.gateway.line(gateway_reads, told);
            assert!(scene.denied().await > before, "{case}");
        }
        assert_eq!(scene.world.tunnels().await, 0, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_does_not_replace_the_token() {
    let scene = Scene::start().await;
    let mine = scene.trusted.issue("a1", Validity::Now);
    let unknown = Token::make("a1", &["demo"]);
    let agent = Process::start("bh-agent", showing(scene.raw(&unknown), &mine));
    agent.line("that the token is not known", |line| {
        line.contains("token is not known")
    });
    assert_eq!(scene.world.tunnels().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_issuers_are_replaced_by_a_reload_and_a_tunnel_that_stands_goes_on() {
    let scene = Scene::start().await;
    let mine = scene.trusted.issue("a1", Validity::Now);
    let command = showing(scene.raw(scene.token()), &mine);
    let _agent = scene.world.run_agent("a1", command).await;
    let next = Authority::new(scene.folder.path(), "next-ca");
    std::fs::copy(&next.cert, &scene.trusted.cert).expect("the test's folder can be written");
    let told = scene.world.command("/v1/reload").await;
    assert_eq!(
        told.json(),
        json!({ "changed": ["[tunnel].agent_ca"], "needs_restart": [] })
    );
    assert_eq!(scene.world.get("/").await.status, 200);
    let late = Process::start("bh-agent", showing(scene.raw(scene.token()), &mine));
    late.line("that its CA is not trusted", |line| {
        line.contains("not from the CA")
    });
    drop(late);

    std::fs::write(&scene.trusted.cert, "no certificate").expect("the folder can be written");
    assert_eq!(scene.world.command("/v1/reload").await.status, 422);
    std::fs::copy(&next.cert, &scene.trusted.cert).expect("the folder can be written");
    let text = std::fs::read_to_string(&scene.world.config).expect("the configuration");
    let text = text.replace("agent_ca =", "agent_cert = \"optional\"\nagent_ca =");
    std::fs::write(&scene.world.config, text).expect("the folder can be written");
    let told = scene.world.command("/v1/reload").await;
    assert_eq!(told.json()["changed"], json!(["[tunnel].agent_ca"]));
    let _anonymous = scene.world.run_agent("a1", scene.raw(scene.token())).await;
}
