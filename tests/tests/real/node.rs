//! Node's world: express, socket.io, server-sent events, and Vite's hot reload in a real browser.

use std::process::Command;

use bridgehead_tests::port;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Folder, setup};

use crate::setup::{Real, behind, client, needs, node, program, source};

/// `node FILE ARGS…`, with the packages found from the folder that has them.
pub(crate) fn script(
    folder: &std::path::Path,
    file: &str,
    args: &[&str],
) -> Result<Command, crate::setup::Missing> {
    // Modules are looked for beside the script, so it runs from a copy beside `node_modules`.
    let copy = folder.join(file);
    std::fs::copy(source(file), &copy).expect("the folder can be written");
    let mut command = Command::new(program("node")?);
    command.arg(copy).args(args).current_dir(folder);
    Ok(command)
}

async fn express(folder: &std::path::Path) -> Result<Real, crate::setup::Missing> {
    let port = port::free();
    let command = script(folder, "express_app.mjs", &[&port.to_string()])?;
    Ok(behind(setup(), command, port, "http").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn express_knows_its_client_and_its_host() {
    let folder = needs!(node());
    let real = needs!(express(&folder).await);
    let answer = real.world.get("/who").await;
    let json = answer.json();
    assert_eq!(json["ip"], "127.0.0.1", "{json}");
    assert_eq!(
        json["host"].as_str(),
        Some(real.world.host("demo").as_str()),
        "{json}"
    );
    assert_eq!(json["protocol"], "http");
    assert!(
        json["requestId"].as_str().is_some_and(|id| id.len() == 36),
        "{json}"
    );
    let fields = [("Content-Type", "application/json")];
    let host = real.world.host("demo");
    let answer = real
        .world
        .h1()
        .await
        .ask("POST", "/json", &host, &fields, b"{\"a\": [1, 2]}")
        .await;
    assert_eq!(answer.json()["a"][1], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn express_sends_each_event_before_the_next_is_asked_for() {
    let folder = needs!(node());
    let real = needs!(express(&folder).await);
    let host = real.world.host("demo");
    let mut client = real.world.h1().await;
    client
        .request(
            "GET",
            "/events",
            &host,
            &[("Accept", "text/event-stream")],
            b"",
        )
        .await;
    let head = wait::within(wait::SOON, "the head", client.read_head())
        .await
        .expect("a head");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for n in 1..=5 {
        real.world
            .h1()
            .await
            .ask("POST", "/emit", &host, &[], b"")
            .await;
        let event = wait::within(wait::SOON, "an event", client.read_chunk())
            .await
            .expect("a chunk");
        assert_eq!(String::from_utf8_lossy(&event), format!("data: {n}\n\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_io_upgrades_to_websocket_and_carries_binary_and_rooms() {
    let folder = needs!(node());
    let real = needs!(express(&folder).await);
    let url = format!("http://{}", real.world.host("demo"));
    let port = real.world.places.public.port().to_string();
    let said = client(
        "the socket.io client",
        needs!(script(&folder, "socketio_client.mjs", &[&url, &port])),
    );
    for feature in ["polling", "upgraded", "binary", "rooms", "acknowledgement"] {
        assert!(
            said.contains(&format!("ok {feature}\n")),
            "{feature} is missing: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_arrives_in_the_browser_by_vites_hot_reload() {
    let folder = needs!(node());
    let chromium = needs!(program("chromium"));
    let site = Folder::new();
    site.write(
        "index.html",
        "<!doctype html><p id=\"text\"></p><script type=\"module\" src=\"/main.js\"></script>\n",
    );
    let main = "import { text } from './text.js';\n\
                const show = (t) => { document.getElementById('text').textContent = t; };\n\
                show(text);\n\
                if (import.meta.hot) import.meta.hot.accept('./text.js', (m) => show(m.text));\n";
    site.write("main.js", main);
    let text = site.write("text.js", "export const text = 'before';\n");
    let port = port::free();
    let mut vite = Command::new(needs!(program("node")));
    vite.arg(folder.join("node_modules/vite/bin/vite.js"));
    vite.args([
        "--host",
        "127.0.0.1",
        "--strictPort",
        "--port",
        &port.to_string(),
    ])
    .current_dir(site.path());
    let real = behind(setup(), vite, port, "http").await;
    let url = format!("http://{}/", real.world.host("demo"));
    let profile = site.path().join("profile").to_string_lossy().into_owned();
    let args = [
        url.as_str(),
        &text.to_string_lossy(),
        &chromium.to_string_lossy(),
        &profile,
    ];
    let said = client(
        "the browser",
        needs!(script(&folder, "vite_browser.mjs", &args)),
    );
    assert!(
        said.contains("ok loaded\n") && said.contains("ok hot reload\n"),
        "{said}"
    );
}
