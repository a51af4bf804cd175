//! What telemetry must hold for every exit of an exchange.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc;

use serde_json::Value;

use super::*;
use crate::telemetry::Format;
use crate::telemetry::metrics::Metrics;

const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text")
    }

    fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).expect("one JSON object per line");
        self.text().lines().map(parse).collect()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Scene {
    sinks: Arc<Sinks>,
    metrics: Arc<Metrics>,
    clock: Clock,
    paper: Paper,
}

impl Scene {
    fn new(format: Format) -> Self {
        let clock = Clock::start();
        let metrics = Metrics::new();
        let paper = Paper::default();
        let log = AccessLog::start(format, paper.clone(), clock, Arc::clone(&metrics));
        let log = log.expect("a thread");
        let sinks = Sinks::new(clock, Arc::clone(&metrics), Some(log));
        Self {
            sinks,
            metrics,
            clock,
            paper,
        }
    }

    fn begin(&self) -> ExchangeGuard {
        let mut guard = ExchangeGuard::new(
            Arc::clone(&self.sinks),
            Uuid::now_v7(),
            self.clock.now(),
            Ipv4Addr::LOCALHOST.into(),
            Protocol::Http(ClientProtocol::Http11),
        );
        guard.request(
            &Method::POST,
            "demo.localhost",
            "/orders?token=hunter2#frag",
        );
        guard.app(&"demo".into(), &self.metrics.app("demo"));
        guard
    }

    fn written(&self) -> usize {
        assert!(self.sinks.flush(WAIT), "the log is written in time");
        self.paper.text().lines().count()
    }

    fn line(&self) -> Value {
        assert!(self.sinks.flush(WAIT), "the log is written in time");
        let lines = self.paper.lines();
        assert_eq!(lines.len(), 1, "exactly one line");
        lines.into_iter().next().expect("one")
    }

    fn counted(&self, labels: &str) -> bool {
        let text = self.metrics.render().expect("consistent");
        text.contains(&format!("bridgehead_{labels} 1\n"))
    }
}

fn permit() -> Permit {
    let asker = crate::admit::Asker {
        address: Ipv4Addr::LOCALHOST.into(),
        client: crate::admit::Client::at(Ipv4Addr::LOCALHOST.into()),
        declared: None,
        shape: crate::admit::Shape::Exchange,
        holds: 0,
        room: u64::MAX,
    };
    let gate = Arc::new(crate::admit::Gate::default());
    let limits = crate::config::Admission::default();
    gate.enter(Moment::ZERO, &limits, &asker)
        .expect("the gate is empty")
}

#[test]
fn an_answered_exchange_is_told_once_with_every_field_in_order() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    let now = scene.clock.now();
    guard.admitted(now, permit());
    guard.enter_in_flight();
    guard.tunnel(&"agent-1".into(), &"t-9".into());
    guard.opened(now, AppConn::Fresh);
    guard.first_byte(now);
    guard.status(200);
    guard.bytes_in(3);
    guard.bytes_out(40);
    guard.bytes_out(2);
    guard.answered();
    drop(guard);
    let line = scene.line();
    assert_eq!(line["app"], "demo");
    assert_eq!(line["status"], 200);
    assert_eq!(line["delivery"], "delivered");
    assert_eq!(line["bytes_in"], 3);
    assert_eq!(line["bytes_out"], 42);
    assert_eq!(line["app_conn"], "fresh");
    assert_eq!(line["aborted"], Value::Null);
    assert!(
        scene.counted(
            r#"exchanges_total{app="demo",code="",delivery="delivered",outcome="answered"}"#
        )
    );
    let text = scene.paper.text();
    let mut rest = text.as_str();
    let order = "ts request_id app client method host path protocol status code delivery reason \
        stage window agent tunnel app_conn bytes_in bytes_out t_admit t_open t_first t_total held \
        retries resumed aborted";
    for name in order.split_whitespace() {
        let (_, after) = rest.split_once(&format!("\"{name}\":")).expect(name);
        rest = after;
    }
    assert_eq!(line.as_object().map(serde_json::Map::len), Some(27));
}

