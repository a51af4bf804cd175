//! A whole agent in process, against a gateway of a few lines that speaks the real protocol.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::conn::{Ended, Settings, Side};
use bridgehead_protocol::handshake::{
    AppPattern, AwaitHello, Denied, Grant, Scope, Terms, Token, TokenVerifier,
};
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::io::clock::Clock;
use bridgehead_protocol::io::{CloseReason, Notice, StreamEnded, Tunnel, shake};
use bridgehead_protocol::wire::{
    AppHealth, AppKind, AppOffer, Begin, FinalCause, GoAwayReason, Open, PeerLimits, Refuse,
    RefuseCode, ReportEntry, ResumeTicket,
};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::app::Target;
use crate::app::table::AppSpec;
use crate::carrier::address::{GatewayAddress, Plain};
use crate::config::TokenSource;

mod resume;

/// Longest wait for what must happen; never waited out by a test that passes.
const SOON: Duration = Duration::from_secs(20);

/// Takes any token for any app.
struct Anybody;

impl TokenVerifier for Anybody {
    fn verify(&self, _token: &Token) -> Result<Grant, Denied> {
        Ok(Grant {
            subject: "test".to_owned(),
            scope: Scope::new(vec![AppPattern::parse("*").expect("pattern")]),
        })
    }
}

struct Gateway {
    listener: TcpListener,
}

/// A tunnel at the gateway's end.
struct End {
    tunnel: Tunnel,
    instance: u128,
    apps: Vec<AppOffer>,
    driver: JoinHandle<CloseReason>,
}

impl Gateway {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        Self { listener }
    }

    fn options(&self) -> RunOptions {
        let address = self.listener.local_addr().expect("address");
        let address = GatewayAddress::parse(&format!("tcp://{address}"), Plain::LoopbackOnly);
        let token = Token::generate("k1", &[7; 32]).expect("token");
        let mut options = RunOptions::new(address.expect("gateway"), TokenSource::Given(token));
        options.tunnels = std::num::NonZeroU8::MIN;
        options
    }

    async fn accept(&self) -> Carrier {
        let accepted = timeout(SOON, self.listener.accept())
            .await
            .expect("in time");
        Carrier::tcp(accepted.expect("accept").0)
    }

    async fn refuse(&self, refuse: Refuse) {
        let mut carrier = self.accept().await;
        let until = shake::deadline(shake::LONGEST);
        let mut leftover = BytesMut::new();
        shake::receive(
            &mut carrier,
            &mut leftover,
            AwaitHello::new(),
            &Anybody,
            until,
        )
        .await
        .expect("hello");
        shake::refuse(&mut carrier, refuse, until).await;
    }

    async fn admit(&self) -> End {
        let mut carrier = self.accept().await;
        let until = shake::deadline(shake::LONGEST);
        let mut leftover = BytesMut::new();
        let applicant = shake::receive(
            &mut carrier,
            &mut leftover,
            AwaitHello::new(),
            &Anybody,
            until,
        )
        .await
        .expect("hello");
        let limits = PeerLimits {
            max_streams: 100,
            initial_credit: 65_536,
            linger: Duration::from_secs(60),
        };
        let terms = Terms {
            node: "gw".to_owned(),
            features: vec![],
            ping_after: Duration::from_secs(2),
            resume_window: Duration::ZERO,
            limits,
            nodes: vec![],
        };
        let ticket = ResumeTicket {
            tunnel: 1,
            secret: [2; 32],
            epoch: 0,
        };
        let admitted = shake::admit(&mut carrier, applicant, &terms, ticket, until)
            .await
            .expect("admitted");
        let (tunnel, driver) = Tunnel::new(
            Side::Gateway,
            Settings::default(),
            admitted.limits,
            carrier,
            leftover,
            Clock::start(),
        );
        End {
            tunnel,
            instance: admitted.instance,
            apps: admitted.apps,
            driver: tokio::spawn(driver),
        }
    }
}

