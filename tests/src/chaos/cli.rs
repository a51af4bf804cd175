//! The command line of `bh-chaos`: flags, help, exit codes, the report.
//!
//! Owns the wording of usage mistakes. Invariant: a mistake is one line on the error stream and exit
//! code 2, and nothing was started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use rustls::pki_types::ServerName;
use tokio::signal::unix::{SignalKind, signal};

use super::carrier::{Carrier, Setup};
use super::script::Script;
use super::tally::Tally;
use super::tls::Tls;
use super::{GRAMMAR, duration, parse};

const AFTER: &str = "\
Examples:
  bh-chaos --listen 127.0.0.1:7100 --to 127.0.0.1:7000 --fault 'every 1s: cut'
  bh-chaos --listen 127.0.0.1:7100 --to 127.0.0.1:7000 --script faults.txt --seed 7 --report r.json
  bh-chaos grammar
  bh-chaos check faults.txt

Let the agent dial the carrier instead of the gateway (--gateway tcp://127.0.0.1:7100). When it
listens, one line on the output stream begins with `ready `. SIGTERM, SIGINT or --duration end it;
then the report goes to the output stream.

Exit codes: 0 ended and every rule took effect; 1 failed while running; 2 wrong command line or
script, nothing was started; 3 ended, but some rule never took effect (unless --idle-ok).";

/// A carrier between agent and gateway that breaks when it is told to.
#[derive(Debug, Parser)]
#[command(name = "bh-chaos", version, after_help = AFTER, arg_required_else_help = true,
          disable_help_subcommand = true, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true,
          max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explain the language of scripts.
    Grammar,
    /// Read a script and say what is wrong with it; nothing is started.
    Check {
        /// The script.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Where the agent dials; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Option<SocketAddr>,
    /// The gateway's tunnel listener.
    #[arg(long, value_name = "HOST:PORT", required = true)]
    to: Option<String>,
    /// File of faults, one rule a line; see `bh-chaos grammar`.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// One rule, as a line of a script; may be said again.
    #[arg(long, value_name = "RULE")]
    fault: Vec<String>,
    /// Seed of every draw. The same seed and the same frames give the same faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the report there too, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End after this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
    /// End with 0 though some rule never took effect.
    #[arg(long)]
    idle_ok: bool,
    /// End TLS here and show agents this certificate, so that frames can be seen.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "to_ca"])]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Roots by which the gateway is known.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    to_ca: Option<PathBuf>,
    /// Name the gateway must prove to have; default: the host of --to.
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    to_name: Option<String>,
}

/// The command, for completions and tests of the documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

fn time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "write for example 500ms, 30s or 5m".to_owned())
}

/// Runs the program.
pub async fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Grammar) => {
            print!("{GRAMMAR}");
            ExitCode::SUCCESS
        }
        Some(Command::Check { file }) => match read(&file) {
            Ok(script) => {
                println!("{}: {} rules", file.display(), script.rules.len());
                ExitCode::SUCCESS
            }
            Err(error) => usage(&error),
        },
        None => match setup(&cli.run) {
            Ok(setup) => carry(setup, &cli.run).await,
            Err(error) => usage(&error),
        },
    }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("bh-chaos: {error}");
    ExitCode::from(2)
}

fn read(file: &PathBuf) -> Result<Script, String> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

fn setup(args: &RunArgs) -> Result<Setup, String> {
    let mut script = Script::default();
    if let Some(file) = &args.script {
        script.extend(read(file)?);
    }
    for rule in &args.fault {
        script.extend(parse(rule).map_err(|error| format!("--fault {rule:?}: {error}"))?);
    }
    let to = args.to.clone().ok_or("--to is missing")?;
    let listen = args.listen.ok_or("--listen is missing")?;
    let host = to
        .rsplit_once(':')
        .map(|(host, _)| host)
        .ok_or_else(|| format!("--to {to}: write HOST:PORT"))?;
    let name = args
        .to_name
        .clone()
        .unwrap_or_else(|| host.trim_matches(['[', ']']).to_owned());
    let tls = match (&args.tls_cert, &args.tls_key, &args.to_ca) {
        (Some(certificate), Some(key), Some(ca)) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|_| format!("{name:?} is not a server's name"))?;
            Some(Tls::read(certificate, key, ca, name).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    Ok(Setup {
        listen,
        to,
        script,
        seed: args.seed,
        tls,
    })
}

async fn carry(setup: Setup, args: &RunArgs) -> ExitCode {
    let to = setup.to.clone();
    let rules = setup.script.rules.len();
    let carrier = match Carrier::start(setup).await {
        Ok(carrier) => carrier,
        Err(error) => {
            return failed(&format!(
                "{}: {error}",
                args.listen.map(|a| a.to_string()).unwrap_or_default()
            ));
        }
    };
    println!(
        "ready listen={} to={to} rules={rules} seed={}",
        carrier.addr(),
        args.seed
    );
    if let Err(error) = end(args.duration).await {
        return failed(&format!("no signals: {error}"));
    }
    let tally = carrier.tally();
    drop(carrier);
    print!("{}", tally.render());
    if let Some(file) = &args.report
        && let Err(error) = write(file, &tally)
    {
        return failed(&format!("{}: {error}", file.display()));
    }
    let idle = tally.idle().count();
    if idle > 0 && !args.idle_ok {
        eprintln!("bh-chaos: {idle} of {rules} rules never took effect");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn failed(error: &str) -> ExitCode {
    eprintln!("bh-chaos: {error}");
    ExitCode::FAILURE
}

fn write(file: &PathBuf, tally: &Tally) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(tally)?;
    std::fs::write(file, text + "\n")
}

/// Waits for a signal or the time.
async fn end(after: Option<Duration>) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let time = async {
        match after {
            Some(after) => crate::wait::dawdle(after).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = time => {}
    }
    Ok(())
}
