//! What the modules share: a gateway and an agent with a chaos carrier between them, an oracle behind
//! them, bursts of requests, and one account of everything told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridgehead_tests::chaos::{Carrier, Script, carrier, parse};
use bridgehead_tests::load::{
    Counts, Kind, Mix, Plan, Report, Settings, Target, ask_once, plan, run, settle,
};
use bridgehead_tests::load::{Finished, Told};
use bridgehead_tests::oracle::Oracle;
use bridgehead_tests::oracle::content::Action;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Agent, Setup, World, setup};

/// The machine. Trials share it; a drill, whose rate has to be carried, has it for itself. Taken once by a
/// test, never by what the test starts.
pub(crate) static MACHINE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// More of everything with `BH_DEEP=1`.
pub(crate) fn deep(short: u64, long: u64) -> u64 {
    if std::env::var("BH_DEEP").is_ok_and(|v| v == "1") {
        long
    } else {
        short
    }
}

/// A number from 0 that depends on `seed` alone.
pub(crate) fn draw(seed: u64, below: u64) -> u64 {
    let n = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 33) % below
}

/// What is down for a moment is waited for, and so many may wait that no limit of an app decides a drill.
pub(crate) fn patient() -> Setup {
    setup().defaults(
        "hold = \"5s\"\nfirst_frame_window = \"20s\"\nstall_window = \"15s\"\nin_flight = 5000\nqueue = 5000",
    )
}

/// Whether a tunnel outlives its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnels {
    /// It is resumed: what follows fails nothing.
    Resume,
    /// It is lost with its connection: much fails, and every verdict has to be true.
    Die,
}

impl Tunnels {
    pub(crate) fn setup(self) -> Setup {
        match self {
            Self::Resume => patient(),
            Self::Die => patient().section("tunnel", "resume_window = \"0s\""),
        }
    }

    /// Fails on a failure that a resumed tunnel would have spared its client.
    pub(crate) fn check(self, what: &str, report: &Report) {
        if self == Self::Resume {
            assert_eq!(
                report.unasked(),
                0,
                "{what}: a tunnel outlives it\n{}",
                report.render()
            );
        }
    }
}

/// A gateway, a carrier, an agent, an oracle.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) carrier: Carrier,
    pub(crate) oracle: Oracle,
    pub(crate) agent: Agent,
    next_id: AtomicU64,
}

impl Stage {
    pub(crate) async fn start(setup: Setup) -> Self {
        let any = "127.0.0.1:0".parse().expect("an address");
        let run = std::process::id().wrapping_mul(31);
        let oracle = Oracle::start(any, run)
            .await
            .expect("a loopback port is free");
        let world = setup.start().await;
        let made = carrier::Setup {
            listen: any,
            to: world.places.tunnel.to_string(),
            script: Script::default(),
            seed: 1,
            tls: None,
        };
        let carrier = Carrier::start(made).await.expect("a loopback port is free");
        let agent = join(&world, &carrier, &oracle).await;
        Self {
            world,
            carrier,
            oracle,
            agent,
            next_id: AtomicU64::new(plan::FIRST_ID),
        }
    }

    /// Puts a script in force.
    pub(crate) fn script(&self, text: &str) {
        self.carrier
            .load(parse(text).unwrap_or_else(|error| panic!("{text}: {error}")));
    }

    /// Kills the agent and starts another.
    pub(crate) async fn replace_agent(&mut self) {
        self.agent.process.kill();
        self.agent = join(&self.world, &self.carrier, &self.oracle).await;
    }

    /// Clients of this stage.
    pub(crate) fn settings(&self) -> Settings {
        let target = Target::plain(self.world.places.public, &self.world.host("demo"));
        Settings {
            admin: Some(self.world.places.admin),
            patience: Duration::from_secs(40),
            ..Settings::new(target)
        }
    }

    /// A plan with ids of its own.
    pub(crate) fn plan(&self, seed: u64, rate: f64, duration: Duration) -> Plan {
        let first_id = self.next_id.fetch_add(1_000_000, Ordering::Relaxed);
        Plan {
            rate,
            duration,
            seed,
            first_id,
            upload: 100_000,
            download: 100_000,
            events: (5, Duration::from_millis(20)),
            messages: (5, Duration::from_millis(20)),
            mix: Mix::parse("get=40,post=30,upload=10,download=10,sse=5,ws=5").expect("a mix"),
            ..Plan::default()
        }
    }

