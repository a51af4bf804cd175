//! The admin listener over a real socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::clock::Clock;
use crate::ledger::{self, Counts, Outcome, Said};
use crate::request::front::ClientProtocol;
use crate::telemetry::{ExchangeGuard, Metrics, Protocol, Sinks};

/// The only exchange in the ledger.
const REMEMBERED: Uuid = Uuid::from_u128(0xfeed);

#[derive(Default)]
struct Gateway {
    draining: AtomicBool,
}

impl AdminState for Gateway {
    fn readiness(&self) -> Readiness {
        Readiness {
            listeners_up: true,
            draining: self.draining.load(Ordering::Relaxed),
            memory_percent: Some(40),
        }
    }

    fn gateway(&self) -> GatewayInfo {
        GatewayInfo {
            node: "gw-1".into(),
            version: "0.1.0",
            since: UNIX_EPOCH,
            workers: 2,
            draining: self.draining.load(Ordering::Relaxed),
            public: vec![(Ipv4Addr::LOCALHOST, 8080).into()],
            tunnel: vec![(Ipv4Addr::LOCALHOST, 7000).into()],
            apps: 1,
            tunnels: 1,
            in_flight: 0,
            long_lived: 0,
        }
    }

    fn outcome(&self, request: Uuid) -> Option<Said> {
        (request == REMEMBERED).then(|| ledger::said(&Outcome::NOTHING, Clock::start()))
    }

    fn agents(&self) -> Vec<(String, usize)> {
        vec![("demo".into(), 3)]
    }

    fn ledger(&self) -> Counts {
        Counts([1, 2, 3, 4])
    }

    fn apps(&self) -> Vec<AppInfo> {
        let refusals = Refusals {
            since: UNIX_EPOCH + Duration::from_secs(1),
            count: 14,
            reason: "connect_refused",
        };
        vec![AppInfo {
            name: "demo".into(),
            kind: "http1",
            hosts: vec!["demo.localhost".into()],
            health: AppHealth::NoAgent,
            agents: Vec::new(),
            in_flight: 0,
            long_lived: 0,
            admission: AdmissionInfo {
                in_flight_limit: 100,
                queued: 0,
                held: 0,
                queue_limit: 200,
                long_lived_limit: 10_000,
                large_bodies: 0,
                large_body_slots: 8,
                quarantine: None,
                failing_clients: 0,
                client_share: 50,
                clients_at_share: 0,
            },
            refusals: Some(refusals),
        }]
    }

    fn tunnels(&self) -> Vec<TunnelInfo> {
        vec![TunnelInfo {
            id: "t-1".into(),
            agent: "laptop".into(),
            subject: "team-a".into(),
            carrier: "tls",
            worker: "bh-worker-0".into(),
            peer: (Ipv4Addr::LOCALHOST, 50_000).into(),
            since: UNIX_EPOCH,
            state: "live",
            apps: vec!["demo".into()],
            streams: 3,
            rtt: Some(Duration::from_micros(1500)),
            bytes_in: 10,
            bytes_out: 20,
            held_bytes: 0,
            starved_streams: 0,
        }]
    }

    fn streams(&self) -> bridgehead_protocol::conn::StreamCounts {
        bridgehead_protocol::conn::StreamCounts {
            opening: 1,
            open: 2,
            closing: 3,
        }
    }

    fn held_bytes(&self) -> u64 {
        4096
    }

    fn revoke(&self, agent: &str) -> Option<usize> {
        (agent == "laptop").then_some(2)
    }

    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        match self.draining.load(Ordering::Relaxed) {
            true => Err(vec!["gw.toml:3: unknown key".into()]),
            false => Ok(Reloaded {
                changed: vec!["[[app]] demo".into()],
                needs_restart: vec!["[gateway].node".into()],
            }),
        }
    }

    fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

struct Scene {
    addr: SocketAddr,
    sinks: Arc<Sinks>,
    clock: Clock,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl Scene {
    async fn new(access: Access) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("bound");
        let addr = listener.local_addr().expect("bound");
        let clock = Clock::start();
        let sinks = Sinks::new(clock, Metrics::new(), None);
        let access = Arc::new(ArcSwap::from_pointee(access));
        let admin = Admin::new(Arc::new(Gateway::default()), Arc::clone(&sinks), access);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, admin, async {
            // A dropped sender stops it as well.
            let _ = stopped.await;
        }));
        Self {
            addr,
            sinks,
            clock,
            stop,
            served,
        }
    }

    /// Status, head and body of one request, on a connection of its own.
    async fn ask(&self, line: &str, fields: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.addr).await.expect("accepted");
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}\r\n",
            self.addr
        );
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status line");
        (
            status.parse().expect("a status"),
            head.to_ascii_lowercase(),
            body.to_owned(),
        )
    }

    async fn json(&self, line: &str) -> (u16, Value) {
        let (status, _, body) = self.ask(line, "").await;
        (status, serde_json::from_str(&body).expect("json"))
    }
}

