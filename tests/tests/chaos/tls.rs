//! Encrypted carriers: frames are seen where TLS is ended, and bytes can be broken where it is not.

use std::time::Duration;

use bridgehead_tests::chaos::{Carrier, FaultKind, Tls, carrier, parse};
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use rustls::pki_types::ServerName;

use crate::stage::patient;

/// An agent that dials `carrier` with TLS, on a world whose tunnel listener has TLS.
async fn through(script: &str, ends_tls: bool) -> Carrier {
    let world = patient().tunnel_tls().start().await;
    let name = ServerName::try_from("localhost").expect("a name");
    let (cert, key) = (&world.certificate.cert, &world.certificate.key);
    let tls = ends_tls.then(|| {
        Tls::read(cert.as_ref(), key.as_ref(), cert.as_ref(), name).expect("certificates")
    });
    let setup = carrier::Setup {
        listen: "127.0.0.1:0".parse().expect("an address"),
        to: world.places.tunnel.to_string(),
        script: parse(script).expect("a script"),
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
    agent.line("that its tunnel is up", |line| {
        line.contains("tunnel is up")
    });
    wait::within(
        Duration::from_secs(20),
        "the fault",
        carrier.until(|tally| !tally.faults.is_empty()),
    )
    .await;
    agent.line("that its tunnel is lost", |line| {
        line.contains("tunnel is lost")
    });
    carrier
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_are_seen_where_tls_is_ended() {
    let carrier = through("after frame 2 of type PONG: reset", true).await;
    let tally = carrier.tally();
    assert_eq!(tally.effects(FaultKind::Reset), 1);
    assert!(tally.to_gateway.frames["HELLO"] >= 1 && tally.to_agent.frames["WELCOME"] >= 1);
    assert_eq!(tally.to_gateway.bytes_without_frames, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_broken_where_tls_passes_through() {
    let carrier = through("after 1500ms: cut\non HELLO: reset", false).await;
    let tally = carrier.tally();
    assert!(tally.effects(FaultKind::Cut) >= 1);
    assert_eq!(
        (tally.rules[1].fired, tally.to_gateway.frames.len()),
        (0, 0),
        "no frame was seen"
    );
}
