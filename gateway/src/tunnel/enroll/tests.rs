//! Agents at the door over pipes: who may continue a tunnel, and what becomes of it meanwhile.

#![allow(clippy::unwrap_used)]

mod bounds;

use std::future::poll_fn;

use bridgehead_protocol::handshake::{AppPattern, Client, ClientError, Introduction, Token};
use bridgehead_protocol::io::carrier::CarrierEnd;
use bridgehead_protocol::io::clock::Clock as Moments;
use bridgehead_protocol::wire::{AppHealth, AppKind, Open, PeerLimits, Welcome};
use tokio::io::duplex;
use tokio::task::JoinHandle;

use super::*;
use crate::config::AgentKey;
use crate::shutdown::Shutdown;
use crate::telemetry::labels::TunnelState;
use crate::tunnel::offered::TooManyApps;

const WINDOW: Duration = Duration::from_secs(20);
/// Apps named `shop-…` that one tunnel may bring here.
const MOST_SHOPS: usize = 3;
const GRACE: Duration = Duration::from_secs(300);

struct Door {
    enroll: Arc<Enroll>,
    shutdown: Shutdown,
}

fn token() -> Token {
    Token::generate("k1", &[7; 32]).unwrap()
}

fn limits(settings: &Settings) -> PeerLimits {
    PeerLimits {
        max_streams: settings.max_streams,
        initial_credit: settings.initial_window,
        linger: settings.linger,
    }
}

fn entry(id: &str, token: &Token) -> AgentEntry {
    AgentEntry {
        id: id.into(),
        keys: vec![AgentKey {
            id: token.key_id().into(),
            hash: token.hash(),
            expires: None,
        }],
        apps: vec![AppPattern::parse("*").unwrap()],
    }
}

fn settings() -> Settings {
    Settings {
        resume_window: WINDOW,
        ..Settings::default()
    }
}

fn door() -> Door {
    let other = Token::generate("k2", &[8; 32]).unwrap();
    let agents = [entry("edge-1", &token()), entry("edge-2", &other)];
    let enroll = Enroll {
        certificates: std::sync::atomic::AtomicBool::new(false),
        tunnels: Arc::default(),
        tokens: Arc::new(ArcSwap::from_pointee(Tokens::new(&agents))),
        terms: ArcSwap::from_pointee(TunnelTerms {
            told: Terms {
                node: "gw".into(),
                features: Vec::new(),
                ping_after: settings().ping_after,
                resume_window: WINDOW,
                limits: limits(&settings()),
                nodes: Vec::new(),
            },
            settings: settings(),
            pool: PoolLimits {
                idle: Duration::from_secs(4),
                per_app: 8,
            },
            handshake: Duration::from_secs(10),
            per_agent: 1000,
            grace: GRACE,
        }),
        clock: Clock::start(),
        chance: Arc::new(Chance::planted(1)),
        metrics: Metrics::new(),
        berths: Arc::default(),
        pressure: Arc::default(),
        on_offer: Arc::new(Box::new(|_, _, after| {
            let brought = after.iter().filter(|app| app.name.starts_with("shop-"));
            match brought.count() > MOST_SHOPS {
                true => Err(TooManyApps { most: MOST_SHOPS }),
                false => Ok(()),
            }
        })),
        on_report: Box::new(|_, _| ()),
    };
    Door {
        enroll: Arc::new(enroll),
        shutdown: Shutdown::new(),
    }
}

/// What an agent says; the fields that tests change.
#[derive(Clone)]
struct Says {
    token: Token,
    agent: &'static str,
    instance: u128,
    resume: Option<ResumeTicket>,
    apps: Vec<AppOffer>,
}

fn offer(name: &str) -> AppOffer {
    AppOffer {
        name: name.into(),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    }
}

/// So many apps of which there may be [`MOST_SHOPS`].
fn shops(count: usize) -> Vec<AppOffer> {
    (0..count).map(|n| offer(&format!("shop-{n}"))).collect()
}

fn says(resume: Option<ResumeTicket>) -> Says {
    Says {
        token: token(),
        agent: "a1",
        instance: 5,
        resume,
        apps: vec![offer("demo")],
    }
}

/// An agent's end after the handshake.
struct Agent {
    carrier: Carrier,
    leftover: BytesMut,
    welcome: Welcome,
    served: JoinHandle<()>,
}

