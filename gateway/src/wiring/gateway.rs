//! A running gateway: what all workers share, the workers, admin, and the way to the end.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bridgehead_protocol::wire::AppOffer;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::WiringError;
use super::bound::{Bound, Door, Duty};
use super::end::Signals;
use super::knobs::{self, Knobs};
use super::memory;
use super::names::Names;
use super::reload::Reloader;
use super::state::State;
use super::tunnels::{TcpApp, TunnelFront};
use super::workers::{self, Fronts, Gates, Workers};
use crate::accept::http::HttpFront;
use crate::accept::tcp::TcpFront;
use crate::admin::{self, Access, Admin};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::{AppName, Config, Demand};
use crate::ledger::Ledger;
use crate::request::apps::Apps;
use crate::request::linger::Lingering;
use crate::request::{Exchanges, Shared};
use crate::route::RouteTable;
use crate::shutdown::{Shutdown, Signal};
use crate::task::Tasks;
use crate::telemetry;
use crate::telemetry::access::Sinks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{AccessLog, Format};
use crate::tunnel::enroll::Enroll;
use crate::tunnel::live::Tunnels;
use crate::tunnel::offered::OnOffer;
use crate::tunnel::token::Tokens;

/// How long clients may be told that the grace is over: the counts of their exchanges take up to half a
/// second, an agent's report as long again, and an answer has to reach its client.
const TELL_WITHIN: Duration = Duration::from_millis(1500);
/// How long the last log lines may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Where access lines go.
pub(super) enum AccessTo {
    /// The output stream, after the `ready` line.
    Stdout(Format),
    /// The error stream, beside the log.
    Stderr(Format),
}

/// Where a gateway listens.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) public: Vec<(SocketAddr, &'static str)>,
    pub(super) tunnel: Vec<SocketAddr>,
    pub(super) tunnel_scheme: &'static str,
    pub(super) admin: SocketAddr,
}

impl Addresses {
    /// First public URL.
    pub(super) fn public_url(&self) -> String {
        self.public
            .first()
            .map_or_else(String::new, |(address, scheme)| {
                format!("{scheme}://{address}")
            })
    }

    /// First tunnel URL.
    pub(super) fn tunnel_url(&self) -> String {
        self.tunnel.first().map_or_else(String::new, |address| {
            format!("{}://{address}", self.tunnel_scheme)
        })
    }

    /// `public=… admin=… tunnel=…`, the TLS address beside a plain one, and the app in `dev`.
    pub(super) fn line(&self, app: Option<&AppName>) -> String {
        let mut line = format!("public={}", self.public_url());
        let mut others = self.public.iter().skip(1);
        if let Some((address, scheme)) = others.find(|(_, scheme)| *scheme == "https") {
            let _ = write!(line, " https={scheme}://{address}");
        }
        let _ = write!(line, " admin=http://{} tunnel=", self.admin);
        line.push_str(
            &self
                .tunnel
                .first()
                .map_or_else(String::new, ToString::to_string),
        );
        if let Some(app) = app {
            // Writing into a String cannot fail.
            let _ = write!(line, " app={}", app.as_str());
        }
        line
    }
}

/// A gateway whose workers run.
pub(super) struct Gateway {
    shared: Arc<Shared>,
    public: Arc<Shutdown>,
    tunnels: Shutdown,
    admin_end: oneshot::Sender<()>,
    admin: JoinHandle<()>,
    workers: Workers,
    addresses: Addresses,
    reloader: Arc<Reloader>,
}

impl Gateway {
    /// Starts everything.
    /// `file`: where its configuration came from, for reloads.
    pub(super) fn start(
        bound: Bound,
        access: AccessTo,
        file: Option<PathBuf>,
    ) -> Result<Self, WiringError> {
        let Bound {
            config,
            workers: count,
            doors,
            admin: admin_socket,
            certs,
        } = bound;
        let (public, tunnels) = (Arc::new(Shutdown::new()), Shutdown::new());
        let ground = Ground::system();
        let log = access_log(access, &ground)?;
        let (shared, names) = share(&config, &public, ground, Some(log));
        let addresses = addresses(&config, &doors, &admin_socket)?;
        let knobs = Knobs::new(&config, &shared);
        knobs.tell_budget(&shared);
        let budget = Arc::clone(&knobs.budget);
        let watch = memory::watch(Arc::clone(&shared), budget, telemetry::memory::resident);
        // It ends with the runtime, which outlives every exchange.
        tokio::spawn(watch);
        let admin_access = Arc::new(ArcSwap::from_pointee(Access::configured(&config)));
        let reloader = Arc::new(Reloader::new(
            file,
            Arc::clone(&shared),
            names,
            knobs.clone(),
            certs,
            Arc::clone(&admin_access),
            config.clone(),
        ));
        let since = SystemTime::now();
        shared.sinks.metrics().process().started(since);
        reloader.look_ahead();
        let state = State {
            shared: Arc::clone(&shared),
            shutdown: Arc::clone(&public),
            since,
            workers: count,
            public: addresses
                .public
                .iter()
                .map(|(address, _)| *address)
                .collect(),
            tunnel: addresses.tunnel.clone(),
            budget: Arc::clone(&knobs.budget),
            reloader: Arc::clone(&reloader),
        };
        let (admin_end, ended) = oneshot::channel();
        let sinks = Arc::clone(&shared.sinks);
        let admin = Admin::new(Arc::new(state), sinks, admin_access);
        let admin = serve_admin(admin, admin_socket, ended)?;
        let workers = workers::start(count, doors, &fronts(&knobs, &shared, &public, &tunnels))?;
        Ok(Self {
            shared,
            public,
            tunnels,
            admin_end,
            admin,
            workers,
            addresses,
            reloader,
        })
    }

