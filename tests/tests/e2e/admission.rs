//! Every limit of an app's gate, provoked by its cause: status, pause, verdict and advice of each
//! denial, what the app saw, and that metrics move by exactly what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::drill::{Overload, overload};
use bridgehead_tests::metrics::Snapshot;
use bridgehead_tests::port;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Setup, World, setup};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::{One, Verdict, one};

mod hold;
mod share;

fn demo(toml: &str) -> Setup {
    setup().app("demo", toml)
}

/// An app that answers one request for each permit, in the order in which it is asked.
struct Gated {
    one: One,
    go: Arc<Semaphore>,
}

impl Gated {
    async fn start(setup: Setup) -> Self {
        let go = Arc::new(Semaphore::new(0));
        let app_side = Arc::clone(&go);
        let script = move |conn: Conn| answers_when_told(conn, Arc::clone(&app_side));
        Self {
            one: one(setup, script).await,
            go,
        }
    }

    fn world(&self) -> &World {
        &self.one.world
    }

    /// A request on a connection of its own, on its way.
    fn ask(&self, target: &str) -> JoinHandle<Answer> {
        let (public, host) = (self.world().places.public, self.world().host("demo"));
        let target = target.to_owned();
        tokio::spawn(async move {
            let mut client = H1::connect(public).await;
            client.ask("POST", &target, &host, &[], b"x").await
        })
    }

    async fn until(&self, gauge: &str, value: u64) {
        until(self.world(), gauge, value).await;
    }

    /// A request that occupies the app.
    async fn occupy(&self, target: &str) -> JoinHandle<Answer> {
        let asked = self.ask(target);
        self.one.app.until_text(target).await;
        asked
    }

    fn let_go(&self, count: usize) {
        self.go.add_permits(count);
    }
}

async fn answers_when_told(mut conn: Conn, go: Arc<Semaphore>) {
    while let Some(head) = conn.read_head().await {
        if conn.read_body(&head).await.is_none() {
            return;
        }
        let Ok(permit) = go.acquire().await else {
            return;
        };
        permit.forget();
        if !conn.answer(&head.target).await {
            return;
        }
    }
}

async fn until(world: &World, gauge: &str, value: u64) {
    let reached = || async {
        let now = world.metrics().await.sum(gauge, &[("app", "demo")]);
        (now as u64 == value).then_some(())
    };
    wait::until(wait::SOON, &format!("{gauge} being {value}"), reached).await;
}

async fn admission(world: &World) -> Value {
    world.admin("/v1/apps/demo").await["admission"].clone()
}

fn refusals(now: &Snapshot, code: &str, reason: &str) -> f64 {
    let labels = [("app", "demo"), ("code", code), ("reason", reason)];
    now.sum("refusals_total", &labels)
}