    /// Runs a plan to its last answer.
    pub(crate) async fn run(&self, plan: &Plan) -> Finished {
        run(
            plan,
            &self.settings(),
            self.oracle.book(),
            &Arc::new(Counts::default()),
        )
        .await
    }

    /// Waits until the app answers through the tunnel.
    pub(crate) async fn until_answered(&self) {
        let settings = Settings {
            patience: Duration::from_secs(8),
            ..self.settings()
        };
        wait::until(wait::SOON * 2, "an answer through the tunnel", || async {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 500_000;
            let probe = plan::Arrival {
                at: Duration::ZERO,
                id,
                kind: Kind::Get,
                action: Action::Get,
                body: 0,
                fresh: true,
            };
            let told = ask_once(&settings, self.oracle.book(), &probe).await;
            (told == Told::Right).then_some(())
        })
        .await;
    }

    /// Judges once more and adds to the account.
    pub(crate) fn settle(&self, mut finished: Finished) -> Report {
        settle(&mut finished, self.oracle.book());
        finished.report
    }
}

async fn join(world: &World, carrier: &Carrier, oracle: &Oracle) -> Agent {
    let mut command = std::process::Command::new(bridgehead_tests::binaries::agent());
    let token = world.folder.write("chaos.token", &world.token("a1").secret);
    let gateway = format!("tcp://{}", carrier.addr());
    let app = format!("demo=http://{}", oracle.addr());
    command.args([
        "run",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        &app,
        "--token-file",
    ]);
    command.arg(token);
    // A tunnel of the one before may still be counted, so the agent's own word is what is waited for.
    let process = bridgehead_tests::process::Process::start("bh-agent", command);
    // The carrier runs on these same threads, so the thread that waits is given up.
    tokio::task::block_in_place(|| {
        process.line("that its tunnel is up", |line| {
            line.contains("tunnel is up")
        })
    });
    Agent { process }
}

/// Everything told in a test, added up.
#[derive(Default)]
pub(crate) struct Account {
    trials: u64,
    asked: u64,
    right: u64,
    told: BTreeMap<&'static str, u64>,
    verdicts: BTreeMap<String, u64>,
    lies: Vec<String>,
}

impl Account {
    /// Adds a report that belongs to this many trials.
    pub(crate) fn add(&mut self, trials: u64, report: &Report) {
        self.trials += trials;
        self.asked += report.asked;
        self.right += report.right;
        for (word, count) in &report.told {
            *self.told.entry(word).or_default() += count;
        }
        for (words, count) in &report.verdicts {
            let name = format!("{} {}", words.delivery, words.reason);
            *self.verdicts.entry(name).or_default() += count;
        }
        self.lies
            .extend(report.lies_shown.iter().map(ToString::to_string));
    }

    /// Adds another account.
    pub(crate) fn merge(&mut self, other: Self) {
        self.trials += other.trials;
        self.asked += other.asked;
        self.right += other.right;
        for (word, count) in other.told {
            *self.told.entry(word).or_default() += count;
        }
        for (word, count) in other.verdicts {
            *self.verdicts.entry(word).or_default() += count;
        }
        self.lies.extend(other.lies);
    }

    /// Requests told so.
    pub(crate) fn count(&self, word: &str) -> u64 {
        self.told.get(word).copied().unwrap_or(0)
    }

    /// Prints the account; fails on a lie.
    pub(crate) fn close(&self, what: &str) {
        static TRIALS: AtomicU64 = AtomicU64::new(0);
        static SUMMARY: Mutex<()> = Mutex::new(());
        let line = SUMMARY.lock().unwrap_or_else(PoisonError::into_inner);
        let all = TRIALS.fetch_add(self.trials, Ordering::Relaxed) + self.trials;
        eprintln!(
            "{what}: {} trials, {} requests, told {:?}, verdicts {:?}, {} lies ({all} trials so far)",
            self.trials,
            self.asked,
            self.told,
            self.verdicts,
            self.lies.len()
        );
        drop(line);
        assert!(self.lies.is_empty(), "{what}: {:#?}", self.lies);
        assert!(self.right > 0, "{what}: nothing was answered");
    }

    /// Fails unless every failure was answered for: an envelope, or a visible break behind the head.
    pub(crate) fn nobody_was_left_with_nothing(&self, what: &str) {
        for word in ["no_answer", "no_envelope", "unreachable", "late", "wrong"] {
            assert_eq!(self.count(word), 0, "{what}: {word}; {:?}", self.told);
        }
    }
}
