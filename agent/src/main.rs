//! `bh-agent`: reads the command line, runs what it names, and turns the result into an exit code.

use std::io::Write;
use std::process::ExitCode;

use bridgehead_agent::cli::{self, Cli, Command, RunArgs};
use bridgehead_agent::config::parse::{Settings, settings};
use bridgehead_agent::control::control;
use bridgehead_agent::error::{AgentError, Outcome};
use bridgehead_agent::signals::{Passing, listen};
use bridgehead_agent::telemetry::{Readiness, log};
use bridgehead_agent::wiring;
use bridgehead_protocol::io::descriptors;
use clap::Parser;

/// Descriptors asked for: one for each stream of a few full tunnels; 1024, as many systems start with, would
/// be used up by a quarter of the streams that one may carry. Not more, because the app's process inherits
/// the limit. What cannot be opened is refused per stream.
const DESCRIPTORS: u64 = 65_536;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            eprintln!("bh-agent: {}", cli::mistake(&error));
            return ExitCode::from(2);
        }
        // Help and version, as they are.
        Err(asked) => {
            // Nobody is left to be told if the reader is gone.
            drop(asked.print());
            return ExitCode::SUCCESS;
        }
    };
    let done = match cli.command {
        Command::Run(args) => run(args),
        Command::Http(args) => run(args.into()),
        Command::Check(args) => check(args.into()),
        Command::Completions { shell } => {
            written(cli::write_completions(shell, &mut std::io::stdout()))
        }
        Command::Man { dir } => written(cli::write_man(&dir)),
    };
    done.unwrap_or_else(|error| {
        // A configuration file may have several mistakes, a line each.
        for line in error.to_string().lines() {
            eprintln!("bh-agent: {line}");
        }
        ExitCode::from(error.exit_code())
    })
}

fn written(done: std::io::Result<()>) -> Result<ExitCode, AgentError> {
    let what = "the output cannot be written";
    done.map(|()| ExitCode::SUCCESS)
        .map_err(|error| AgentError::System { what, error })
}

fn read(args: RunArgs) -> Result<Settings, AgentError> {
    Ok(settings(args, &|name| std::env::var(name).ok())?)
}

/// One thread is enough for a sidecar, and leaves the others to the app.
fn block_on<T>(work: impl Future<Output = Result<T, AgentError>>) -> Result<T, AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let what = "the runtime cannot start";
    runtime
        .map_err(|error| AgentError::System { what, error })?
        .block_on(work)
}

fn run(args: RunArgs) -> Result<ExitCode, AgentError> {
    let Settings { run: options, log } = read(args)?;
    log::start(&log)?;
    descriptors::raise(DESCRIPTORS);
    let passing = match options.command.is_empty() {
        true => Passing::Nowhere,
        false => Passing::ToApp,
    };
    let (handle, control) = control();
    let outcome = block_on(async {
        tokio::select! {
            biased;
            Err(error) = listen(handle, passing) => {
                Err(AgentError::System { what: "signals cannot be caught", error })
            }
            outcome = wiring::run(options, control, Readiness::default()) => outcome,
        }
    })?;
    Ok(match outcome {
        Outcome::Stopped => ExitCode::SUCCESS,
        Outcome::AppEnded(code) => ExitCode::from(code),
    })
}

fn check(mut args: RunArgs) -> Result<ExitCode, AgentError> {
    // The findings say it all; the log would say it twice.
    args.connection.log_level.get_or_insert("error".to_owned());
    let Settings { run: options, log } = read(args)?;
    log::start(&log)?;
    let findings = block_on(wiring::check::check(options))?;
    drop(std::io::stdout().write_all(findings.text().as_bytes()));
    match findings.faults() {
        0 => Ok(ExitCode::SUCCESS),
        faults => Err(AgentError::Check(faults)),
    }
}
