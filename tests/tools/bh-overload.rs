//! `bh-overload`: what a gateway still does when three times as much is asked of it as its app can do.

use std::process::ExitCode;
use std::time::Duration;

use bridgehead_tests::drill::{Overload, overload};
use clap::Parser;

/// Least part of the capacity that must be left under overload.
const LEAST: f64 = 0.8;
/// Most time for a refusal that does not wait, at p99.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Offers an app three times its capacity and measures what is answered, what is refused, and how fast.
///
/// The gateway and the agent are the built binaries. Exit codes: 0 the numbers hold, 1 they do not.
#[derive(Debug, Parser)]
#[command(name = "bh-overload", version)]
struct Cli {
    /// Milliseconds that the app takes for a request.
    #[arg(long, default_value_t = 10)]
    takes: u64,
    /// Requests that the gateway gives the app at once.
    #[arg(long, default_value_t = 20)]
    in_flight: usize,
    /// Requests that may wait.
    #[arg(long, default_value_t = 200)]
    queue: usize,
    /// How many times the capacity is offered.
    #[arg(long, default_value_t = 3)]
    factor: u32,
    /// Seconds for each of the two measurements.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = overload(Overload {
        takes: Duration::from_millis(cli.takes),
        in_flight: cli.in_flight,
        queue: cli.queue,
        factor: cli.factor,
        lasts: Duration::from_secs(cli.seconds),
    })
    .await;
    println!("capacity     {:8.0} /s", outcome.capacity);
    println!("offered      {:8.0} /s", outcome.offered);
    println!(
        "goodput      {:8.0} /s, {:.0} % of capacity",
        outcome.goodput,
        outcome.part() * 100.0
    );
    println!(
        "refused      {:8}, p99 {:?}",
        outcome.refused, outcome.refusal_p99
    );
    println!("timed out    {:8}", outcome.timed_out);
    println!("unproven     {:8}", outcome.unproven);
    println!("other        {:8}", outcome.other);
    println!(
        "app saw      {:8} of {} answered",
        outcome.seen, outcome.answered
    );
    let holds = outcome.part() >= LEAST
        && outcome.refusal_p99 <= AT_ONCE
        && outcome.unproven + outcome.other == 0
        && outcome.seen == outcome.answered;
    println!("{}", if holds { "holds" } else { "does not hold" });
    ExitCode::from(u8::from(!holds))
}
