//! `bh-bench`: how much of a direct connection's speed is left behind the tunnel, beside other tools.
//!
//! Prints a table of ratios, measured in interleaved rounds on one machine, so that a later change of
//! the code shows. It sets no goals and asserts no time. Every answer is checked; a wrong one stops it.
//!
//! `cargo run --release -p bridgehead-tests --bin bh-bench`

mod load;
mod origin;
mod paths;
mod report;

use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::load::Case;
use crate::paths::Path;
use crate::report::Report;

#[derive(Parser)]
#[command(
    name = "bh-bench",
    about = "Ratios of speed behind the tunnel to a direct connection"
)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// Rounds; the median of them is shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement of small requests.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// MiB of each bulk transfer.
    #[arg(long, default_value_t = 256)]
    bulk: u64,
}

#[derive(Subcommand)]
enum Role {
    /// The app that every path leads to; started by the benchmark itself.
    Origin,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match cli.role {
        Some(Role::Origin) => runtime.block_on(origin::serve()),
        None => runtime.block_on(measure(&cli)),
    }
}

async fn measure(cli: &Cli) -> anyhow::Result<()> {
    let origin = paths::Origin::start()?;
    let paths: Vec<Path> = paths::all(&origin).await?;
    let span = Duration::from_secs_f64(cli.seconds);
    let cases = [
        Case::Small {
            connections: 1,
            span,
        },
        Case::Small {
            connections: 64,
            span,
        },
        Case::Download {
            bytes: cli.bulk << 20,
        },
        Case::Upload {
            bytes: cli.bulk << 20,
        },
    ];
    let mut report = Report::new(paths.iter().map(|p| p.name.clone()).collect());
    for path in &paths {
        // Once unmeasured: connections, caches and branch predictors warm.
        load::run(
            path,
            &Case::Small {
                connections: 4,
                span: span / 8,
            },
        )
        .await?;
    }
    for round in 0..cli.rounds {
        for case in &cases {
            // The order turns with the rounds, so that no path always follows the same neighbour.
            for n in 0..paths.len() {
                let path = &paths[(n + round) % paths.len()];
                report.add(case, &path.name, load::run(path, case).await?);
            }
        }
        eprintln!("round {} of {}", round + 1, cli.rounds);
    }
    print!("{}", report.render(&cases));
    Ok(())
}
