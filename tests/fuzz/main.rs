//! `bh-fuzz`: drives the fuzz targets on stable, for so many seconds each.
//!
//! `bh-fuzz [TARGET…] [--seconds N] [--seed N]`; without a target all of them, in order. Prints inputs
//! a second; a finding is written to `tests/regress/` and ends the run with code 1.

use std::process::ExitCode;
use std::time::Duration;

use bridgehead_tests::fuzz::TARGETS;
use bridgehead_tests::fuzz::engine::{self, Until};
use clap::Parser;

/// Drives the fuzz targets on stable.
#[derive(Parser)]
#[command(name = "bh-fuzz")]
struct Options {
    /// Targets; all of them if none is named.
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the mutator begins; the same seed makes the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let known = |name: &String| TARGETS.iter().any(|t| t.name == name);
    if let Some(unknown) = options.targets.iter().find(|name| !known(name)) {
        let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
        eprintln!("no target {unknown}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let wanted =
        |name: &str| options.targets.is_empty() || options.targets.iter().any(|t| t == name);
    let mut found = 0;
    for target in TARGETS.iter().filter(|t| wanted(t.name)) {
        let span = Until::Time(Duration::from_secs(options.seconds));
        let report = engine::drive(target, options.seed, span);
        println!(
            "{:>13}: {} inputs in {:.1?}, {:.0} a second, {} signatures, {} findings",
            target.name,
            report.runs,
            report.took,
            report.rate(),
            report.signatures,
            report.findings.len()
        );
        for path in &report.findings {
            println!("               {}", path.display());
        }
        found += report.findings.len();
    }
    ExitCode::from(u8::from(found > 0))
}
