//! A whole corridor in memory under paused time: real front, real exchanges, real tunnel; only the
//! agent is a script that does byte by byte what a test tells it.
//!
//! Nothing here waits for real time or touches a socket. [`World::end`] proves that an exchange left
//! nothing behind: no task, no permit, no place on a tunnel, no stream.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bridgehead_protocol::conn::{Settings, Side};
use bridgehead_protocol::handshake::{AppPattern, Identity, Scope, Terms};
use bridgehead_protocol::io::Tunnel;
use bridgehead_protocol::io::carrier::CarrierKind;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{AppHealth, AppKind, AppOffer, PeerLimits, ResumeTicket};
use bytes::BytesMut;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::Bounds;
use super::apps::Apps;
use super::linger::Lingering;
use super::normalize::Rules;
use super::{Exchanges, Shared};
use crate::accept::{Limits, Transport, http1, http2};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::{Ledger, Outcome, OutcomeId};
use crate::request::front::{ClientInfo, RawClient};
use crate::route::RouteTable;
use crate::shutdown::Shutdown;
use crate::task::Tasks;
use crate::telemetry::access::Sinks;
use crate::telemetry::metrics::Metrics;
use crate::tunnel::enroll::{Enroll, TunnelTerms};
use crate::tunnel::live::{Carried, LiveTunnel, NewTunnel, Tunnels};
use crate::tunnel::offered::{Offered, OnOffer};
use crate::tunnel::pool::PoolLimits;
use crate::tunnel::token::Tokens;

mod app;
mod client;

pub(crate) use app::{Agent, App};
pub(crate) use client::{Answer, Client};

/// Host of the app in every test.
pub(crate) const HOST: &str = "demo.example.com";
/// Room between a client and the gateway; more than any answer that a test does not read at once.
const ROOM: usize = 256 * 1024;

/// Lets virtual time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What a test waits for comes within this (virtual) time or never: a hang is a failure.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let patience = Duration::from_secs(2 * 3600);
    tokio::time::timeout(patience, what)
        .await
        .expect("it happens")
}

