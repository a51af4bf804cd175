//! The programs: one gateway, its agents, the app behind them, each the real code on in-memory links,
//! and the director who carries out what faults ask of processes.

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_agent::app::Target;
use bridgehead_agent::app::connect::{AppSocket, ConnectError};
use bridgehead_agent::app::table::AppSpec;
use bridgehead_agent::carrier::address::{GatewayAddress, Plain};
use bridgehead_agent::carrier::dial::DialError;
use bridgehead_agent::config::{RunOptions, TokenSource};
use bridgehead_agent::control::{Handle, Stop, control};
use bridgehead_agent::outside::{Connect, Dial, Outside, Pace, Soon};
use bridgehead_agent::telemetry::Readiness;
use bridgehead_gateway::config::Config;
use bridgehead_gateway::request::front::ClientInfo;
use bridgehead_gateway::wiring::handed::Handed;
use bridgehead_protocol::handshake::Token;
use bridgehead_protocol::io::carrier::Carrier;
use bridgehead_protocol::wire::RefusedReason;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout_at};

use crate::app::{self, Seen};
use crate::fault::Order;
use crate::journal::Class;
use crate::net::{End, Net, Party};
use crate::shape::{Back, Front, MAX_BODY, SLOW, Script, Shape};

/// Windows of the simulated route, short so that a schedule has few virtual seconds.
const FIRST: Duration = Duration::from_secs(4);
pub(crate) const STALL: Duration = Duration::from_secs(3);
pub(crate) const HOLD: Duration = Duration::from_millis(2_500);

/// The first window of those who have more patience.
const PATIENT: Duration = Duration::from_secs(9);

/// How long the measured request waits for a sign of the app.
pub(crate) const fn first_window(shape: &Shape) -> Duration {
    match shape.patient {
        true => PATIENT,
        false => FIRST,
    }
}

/// Where everybody seems to be.
const NOWHERE: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    4000,
);

/// Name of the app.
const APP: &str = "demo";

fn token(agent: u8) -> Token {
    Token::generate(&format!("k{agent}"), &[agent; 32]).expect("a token")
}

/// The gateway's configuration for a shape.
pub(crate) fn config(shape: &Shape) -> Config {
    let protocol = match shape.back {
        Back::Http1 => "protocol = \"http1\"\n",
        Back::H2c => "protocol = \"h2c\"\n",
        Back::Tcp => "protocol = \"tcp\"\nport = 5000\n",
    };
    let queue = match shape.queued {
        true => "in_flight = 1\nqueue = 1\nqueue_wait = \"3s\"\n",
        false => "",
    };
    let max_body = match shape.limited {
        true => format!("max_body = \"{MAX_BODY}B\"\n"),
        false => String::new(),
    };
    let key = |agent: u8| token(agent).hash().to_config();
    let text = format!(
        "[gateway]\nhosts = [\"gw.example.com\"]\n[public]\ndomain = \"example.com\"\n\
         [tunnel]\nplain = true\n\
         [defaults]\nfirst_frame_window = \"{}ms\"\nstall_window = \"{}ms\"\n\
         streaming_stall_window = \"{}ms\"\nhold = \"{}ms\"\n\
         [[app]]\nname = \"demo\"\n{protocol}{queue}{max_body}\
         [[agent]]\nid = \"one\"\napps = [\"demo\"]\nkeys = [{{ id = \"k1\", hash = \"{}\" }}]\n\
         [[agent]]\nid = \"two\"\napps = [\"demo\"]\nkeys = [{{ id = \"k2\", hash = \"{}\" }}]\n",
        first_window(shape).as_millis(),
        STALL.as_millis(),
        STALL.as_millis(),
        HOLD.as_millis(),
        key(1),
        key(2),
    );
    Config::from_toml(&text, "sim.toml", Path::new("/")).expect("a configuration")
}

struct RunningAgent {
    party: Party,
    /// Whose token it has: 1 or 2.
    token: u8,
    task: JoinHandle<()>,
    control: Handle,
}

#[derive(Default)]
struct Running {
    gateway: Option<Arc<Handed>>,
    generation: u16,
    /// Connections of the gateway's.
    connections: Vec<AbortHandle>,
    agents: Vec<RunningAgent>,
    /// Starts of agents so far.
    starts: u16,
}

