//! The command line of `bh-load`: flags, help, exit codes, progress, the report.
//!
//! Owns the wording of usage mistakes. Invariant: a mistake is one line on the error stream and exit
//! code 2, and nothing was sent.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bridgehead_protocol::io::tls::{self, Trust};
use clap::{CommandFactory, Parser};

use super::plan::{Arrival, Kind, Mix, Plan, Spacing};
use super::report::Report;
use super::run::{Counts, Settings, ask_once, run, settle};
use super::target::{Speaks, Target};
use super::told::Told;
use crate::chaos::{duration, percent, size};
use crate::oracle::content::Action;
use crate::oracle::{Book, Oracle};
use crate::wait;

const AFTER: &str = "\
The app is part of the program: it listens at --oracle and knows every byte it saw. Point an agent at
it, then start the load; it waits until the app answers through the gateway.

Examples:
  bh-load --gateway http://127.0.0.1:8080 --rate 500 --duration 60s
  bh-load --gateway http://127.0.0.1:8080 --mix get=70,post=20,ws=10 --app-faults 5% --json load.json
  bh-load --gateway https://gw.example.com:8443 --host demo.apps.example.com --ca gateway.pem --http2
  bh-load --gateway http://127.0.0.1:8080 --admin 127.0.0.1:9090 --settle 60s

Kinds of a mix: get (small, at once), slow (after 200 ms), post (200 bytes), upload, download, sse
(20 events, 100 ms apart), ws (20 messages, 100 ms apart). Default:
get=60,slow=5,post=20,upload=4,download=5,sse=3,ws=3. Requests leave when they are due, whether or not
others have been answered; latency counts from that time.

A lie is: told not_delivered, but the app saw a byte (looked at again at the end, and after --settle);
told delivered, but the app did not answer; a request that reached the app twice; a whole answer that is
not the app's. Failures with a verdict, answers that break visibly and connections without an answer are
counted, and are no lies.

Exit codes: 0 no lie; 1 a lie, or nothing could be asked; 2 wrong command line.";

/// Loads a gateway at a rate that does not wait for answers, and checks every answer for lies.
#[derive(Debug, Parser)]
#[command(name = "bh-load", version, after_help = AFTER, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// The gateway's public address.
    #[arg(long, value_name = "URL")]
    gateway: String,
    /// Host of the app's route, with the port if clients would say it.
    #[arg(long, value_name = "HOST", default_value = "demo.localhost")]
    host: String,
    /// Where the oracle app listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3100")]
    oracle: SocketAddr,
    /// Requests a second.
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = rate)]
    rate: f64,
    /// How long requests are sent.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Shares of the kinds of requests.
    #[arg(long, value_name = "KIND=SHARE,…", value_parser = Mix::parse)]
    mix: Option<Mix>,
    /// Arrivals at equal distances instead of at random.
    #[arg(long)]
    constant: bool,
    /// Seed of all draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Share of requests whose app fails: closes, breaks off, is silent, speaks no HTTP.
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = share)]
    app_faults: u32,
    /// Share of requests on a connection of their own.
    #[arg(long, value_name = "P%", default_value = "10%", value_parser = share)]
    fresh: u32,
    /// Body of an upload and of a download.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = bytes)]
    bulk: u32,
    /// HTTP/2 (by ALPN, or by prior knowledge without TLS); WebSockets stay on HTTP/1.1.
    #[arg(long)]
    http2: bool,
    /// Roots by which the gateway is known, for an https:// gateway.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The gateway's admin listener, to tell what was resumed.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// How long to wait for the app to answer through the gateway before the load begins.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    wait: Duration,
    /// How long a client waits for its answer.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = time)]
    patience: Duration,
    /// Requests under way at once; more are not sent, and told.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    most: usize,
    /// Judge once more after this time: nothing told may become untrue.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    settle: Duration,
    /// Write the report there too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command, for completions and tests of the documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|r: &f64| (0.001..=1e6).contains(r));
    rate.ok_or_else(|| "write a number of requests a second, up to a million".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "write for example 500ms, 30s or 5m".to_owned())
}

fn share(text: &str) -> Result<u32, String> {
    percent(text).ok_or_else(|| "write a share such as 5% or 0.1%".to_owned())
}

fn bytes(text: &str) -> Result<u32, String> {
    let small = size(text)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n <= 1 << 30);
    small.ok_or_else(|| "write a size such as 64KiB, up to 1GiB".to_owned())
}