#[test]
fn a_guard_without_an_outcome_says_that_the_client_left() {
    let scene = Scene::new(Format::Json);
    drop(scene.begin());
    let line = scene.line();
    assert_eq!(line["aborted"], "client");
    assert_eq!(line["status"], Value::Null);
    assert!(
        scene.counted(r#"exchanges_total{app="demo",code="",delivery="",outcome="client_left"}"#)
    );
}

#[test]
fn a_guard_without_an_outcome_was_cut_once_the_gateway_ends() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    guard.handed_over();
    let mut left = scene.begin();
    scene.sinks.end();
    drop(guard);
    let line = scene.line();
    assert_eq!(
        (&line["delivery"], &line["reason"]),
        (&"unknown".into(), &"draining".into())
    );
    left.left(Judgement::NOT_DELIVERED);
    drop(left);
    for labels in [
        r#"exchanges_total{app="demo",code="SERVICE_UNAVAILABLE",delivery="unknown",outcome="aborted"}"#,
        r#"exchanges_total{app="demo",code="",delivery="not_delivered",outcome="client_left"}"#,
    ] {
        assert!(scene.counted(labels), "{labels}");
    }
}

#[test]
fn a_refusal_is_counted_by_code_and_reason() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    guard.begin_hold(scene.clock.now()).unwrap();
    guard.retried(Reason::ConnectRefused);
    guard.end_hold(scene.clock.now(), HoldResult::Expired);
    guard.failed(&Failure::refused(
        Code::BhAppStarting,
        Reason::ConnectRefused,
    ));
    drop(guard);
    let line = scene.line();
    assert_eq!(line["code"], "BH_APP_STARTING");
    assert_eq!(line["delivery"], "not_delivered");
    assert_eq!(line["reason"], "connect_refused");
    assert_eq!(line["status"], 503);
    assert_eq!(line["retries"], 1);
    for labels in [
        r#"refusals_total{app="demo",code="BH_APP_STARTING",reason="connect_refused"}"#,
        r#"exchanges_total{app="demo",code="BH_APP_STARTING",delivery="not_delivered",outcome="refused"}"#,
        r#"holds_total{app="demo",result="expired"}"#,
        r#"retries_total{app="demo",reason="connect_refused"}"#,
    ] {
        assert!(scene.counted(labels), "{labels}");
    }
}

#[test]
fn a_window_that_ran_out_is_a_failure_and_no_refusal() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    let judgement = Judgement {
        delivery: Delivery::Unknown,
        stage: Stage::All,
    };
    let failure = Failure::judged(Code::BhAppTimeout, Reason::FirstFrame, judgement);
    guard.failed(&failure.with_window(WindowKind::FirstFrame));
    drop(guard);
    let line = scene.line();
    assert_eq!(line["window"], "first_frame");
    assert_eq!(line["stage"], "all");
    assert!(scene.counted(r#"windows_fired_total{app="demo",window="first_frame"}"#));
    assert!(
        !scene
            .metrics
            .render()
            .expect("consistent")
            .contains("refusals_total{")
    );
}

#[test]
fn a_client_that_leaves_a_held_request_ends_the_hold() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    guard.enter_in_flight();
    guard.begin_hold(scene.clock.now()).unwrap();
    assert_eq!(scene.metrics.app("demo").in_flight_now(), 0);
    drop(guard);
    assert!(scene.counted(r#"holds_total{app="demo",result="client_left"}"#));
}

#[test]
fn a_panic_ends_the_account_as_our_own_fault() {
    let scene = Scene::new(Format::Json);
    let mut guard = scene.begin();
    guard.enter_long_lived();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("on purpose");
    }));
    assert!(result.is_err());
    let line = scene.line();
    assert_eq!(line["reason"], "internal");
    assert_eq!(line["aborted"], "gateway");
    assert_eq!(scene.metrics.app("demo").long_lived_now(), 0);
}