/// One gateway without listeners.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) exchanges: Exchanges,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) shutdown: Shutdown,
    began: Instant,
    clients: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl World {
    /// A gateway that has been running for a minute, with every default.
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// The same, with lines for the app's section.
    pub(crate) async fn with(app: &str) -> Self {
        let mut world = Self::starting_with(app);
        tokio::time::advance(Duration::from_secs(60)).await;
        world.began = Instant::now();
        world
    }

    /// A gateway whose first moment this is.
    pub(crate) fn starting_with(app: &str) -> Self {
        let config = configured("\"gw.example.com\"", app);
        let metrics = Metrics::new();
        let shutdown = Shutdown::new();
        let shared = Arc::new(shared(&config, &metrics, &shutdown));
        Self {
            exchanges: Exchanges::new(Arc::clone(&shared)),
            limits: Arc::new(Limits::configured(&config.limits, &shared.pressure)),
            shared,
            metrics,
            shutdown,
            began: Instant::now(),
            clients: std::sync::Mutex::default(),
        }
    }

    /// The gateway's own hosts are these from now on.
    pub(crate) fn own_hosts(&self, hosts: &str) {
        let table = RouteTable::build(&configured(hosts, ""));
        self.shared.routes.store(Arc::new(table));
    }

    /// Virtual time since the world was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A tunnel of an agent that offers the app.
    pub(crate) fn agent(&self, id: &str) -> Agent {
        self.agent_with(id, Settings::default())
    }

    /// The same, `delay` away from the gateway.
    pub(crate) fn agent_behind(&self, id: &str, delay: Duration) -> Agent {
        let (near, road) = duplex(ROOM);
        let (end, far) = duplex(ROOM);
        let ((from_near, to_near), (from_far, to_far)) =
            (tokio::io::split(road), tokio::io::split(end));
        tokio::spawn(carry(from_near, to_far, delay));
        tokio::spawn(carry(from_far, to_near, delay));
        self.agent_over(id, Settings::default(), Settings::default(), (near, far))
    }

    /// The same over a tunnel of which the gateway may hold so many bytes.
    pub(crate) fn agent_held(&self, id: &str, held_limit: u64) -> Agent {
        let own = Settings {
            held_limit,
            ..Settings::default()
        };
        self.agent_over(id, Settings::default(), own, duplex(ROOM))
    }

    /// The same with other numbers at the agent.
    pub(crate) fn agent_with(&self, id: &str, settings: Settings) -> Agent {
        let own = Settings {
            resume_window: settings.resume_window,
            ..Settings::default()
        };
        self.agent_over(id, settings, own, duplex(ROOM))
    }

    fn agent_over(
        &self,
        id: &str,
        settings: Settings,
        own: Settings,
        (near, far): (DuplexStream, DuplexStream),
    ) -> Agent {
        let clock = self.shared.clock.moments();
        let (tunnel, driver) = Tunnel::new(
            Side::Gateway,
            own,
            limits(&settings),
            near,
            BytesMut::new(),
            clock,
        );
        let new = NewTunnel {
            resume_window: Duration::ZERO,
            key: String::new(),
            id: format!("{:032x}", tunnel_id(id)).into(),
            identity: Identity {
                subject: "test".into(),
                agent: id.into(),
            },
            instance: rand::random(),
            scope: Scope::new(AppPattern::parse("*").into_iter().collect()),
            offered: Offered::new(&nobody_listens(), "test", &[offer()]).expect("nobody refuses"),
            carried: Carried {
                kind: CarrierKind::Tcp,
                peer: ([127, 0, 0, 1], 7000).into(),
            },
            ticket: ResumeTicket {
                tunnel: rand::random(),
                secret: rand::random(),
                epoch: 1,
            },
            tunnel,
            pool: PoolLimits {
                idle: Duration::from_secs(4),
                per_app: 64,
            },
        };
        let (live, _) = self.shared.tunnels.add(new);
        let (tunnels, gone) = (Arc::clone(&self.shared.tunnels), Arc::clone(&live));
        tokio::spawn(async move {
            driver.await;
            tunnels.remove(&gone);
        });
        let (tunnel, driver) = Tunnel::new(
            Side::Agent,
            settings,
            limits(&Settings::default()),
            far,
            BytesMut::new(),
            clock,
        );
        let frozen = Arc::new(Notify::new());
        let freeze = Arc::clone(&frozen);
        let task = tokio::spawn(async move {
            tokio::pin!(driver);
            tokio::select! {
                biased;
                () = freeze.notified() => std::future::pending().await,
                _ = &mut driver => {}
            }
        });
        Agent::new(tunnel, live, task.abort_handle(), frozen)
    }

    /// An HTTP/1 connection of a client.
    pub(crate) fn client(&self) -> Client {
        self.client_with_room(ROOM)
    }

    /// The same; only `room` bytes fit between gateway and client.
    pub(crate) fn client_with_room(&self, room: usize) -> Client {
        self.client_over(room, Arc::default())
    }

    /// The same; once the trap is set the gateway's next read of it panics.
    pub(crate) fn client_with_a_trap(&self) -> (Client, Arc<AtomicBool>) {
        let trap = Arc::<AtomicBool>::default();
        (self.client_over(ROOM, Arc::clone(&trap)), trap)
    }

    fn client_over(&self, room: usize, trap: Arc<AtomicBool>) -> Client {
        let (client, io) = duplex(room);
        let reset = Arc::new(AtomicBool::new(false));
        let wire = Wire {
            io,
            reset: Arc::clone(&reset),
            trap,
        };
        let (exchanges, limits) = (self.exchanges.clone(), Arc::clone(&self.limits));
        let signal = self.shared.shutdown.clone();
        let server = tokio::spawn(async move {
            http1::serve(wire, BytesMut::new(), &info(), &exchanges, &limits, signal).await;
        });
        self.keep(server);
        Client::new(client, reset)
    }

    /// A connection of a client to the app as bytes.
    pub(crate) fn tcp(&self) -> Client {
        self.tcp_with_room(ROOM)
    }

    /// The same; only `room` bytes fit between gateway and client.
    pub(crate) fn tcp_with_room(&self, room: usize) -> Client {
        let (client, serve) = self.tcp_served(room);
        self.keep(tokio::spawn(serve));
        client
    }

    /// The same, served by whoever polls the future.
    pub(crate) fn tcp_served(
        &self,
        room: usize,
    ) -> (Client, impl Future<Output = ()> + Send + use<>) {
        let (client, io) = duplex(room);
        let reset = Arc::new(AtomicBool::new(false));
        let wire = Wire {
            io,
            reset: Arc::clone(&reset),
            trap: Arc::default(),
        };
        let exchanges = self.exchanges.clone();
        let serve = async move { exchanges.serve_tcp(wire, info(), "demo").await };
        (Client::new(client, reset), serve)
    }

    /// An HTTP/2 connection of a client.
    pub(crate) async fn h2(&self) -> h2::client::SendRequest<bytes::Bytes> {
        let (client, io) = duplex(ROOM);
        let (exchanges, limits) = (self.exchanges.clone(), Arc::clone(&self.limits));
        let signal = self.shared.shutdown.clone();
        let server = tokio::spawn(async move {
            http2::serve(io, &info(), &exchanges, &limits, signal).await;
        });
        self.keep(server);
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1024 * 1024);
        let (client, connection) = builder.handshake(client).await.expect("a handshake");
        tokio::spawn(connection);
        client.ready().await.expect("a connection")
    }

    fn keep(&self, server: JoinHandle<()>) {
        self.clients.lock().expect("a lock").push(server);
    }

    /// An app that was reached once, and kept no connection.
    pub(crate) fn app_was_reached(&self) {
        self.shared.apps.state("demo").reached();
    }

    /// What the gateway says of one exchange.
    pub(crate) fn exchange(&self, id: &str) -> serde_json::Value {
        let id = uuid::Uuid::parse_str(id).expect("a request id");
        let text = self.shared.sinks.exchange(id).expect("an exchange");
        serde_json::from_str(&text).expect("JSON")
    }

    /// What the ledger says of the exchange whose failure this is, by its address.
    pub(crate) fn outcome(&self, answer: &Answer) -> Outcome {
        let url = answer.error()["outcomeUrl"].clone();
        let url = url.as_str().expect("an address");
        let id = url.rsplit('/').next().and_then(OutcomeId::parse);
        let now = self.shared.clock.now();
        let known = self.shared.ledger.by_id(now, id.expect("an id"));
        known.expect("an outcome")
    }

    /// What the ledger says of the exchange with this request id.
    pub(crate) fn outcome_of(&self, request: &str) -> Option<Outcome> {
        let request = uuid::Uuid::parse_str(request).expect("a request id");
        let now = self.shared.clock.now();
        self.shared.ledger.by_request(now, request)
    }

    /// Every kind of end that was counted: `outcome/delivery/code`, sorted, once per exchange.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        let text = self.metrics.render().expect("metrics");
        let label = |line: &str, name: &str| {
            let start = line.find(&format!("{name}=\"")).expect("a label") + name.len() + 2;
            let rest = &line[start..];
            rest[..rest.find('"').expect("an end")].to_owned()
        };
        let mut all = Vec::new();
        for line in text.lines().filter(|l| l.contains("exchanges_total{")) {
            let count: f64 = line
                .rsplit(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a count");
            let kind = ["outcome", "delivery", "code"]
                .map(|name| label(line, name))
                .join("/");
            for _ in 0..count as u64 {
                all.push(kind.clone());
            }
        }
        all.sort();
        all
    }

    /// Requests that occupy the app now, and those that are streams or pipes.
    pub(crate) fn load(&self) -> (u64, u64) {
        let metrics = &self.shared.apps.state("demo").metrics;
        (metrics.in_flight_now(), metrics.long_lived_now())
    }

    /// Waits until every client's connection was served to its end, then looks for what is left:
    /// there must be exactly the `outcomes` and nothing else. Agents must be gone or idle.
    pub(crate) async fn end(self, agents: impl IntoIterator<Item = Agent>, outcomes: &[&str]) {
        let servers = std::mem::take(&mut *self.clients.lock().expect("a lock"));
        for server in servers {
            let patience = Duration::from_secs(300);
            let ended = tokio::time::timeout(patience, server).await;
            ended.expect("a connection ends").expect("without a panic");
        }
        assert_eq!(self.outcomes(), outcomes);
        let idle = tokio::time::timeout(Duration::from_secs(120), self.shared.tasks.idle()).await;
        assert!(
            idle.is_ok(),
            "tasks are left: {:?}",
            self.shared.tasks.live()
        );
        assert_eq!(self.shared.lingering.total(), 0);
        assert_eq!(self.load(), (0, 0), "permits are left");
        for agent in agents {
            let live = Arc::clone(&agent.live);
            assert_eq!(live.in_flight(), 0, "a place on a tunnel is left");
            live.pool.close_tunnel(live.number);
            pass(Duration::from_secs(1)).await;
            assert_eq!(live.tunnel.stats().streams.total(), 0, "streams are left");
            assert_eq!(agent.streams(), 0, "the agent has streams left");
        }
    }
}