    /// Reads its configuration again.
    pub(super) fn reloader(&self) -> Arc<Reloader> {
        Arc::clone(&self.reloader)
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Tells when the drain begins.
    pub(super) fn signal(&self) -> Signal {
        self.public.signal()
    }

    /// Serves until the first request to end, and a little longer if whoever sends it clients has to
    /// notice first; then drains: agents are told to dial elsewhere, clients are served to the end of
    /// their connections through the old tunnels, then the tunnels close. The grace, or a second
    /// request, cuts that short: what runs is given up, its clients are told, and what they do not take
    /// in time, or by one more request, is dropped.
    pub(super) async fn run(self, mut end: Signals) -> Result<(), WiringError> {
        let mut left = self.public.signal();
        tokio::select! {
            biased;
            () = end.next() => {}
            () = left.leaving() => {}
        }
        self.public.leave();
        tokio::select! {
            biased;
            () = end.next() => tracing::warn!("forced to end"),
            () = self.drain() => {}
        }
        // Nobody is let in by a gateway that was forced before its drain began.
        self.public.drain();
        self.shared.end();
        tokio::select! {
            biased;
            () = end.next() => {}
            () = self.workers.public_idle() => {}
            () = tokio::time::sleep(TELL_WITHIN) => {}
        }
        self.end().await
    }

    /// From the moment in which it is no longer ready until nobody is served, or for as long as that
    /// may take.
    async fn drain(&self) {
        let delay = self.reloader.drain_delay();
        if !delay.is_zero() {
            tracing::info!(seconds = delay.as_secs_f64(), "not ready, still accepting");
            tokio::time::sleep(delay).await;
        }
        let grace = self.reloader.grace();
        tracing::info!(seconds = grace.as_secs_f64(), "draining");
        self.public.drain();
        self.tunnels.drain();
        tokio::select! {
            biased;
            () = self.workers.public_idle() => {}
            () = tokio::time::sleep(grace) => tracing::warn!("the grace is over"),
        }
    }

    /// Cuts what is left.
    async fn end(self) -> Result<(), WiringError> {
        self.public.force();
        self.tunnels.force();
        self.workers.join().await;
        // The receiver is gone only if admin has ended already.
        let _ = self.admin_end.send(());
        let _ = self.admin.await;
        let sinks = Arc::clone(&self.shared.sinks);
        let flushed = tokio::task::spawn_blocking(move || sinks.flush(FLUSH_WITHIN)).await;
        if !flushed.unwrap_or(false) {
            tracing::warn!("some access lines were not written");
        }
        tracing::info!("ended");
        Ok(())
    }
}

/// What a gateway takes from the world around it beside connections.
pub(super) struct Ground {
    pub(super) clock: Clock,
    pub(super) chance: Arc<Chance>,
    pub(super) metrics: Arc<Metrics>,
}

impl Ground {
    fn system() -> Self {
        Self {
            clock: Clock::start(),
            chance: Arc::new(Chance::system()),
            metrics: Metrics::new(),
        }
    }
}

fn access_log(access: AccessTo, ground: &Ground) -> Result<AccessLog, WiringError> {
    let (clock, metrics) = (ground.clock, Arc::clone(&ground.metrics));
    let log = match access {
        AccessTo::Stdout(format) => AccessLog::start(format, std::io::stdout(), clock, metrics),
        AccessTo::Stderr(format) => AccessLog::start(format, std::io::stderr(), clock, metrics),
    };
    log.map_err(|error| WiringError::System {
        what: "cannot start the access log",
        error,
    })
}

/// What all exchanges and tunnels of a gateway share, and the names that agents bring.
pub(super) fn share(
    config: &Config,
    public: &Shutdown,
    ground: Ground,
    log: Option<AccessLog>,
) -> (Arc<Shared>, Arc<Names>) {
    let routes = Arc::new(ArcSwap::from_pointee(RouteTable::build(config)));
    let apps = Arc::new(Apps::new(Arc::clone(&ground.metrics)));
    let names = Arc::new(Names::new(config, &routes, &apps));
    let pressure = Arc::default();
    let tunnels = Arc::new(Tunnels::default());
    let secret = ground.chance.bytes();
    let ledger = Arc::new(Ledger::new(Arc::clone(&ground.metrics), secret));
    let enroll = Arc::new(Enroll {
        pressure: Arc::clone(&pressure),
        on_offer: Arc::new(learn_names(&names)),
        on_report: learn_outcomes(&ledger, ground.clock),
        ..enroll(config, &ground, &tunnels)
    });
    let Ground {
        clock,
        chance,
        metrics,
    } = ground;
    let shared = Shared {
        clock,
        chance,
        started: clock.now(),
        node: config.gateway.node.clone(),
        routes,
        tunnels,
        apps,
        bounds: ArcSwap::from_pointee(knobs::bounds(config)),
        sinks: Sinks::new(clock, metrics, log),
        tasks: Tasks::new(),
        enroll,
        shutdown: public.signal(),
        pressure,
        loads: Arc::default(),
        lingering: Lingering::default(),
        ledger,
    };
    (Arc::new(shared), names)
}

/// Enrolment that tells nobody yet.
fn enroll(config: &Config, ground: &Ground, tunnels: &Arc<Tunnels>) -> Enroll {
    let required =
        (config.tunnel.agent_ca.as_ref()).is_some_and(|ca| ca.demand == Demand::Required);
    Enroll {
        tunnels: Arc::clone(tunnels),
        tokens: Arc::new(ArcSwap::from_pointee(Tokens::new(&config.agents))),
        terms: ArcSwap::from_pointee(knobs::tunnel_terms(config)),
        certificates: AtomicBool::new(required),
        clock: ground.clock,
        chance: Arc::clone(&ground.chance),
        metrics: Arc::clone(&ground.metrics),
        berths: Arc::default(),
        pressure: Arc::default(),
        on_offer: Arc::new(Box::new(|_, _, _| Ok(()))),
        on_report: Box::new(|_, _| ()),
    }
}

/// What agents tell of tunnels that were lost.
fn learn_outcomes(ledger: &Arc<Ledger>, clock: Clock) -> crate::tunnel::enroll::OnReport {
    let ledger = Arc::clone(ledger);
    Box::new(move |identity, entries| ledger.report(clock.now(), identity, &entries))
}

/// Apps that an agent offers inside its token's patterns get a route of their own.
fn learn_names(names: &Arc<Names>) -> OnOffer {
    let names = Arc::clone(names);
    Box::new(
        move |subject: &str, before: &[AppOffer], after: &[AppOffer]| {
            names.offered(subject, before, after)
        },
    )
}

pub(super) fn fronts(
    knobs: &Knobs,
    shared: &Arc<Shared>,
    public: &Shutdown,
    tunnels: &Shutdown,
) -> Fronts {
    let exchanges = Exchanges::new(Arc::clone(shared));
    Fronts {
        http: HttpFront {
            corridor: exchanges.clone(),
            limits: Arc::clone(&knobs.limits),
            opening: Arc::clone(&knobs.opening),
            tls: None,
            signal: public.signal(),
        },
        tunnel: TunnelFront {
            enroll: Arc::clone(&shared.enroll),
            opening: Arc::clone(&knobs.opening),
            tls: None,
            signal: tunnels.signal(),
        },
        tcp: TcpFront {
            corridor: TcpApp {
                exchanges,
                app: None,
            },
            opening: Arc::clone(&knobs.opening),
        },
        gates: Gates {
            public: Arc::clone(&knobs.gate),
            tunnel: Arc::clone(&knobs.tunnel_gate),
        },
        public: public.signal(),
        tunnels: tunnels.signal(),
        tasks: shared.tasks.clone(),
    }
}

fn addresses(
    config: &Config,
    doors: &[Door],
    admin: &std::net::TcpListener,
) -> Result<Addresses, WiringError> {
    let admin = admin.local_addr().map_err(|error| WiringError::System {
        what: "admin listener",
        error,
    })?;
    let public = doors.iter().filter_map(|door| match &door.duty {
        Duty::Http(None) => Some((door.address, "http")),
        Duty::Http(Some(_)) => Some((door.address, "https")),
        Duty::Tunnel(_) | Duty::Tcp(_) => None,
    });
    let tunnel = doors
        .iter()
        .filter(|door| matches!(door.duty, Duty::Tunnel(_)));
    Ok(Addresses {
        public: public.collect(),
        tunnel: tunnel.map(|door| door.address).collect(),
        tunnel_scheme: if config.tunnel.plain { "tcp" } else { "tls" },
        admin,
    })
}

fn serve_admin(
    admin: Admin,
    socket: std::net::TcpListener,
    ended: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>, WiringError> {
    let listener =
        tokio::net::TcpListener::from_std(socket).map_err(|error| WiringError::System {
            what: "admin listener",
            error,
        })?;
    Ok(tokio::spawn(async move {
        let ended = async {
            // A dropped sender ends it too.
            let _ = ended.await;
        };
        admin::serve(listener, admin, ended).await;
    }))
}