/// Runs the program.
pub async fn main() -> ExitCode {
    let cli = Cli::parse();
    let settings = match settings(&cli) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("bh-load: {error}");
            return ExitCode::from(2);
        }
    };
    match load(&cli, &settings).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bh-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settings(cli: &Cli) -> Result<Settings, String> {
    let (is_tls, rest) = match cli.gateway.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => {
            return Err(format!(
                "--gateway {}: write http://HOST:PORT or https://HOST:PORT",
                cli.gateway
            ));
        }
    };
    let place = rest.trim_end_matches('/');
    let with_port = match place.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => place.to_owned(),
        _ => format!("{place}:{}", if is_tls { 443 } else { 80 }),
    };
    let addr = with_port
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next());
    let addr =
        addr.ok_or_else(|| format!("--gateway {}: {with_port} is no address", cli.gateway))?;
    let tls = match (is_tls, &cli.ca) {
        (false, None) => None,
        (false, Some(_)) => return Err("--ca needs an https:// gateway".into()),
        (true, None) => {
            return Err(
                "an https:// gateway needs --ca FILE, the roots by which it is known".into(),
            );
        }
        (true, Some(file)) => {
            let roots = tls::read_certificates(file).map_err(|error| error.to_string())?;
            let config =
                tls::client_config(&Trust::Roots(roots), &[]).map_err(|error| error.to_string())?;
            Some(Arc::new(config))
        }
    };
    let speaks = if cli.http2 {
        Speaks::Http2
    } else {
        Speaks::Http1
    };
    let target = Target {
        addr,
        host: cli.host.clone(),
        speaks,
        tls,
    };
    Ok(Settings {
        admin: cli.admin,
        patience: cli.patience,
        most: cli.most,
        ..Settings::new(target)
    })
}

fn plan(cli: &Cli) -> Plan {
    Plan {
        rate: cli.rate,
        duration: cli.duration,
        mix: cli.mix.clone().unwrap_or_default(),
        spacing: if cli.constant {
            Spacing::Constant
        } else {
            Spacing::Poisson
        },
        seed: cli.seed,
        app_faults: cli.app_faults,
        fresh: cli.fresh,
        upload: cli.bulk,
        download: cli.bulk,
        ..Plan::default()
    }
}

async fn load(cli: &Cli, settings: &Settings) -> Result<ExitCode, String> {
    // A number of this run's own, so that what others ask the app is not laid to it.
    let number = uuid::Uuid::now_v7().as_u128() as u32;
    let oracle = Oracle::start(cli.oracle, number).await;
    let oracle = oracle.map_err(|error| format!("--oracle {}: {error}", cli.oracle))?;
    eprintln!(
        "the oracle app listens at http://{}; an agent serves it with --app NAME=http://{}",
        oracle.addr(),
        oracle.addr()
    );
    reach(cli, settings, oracle.book()).await?;
    println!(
        "ready oracle=http://{} gateway={} host={} rate={}/s",
        oracle.addr(),
        cli.gateway,
        cli.host,
        cli.rate
    );
    let counts = Arc::new(Counts::default());
    let progress = tokio::spawn(progress(Arc::clone(&counts)));
    let mut finished = run(&plan(cli), settings, oracle.book(), &counts).await;
    progress.abort();
    if !cli.settle.is_zero() {
        eprintln!("judging once more in {:?}", cli.settle);
        wait::dawdle(cli.settle).await;
        settle(&mut finished, oracle.book());
    }
    print!("{}", finished.report.render());
    if let Some(file) = &cli.json {
        write(file, &finished.report).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(if finished.report.lies == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write(file: &PathBuf, report: &Report) -> std::io::Result<()> {
    std::fs::write(file, serde_json::to_string_pretty(report)? + "\n")
}

/// Waits until the app answers through the gateway.
async fn reach(cli: &Cli, settings: &Settings, book: &Arc<Book>) -> Result<(), String> {
    let begun = Instant::now();
    let mut id = 0;
    loop {
        let probe = Arrival {
            at: Duration::ZERO,
            id,
            kind: Kind::Get,
            action: Action::Get,
            body: 0,
            fresh: true,
        };
        let told = ask_once(settings, book, &probe).await;
        if told == Told::Right {
            return Ok(());
        }
        if begun.elapsed() >= cli.wait {
            return Err(format!(
                "the app did not answer at {} as {} within {:?}: {told:?}",
                cli.gateway, cli.host, cli.wait
            ));
        }
        // Probes have numbers of their own, below those of the plan.
        id = (id + 1).min(super::plan::FIRST_ID - 1);
        wait::dawdle(Duration::from_millis(200)).await;
    }
}

/// One line a second.
async fn progress(counts: Arc<Counts>) {
    let begun = Instant::now();
    let mut before = 0;
    loop {
        wait::dawdle(Duration::from_secs(1)).await;
        let asked = counts.asked.load(Ordering::Relaxed);
        eprintln!(
            "{:>4}s  {:>5}/s  in flight {:>5}  right {:>7}  failed {:>5}  lies {}",
            begun.elapsed().as_secs(),
            asked - before,
            counts.in_flight(),
            counts.right.load(Ordering::Relaxed),
            counts.failed.load(Ordering::Relaxed),
            counts.lies.load(Ordering::Relaxed)
        );
        before = asked;
    }
}