impl End {
    /// One exchange on a stream of its own.
    async fn ask(&self, app: &str, request: &'static [u8]) -> Result<Vec<u8>, StreamEnded> {
        let mut stream = self
            .tunnel
            .open(Open {
                app: app.to_owned(),
                kind: AppKind::Http1,
                remaining: SOON,
                credit: 65_536,
                client: None,
            })
            .expect("a stream");
        stream.control().begin(Begin {
            request: 1,
            remaining: SOON,
            expect_read: Some(0),
        });
        let mut bytes = Bytes::from_static(request);
        assert_eq!(stream.write(&mut bytes), request.len());
        let mut answer = Vec::new();
        loop {
            let read = poll_fn(|cx| stream.poll_read(cx, 65_536));
            match timeout(SOON, read).await.expect("in time") {
                Ok(Some(bytes)) => answer.extend_from_slice(&bytes),
                // How an HTTP stream says that the app ended its side in order.
                Ok(None)
                | Err(StreamEnded(Ended::Final {
                    cause: FinalCause::AppClosed,
                    ..
                })) => return Ok(answer),
                Err(ended) => return Err(ended),
            }
        }
    }

    /// Waits for news of the apps in which `app` has that health.
    async fn until_health(&self, health: AppHealth) {
        let found = async {
            while let Some(notice) = self.tunnel.notice().await {
                if let Notice::Apps(apps) = notice
                    && apps.iter().all(|app| app.health == health)
                {
                    return;
                }
            }
            panic!("the tunnel ended first");
        };
        timeout(SOON, found).await.expect("in time");
    }
}

/// An app that answers every connection's first bytes with `answer` and closes.
async fn app(answer: &'static [u8]) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let mut request = [0; 1024];
            // A probe closes without a word.
            if stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                stream.write_all(answer).await.expect("answer");
            }
        }
    });
    (port, task)
}

fn spec(port: u16) -> AppSpec {
    AppSpec::new("demo", Target::parse(&port.to_string()).expect("target"))
}

struct Started {
    handle: Handle,
    readiness: Readiness,
    task: JoinHandle<Result<Outcome, AgentError>>,
}

fn start(options: RunOptions) -> Started {
    let (handle, control) = control();
    let readiness = Readiness::default();
    let task = tokio::spawn(run(options, control, readiness.clone()));
    Started {
        handle,
        readiness,
        task,
    }
}

impl Started {
    async fn outcome(self) -> Result<Outcome, AgentError> {
        timeout(SOON, self.task)
            .await
            .expect("in time")
            .expect("no panic")
    }
}