fn configured(own_hosts: &str, app: &str) -> Config {
    let text = format!(
        "[gateway]\nhosts = [{own_hosts}]\n[public]\ndomain = \"example.com\"\n\
         [tunnel]\nplain = true\n[[app]]\nname = \"demo\"\n{app}\n"
    );
    Config::from_toml(&text, "test.toml", Path::new("/")).expect("a configuration")
}

fn shared(config: &Config, metrics: &Arc<Metrics>, shutdown: &Shutdown) -> Shared {
    let clock = Clock::start();
    let tunnels = Arc::new(Tunnels::default());
    let settings = Settings::default();
    let chance = Arc::new(Chance::system());
    Shared {
        clock,
        chance: Arc::clone(&chance),
        started: Moment::ZERO,
        node: "gw-test".into(),
        routes: Arc::new(ArcSwap::from_pointee(RouteTable::build(config))),
        tunnels: Arc::clone(&tunnels),
        apps: Arc::new(Apps::new(Arc::clone(metrics))),
        bounds: ArcSwap::from_pointee(Bounds {
            rules: Rules::from(&config.limits),
            trusted_proxies: Vec::new(),
            plain_tunnels: config.tunnel.plain,
            app_connect: config.limits.app_connect,
            app_idle: config.limits.app_keep_alive_idle,
        }),
        pressure: Arc::default(),
        loads: Arc::default(),
        sinks: Sinks::new(clock, Arc::clone(metrics), None),
        tasks: Tasks::new(),
        enroll: Arc::new(Enroll {
            certificates: std::sync::atomic::AtomicBool::new(false),
            tunnels,
            tokens: Arc::new(ArcSwap::from_pointee(Tokens::new(&config.agents))),
            terms: ArcSwap::from_pointee(TunnelTerms {
                told: Terms {
                    node: "gw-test".into(),
                    features: Vec::new(),
                    ping_after: settings.ping_after,
                    resume_window: Duration::ZERO,
                    limits: limits(&settings),
                    nodes: Vec::new(),
                },
                settings,
                pool: PoolLimits {
                    idle: Duration::from_secs(4),
                    per_app: 64,
                },
                handshake: Duration::from_secs(10),
                per_agent: 1000,
                grace: config.gateway.grace,
            }),
            clock,
            chance,
            metrics: Arc::clone(metrics),
            berths: Arc::default(),
            pressure: Arc::default(),
            on_offer: nobody_listens(),
            on_report: Box::new(|_, _| ()),
        }),
        shutdown: shutdown.signal(),
        lingering: Lingering::default(),
        ledger: Arc::new(Ledger::new(Arc::clone(metrics), [7; 32])),
    }
}