/// All programs.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) net: Net,
    pub(crate) seen: Seen,
    shape: Shape,
    config: Arc<Config>,
    seed: u64,
    running: Arc<Mutex<Running>>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Programs")
    }
}

impl Programs {
    pub(crate) fn start(net: Net, shape: Shape, config: Arc<Config>, seed: u64) -> Self {
        let programs = Self {
            net,
            seen: Seen::default(),
            shape,
            config,
            seed,
            running: Arc::default(),
        };
        programs.net.process(Party::App, Pace::free());
        programs.start_gateway();
        for agent in 1..=shape.agents {
            programs.start_agent(u8::try_from(agent).unwrap_or(1));
        }
        tokio::spawn(programs.clone().direct());
        programs
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gateway(&self) -> Option<Arc<Handed>> {
        self.lock().gateway.clone()
    }

    fn start_gateway(&self) {
        let mut running = self.lock();
        let seed = self.seed.wrapping_add(u64::from(running.generation) << 32);
        running.gateway = Some(Arc::new(Handed::repeatable(&self.config, seed)));
        self.net
            .process(Party::Gateway(running.generation), Pace::free());
    }

    fn start_agent(&self, whose: u8) {
        let mut running = self.lock();
        let party = Party::Agent(running.starts);
        running.starts += 1;
        let seed = self
            .seed
            .wrapping_mul(31)
            .wrapping_add(u64::from(running.starts));
        let address = GatewayAddress::parse("tcp://gw.example.com:7000", Plain::Anywhere)
            .expect("an address");
        let target = match self.shape.back {
            Back::Http1 => "http://127.0.0.1:3000",
            Back::H2c => "h2c://127.0.0.1:3000",
            Back::Tcp => "tcp://127.0.0.1:3000",
        };
        let target = Target::parse(target).expect("a target");
        let mut options = RunOptions::new(address, TokenSource::Given(token(whose)))
            .with_app(AppSpec::new(APP, target));
        options.agent = format!("agent-{whose}");
        options.tunnels = NonZeroU8::MIN;
        options.seed = seed;
        let pace = Pace::steerable();
        self.net.process(party, pace.clone());
        let ways = Arc::new(Ways {
            programs: self.clone(),
            party,
        });
        let outside = Outside {
            carriers: Arc::clone(&ways) as Arc<dyn Dial>,
            apps: Some(ways),
            pace: pace.clone(),
        };
        let (handle, obeys) = control();
        let run =
            bridgehead_agent::wiring::run_within(options, obeys, Readiness::default(), outside);
        let task = tokio::spawn(pace.keep(async move {
            run.await.expect("an agent ends in order");
        }));
        running.agents.push(RunningAgent {
            party,
            token: whose,
            task,
            control: handle,
        });
    }

    /// Something dials the gateway; `None` while there is none.
    fn connect(
        &self,
        class: Class,
        owners: impl FnOnce(Party) -> [Party; 2],
        serve: impl FnOnce(&Arc<Handed>, [End; 2]) -> (End, AbortHandle),
    ) -> Option<End> {
        let mut running = self.lock();
        let gateway = Arc::clone(running.gateway.as_ref()?);
        let party = Party::Gateway(running.generation);
        let ends = self.net.link(class, owners(party));
        let (end, task) = serve(&gateway, ends);
        running.connections.retain(|task| !task.is_finished());
        running.connections.push(task);
        Some(end)
    }

    /// A client's connection.
    pub(crate) fn client(&self) -> Option<End> {
        let front = self.shape.front;
        self.connect(
            Class::Client,
            |gateway| [Party::Client, gateway],
            |gateway, [near, far]| {
                let info = ClientInfo {
                    peer: NOWHERE,
                    announced: false,
                    local: NOWHERE,
                    tls: false,
                    sni: None,
                    certified: false,
                    allowance: None,
                    connection: 1,
                };
                let task = match front {
                    Front::Http1 | Front::Http2 => tokio::spawn(gateway.client(far, info)),
                    Front::Tcp => tokio::spawn(gateway.tcp(far, info, APP)),
                };
                (near, task.abort_handle())
            },
        )
    }

    fn carrier(&self, agent: Party) -> Option<End> {
        self.connect(
            Class::Carrier,
            |gateway| [gateway, agent],
            |gateway, [near, far]| {
                let served = gateway.carrier(Carrier::tcp(near), NOWHERE);
                (far, tokio::spawn(served).abort_handle())
            },
        )
    }

    /// Carries out what faults ask, for ever.
    async fn direct(self) {
        loop {
            let order = self.net.order().await;
            self.obey(order);
        }
    }

    fn obey(&self, order: Order) {
        match order {
            Order::Wake(link, pause) => self.later(pause, move |p| p.net.with(|w| w.wake(link))),
            Order::GoOn(party, pause) => self.later(pause, move |p| p.net.with(|w| w.go_on(party))),
            Order::Reachable(pause) => {
                self.later(pause, |p| p.net.with(|w| w.unreachable = false));
            }
            Order::AppBack(pause) => {
                self.later(pause, |p| p.net.with(|w| w.app_refuses = false));
            }
            Order::Bury(Party::Gateway(_), pause) => {
                let (gateway, connections) = {
                    let mut running = self.lock();
                    (
                        running.gateway.take(),
                        std::mem::take(&mut running.connections),
                    )
                };
                connections.iter().for_each(AbortHandle::abort);
                drop(gateway);
                self.later(pause, |p| {
                    p.lock().generation += 1;
                    p.start_gateway();
                });
            }
            Order::Bury(party, pause) => {
                let buried = {
                    let mut running = self.lock();
                    let found = running.agents.iter().position(|a| a.party == party);
                    found.map(|at| running.agents.remove(at))
                };
                if let Some(agent) = buried {
                    agent.task.abort();
                    let whose = agent.token;
                    self.later(pause, move |p| p.start_agent(whose));
                }
            }
            Order::Crowd => drop(tokio::spawn(crate::client::occupy(self.client()))),
            Order::Join => self.start_agent(2),
            Order::Takeover => self.start_agent(1),
            Order::DrainGateway => {
                if let Some(gateway) = self.gateway() {
                    gateway.drain();
                }
            }
            Order::EndGateway => {
                if let Some(gateway) = self.gateway() {
                    gateway.end();
                }
            }
            Order::DrainAgent => {
                let handle = self.lock().agents.first().map(|a| a.control.clone());
                if let Some(handle) = handle {
                    handle.stop(Stop::Drain);
                }
            }
            Order::Revoke => {
                if let Some(gateway) = self.gateway() {
                    gateway.shared().enroll.revoke("one");
                }
            }
        }
    }

    fn later(&self, pause: Duration, act: impl FnOnce(&Self) + Send + 'static) {
        let programs = self.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            act(&programs);
        });
    }
}

