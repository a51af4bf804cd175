//! Every event of a fault-free run × {before, after} × every fault, and sampled pairs of faults.
//!
//! Nothing of the single faults is sampled in a full run: new code adds its own events. Schedules are
//! independent, so they are spread over the machine's cores, each on a runtime of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bridgehead_protocol::planted::{Bug, plant};
use bridgehead_protocol::testing::dice::Dice;

use crate::fault::Fault;
use crate::journal::{Class, Op, Plan, When};
use crate::oracle;
use crate::run::Setting;
use crate::shape::{SHAPES, Script, Shape};

/// One schedule as it is written and replayed: `shape seed 57a:carrier_rst …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) shape: usize,
    pub(crate) seed: u64,
    pub(crate) plans: Vec<Plan>,
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", SHAPES[self.shape].name, self.seed)?;
        for plan in &self.plans {
            let when = match plan.when {
                When::Before => 'b',
                When::Amid => 'm',
                When::After => 'a',
            };
            write!(f, " {}{when}:{}", plan.at, plan.fault.word())?;
        }
        Ok(())
    }
}

impl Schedule {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let shape = SHAPES.iter().position(|shape| shape.name == name)?;
        let seed = words.next()?.parse().ok()?;
        let plans = words.map(|word| {
            let (point, fault) = word.split_once(':')?;
            let (at, when) = point.split_at_checked(point.len() - 1)?;
            let when = match when {
                "b" => When::Before,
                "m" => When::Amid,
                "a" => When::After,
                _ => return None,
            };
            Some(Plan {
                at: at.parse().ok()?,
                when,
                fault: Fault::parse(fault)?,
            })
        });
        let plans = plans.collect::<Option<Vec<Plan>>>()?;
        Some(Self { shape, seed, plans })
    }
}

/// A shape with its fault-free run.
pub(crate) struct Ground {
    setting: Setting,
    /// Numbers of the entries at which faults strike.
    points: Vec<usize>,
    /// Of them, those at which a carrier takes a frame.
    frames: Vec<usize>,
    hash: u64,
}

impl Ground {
    pub(crate) fn of(shape: &Shape) -> Self {
        let setting = Setting::of(shape);
        let calm = setting.run(&[], 1);
        // Two shapes show the whole way of an agent to its tunnel; in the others it is the same. A
        // connection that is kept is struck while it waits, too.
        let from = match shape.name {
            "post_one" | "h2_get" => 0,
            _ => calm.idle,
        };
        let points: Vec<usize> = (from..calm.end)
            .filter(|at| {
                let entry = &calm.entries[*at];
                entry.op != Op::Mark && !entry.note.is_pulse()
            })
            .collect();
        let is_frame = |at: &usize| {
            let entry = &calm.entries[*at];
            entry.op == Op::Wrote && entry.class == Class::Carrier
        };
        let frames = points.iter().copied().filter(is_frame).collect();
        Self {
            setting,
            points,
            frames,
            hash: calm.hash,
        }
    }

    pub(crate) fn all() -> Vec<Self> {
        SHAPES.iter().map(Self::of).collect()
    }
}

/// Every single fault of every shape.
pub(crate) fn singles(grounds: &[Ground]) -> Vec<Schedule> {
    let mut all = Vec::new();
    for (shape, ground) in grounds.iter().enumerate() {
        let sides = [When::Before, When::After];
        let around = ground
            .points
            .iter()
            .flat_map(|at| sides.map(|when| (*at, when)));
        let amid = ground.frames.iter().map(|at| (*at, When::Amid));
        for (at, when) in around.chain(amid) {
            let strikes = |fault: &&Fault| {
                let cuts = fault.cuts_the_carrier();
                fault.can_strike(&ground.setting.shape) && (when != When::Amid || cuts)
            };
            for fault in Fault::ALL.iter().copied().filter(|fault| strikes(&fault)) {
                all.push(Schedule {
                    shape,
                    seed: 1,
                    plans: vec![Plan { at, when, fault }],
                });
            }
        }
    }
    all
}

/// Pairs of faults, drawn by `seed`: the second strikes within some forty events of the first.
pub(crate) fn pairs(grounds: &[Ground], count: usize, seed: u64) -> Vec<Schedule> {
    let mut dice = Dice::new(seed);
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let shape = dice.index(grounds.len());
        let points = &grounds[shape].points;
        let first = points[dice.index(points.len())];
        let can = |fault: &&Fault| fault.can_strike(&grounds[shape].setting.shape);
        let faults: Vec<&Fault> = Fault::ALL.iter().filter(can).collect();
        let mut plan = |at| Plan {
            at,
            when: [When::Before, When::After][dice.index(2)],
            fault: *faults[dice.index(faults.len())],
        };
        let one = plan(first);
        let other = plan(0);
        let at = first + dice.index(40);
        all.push(Schedule {
            shape,
            seed: 1 + dice.below(4),
            plans: vec![one, Plan { at, ..other }],
        });
    }
    all
}