/// Id of the tunnel of the agent of this name.
pub(crate) fn tunnel_id(agent: &str) -> u128 {
    agent.bytes().fold(0, |id, byte| id << 8 | u128::from(byte))
}

/// One direction of a long road: every byte arrives `delay` after it left.
async fn carry(
    mut from: tokio::io::ReadHalf<DuplexStream>,
    mut to: tokio::io::WriteHalf<DuplexStream>,
    delay: Duration,
) {
    let (send, mut receive) = tokio::sync::mpsc::channel::<(Instant, Vec<u8>)>(1024);
    tokio::spawn(async move {
        while let Some((at, bytes)) = receive.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // A far end that is gone needs no goodbye.
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let piece = buffer[..count].to_vec();
        if send.send((Instant::now() + delay, piece)).await.is_err() {
            return;
        }
    }
}

fn limits(settings: &Settings) -> PeerLimits {
    PeerLimits {
        max_streams: settings.max_streams,
        initial_credit: settings.initial_window,
        linger: settings.linger,
    }
}

fn nobody_listens() -> Arc<OnOffer> {
    Arc::new(Box::new(|_, _, _| Ok(())))
}

fn offer() -> AppOffer {
    AppOffer {
        name: "demo".into(),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    }
}

fn info() -> ClientInfo {
    ClientInfo {
        peer: ([192, 0, 2, 7], 5000).into(),
        announced: false,
        local: ([127, 0, 0, 1], 80).into(),
        tls: false,
        sni: None,
        certified: false,
        allowance: None,
        connection: 1,
    }
}

/// The gateway's end of a client's connection: in memory, but it knows what a reset is.
struct Wire {
    io: DuplexStream,
    reset: Arc<AtomicBool>,
    trap: Arc<AtomicBool>,
}

impl Transport for Wire {
    fn is_reset(&self) -> bool {
        false
    }

    fn reset_on_close(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }
}

impl RawClient for Wire {
    async fn broken(&self) {
        std::future::pending().await
    }

    fn reset_on_close(&self) {
        Transport::reset_on_close(self);
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        assert!(!self.trap.swap(false, Ordering::Relaxed), "a trap");
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