/// The pause of a denial, which must lie in this range; the rest of the answer must fit `verdict`.
#[track_caller]
fn check_within(verdict: Verdict, answer: &Answer, seconds: std::ops::RangeInclusive<u64>) {
    let said = answer.header("retry-after").and_then(|s| s.parse().ok());
    let said: u64 = said.unwrap_or_else(|| panic!("no pause: {answer:?}"));
    assert!(seconds.contains(&said), "{said} s is not in {seconds:?}");
    verdict.after(said).check(answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_everybody_in_it_is_served_in_order() {
    let gated = Gated::start(demo("in_flight = 1\nqueue = 2")).await;
    let before = gated.world().metrics().await;
    let first = gated.occupy("/first").await;
    let second = gated.ask("/second");
    gated.until("queue_depth", 1).await;
    let third = gated.ask("/third");
    gated.until("queue_depth", 2).await;
    let shown = admission(gated.world()).await;
    assert_eq!(
        (&shown["queued"], &shown["queue_limit"]),
        (&2.into(), &2.into())
    );
    assert_eq!(gated.world().admin("/v1/apps/demo").await["in_flight"], 1);

    let refused = gated.ask("/fourth").await.expect("answered");
    let verdict = Verdict::refused(503, "QUEUE_OVERFLOW", "queue_full");
    check_within(verdict, &refused, 1..=30);
    assert!(refused.error("message").contains("queue is 2"));

    gated.let_go(1);
    assert_eq!(first.await.expect("answered").text(), "/first");
    gated.one.app.until_text("/second").await;
    assert!(
        !gated.one.app.text().contains("/third"),
        "first come, first served"
    );
    gated.let_go(2);
    for (asked, target) in [(second, "/second"), (third, "/third")] {
        assert_eq!(asked.await.expect("answered").text(), target);
    }
    assert!(!gated.one.app.text().contains("/fourth"));
    gated.until("in_flight", 0).await;
    let after = gated.world().metrics().await;
    let moved = after.moved(&before, |name| {
        name.contains("queue_depth") || name.contains("queue_wait_seconds_count")
    });
    assert_eq!(
        moved.values().copied().collect::<Vec<_>>(),
        [2.0],
        "{moved:?}"
    );
    assert_eq!(refusals(&after, "QUEUE_OVERFLOW", "queue_full"), 1.0);
    let answered = [("app", "demo"), ("outcome", "answered")];
    assert_eq!(after.sum("exchanges_total", &answered), 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_is_taken_out_before_the_app_sees_it() {
    let gated = Gated::start(demo("in_flight = 1\nqueue_wait = \"300ms\"")).await;
    let first = gated.occupy("/first").await;
    let late = gated.ask("/late").await.expect("answered");
    Verdict::refused(504, "QUEUE_TIMEOUT", "queue_wait")
        .after(10)
        .check(&late);
    gated.let_go(9);
    assert_eq!(first.await.expect("answered").status, 200);
    assert!(!gated.one.app.text().contains("/late"));
    let after = gated.world().metrics().await;
    assert_eq!(refusals(&after, "QUEUE_TIMEOUT", "queue_wait"), 1.0);
    assert_eq!(
        after.sum("queue_wait_seconds_count", &[("app", "demo")]),
        1.0
    );
    assert!(after.sum("queue_wait_seconds_sum", &[("app", "demo")]) >= 0.3);
    assert_eq!(after.sum("queue_depth", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_queue_frees_its_place_and_never_reaches_the_app() {
    let gated = Gated::start(demo("in_flight = 1\nqueue = 1")).await;
    let first = gated.occupy("/first").await;
    let mut leaves = gated.world().h1().await;
    let host = gated.world().host("demo");
    leaves.request("POST", "/leaves", &host, &[], b"x").await;
    gated.until("queue_depth", 1).await;
    drop(leaves);
    gated.until("queue_depth", 0).await;
    let stays = gated.ask("/stays");
    gated.until("queue_depth", 1).await;
    gated.let_go(9);
    assert_eq!(first.await.expect("answered").status, 200);
    assert_eq!(stays.await.expect("answered").text(), "/stays");
    assert!(!gated.one.app.text().contains("/leaves"));
    let left = [
        ("app", "demo"),
        ("outcome", "client_left"),
        ("delivery", "not_delivered"),
    ];
    assert_eq!(
        gated.world().metrics().await.sum("exchanges_total", &left),
        1.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_told_with_every_answer_and_refuses_beyond_it() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(
        demo("client_rate = \"1/h burst 2 by x-api-key\""),
        app::echo,
    )
    .await;
    let (host, mut client) = (world.host("demo"), world.h1().await);
    let mine = [("X-Api-Key", "mine")];
    let first = client.ask("GET", "/1", &host, &mine, b"").await;
    assert_eq!((first.status, first.made_by_gateway()), (200, false));
    assert_eq!(
        first.header("ratelimit"),
        Some("\"client_rate\";r=1;t=3600")
    );
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(client.ask("GET", "/2", &host, &mine, b"").await.status, 200);
    let refused = client.ask("DELETE", "/3", &host, &mine, b"").await;
    check_within(
        Verdict::refused(429, "RATE_LIMITED", "rate"),
        &refused,
        3590..=3600,
    );
    assert_eq!(refused.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"client_rate\";q=2;w=7200")
    );
    // Another key is another client, and so is an address without a key.
    for fields in [&[("X-Api-Key", "yours")][..], &[]] {
        assert_eq!(
            client.ask("GET", "/4", &host, fields, b"").await.status,
            200
        );
    }
    assert!(!app.text().contains("/3"));
    let after = world.metrics().await;
    assert_eq!(refusals(&after, "RATE_LIMITED", "rate"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_run_of_timeouts_the_app_is_left_in_peace_until_a_probe_succeeds() {
    let well = Arc::new(AtomicBool::new(false));
    let recovers = Arc::clone(&well);
    let script = move |mut conn: Conn| {
        let well = Arc::clone(&recovers);
        async move {
            while conn.read_head().await.is_some() {
                if !well.load(Ordering::SeqCst) {
                    return conn.until_closed().await;
                }
                conn.answer("well").await;
            }
        }
    };
    let toml = "quarantine = \"2s\"\nfirst_frame_window = \"500ms\"";
    let One { world, agent, app } = one(demo(toml), script).await;
    let timeouts = (0..10).map(|_| world.get("/hangs"));
    for answer in futures_util::future::join_all(timeouts).await {
        assert_eq!(answer.error("code"), "BH_APP_TIMEOUT");
    }
    let refused = world.ask("POST", "/refused", b"x").await;
    let verdict = Verdict::refused(503, "TIMEOUT_QUARANTINE", "quarantine");
    check_within(verdict, &refused, 1..=2);
    assert!(!admission(&world).await["quarantine"].is_null());
    assert!(!app.text().contains("/refused"));

    well.store(true, Ordering::SeqCst);
    let over = || async { (admission(&world).await["quarantine"] == 0).then_some(()) };
    wait::until(wait::SOON, "the pause being over", over).await;
    assert_eq!(world.get("/probe").await.text(), "well");
    let lifted = || async { (admission(&world).await["quarantine"].is_null()).then_some(()) };
    wait::until(wait::SOON, "the quarantine being lifted", lifted).await;
    assert_eq!(world.get("/again").await.status, 200);
    let after = world.metrics().await;
    assert_eq!(refusals(&after, "TIMEOUT_QUARANTINE", "quarantine"), 1.0);
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_failures_stop_their_client_and_every_fiftieth_request_passes() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            drop(conn.read_body(&head).await);
            let failed = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
            if !conn.write(failed).await {
                return;
            }
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(demo("error_loop = 3"), script).await;
    let (host, mut client) = (world.host("demo"), world.h1().await);
    for _ in 0..3 {
        let failed = client.ask("POST", "/loop", &host, &[], b"x").await;
        assert_eq!((failed.status, failed.made_by_gateway()), (500, false));
    }
    let verdict = Verdict::refused(429, "ERROR_LOOP_DETECTED", "error_loop").after(60);
    for _ in 1..50 {
        let stopped = client.ask("DELETE", "/stopped", &host, &[], b"").await;
        verdict.check(&stopped);
        assert_eq!(stopped.json()["error"]["retry"]["write"], "never_automatic");
    }
    let probe = client.ask("POST", "/probe", &host, &[], b"x").await;
    assert_eq!(probe.status, 500);
    assert!(!app.text().contains("/stopped"));
    assert_eq!(admission(&world).await["failing_clients"], 1);
    let after = world.metrics().await;
    assert_eq!(refusals(&after, "ERROR_LOOP_DETECTED", "error_loop"), 49.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_large_bodies_are_under_way_at_once() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(demo("large_body_slots = 1"), app::echo).await;
    let host = world.host("demo");
    let body = vec![b'a'; 2 << 20];
    let mut first = world.h1().await;
    let length = body.len().to_string();
    let declared = [("Content-Length", length.as_str())];
    first
        .request("POST", "/first", &host, &declared, b"a")
        .await;
    app.until_text("/first").await;
    let refused = world.ask("POST", "/refused", &body).await;
    Verdict::refused(503, "LARGE_BODY_BACKEND_BUSY", "large_body")
        .after(2)
        .check(&refused);
    assert_eq!(world.ask("POST", "/small", b"x").await.status, 200);
    let chunked = [("Transfer-Encoding", "chunked")];
    let mut streamed = world.h1().await;
    let answer = streamed
        .ask("POST", "/streamed", &host, &chunked, b"1\r\nx\r\n0\r\n\r\n")
        .await;
    assert_eq!(answer.status, 200);
    assert!(first.send(&body[1..]).await);
    assert_eq!(first.answer("POST").await.status, 200);
    assert_eq!(world.ask("POST", "/next", &body).await.status, 200);
    assert_eq!(
        app.heads(),
        4,
        "first, small, streamed, next, and not the refused one"
    );
    let after = world.metrics().await;
    assert_eq!(
        refusals(&after, "LARGE_BODY_BACKEND_BUSY", "large_body"),
        1.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_lists_go_by_the_address_that_a_trusted_proxy_tells() {
    let setup = demo("allow = [\"203.0.113.0/24\"]\ndeny = [\"203.0.113.66\"]")
        .section("public", "trusted_proxies = [\"127.0.0.1\"]");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    let (host, mut client) = (world.host("demo"), world.h1().await);
    let from = |address: &'static str| [("X-Forwarded-For", address)];
    let forbidden = Verdict::refused(403, "APP_NOT_FOUND", "denied");
    for fields in [&from("198.51.100.1")[..], &from("203.0.113.66"), &[]] {
        let told = client.ask("GET", "/refused", &host, fields, b"").await;
        forbidden.check(&told);
        let message = told.error("message");
        assert!(message.contains("not open to the client"), "{message}");
    }
    let let_in = client
        .ask("GET", "/in", &host, &from("203.0.113.7"), b"")
        .await;
    assert_eq!(let_in.status, 200);
    assert!(!app.text().contains("/refused"));
    let after = world.metrics().await;
    assert_eq!(refusals(&after, "APP_NOT_FOUND", "denied"), 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_leaves_its_place_in_flight_when_its_head_comes() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target != "/events" {
                conn.answer("plain").await;
                continue;
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
            conn.write(head).await;
            return conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(demo("in_flight = 1\nqueue = 0"), script).await;
    let mut events = world.h1().await;
    let host = world.host("demo");
    events.request("GET", "/events", &host, &[], b"").await;
    assert_eq!(events.read_head().await.expect("a head").status, 200);
    until(&world, "long_lived", 1).await;
    until(&world, "in_flight", 0).await;
    assert_eq!(world.get("/plain").await.text(), "plain");
    drop(events);
    until(&world, "long_lived", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_long_lived_limit_an_upgrade_is_refused_before_the_app_sees_it() {
    let script = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            let switch = "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: pipe\r\n\r\n";
            conn.write(switch).await;
            conn.until_closed().await;
        }
    };
    let One {
        world,
        agent: _agent,
        app,
    } = one(demo("long_lived = 1"), script).await;
    let host = world.host("demo");
    let upgrade = [("Connection", "upgrade"), ("Upgrade", "pipe")];
    let mut first = world.h1().await;
    assert_eq!(
        first.ask("GET", "/1", &host, &upgrade, b"").await.status,
        101
    );
    let refused = world
        .h1()
        .await
        .ask("GET", "/2", &host, &upgrade, b"")
        .await;
    let verdict = Verdict::refused(503, "QUEUE_OVERFLOW", "queue_full");
    check_within(verdict, &refused, 1..=30);
    drop(first);
    until(&world, "long_lived", 0).await;
    let mut next = world.h1().await;
    assert_eq!(
        next.ask("GET", "/3", &host, &upgrade, b"").await.status,
        101
    );
    assert!(!app.text().contains("GET /2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_requests_are_not_in_flight_and_all_are_served_when_the_app_is_back() {
    let setup = setup()
        .defaults("hold = \"30s\"")
        .app("demo", "in_flight = 1\nqueue = 6");
    let one = one(setup, app::echo).await;
    assert_eq!(one.world.get("/before").await.status, 200);
    let addr = one.app.stop().await;
    let (public, host) = (one.world.places.public, one.world.host("demo"));
    let mut held = Vec::new();
    for n in 0..6 {
        let host = host.clone();
        held.push(tokio::spawn(async move {
            let mut client = H1::connect(public).await;
            client
                .ask("POST", &format!("/held{n}"), &host, &[], b"x")
                .await
        }));
    }
    // More wait for the app than may be in flight; in between none is, nor in the queue.
    let held_all = || async {
        let info = one.world.admin("/v1/apps/demo").await;
        let tried = info["refusals"]["count"].as_u64() > Some(20);
        (tried && info["in_flight"] == 0 && info["admission"]["queued"] == 0).then_some(())
    };
    wait::until(wait::SOON, "nothing being in flight", held_all).await;
    let back = App::start_at(addr, app::echo).await;
    for answer in held {
        assert_eq!(answer.await.expect("answered").status, 200);
    }
    let seen = back.text();
    for n in 0..6 {
        assert_eq!(
            seen.matches(&format!("POST /held{n} ")).count(),
            1,
            "{seen}"
        );
    }
    let after = one.world.metrics().await;
    let released = [("app", "demo"), ("result", "released")];
    assert!(after.sum("holds_total", &released) >= 1.0);
    assert_eq!(after.sum("in_flight", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_long_lived_limit_a_tcp_client_is_reset_and_counted() {
    let app = App::start(app::silent).await;
    let port = port::free();
    let toml = format!("protocol = \"tcp\"\nport = {port}\nlong_lived = 1");
    let world = setup().app("demo", &toml).start().await;
    let target = format!("tcp://{}", app.addr());
    let _agent = world.join("a1", &[("demo", &target)]).await;
    let mut first = H1::connect(([127, 0, 0, 1], port).into()).await;
    assert!(first.send("first").await);
    app.until_text("first").await;
    // The reset may come before the client knows that it is connected.
    if let Ok(mut second) = TcpStream::connect(("127.0.0.1", port)).await {
        let reset = second.read(&mut [0; 16]).await;
        assert!(reset.is_err(), "not an orderly end: {reset:?}");
    }
    let counted = || async {
        let now = refusals(&world.metrics().await, "QUEUE_OVERFLOW", "queue_full");
        (now == 1.0).then_some(())
    };
    wait::until(wait::SOON, "the refusal being counted", counted).await;
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_three_times_its_capacity_an_app_goes_on_and_the_rest_is_refused_at_once() {
    // Small enough for a machine that does other things; `bh-overload` holds the exact numbers.
    let outcome = overload(Overload {
        takes: Duration::from_millis(20),
        in_flight: 4,
        queue: 8,
        factor: 3,
        lasts: Duration::from_secs(3),
    })
    .await;
    eprintln!("{outcome:?}");
    // Other tests may have begun between the two measurements.
    assert!(outcome.part() > 0.05, "{outcome:?}");
    assert!(outcome.refused > 0, "{outcome:?}");
    assert_eq!((outcome.unproven, outcome.other), (0, 0), "{outcome:?}");
    assert_eq!(outcome.seen, outcome.answered, "{outcome:?}");
    assert!(outcome.refusal_p99 < Duration::from_secs(5), "{outcome:?}");
}