/// Of one fault in one shape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) schedules: usize,
    /// The world went another way than without a fault.
    pub(crate) effects: usize,
}

/// Of one fault in one shape: runs whose app saw nothing, and those of them told `unknown`.
#[derive(Clone, Copy, Debug, Default)]
struct Regret {
    unseen: usize,
    unknown: usize,
}

/// `part` of `whole` in percent; zero of nothing.
fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// What all schedules together showed.
#[derive(Default)]
pub(crate) struct Summary {
    pub(crate) schedules: usize,
    pub(crate) distinct: BTreeSet<u64>,
    pub(crate) lies: usize,
    pub(crate) avoidable: usize,
    pub(crate) queued: usize,
    pub(crate) cells: BTreeMap<(Fault, usize), Cell>,
    regrets: BTreeMap<(Fault, usize), Regret>,
    /// Told `unknown` because the tunnel was lost while its agent lived, and of these those of which
    /// the ledger knew better soon after.
    pub(crate) lost: usize,
    pub(crate) known: usize,
    /// Replay line and what fell.
    pub(crate) fallen: Vec<(String, Vec<String>)>,
}

/// Whose fault an `unknown` for an unseen request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    App,
    AgentAlive,
    /// The carrier is known to be gone, and no other comes in time or at all.
    Lost,
    /// The carrier falls silent and counts as standing: the windows of the simulated routes run out
    /// before a silent peer is dead (six seconds). With windows that outlast that, as those of the
    /// defaults do, the exchange goes on over the next carrier.
    Silent,
    /// The carrier breaks, and the next one stands before any window runs out.
    Resumed,
}

impl Blame {
    pub(crate) const ALL: [Self; 5] = [
        Self::App,
        Self::AgentAlive,
        Self::Lost,
        Self::Silent,
        Self::Resumed,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::AgentAlive => "agent",
            Self::Lost => "lost",
            Self::Silent => "silent",
            Self::Resumed => "resumed",
        }
    }
}

const fn blame(fault: Fault) -> Blame {
    match fault {
        Fault::AppKill
        | Fault::AppStops
        | Fault::AppHangs
        | Fault::AppPauses
        | Fault::AppBlurts
        | Fault::AppRefuses => Blame::App,
        Fault::AgentStops
        | Fault::LateToGateway
        | Fault::ClientCloses
        | Fault::ClientResets
        | Fault::QueueFull
        | Fault::SecondAgent
        | Fault::Takeover
        | Fault::GatewayDrain
        | Fault::GatewayEnds
        | Fault::AgentDrain => Blame::AgentAlive,
        Fault::CarrierFin | Fault::CarrierRst | Fault::CutBriefly => Blame::Resumed,
        Fault::CutForGood | Fault::AgentKill | Fault::GatewayKill | Fault::TokenRevoked => {
            Blame::Lost
        }
        Fault::HoleToAgent
        | Fault::HoleToGateway
        | Fault::HoleBoth
        | Fault::DelayToAgent
        | Fault::DelayToGateway
        | Fault::AgentSleeps
        | Fault::AgentFreezes => Blame::Silent,
    }
}