impl Door {
    async fn knock(&self, says: Says) -> Result<Agent, Refuse> {
        let (near, far) = duplex(64 * 1024);
        let (enroll, signal) = (Arc::clone(&self.enroll), self.shutdown.signal());
        let served = tokio::spawn(async move {
            let peer = ([127, 0, 0, 1], 7000).into();
            let newcomer = Newcomer {
                carrier: Carrier::from(near),
                peer,
                token: None,
                place: None,
            };
            enroll.serve(newcomer, signal).await;
        });
        let client = Client::new(Introduction {
            agent: says.agent.into(),
            instance: says.instance,
            token: Some(says.token),
            features: Vec::new(),
            apps: says.apps,
            limits: limits(&settings()),
            resume: says.resume,
        });
        let (mut carrier, mut leftover) = (Carrier::from(far), BytesMut::new());
        let until = shake::deadline(shake::LONGEST);
        match shake::knock(&mut carrier, &mut leftover, client.unwrap(), until).await {
            Ok(welcome) => Ok(Agent {
                carrier,
                leftover,
                welcome,
                served,
            }),
            Err(ShakeError::Client(ClientError::Refused(refuse))) => Err(refuse),
            Err(error) => panic!("{error}"),
        }
    }

    /// A tunnel that stands, and the end of its carrier.
    async fn tunnel(&self) -> (Tunnel, ResumeTicket, CarrierEnd) {
        let mut agent = self.knock(says(None)).await.unwrap();
        let end = agent.carrier.watch();
        let (tunnel, driver) = Tunnel::new(
            Side::Agent,
            settings(),
            agent.welcome.limits,
            agent.carrier,
            agent.leftover,
            Moments::start(),
        );
        tokio::spawn(driver);
        (tunnel, agent.welcome.ticket, end)
    }

    fn only(&self) -> Arc<LiveTunnel> {
        let registry = self.enroll.tunnels.snapshot();
        let all: Vec<_> = registry
            .tunnels()
            .map(|(_, live)| Arc::clone(live))
            .collect();
        assert_eq!(all.len(), 1);
        Arc::clone(&all[0])
    }

    fn counted(&self, series: &str) -> u64 {
        let text = self.enroll.metrics.render().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }
}

fn next(ticket: &ResumeTicket, epoch: u32) -> Option<ResumeTicket> {
    Some(ResumeTicket {
        epoch,
        ..ticket.clone()
    })
}

fn open(app: &str) -> Open {
    Open {
        app: app.into(),
        kind: AppKind::Http1,
        remaining: WINDOW,
        credit: 0,
        client: None,
    }
}