/// One agent's ways to the gateway and to the app.
#[derive(Debug)]
struct Ways {
    programs: Programs,
    party: Party,
}

impl Dial for Ways {
    fn dial<'a>(
        &'a self,
        gateway: &'a GatewayAddress,
        _: &'a Token,
        _: Instant,
    ) -> Soon<'a, Result<Carrier, DialError>> {
        let away = self.programs.net.with(|world| world.unreachable);
        let end = match away {
            true => None,
            false => self.programs.carrier(self.party),
        };
        Box::pin(async move {
            match end {
                Some(end) => Ok(Carrier::tcp(end)),
                None => Err(DialError::TimedOut(gateway.to_string())),
            }
        })
    }
}

impl Connect for Ways {
    fn connect<'a>(
        &'a self,
        _: &'a str,
        deadline: Instant,
    ) -> Soon<'a, Result<AppSocket, ConnectError>> {
        let net = &self.programs.net;
        if net.with(|world| world.app_refuses) {
            let refused = ConnectError {
                reason: RefusedReason::ConnectRefused,
                errno: 111,
                text: "refused".to_owned(),
            };
            return Box::pin(async move { Err(refused) });
        }
        let shape = self.programs.shape;
        if shape.script == Script::Slow {
            return Box::pin(async move {
                if timeout_at(deadline, sleep(SLOW)).await.is_err() {
                    return Err(ConnectError {
                        reason: RefusedReason::ConnectTimeout,
                        errno: 110,
                        text: "timed out".to_owned(),
                    });
                }
                Ok(self.take())
            });
        }
        let socket = self.take();
        Box::pin(async move { Ok(socket) })
    }
}

impl Ways {
    /// A connection to the app, which serves it.
    fn take(&self) -> AppSocket {
        let [near, far] = self.programs.net.link(Class::App, [self.party, Party::App]);
        tokio::spawn(app::serve(
            far,
            self.programs.shape,
            self.programs.seen.clone(),
        ));
        AppSocket::Given(Box::new(near))
    }
}
