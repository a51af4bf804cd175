//! `bh-figures`: every figure that the tunnel promises, measured on two separate processes, each with
//! its bound and whether it held. Exit code 1 if one is over.
//!
//! `cargo run --release -p bridgehead-tests --bin bh-figures`
//!
//! Figures that are times are those of this machine now: run it while nothing else does.

#[path = "figures/counts.rs"]
mod counts;
#[path = "figures/memory.rs"]
mod memory;
#[path = "figures/table.rs"]
mod table;
#[path = "figures/times.rs"]
mod times;

use std::process::ExitCode;

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::world::{Agent, Setup, World};
use clap::Parser;

use crate::table::Table;

#[derive(Parser)]
#[command(
    name = "bh-figures",
    about = "The figures of the tunnel, each with its bound"
)]
struct Cli {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Only groups whose name has this in it: memory, times, restart.
    #[arg(long, default_value = "")]
    only: String,
}

/// A gateway and an agent, each a process of its own, and an app in this one.
struct Stand {
    world: World,
    agent: Agent,
    app: App,
}

async fn stand<S, F>(setup: Setup, script: S) -> Stand
where
    S: Fn(Conn) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let app = App::start(script).await;
    let world = setup.start().await;
    let agent = world.join("a1", &[("demo", &app.target())]).await;
    Stand { world, agent, app }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if cfg!(debug_assertions) {
        eprintln!("a debug build: these are not the figures of what people run");
    }
    let mut table = Table::new(cli.json);
    if "memory".contains(&cli.only) {
        memory::measure(&mut table).await;
    }
    if "times".contains(&cli.only) {
        times::measure(&mut table).await;
    }
    if "restart".contains(&cli.only) {
        counts::measure(&mut table).await;
    }
    table.finish()
}
