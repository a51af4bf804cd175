//! gRPC as people run it: the library's own client through the gateway to the library's own server.

use std::path::Path;

use bridgehead_tests::port;
use bridgehead_tests::world::setup;

use crate::python::module;
use crate::setup::{Real, behind, client, needs, python};

async fn server(python: &Path, defaults: &str) -> Real {
    let port = port::free();
    let server = module(python, &["grpc_server.py", &port.to_string()]);
    let setup = setup().app("demo", "protocol = \"h2c\"").defaults(defaults);
    behind(setup, server, port, "h2c").await
}

/// Runs `script` against the gateway; each of `features` must have been checked by it.
fn checks(python: &Path, real: &Real, script: &[&str], features: &[&str]) {
    let target = real.world.places.public.to_string();
    let host = real.world.host("demo");
    let mut args = vec![script[0], &target, &host];
    args.extend(&script[1..]);
    let said = client("the gRPC client", module(python, &args));
    for feature in features {
        assert!(
            said.contains(&format!("ok {feature}\n")),
            "{feature} is missing: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_works_in_all_four_shapes_with_metadata_deadline_and_cancel() {
    let python = needs!(python());
    let real = server(&python, "").await;
    let features = [
        "unary",
        "trailers",
        "server stream",
        "client stream",
        "both ways",
        "error",
        "unimplemented",
        "deadline",
        "cancel",
    ];
    checks(&python, &real, &["grpc_client.py"], &features);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_carries_large_messages_and_many_calls_beside_a_stalled_one() {
    let python = needs!(python());
    let real = server(&python, "").await;
    let features = [
        "reuse",
        "large",
        "many",
        "beside a stalled stream",
        "stalled stream",
    ];
    checks(&python, &real, &["grpc_load.py"], &features);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_clients_read_the_verdict_of_a_call_that_failed() {
    let python = needs!(python());
    let real = server(&python, "hold = \"0s\"").await;
    let features = ["died in silence", "down"];
    checks(&python, &real, &["grpc_failures.py", "silent"], &features);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_stream_whose_server_dies_never_ends_well() {
    let python = needs!(python());
    let real = server(&python, "hold = \"0s\"").await;
    checks(
        &python,
        &real,
        &["grpc_failures.py", "midway"],
        &["died midway"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_for_a_grpc_server_is_refused_with_proof() {
    let python = needs!(python());
    let real = server(&python, "").await;
    let host = real.world.host("demo");
    let mut client = real.world.h1().await;
    let fields = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let answer = client.ask("GET", "/", &host, &fields, b"").await;
    assert_eq!(answer.status, 501);
    assert_eq!(
        answer.header("bridgehead-code"),
        Some("UPGRADE_UNSUPPORTED")
    );
    assert_eq!(answer.header("bridgehead-delivery"), Some("not_delivered"));
}