impl Summary {
    fn add(&mut self, grounds: &[Ground], schedule: &Schedule) {
        let ground = &grounds[schedule.shape];
        let outcome = ground.setting.run(&schedule.plans, schedule.seed);
        let findings = oracle::look(&ground.setting.shape, &outcome);
        self.schedules += 1;
        self.distinct
            .insert(outcome.hash ^ (schedule.shape as u64).rotate_right(8));
        self.lies += usize::from(findings.lie);
        self.avoidable += usize::from(findings.avoidable);
        self.queued += usize::from(findings.queued);
        self.lost += usize::from(findings.known.is_some());
        self.known += usize::from(findings.known == Some(true));
        let effect = outcome.struck > 0 && outcome.hash != ground.hash;
        for plan in &schedule.plans {
            let cell = self.cells.entry((plan.fault, schedule.shape)).or_default();
            cell.schedules += 1;
            cell.effects += usize::from(effect);
        }
        // A connection that takes longer than the window is refused just when the window ends, and a
        // body over its limit ends its request at once: a word that is late then could not be waited
        // for, and the share would say nothing of the fault.
        let shape = &ground.setting.shape;
        let ends_at_once = shape.script == Script::Slow || shape.limited;
        if let [plan] = schedule.plans[..]
            && !findings.saw
            && !ends_at_once
        {
            let key = (plan.fault, schedule.shape);
            let regret = self.regrets.entry(key).or_default();
            regret.unseen += 1;
            regret.unknown += usize::from(findings.regret);
        }
        let mut fallen = findings.fallen;
        if findings.queued {
            fallen.push("told unknown with nothing emitted".to_owned());
        }
        if findings.avoidable {
            fallen.push("avoidable: the proof came in time and was not waited for".to_owned());
        }
        if !fallen.is_empty() {
            self.fallen.push((schedule.to_string(), fallen));
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.distinct.extend(other.distinct);
        self.lies += other.lies;
        self.avoidable += other.avoidable;
        self.queued += other.queued;
        self.lost += other.lost;
        self.known += other.known;
        self.fallen.extend(other.fallen);
        for (key, cell) in other.cells {
            let sum = self.cells.entry(key).or_default();
            sum.schedules += cell.schedules;
            sum.effects += cell.effects;
        }
        for (key, regret) in other.regrets {
            let sum = self.regrets.entry(key).or_default();
            sum.unseen += regret.unseen;
            sum.unknown += regret.unknown;
        }
    }

    /// Share of `unknown` among runs whose app saw nothing, in percent.
    pub(crate) fn regret(&self, whose: Blame) -> f64 {
        let theirs = self
            .regrets
            .iter()
            .filter(|((fault, _), _)| blame(*fault) == whose);
        let (unseen, unknown) = theirs.fold((0, 0), |(unseen, unknown), (_, regret)| {
            (unseen + regret.unseen, unknown + regret.unknown)
        });
        share(unknown, unseen)
    }

    /// Share of those told `unknown` for a lost tunnel of which the ledger knew better soon after, in
    /// percent.
    pub(crate) fn resolved(&self) -> f64 {
        share(self.known, self.lost)
    }

    /// For people: per fault how often it struck to an effect, and the same for each shape; in brackets
    /// how many were told `unknown` of those whose app saw nothing.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for fault in Fault::ALL {
            let cells: Vec<(usize, Cell)> = self
                .cells
                .iter()
                .filter(|((f, _), _)| f == fault)
                .map(|((_, shape), cell)| (*shape, *cell))
                .collect();
            let schedules: usize = cells.iter().map(|(_, cell)| cell.schedules).sum();
            let effects: usize = cells.iter().map(|(_, cell)| cell.effects).sum();
            let regrets = cells.iter().map(|(shape, _)| {
                let regret = self.regrets.get(&(*fault, *shape));
                regret.copied().unwrap_or_default()
            });
            let regrets: Vec<Regret> = regrets.collect();
            let unseen: usize = regrets.iter().map(|regret| regret.unseen).sum();
            let unknown: usize = regrets.iter().map(|regret| regret.unknown).sum();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  {:18} schedules={schedules:6} effects={effects:6} unseen={unseen:5} unknown={unknown:5}",
                fault.word(),
            );
            let per_shape = cells.iter().zip(&regrets).map(|((shape, cell), regret)| {
                let name = SHAPES[*shape].name;
                match regret.unknown {
                    0 => format!("{name}={}", cell.effects),
                    unknown => format!("{name}={}({unknown}/{})", cell.effects, regret.unseen),
                }
            });
            let per_shape: Vec<String> = per_shape.collect();
            let _ = writeln!(text, "      {}", per_shape.join(" "));
        }
        text
    }

    /// Fault and shape pairs that never had an effect.
    pub(crate) fn idle(&self) -> Vec<String> {
        let idle = self.cells.iter().filter(|(_, cell)| cell.effects == 0);
        idle.map(|((fault, shape), _)| format!("{} in {}", fault.word(), SHAPES[*shape].name))
            .collect()
    }
}

/// What a hunt found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    /// Schedules it took, this one included.
    pub(crate) after: usize,
    pub(crate) schedule: String,
    pub(crate) fallen: Vec<String>,
}

/// Runs schedules in an order drawn by `seed`, on this thread with `bug` planted, until an invariant
/// falls that stands without the bug, at most `most` of them: three single faults, then a pair. The
/// grounds must have been made without.
pub(crate) fn hunt(grounds: &[Ground], bug: Bug, most: usize, seed: u64) -> Option<Caught> {
    let mut singles = singles(grounds);
    let mut pairs = pairs(grounds, most.div_ceil(4), seed);
    let mut dice = Dice::new(seed);
    let fallen = |schedule: &Schedule| {
        let setting = &grounds[schedule.shape].setting;
        let outcome = setting.run(&schedule.plans, schedule.seed);
        oracle::look(&setting.shape, &outcome).fallen
    };
    for after in 1..=most {
        let schedule = match after % 4 {
            0 => pairs.pop()?,
            _ => singles.swap_remove(dice.index(singles.len())),
        };
        let planted = plant(bug);
        let with = fallen(&schedule);
        drop(planted);
        if !with.is_empty() && fallen(&schedule).is_empty() {
            return Some(Caught {
                after,
                schedule: schedule.to_string(),
                fallen: with,
            });
        }
    }
    None
}

/// Runs all of them on all cores.
pub(crate) fn run(grounds: &[Ground], schedules: &[Schedule]) -> Summary {
    let next = AtomicUsize::new(0);
    let whole = Mutex::new(Summary::default());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut mine = Summary::default();
                while let Some(schedule) = schedules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mine.add(grounds, schedule);
                }
                let mut whole = whole.lock().expect("no worker panicked");
                whole.join(mine);
            });
        }
    });
    whole.into_inner().expect("no worker panicked")
}