#[tokio::test]
async fn a_gateway_is_ready_until_it_drains() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    assert_eq!(scene.json("GET /healthz").await.0, 200);
    assert_eq!(scene.json("GET /readyz").await.0, 200);
    let (status, body) = scene.json("POST /v1/drain").await;
    assert_eq!((status, &body["draining"]), (202, &Value::Bool(true)));
    let (status, body) = scene.json("GET /readyz").await;
    assert_eq!(status, 503);
    assert_eq!(body["reasons"], serde_json::json!(["draining"]));
    assert_eq!(scene.json("GET /healthz").await.0, 200);
}

#[tokio::test]
async fn an_agent_is_revoked_by_the_name_of_its_token() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (status, body) = scene.json("POST /v1/agents/laptop/revoke").await;
    assert_eq!((status, &body["tunnels"]), (200, &Value::from(2)));
    let (status, body) = scene.json("POST /v1/agents/nobody/revoke").await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (404, &Value::from("unknown_agent"))
    );
    assert_eq!(scene.json("GET /v1/agents/laptop/revoke").await.0, 405);
}

#[tokio::test]
async fn a_reload_says_what_changed_or_all_that_is_wrong() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (status, body) = scene.json("POST /v1/reload").await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        serde_json::json!({ "changed": ["[[app]] demo"], "needs_restart": ["[gateway].node"] })
    );
    assert_eq!(scene.json("GET /v1/reload").await.0, 405);
    // The double refuses a reload once it drains.
    assert_eq!(scene.json("POST /v1/drain").await.0, 202);
    let (status, body) = scene.json("POST /v1/reload").await;
    assert_eq!(status, 422);
    assert_eq!(body["errors"][0], "gw.toml:3: unknown key");
}

#[tokio::test]
async fn apps_and_tunnels_are_told_whole_and_one_by_one() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (_, list) = scene.json("GET /v1/apps").await;
    let (_, one) = scene.json("GET /v1/apps/demo").await;
    assert_eq!(list["apps"][0], one);
    assert_eq!(one["health"], "no_agent");
    assert_eq!(one["refusals"]["count"], 14);
    assert_eq!(one["refusals"]["since"], "1970-01-01T00:00:01.000Z");
    let (_, one) = scene.json("GET /v1/tunnels/t-1").await;
    assert_eq!(one["rtt_ms"], 1.5);
    assert_eq!(one["since"], "1970-01-01T00:00:00.000Z");
    assert_eq!(scene.json("GET /v1/apps/ghost").await.0, 404);
    assert_eq!(scene.json("GET /v1/tunnels/ghost").await.0, 404);
    assert_eq!(scene.json("GET /v1/status").await.1["node"], "gw-1");
}

#[tokio::test]
async fn an_exchange_is_found_by_its_request_id() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let id = Uuid::now_v7();
    let guard = ExchangeGuard::new(
        Arc::clone(&scene.sinks),
        id,
        scene.clock.now(),
        Ipv4Addr::LOCALHOST.into(),
        Protocol::Http(ClientProtocol::Http11),
    );
    let (status, body) = scene.json(&format!("GET /v1/exchanges/{id}")).await;
    assert_eq!((status, &body["live"]), (200, &Value::Bool(true)));
    drop(guard);
    let (_, body) = scene.json(&format!("GET /v1/exchanges/{id}")).await;
    assert_eq!(body["aborted"], "client");
    assert_eq!(body["outcome"], Value::Null);
    let unknown = Uuid::now_v7();
    assert_eq!(
        scene.json(&format!("GET /v1/exchanges/{unknown}")).await.0,
        404
    );
    assert_eq!(scene.json("GET /v1/exchanges/nonsense").await.0, 400);
}

#[tokio::test]
async fn an_exchange_that_only_the_ledger_remembers_is_found_too() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (status, body) = scene.json(&format!("GET /v1/exchanges/{REMEMBERED}")).await;
    assert_eq!(status, 200);
    assert_eq!(body["request_id"], REMEMBERED.to_string());
    assert_eq!(body["outcome"]["state"], "unknown");
}

#[tokio::test]
async fn metrics_come_in_the_text_format_and_count_this_connection() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (status, head, body) = scene.ask("GET /metrics", "").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    for line in [
        "bridgehead_connections{kind=\"admin\"} 1\n",
        "bridgehead_ledger_entries{state=\"unknown\"} 4\n",
        "bridgehead_app_agents{app=\"demo\"} 3\n",
    ] {
        assert!(body.contains(line), "{body}");
    }
}

