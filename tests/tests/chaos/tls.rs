//! Encrypted carriers: frames are seen where TLS is ended, and bytes can be broken where it is not.

use std::time::Duration;

use bridgehead_tests::chaos::{Carrier, FaultKind, Script, Tls, carrier, parse};
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use rustls::pki_types::ServerName;

use crate::stage::patient;

/// Who ends the agent's TLS.
enum Tunnel {
    Opened,
    PassedThrough,
}

/// A carrier below an agent that speaks TLS, after `script` took effect and the agent dialled again.
async fn through(script: &str, tunnel: Tunnel) -> Carrier {
    let world = patient().tunnel_tls().start().await;
    let name = ServerName::try_from("localhost").expect("a name");
    let (cert, key) = (&world.certificate.cert, &world.certificate.key);
    let opened =
        || Tls::read(cert.as_ref(), key.as_ref(), cert.as_ref(), name).expect("certificates");
    let tls = matches!(tunnel, Tunnel::Opened).then(opened);
    let setup = carrier::Setup {
        listen: "127.0.0.1:0".parse().expect("an address"),
        to: world.places.tunnel.to_string(),
        script: Script::default(),
        seed: 1,
        tls,
    };
    let carrier = Carrier::start(setup).await.expect("a free port");
    let mut command = std::process::Command::new(bridgehead_tests::binaries::agent());
    let gateway = format!("tls://localhost:{}", carrier.addr().port());
    command.args([
        "run",
        "--gateway",
        &gateway,
        "--app",
        "demo=http://127.0.0.1:9",
        "--ca",
    ]);
    command
        .arg(cert)
        .arg("--token-file")
        .arg(world.folder.write("t.token", &world.token("a1").secret));
    let agent = Process::start("bh-agent", command);
    tokio::task::block_in_place(|| {
        agent.line("that its tunnel is up", |line| {
            line.contains("tunnel is up")
        })
    });
    carrier.load(parse(script).expect("a script"));
    let felt = carrier.until(|tally| !tally.faults.is_empty());
    wait::within(Duration::from_secs(20), "the fault", felt).await;
    let before = carrier.tally().connections;
    let again = carrier.until(|tally| tally.connections > before);
    wait::within(Duration::from_secs(20), "another dial", again).await;
    carrier
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn frames_are_seen_where_tls_is_ended() {
    let carrier = through("after frame 2 of type PONG: reset", Tunnel::Opened).await;
    let tally = carrier.tally();
    assert!(tally.effects(FaultKind::Reset) >= 1);
    assert!(tally.to_gateway.frames["HELLO"] >= 1 && tally.to_agent.frames["WELCOME"] >= 1);
    assert_eq!(tally.to_gateway.bytes_without_frames, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bytes_are_broken_where_tls_passes_through() {
    let carrier = through(
        "every 500ms: cut\non each PING: reset",
        Tunnel::PassedThrough,
    )
    .await;
    let tally = carrier.tally();
    assert!(tally.effects(FaultKind::Cut) >= 1);
    assert_eq!(
        (tally.rules[1].fired, tally.to_gateway.frames.len()),
        (0, 0),
        "no frame was seen"
    );
}