#[test]
fn no_secret_reaches_a_line_a_metric_or_the_memory() {
    for format in [Format::Json, Format::Text] {
        let scene = Scene::new(format);
        let guard = scene.begin();
        let id = guard.id();
        let live = scene.sinks.exchange(id).expect("live");
        drop(guard);
        let finished = scene.sinks.exchange(id).expect("remembered");
        assert!(scene.sinks.flush(WAIT));
        let metrics = scene.metrics.render().expect("consistent");
        for said in [live, finished, scene.paper.text(), metrics] {
            assert!(
                !said.contains("hunter2") && !said.contains("frag"),
                "{said}"
            );
        }
    }
}

#[test]
fn a_hostile_request_cannot_forge_a_line() {
    for format in [Format::Json, Format::Text] {
        let scene = Scene::new(format);
        let mut guard = scene.begin();
        guard.request(&Method::GET, "a\r\nb", "/x y\n200 GET forged\u{1b}[2J");
        guard.answered();
        drop(guard);
        assert!(scene.sinks.flush(WAIT));
        let text = scene.paper.text();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(!text.contains(['\r', '\u{1b}']), "{text}");
        if format == Format::Text {
            assert!(!text.contains(" GET forged"), "{text}");
        }
    }
}

#[test]
fn an_exchange_is_found_while_it_lives_and_after_it_ended() {
    let scene = Scene::new(Format::Text);
    let mut guard = scene.begin();
    let id = guard.id();
    let view = |scene: &Scene| -> Value {
        serde_json::from_str(&scene.sinks.exchange(id).expect("known")).expect("json")
    };
    assert_eq!(view(&scene)["live"], true);
    guard.answered();
    drop(guard);
    assert_eq!(view(&scene)["live"], false);
    assert_eq!(view(&scene)["path"], "/orders");
    assert_eq!(scene.sinks.exchange(Uuid::now_v7()), None);
}

#[test]
fn only_the_last_finished_exchanges_are_remembered() {
    let scene = Scene::new(Format::Json);
    let ids: Vec<Uuid> = (0..12_000).map(|_| scene.begin().id()).collect();
    let known = ids.iter().filter(|id| scene.sinks.exchange(**id).is_some());
    assert!(known.count() <= super::super::remembered::FINISHED);
    assert!(scene.sinks.exchange(*ids.last().expect("many")).is_some());
    assert!(scene.sinks.exchange(ids[0]).is_none());
    assert_eq!(scene.written(), 12_000);
}

/// A destination that takes its first bytes only when told to.
struct Stuck {
    entered: mpsc::SyncSender<()>,
    release: mpsc::Receiver<()>,
    paper: Paper,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The test waits for the first entry only; a gone test lets everything through.
        let _ = self.entered.try_send(());
        let _ = self.release.recv();
        self.paper.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_log_costs_lines_and_never_the_data_path() {
    let clock = Clock::start();
    let metrics = Metrics::new();
    let (entered, in_write) = mpsc::sync_channel(1);
    let (let_go, release) = mpsc::sync_channel(1);
    let paper = Paper::default();
    let stuck = Stuck {
        entered,
        release,
        paper: paper.clone(),
    };
    let log = AccessLog::start(Format::Json, stuck, clock, Arc::clone(&metrics));
    let sinks = Sinks::new(clock, Arc::clone(&metrics), Some(log.expect("a thread")));
    let scene = Scene {
        sinks,
        metrics,
        clock,
        paper,
    };
    drop(scene.begin());
    in_write.recv().expect("the writer holds the first line");
    for _ in 0..16_384 + 100 {
        drop(scene.begin());
    }
    assert!(!scene.sinks.flush(Duration::ZERO), "the writer is stuck");
    let text = scene.metrics.render().expect("consistent");
    assert!(text.contains("bridgehead_access_log_dropped_total 100\n"));
    drop(let_go);
    assert_eq!(scene.written(), 1 + 16_384);
}
