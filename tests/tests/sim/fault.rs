//! The faults: what each does to the world, at once or by an order to the director.

use std::time::Duration;

use crate::journal::Class;
use crate::net::{Party, World};
use crate::shape::{Back, Script, Shape};

/// What a fault asks of who can end tasks and start programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Wake the ends of a link after a while.
    Wake(usize, Duration),
    /// A process goes on after a while.
    GoOn(Party, Duration),
    /// The tasks of a dead process are dropped; another starts after a while.
    Bury(Party, Duration),
    /// New carriers stand again after a while.
    Reachable(Duration),
    /// New connections to the app stand again after a while.
    AppBack(Duration),
    /// Another client's exchange arrives.
    Crowd,
    /// A second agent of the same app arrives.
    Join,
    /// A newer start of the same agent arrives.
    Takeover,
    DrainGateway,
    EndGateway,
    DrainAgent,
    Revoke,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {
        /// Everything that can go wrong at one point.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Fault { $($(#[$doc])* $name,)+ }

        impl Fault {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

faults! {
    /// Somebody between the ends closes the carrier in order.
    CarrierFin = "carrier_fin",
    /// The carrier is reset.
    CarrierRst = "carrier_rst",
    /// The carrier is reset and none stands again for a while.
    CutBriefly = "cut_briefly",
    /// The same for longer than a tunnel waits.
    CutForGood = "cut_for_good",
    /// Nothing reaches the agent any more, and nobody is told.
    HoleToAgent = "hole_to_agent",
    /// Nothing reaches the gateway any more.
    HoleToGateway = "hole_to_gateway",
    /// Nothing reaches anybody.
    HoleBoth = "hole_both",
    /// What goes to the agent comes past the window's end.
    DelayToAgent = "delay_to_agent",
    /// What goes to the gateway comes past the window's end.
    DelayToGateway = "delay_to_gateway",
    /// What goes to the gateway comes past the time that counts may take.
    LateToGateway = "late_to_gateway",
    /// SIGKILL; it is started again a second later.
    AgentKill = "agent_kill",
    /// SIGSTOP for longer than a late loop may be.
    AgentStops = "agent_stops",
    /// SIGSTOP until its tunnel is dead.
    AgentSleeps = "agent_sleeps",
    /// SIGSTOP until its tunnel has lapsed.
    AgentFreezes = "agent_freezes",
    /// SIGKILL; another gateway starts two seconds later.
    GatewayKill = "gateway_kill",
    /// All connections of the app are reset, new ones refused for a second.
    AppKill = "app_kill",
    /// All connections of the app end in order, new ones are refused for a second.
    AppStops = "app_stops",
    /// The app reads and writes nothing more; its kernel still does.
    AppHangs = "app_hangs",
    /// The same for two seconds.
    AppPauses = "app_pauses",
    /// New connections are refused from now on.
    AppRefuses = "app_refuses",
    /// The app says what nobody asked for, on connections that wait for an exchange.
    AppBlurts = "app_blurts",
    /// The client closes its connection.
    ClientCloses = "client_closes",
    /// The client's connection is reset.
    ClientResets = "client_resets",
    /// Another client's exchange takes what place there is in the queue.
    QueueFull = "queue_full",
    /// A second agent of the same app arrives.
    SecondAgent = "second_agent",
    /// A newer start of the same agent takes over.
    Takeover = "takeover",
    GatewayDrain = "gateway_drain",
    /// The grace of a gateway that drains is over.
    GatewayEnds = "gateway_ends",
    AgentDrain = "agent_drain",
    TokenRevoked = "token_revoked",
}

/// Past every window of the simulated routes, short of a dead tunnel's six seconds.
const DELAY: Duration = Duration::from_millis(5_500);
/// Past the half second that counts may take.
const LATE: Duration = Duration::from_millis(700);
/// A loop that was late.
const STOP: Duration = Duration::from_millis(1_500);
/// A loop whose peer thinks it dead.
const SLEEP: Duration = Duration::from_secs(9);
/// A loop whose gateway waits for it no longer, and whose clients were told everything.
const FREEZE: Duration = Duration::from_secs(40);
/// Shorter and longer than a tunnel waits for its next carrier.
const OUTAGE: Duration = Duration::from_secs(3);
const LONG_OUTAGE: Duration = Duration::from_secs(26);
/// A supervisor's pause.
const RESTART: Duration = Duration::from_secs(1);
const GATEWAY_RESTART: Duration = Duration::from_secs(2);
const APP_PAUSE: Duration = Duration::from_secs(2);

impl Fault {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.word() == word)
    }

    /// False where it could not change anything: a kept connection needs no new one, a route
    /// without a limit has no queue.
    pub(crate) fn can_strike(self, shape: &Shape) -> bool {
        match self {
            Self::AppRefuses => !shape.reused || shape.script == Script::Stale,
            Self::QueueFull => shape.queued,
            // Others use a connection as soon as it stands.
            Self::AppBlurts => {
                shape.back == Back::Http1 && (shape.reused || shape.method == "POST")
            }
            _ => true,
        }
    }

    /// Strikes; `link` is where the event was.
    pub(crate) fn strike(self, world: &mut World, link: usize) {
        let carrier = world.carrier(link);
        match self {
            Self::CarrierFin => carrier.into_iter().for_each(|c| world.sever(c)),
            Self::CarrierRst => carrier.into_iter().for_each(|c| world.reset(c)),
            Self::CutBriefly => cut(world, carrier, OUTAGE),
            Self::CutForGood => cut(world, carrier, LONG_OUTAGE),
            Self::HoleToAgent => carrier.into_iter().for_each(|c| world.swallow(c, 0)),
            Self::HoleToGateway => carrier.into_iter().for_each(|c| world.swallow(c, 1)),
            Self::HoleBoth => carrier.into_iter().for_each(|c| {
                world.swallow(c, 0);
                world.swallow(c, 1);
            }),
            Self::DelayToAgent => carrier.into_iter().for_each(|c| world.delay(c, 0, DELAY)),
            Self::DelayToGateway => carrier.into_iter().for_each(|c| world.delay(c, 1, DELAY)),
            Self::LateToGateway => carrier.into_iter().for_each(|c| world.delay(c, 1, LATE)),
            Self::AgentKill => kill(world, world.newest_agent(), RESTART),
            Self::AgentStops => hold(world, STOP),
            Self::AgentSleeps => hold(world, SLEEP),
            Self::AgentFreezes => hold(world, FREEZE),
            Self::GatewayKill => kill(world, world.gateway(), GATEWAY_RESTART),
            Self::AppKill => {
                for link in world.standing(Class::App) {
                    world.reset(link);
                }
                refuse_for_now(world);
            }
            Self::AppStops => {
                for link in world.standing(Class::App) {
                    world.close(link, 1);
                }
                refuse_for_now(world);
            }
            Self::AppHangs => world.hold(Party::App),
            Self::AppPauses => {
                world.hold(Party::App);
                world.order(Order::GoOn(Party::App, APP_PAUSE));
            }
            Self::AppRefuses => world.app_refuses = true,
            Self::AppBlurts => world.blurt(link),
            Self::ClientCloses => {
                for link in world.standing(Class::Client) {
                    world.close(link, 0);
                }
            }
            Self::ClientResets => {
                for link in world.standing(Class::Client) {
                    world.reset(link);
                }
            }
            Self::QueueFull => world.order(Order::Crowd),
            Self::SecondAgent => world.order(Order::Join),
            Self::Takeover => world.order(Order::Takeover),
            Self::GatewayDrain => world.order(Order::DrainGateway),
            Self::GatewayEnds => world.order(Order::EndGateway),
            Self::AgentDrain => world.order(Order::DrainAgent),
            Self::TokenRevoked => world.order(Order::Revoke),
        }
    }

    /// A tunnel may wait for its next carrier, and its exchanges with it.
    pub(crate) fn cuts_the_carrier(self) -> bool {
        matches!(
            self,
            Self::CarrierFin
                | Self::CarrierRst
                | Self::CutBriefly
                | Self::CutForGood
                | Self::HoleToAgent
                | Self::HoleToGateway
                | Self::HoleBoth
                | Self::DelayToAgent
                | Self::DelayToGateway
                | Self::AgentKill
                | Self::AgentSleeps
                | Self::AgentFreezes
        )
    }

    /// What waits in the gateway's queue for the carrier dies with it.
    pub(crate) fn loses_the_carrier(self) -> bool {
        self.cuts_the_carrier() || self == Self::TokenRevoked
    }

    /// The client may end without an answer.
    pub(crate) fn takes_the_client(self) -> bool {
        matches!(
            self,
            Self::ClientCloses | Self::ClientResets | Self::GatewayKill
        )
    }
}

fn cut(world: &mut World, carrier: Option<usize>, outage: Duration) {
    if let Some(carrier) = carrier {
        world.reset(carrier);
        world.unreachable = true;
        world.order(Order::Reachable(outage));
    }
}

fn kill(world: &mut World, whom: Option<Party>, pause: Duration) {
    if let Some(party) = whom {
        world.kill(party);
        world.order(Order::Bury(party, pause));
    }
}

fn hold(world: &mut World, time: Duration) {
    if let Some(agent) = world.newest_agent() {
        world.hold(agent);
        world.order(Order::GoOn(agent, time));
    }
}

fn refuse_for_now(world: &mut World) {
    world.app_refuses = true;
    world.order(Order::AppBack(RESTART));
}