async fn until_state(live: &LiveTunnel, state: TunnelState) {
    let reached = async {
        while live.state() != state {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reached)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_comes_back_before_its_loss_was_noticed_and_the_tunnel_goes_on() {
    let door = door();
    let (tunnel, ticket, mut end) = door.tunnel().await;
    let live = door.only();
    assert_eq!(live.state(), TunnelState::Live);
    // The gateway still believes in the first carrier.
    let agent = door.knock(says(next(&ticket, 2))).await.unwrap();
    assert_eq!(agent.welcome.ticket, next(&ticket, 2).unwrap());
    assert_eq!(live.state(), TunnelState::Suspended);
    end.ended().await;
    tunnel.resume(agent.carrier, agent.leftover);
    until_state(&live, TunnelState::Live).await;
    assert_eq!(door.only().number, live.number);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(live.resumes(), 1);
    assert_eq!(
        door.counted("bridgehead_resumes_total{result=\"resumed\"}"),
        1
    );
    assert_eq!(door.counted("bridgehead_carriers{kind=\"tcp\"}"), 1);
    assert!(
        !agent.served.is_finished(),
        "it stays as long as its carrier"
    );
    tunnel.close();
    agent.served.await.unwrap();
    assert_eq!(door.counted("bridgehead_carriers{kind=\"tcp\"}"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_a_wrong_secret_and_a_tunnel_that_never_was_get_the_same_answer() {
    let door = door();
    let (_tunnel, ticket, _end) = door.tunnel().await;
    let live = door.only();
    let mut wrong = ticket.clone();
    wrong.secret[0] ^= 1;
    let never = ResumeTicket {
        tunnel: ticket.tunnel ^ 1,
        ..ticket.clone()
    };
    let second = Token::generate("k2", &[8; 32]).unwrap();
    let strangers = [
        says(next(&never, 2)),
        says(next(&wrong, 2)),
        says(next(&wrong, 0)),
        Says {
            agent: "a2",
            ..says(next(&ticket, 2))
        },
        Says {
            instance: 6,
            ..says(next(&ticket, 2))
        },
        Says {
            token: second,
            ..says(next(&ticket, 2))
        },
    ];
    let mut answers = Vec::new();
    for stranger in strangers {
        answers.push(door.knock(stranger).await.err().unwrap());
    }
    assert!(
        answers.iter().all(|answer| *answer == gone()),
        "{answers:?}"
    );
    assert_eq!(
        live.state(),
        TunnelState::Live,
        "and nothing happened to it"
    );
    assert_eq!(door.counted("bridgehead_resumes_total{result=\"gone\"}"), 6);
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_was_overtaken_is_stale_and_harms_nothing() {
    let door = door();
    let (tunnel, ticket, _end) = door.tunnel().await;
    let agent = door.knock(says(next(&ticket, 4))).await.unwrap();
    tunnel.resume(agent.carrier, agent.leftover);
    until_state(&door.only(), TunnelState::Live).await;
    for epoch in [4, 3, 1] {
        let refuse = door.knock(says(next(&ticket, epoch))).await.err().unwrap();
        assert_eq!(refuse.code, RefuseCode::StaleEpoch);
    }
    assert_eq!(door.only().state(), TunnelState::Live);
    assert_eq!(
        door.counted("bridgehead_resumes_total{result=\"stale\"}"),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_welcome_that_never_arrived_costs_nothing() {
    let door = door();
    let (tunnel, ticket, _end) = door.tunnel().await;
    let lost = door.knock(says(next(&ticket, 2))).await.unwrap();
    drop(lost.carrier);
    lost.served.await.unwrap();
    let live = door.only();
    assert_eq!(live.state(), TunnelState::Suspended);
    let agent = door.knock(says(next(&ticket, 3))).await.unwrap();
    tunnel.resume(agent.carrier, agent.leftover);
    until_state(&live, TunnelState::Live).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_a_tunnel_keeps_its_place_and_gets_nothing_new() {
    let door = door();
    let (tunnel, ticket, _end) = door.tunnel().await;
    let (live, tunnels) = (door.only(), Arc::clone(&door.enroll.tunnels));
    assert!(tunnels.take("demo", &[]).is_some() && !tunnels.awaits("demo"));
    tunnel.suspend();
    until_state(&live, TunnelState::Suspended).await;
    assert!(tunnels.take("demo", &[]).is_none());
    assert!(tunnels.awaits("demo") && !tunnels.awaits("other"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(door.counted("bridgehead_tunnels{state=\"suspended\"}"), 1);
    assert_eq!(door.counted("bridgehead_carriers{kind=\"tcp\"}"), 0);
    // Another one of the same agent is taken instead.
    let second = door.knock(says(None)).await.unwrap();
    assert!(tunnels.take("demo", &[]).is_some());
    drop(second);
    tokio::time::sleep(WINDOW * 2).await;
    assert!(!tunnels.awaits("demo"));
    assert_eq!(
        door.counted("bridgehead_resumes_total{result=\"lapsed\"}"),
        2
    );
    let late = door.knock(says(next(&ticket, 2))).await.err().unwrap();
    assert_eq!(late, gone());
}

#[tokio::test(start_paused = true)]
async fn a_revoked_tunnel_ends_although_it_waits() {
    let door = door();
    let (tunnel, ticket, _end) = door.tunnel().await;
    tunnel.suspend();
    until_state(&door.only(), TunnelState::Suspended).await;
    assert_eq!(door.enroll.revoke("edge-1"), Some(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(door.enroll.tunnels.snapshot().tunnels().count(), 0);
    let refuse = door.knock(says(next(&ticket, 2))).await.err().unwrap();
    assert_eq!(refuse.code, RefuseCode::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_instance_may_go_on_with_what_drains_and_opens_nothing() {
    let door = door();
    let (tunnel, ticket, _end) = door.tunnel().await;
    let old = door.only();
    let stream = old.tunnel.open(open("demo")).unwrap();
    let app = tunnel.accept().await.unwrap();
    let newer = door
        .knock(Says {
            instance: 6,
            ..says(None)
        })
        .await
        .unwrap();
    tunnel.suspend();
    until_state(&old, TunnelState::Suspended).await;
    let agent = door.knock(says(next(&ticket, 2))).await.unwrap();
    tunnel.resume(agent.carrier, agent.leftover);
    until_state(&old, TunnelState::Draining).await;
    let taken = door.enroll.tunnels.take("demo", &[]).unwrap();
    assert_ne!(taken.tunnel.number, old.number);
    app.opened();
    poll_fn(|cx| stream.control().poll_opened(cx))
        .await
        .unwrap();
    assert!(!old.is_accepting());
    drop(newer);
}

/// The GOAWAY that an agent hears: why, and how long what runs may go on.
async fn sent_away(tunnel: &Tunnel) -> (GoAwayReason, Duration) {
    loop {
        if let Notice::GoAway { reason, deadline } = tunnel.notice().await.unwrap() {
            return (reason, deadline);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_told_the_grace_of_the_moment_in_which_the_drain_begins() {
    let door = door();
    let (tunnel, ..) = door.tunnel().await;
    let mut terms = TunnelTerms::clone(&door.enroll.terms.load());
    terms.grace = GRACE * 2;
    door.enroll.terms.store(Arc::new(terms));
    door.shutdown.drain();
    let told = sent_away(&tunnel).await;
    assert_eq!(told, (GoAwayReason::Draining, GRACE * 2));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_replaced_is_told_the_grace_too() {
    let door = door();
    let (tunnel, ..) = door.tunnel().await;
    let newer = Says {
        instance: 6,
        ..says(None)
    };
    let _newer = door.knock(newer).await.unwrap();
    let told = sent_away(&tunnel).await;
    assert_eq!(told, (GoAwayReason::Replaced, GRACE));
}