#[tokio::test]
async fn an_exchange_goes_through_the_agent_to_the_app_and_back() {
    let gateway = Gateway::start().await;
    let (port, _app) = app(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
    let agent = start(gateway.options().with_app(spec(port)));
    let end = gateway.admit().await;
    assert_eq!(end.apps[0].name, "demo");
    let answer = end
        .ask("demo", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect("answer");
    assert!(answer.ends_with(b"\r\n\r\nhi"));
    end.ask("other", b"x").await.expect_err("no such app");
    agent.readiness.reached(1).await;
    agent.handle.stop_more();
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
    assert_eq!(end.driver.await.expect("driver"), CloseReason::Drained);
}

#[tokio::test]
async fn every_tunnel_of_an_agent_is_of_one_instance() {
    let gateway = Gateway::start().await;
    let mut options = gateway.options().with_app(spec(1));
    options.tunnels = crate::config::options::DEFAULT_TUNNELS;
    let agent = start(options);
    let (one, two) = (gateway.admit().await, gateway.admit().await);
    assert_eq!(one.instance, two.instance);
    agent.readiness.reached(2).await;
    agent.handle.stop(Stop::Now);
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
}

#[tokio::test]
async fn a_lost_tunnel_is_made_anew_and_readiness_follows() {
    let gateway = Gateway::start().await;
    let agent = start(gateway.options().with_app(spec(1)));
    let first = gateway.admit().await;
    agent.readiness.reached(1).await;
    first.tunnel.close();
    first.driver.await.expect("driver");
    let _second = gateway.admit().await;
    agent.readiness.reached(1).await;
    assert_eq!(agent.readiness.tunnels(), 1);
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test]
async fn a_draining_gateway_is_replaced_while_the_old_tunnel_still_lives() {
    let gateway = Gateway::start().await;
    let agent = start(gateway.options().with_app(spec(1)));
    let old = gateway.admit().await;
    old.tunnel.drain(GoAwayReason::Draining, SOON);
    let _new = gateway.admit().await;
    assert!(
        !old.driver.is_finished(),
        "the old tunnel drains beside the new one"
    );
    agent.readiness.reached(1).await;
    old.tunnel.close_when_drained();
    timeout(SOON, old.driver)
        .await
        .expect("in time")
        .expect("driver");
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_refused_agent_asks_again_even_if_the_refusal_is_permanent() {
    let gateway = Gateway::start().await;
    let agent = start(gateway.options().with_app(spec(1)));
    gateway
        .refuse(Refuse::of(RefuseCode::Unauthorized, "unknown\nkey"))
        .await;
    assert!(!agent.readiness.is_ready());
    gateway
        .refuse(Refuse::of(RefuseCode::ScopeDenied, "not yours"))
        .await;
    let _end = gateway.admit().await;
    agent.readiness.reached(1).await;
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test]
async fn the_gateway_hears_when_an_app_comes() {
    let gateway = Gateway::start().await;
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let port = socket.local_addr().expect("address").port();
    let agent = start(gateway.options().with_app(spec(port)));
    let end = gateway.admit().await;
    if end.apps[0].health != AppHealth::Failing {
        end.until_health(AppHealth::Failing).await;
    }
    let _listening = socket.listen(16).expect("listen");
    end.until_health(AppHealth::Ready).await;
    agent.handle.stop(Stop::Now);
    agent.outcome().await.expect("stopped");
}

#[tokio::test]
async fn a_draining_agent_takes_nothing_new_and_finishes_what_runs() {
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let agent = start(gateway.options().with_app(spec(port)));
    let end = Arc::new(gateway.admit().await);
    let asking = tokio::spawn({
        let end = Arc::clone(&end);
        async move { end.ask("demo", b"GET / HTTP/1.1\r\n\r\n").await }
    });
    let mut request = [0; 18];
    let mut app = loop {
        let (mut app, _) = listener.accept().await.expect("accept");
        // The probe comes first and says nothing.
        if app.read_exact(&mut request).await.is_ok() {
            break app;
        }
    };
    agent.handle.stop_more();
    let goodbye = timeout(SOON, async {
        while let Some(notice) = end.tunnel.notice().await {
            if matches!(
                notice,
                Notice::GoAway {
                    reason: GoAwayReason::Draining,
                    ..
                }
            ) {
                return;
            }
        }
        panic!("the tunnel ended without a goodbye");
    });
    goodbye.await.expect("in time");
    assert!(!end.tunnel.is_accepting());
    assert!(!agent.readiness.is_ready(), "a draining agent is not ready");
    assert!(!agent.task.is_finished(), "the exchange still runs");
    app.write_all(b"HTTP/1.0 200 OK\r\n\r\nlate")
        .await
        .expect("answer");
    drop(app);
    let answer = asking.await.expect("asked").expect("answer");
    assert!(answer.ends_with(b"late"));
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
}

/// A request that the app behind `listener` has taken, on a connection that stays silent.
async fn unanswered(
    end: &Arc<End>,
    listener: &TcpListener,
) -> (JoinHandle<Result<Vec<u8>, StreamEnded>>, TcpStream) {
    let asking = tokio::spawn({
        let end = Arc::clone(end);
        async move { end.ask("demo", b"GET / HTTP/1.1\r\n\r\n").await }
    });
    let mut request = [0; 18];
    loop {
        let (mut app, _) = listener.accept().await.expect("accept");
        if app.read_exact(&mut request).await.is_ok() {
            return (asking, app);
        }
    }
}

#[tokio::test]
async fn an_agent_whose_grace_is_over_tells_what_it_wrote_of_what_it_cuts() {
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let mut options = gateway.options().with_app(spec(port));
    options.grace = Duration::from_millis(300);
    let agent = start(options);
    let end = Arc::new(gateway.admit().await);
    let (asking, _silent) = unanswered(&end, &listener).await;
    agent.handle.stop_more();
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
    let (written, read, cause) = (18, 0, FinalCause::Stopping);
    let told = Ended::Final {
        written,
        read,
        cause,
    };
    assert_eq!(asking.await.expect("asked"), Err(StreamEnded(told)));
}

#[cfg(unix)]
#[tokio::test]
async fn an_agent_that_runs_the_app_ends_with_its_code() {
    let gateway = Gateway::start().await;
    let mut options = gateway.options().with_app(spec(1));
    options.command = ["sh", "-c", "exit 7"].map(Into::into).to_vec();
    let agent = start(options);
    assert_eq!(agent.outcome().await.expect("ended"), Outcome::AppEnded(7));
}

#[cfg(unix)]
#[tokio::test]
async fn the_app_is_stopped_after_the_tunnels_are_drained() {
    let gateway = Gateway::start().await;
    let mut options = gateway.options().with_app(spec(1));
    options.command = ["sleep", "600"].map(Into::into).to_vec();
    let agent = start(options);
    let end = gateway.admit().await;
    assert_eq!(
        end.apps[0].health,
        AppHealth::Starting,
        "the agent starts it itself"
    );
    agent.handle.stop_more();
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
    timeout(SOON, end.driver)
        .await
        .expect("in time")
        .expect("driver");
}

#[cfg(unix)]
#[tokio::test]
async fn an_exchange_that_does_not_end_leaves_the_app_time_to_stop() {
    let gateway = Gateway::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let (up, stopped) = (folder.path().join("up"), folder.path().join("stopped"));
    let made = std::process::Command::new("mkfifo").arg(&up).status();
    assert!(made.expect("mkfifo").success());
    let script = format!(
        "trap 'sleep 0.2; echo in order > {}; exit 0' TERM; echo up > {}; while :; do sleep 0.05; done",
        stopped.display(),
        up.display()
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let mut options = gateway.options().with_app(spec(port));
    options.command = ["sh", "-c", &script].map(Into::into).to_vec();
    // Half of it is the app's: fifteen times what this one needs.
    options.grace = Duration::from_secs(6);
    let agent = start(options);
    let end = Arc::new(gateway.admit().await);
    // Opening a pipe waits for its other end.
    tokio::fs::read(&up).await.expect("the app is up");
    let (asking, _silent) = unanswered(&end, &listener).await;
    agent.handle.stop_more();
    assert_eq!(agent.outcome().await.expect("stopped"), Outcome::Stopped);
    asking.await.expect("asked").expect_err("cut in the end");
    let said = tokio::fs::read(&stopped).await.expect("the app stopped");
    assert_eq!(said, b"in order\n");
}

#[tokio::test]
async fn a_command_or_a_health_address_that_cannot_work_is_told_at_once() {
    let gateway = Gateway::start().await;
    let mut options = gateway.options().with_app(spec(1));
    options.command = vec!["/nowhere/app".into()];
    let error = start(options).outcome().await.expect_err("no such command");
    assert!(error.to_string().contains("/nowhere/app"), "{error}");
    let mut options = gateway.options().with_app(spec(1));
    options.health = Some(gateway.listener.local_addr().expect("address"));
    let error = start(options).outcome().await.expect_err("taken");
    assert!(error.to_string().contains("--health"), "{error}");
}

#[tokio::test]
async fn a_check_names_each_fault_and_never_takes_a_running_agents_place() {
    let gateway = Gateway::start().await;
    let (port, _app) = app(b"").await;
    let mut options = gateway.options().with_app(spec(port));
    options.agent = "a1".to_owned();
    options.apps.push(AppSpec::new(
        "away",
        Target::parse("http://app.invalid:80").expect("target"),
    ));
    let checking = tokio::spawn(check::check(options.clone()));
    let end = gateway.admit().await;
    assert!(end.apps.iter().all(|app| app.health == AppHealth::Draining));
    let findings = checking.await.expect("no panic").expect("checked");
    let text = findings.text();
    assert_eq!(findings.faults(), 1, "{text}");
    assert!(text.contains("ok   token accepted by node gw"), "{text}");
    assert!(text.contains("ok   app demo answers"), "{text}");
    assert!(
        text.contains("BAD  app away: app.invalid does not resolve"),
        "{text}"
    );
    let refusing = tokio::spawn(check::check(options));
    gateway
        .refuse(Refuse::of(RefuseCode::Unauthorized, "unknown key"))
        .await;
    let text = refusing.await.expect("no panic").expect("checked").text();
    assert!(
        text.contains("BAD  the gateway refuses this agent: unknown key"),
        "{text}"
    );
}
