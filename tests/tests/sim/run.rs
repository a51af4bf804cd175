//! One schedule: the programs start, an exchange is measured under faults, the world settles, and the
//! oracle looks at what happened.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_gateway::config::Config;
use tokio::time::sleep;

use crate::app::Request;
use crate::client::{Client, Timed, Told, occupy, timed};
use crate::fault::Fault;
use crate::journal::{Class, Entry, Journal, Op, Plan};
use crate::net::{Net, World};
use crate::oracle::{self, Word};
use crate::programs::{Programs, config};
use crate::shape::{Front, Shape};

/// Time the programs have before the first client comes.
const WARM_UP: Duration = Duration::from_millis(400);
/// A kept connection is this old when it is used again.
const IDLE: Duration = Duration::from_millis(200);
/// Virtual time in which what a schedule set off shows itself: a tunnel is found dead, an agent is
/// back.
const SOON: Duration = Duration::from_secs(10);
/// A told `not_delivered` must still hold after so long.
const LATER: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// Longer than a tunnel waits for its next carrier and a retired one for its last exchange.
const SETTLED: Duration = Duration::from_secs(40);

/// An agent may freeze once more just before it goes on.
const TWICE: usize = 2;

/// What one schedule was like.
pub(crate) struct Outcome {
    pub(crate) entries: Vec<Entry>,
    /// Where the connection of the first exchange begins to wait for the measured one, if there is a
    /// first.
    pub(crate) idle: usize,
    /// Where the measured exchange begins.
    pub(crate) mark: usize,
    /// Where its client had its answer.
    pub(crate) end: usize,
    pub(crate) exchange: Timed,
    pub(crate) seen: Vec<Request>,
    pub(crate) hash: u64,
    pub(crate) struck: usize,
    pub(crate) plans: Vec<Plan>,
    pub(crate) left: Vec<String>,
    /// The gateway's own record: `outcome/delivery/code`.
    pub(crate) recorded: Vec<String>,
    /// What the ledger says of it, some time after the answer and when all has settled.
    pub(crate) words: [Option<Word>; 2],
}

impl Outcome {
    /// Nothing went wrong but carriers that broke and could be dialled again at once, and yet the
    /// request failed.
    pub(crate) fn is_failed_by_cuts(&self, shape: &Shape) -> bool {
        let breaks = |plan: &Plan| matches!(plan.fault, Fault::CarrierFin | Fault::CarrierRst);
        let told = &self.exchange.told;
        let served = shape.is_served(told);
        !self.plans.is_empty() && self.plans.iter().all(breaks) && !served
    }
}

/// What is the same in all schedules of a shape.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) shape: Shape,
    config: Arc<Config>,
}

impl Setting {
    pub(crate) fn of(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            config: Arc::new(config(shape)),
        }
    }

    /// Runs one schedule on a runtime of its own.
    pub(crate) fn run(&self, plans: &[Plan], seed: u64) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(self.schedule(plans, seed))
    }

    async fn schedule(&self, plans: &[Plan], seed: u64) -> Outcome {
        let net = Net::new(Journal::new(plans));
        let programs = Programs::start(net.clone(), self.shape, Arc::clone(&self.config), seed);
        sleep(WARM_UP).await;
        let mut client = self.client(&programs).await;
        let mut idle = None;
        if self.shape.reused {
            // Under a fault it may fail; the measured exchange then has a world as it is.
            client.warm().await;
            idle = Some(begins(&net));
            sleep(IDLE).await;
        }
        if self.shape.queued {
            tokio::spawn(occupy(programs.client()));
            sleep(IDLE).await;
        }
        let mark = begins(&net);
        let exchange = timed(client.measured(&self.shape)).await;
        let end = here(&net);
        sleep(SOON).await;
        let recorded = oracle::recorded(&programs);
        let told = &exchange.told;
        let nothing = told.refused || told.verdict.as_ref().is_some_and(|v| v.says_nothing());
        let nothing = nothing || recorded.iter().any(|line| line.contains("/not_delivered/"));
        if nothing || oracle::lingers(&programs) {
            sleep(LATER).await;
        }
        let id = number(told, &programs);
        let early = oracle::word(&programs, id.as_deref());
        drop(client);
        settle(&net, &programs).await;
        let seen = programs.seen.all().clone();
        let words = [early, oracle::word(&programs, id.as_deref())];
        let left = oracle::left(&programs).await;
        let (entries, hash, struck) = net.with(|world| {
            world.journal.seal();
            let journal = &mut world.journal;
            let hash = journal.hash();
            (std::mem::take(&mut journal.entries), hash, journal.struck())
        });
        Outcome {
            entries,
            idle: idle.unwrap_or(mark),
            mark,
            end,
            exchange,
            seen,
            hash,
            struck,
            plans: plans.to_vec(),
            left,
            recorded,
            words,
        }
    }

    async fn client(&self, programs: &Programs) -> Client {
        match (programs.client(), self.shape.front) {
            (None, _) => Client::Gone,
            (Some(io), Front::Http1) => Client::http1(io),
            (Some(io), Front::Tcp) => Client::Tcp(io),
            (Some(io), Front::Http2) => Client::http2(io).await,
        }
    }
}

/// The gateway's number of the measured request, as the client or the app was told it.
fn number(told: &Told, programs: &Programs) -> Option<String> {
    let seen = programs.seen.all();
    let of_app = seen.iter().find(|r| r.path == "/x");
    told.id.clone().or_else(|| of_app?.id.clone())
}

/// Waits for what may still be under way, also of a fault that strikes meanwhile; none does afterwards.
async fn settle(net: &Net, programs: &Programs) {
    let struck = || net.with(|world| world.journal.struck());
    loop {
        let before = struck();
        // A process that hangs is killed at last; whatever it held must then be given back.
        net.with(World::end_the_app);
        sleep(SECOND).await;
        for _ in 0..TWICE {
            if oracle::unsettled(programs) {
                sleep(SETTLED).await;
            }
        }
        if struck() == before {
            break;
        }
    }
    net.with(|world| world.journal.disarm());
}

/// Marks where something begins: what was said to the app before belongs to what is over.
fn begins(net: &Net) -> usize {
    net.with(World::mark_bytes);
    here(net)
}

/// Marks where the script stands; answers the number of the next entry.
fn here(net: &Net) -> usize {
    net.with(|world| {
        let entry = Entry {
            at: world.journal.now(),
            link: u16::MAX,
            class: Class::Client,
            side: 0,
            op: Op::Mark,
            note: crate::frames::Note::NONE,
            len: 0,
        };
        // No fault strikes at a mark; those that wait for it strike at the next entry.
        let at = world.journal.entries.len();
        world.journal.mark(entry);
        at
    })
}