/// Fails unless `value` is what `schema` says, and says all of it.
fn fits(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = &document["components"]["schemas"][name.rsplit('/').next().unwrap_or(name)];
        assert!(schema.is_object(), "{place}: {name} is described");
        return fits(document, schema, value, place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        // Null, or the one that is described.
        let described = choices.iter().find(|choice| choice["type"] != "null");
        return match value {
            Value::Null => (),
            value => fits(document, described.expect("a choice"), value, place),
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    assert!(
        types.contains(&kind.into()),
        "{place} is {kind}, not {types:?}"
    );
    if let Some(choices) = schema["enum"].as_array() {
        assert!(choices.contains(value), "{place} is {value}");
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item, place);
    }
    let Some(fields) = value.as_object() else {
        return;
    };
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().expect("a name");
        assert!(fields.contains_key(name), "{place}.{name} is missing");
    }
    for (name, value) in fields {
        match &schema["properties"][name] {
            Value::Null => assert_ne!(
                schema["additionalProperties"], false,
                "{place}.{name} is not described"
            ),
            inner => fits(document, inner, value, &format!("{place}.{name}")),
        }
    }
}

#[tokio::test]
async fn every_answer_is_what_the_openapi_document_says() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (_, document) = scene.json("GET /v1/openapi.json").await;
    let asked = [
        ("GET /healthz", "/healthz"),
        ("GET /readyz", "/readyz"),
        ("GET /v1/openapi.json", "/v1/openapi.json"),
        ("GET /v1/status", "/v1/status"),
        ("GET /v1/apps", "/v1/apps"),
        ("GET /v1/apps/demo", "/v1/apps/{name}"),
        ("GET /v1/apps/ghost", "/v1/apps/{name}"),
        ("GET /v1/tunnels", "/v1/tunnels"),
        ("GET /v1/tunnels/t-1", "/v1/tunnels/{id}"),
        ("GET /v1/exchanges/nonsense", "/v1/exchanges/{id}"),
        ("POST /v1/reload", "/v1/reload"),
        ("POST /v1/agents/laptop/revoke", "/v1/agents/{id}/revoke"),
        ("POST /v1/drain", "/v1/drain"),
        ("POST /v1/reload", "/v1/reload"),
        ("GET /readyz", "/readyz"),
    ];
    for (line, path) in asked {
        let (status, body) = scene.json(line).await;
        let method = line.split(' ').next().unwrap_or_default().to_lowercase();
        let answers = &document["paths"][path][method]["responses"];
        let content = &answers[status.to_string()]["content"]["application/json"];
        assert!(content.is_object(), "{line}: {status} is not described");
        fits(&document, &content["schema"], &body, line);
    }
}

#[test]
fn the_openapi_document_names_exactly_the_addresses_that_are_routed() {
    let document: Value = serde_json::from_str(include_str!("openapi.json")).expect("JSON");
    let mut described: Vec<String> = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods");
        described.extend(methods.keys().map(|method| format!("{method} {path}")));
    }
    let mut routed: Vec<String> = include_str!("routes.rs")
        .split(".route(\"")
        .skip(1)
        .map(|rest| {
            let (path, rest) = rest.split_once("\", ").expect("a path and a handler");
            format!("{} {path}", rest.split('(').next().unwrap_or_default())
        })
        .collect();
    described.sort();
    routed.sort();
    assert_eq!(described, routed);
}

#[tokio::test]
async fn what_is_not_built_is_not_there() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    for line in ["GET /v1/openapi.yaml", "POST /v1/nothing", "GET /"] {
        assert_eq!(scene.json(line).await.0, 404, "{line}");
    }
    assert_eq!(scene.json("GET /v1/drain").await.0, 405);
    assert_eq!(scene.json("POST /v1/status").await.0, 405);
}

#[tokio::test]
async fn a_configured_token_guards_everything_but_the_probes() {
    let scene = Scene::new(Access::with_token(blake3::hash(b"s3cret"), Vec::new())).await;
    let (status, head, body) = scene
        .ask("GET /metrics", "Authorization: Bearer guess\r\n")
        .await;
    assert_eq!(status, 401);
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert!(!body.contains("guess"));
    let (status, ..) = scene
        .ask("GET /metrics", "Authorization: Bearer s3cret\r\n")
        .await;
    assert_eq!(status, 200);
    assert_eq!(scene.json("GET /readyz").await.0, 200);
    assert_eq!(scene.json("GET /v1/openapi.json").await.0, 401);
}

#[tokio::test]
async fn a_foreign_page_cannot_drain_the_gateway() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let (status, _, body) = scene
        .ask("POST /v1/drain", "Origin: http://evil.example\r\n")
        .await;
    assert_eq!(status, 403);
    assert!(body.contains("cross_origin"));
    assert_eq!(scene.json("GET /readyz").await.0, 200);
}

#[tokio::test]
async fn the_listener_stops_when_told_and_drops_idle_connections() {
    let scene = Scene::new(Access::loopback(Vec::new())).await;
    let mut idle = TcpStream::connect(scene.addr).await.expect("accepted");
    assert_eq!(scene.json("GET /healthz").await.0, 200);
    scene.stop.send(()).expect("serving");
    scene.served.await.expect("no panic");
    let mut rest = Vec::new();
    let ended = idle.read_to_end(&mut rest).await;
    assert!(ended.is_err() || rest.is_empty());
    assert!(TcpStream::connect(scene.addr).await.is_err());
}
