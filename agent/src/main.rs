//! `bh-agent`: reads the command line, runs what it names, and turns the result into an exit code.

use std::path::Path;
use std::process::ExitCode;

use bridgehead_agent::cli::{Cli, Command, RunArgs};
use bridgehead_agent::config::parse::{Settings, settings};
use bridgehead_agent::control::control;
use bridgehead_agent::error::{AgentError, Outcome};
use bridgehead_agent::signals::{Passing, listen};
use bridgehead_agent::telemetry::{Readiness, log};
use bridgehead_agent::wiring;
use clap::{CommandFactory, Parser};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run(args),
        Command::Http(args) => run(args.into()),
        Command::Check(args) => check(args.into()),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "bh-agent",
                &mut std::io::stdout(),
            );
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => man(&dir),
    };
    done.unwrap_or_else(|error| {
        eprintln!("bh-agent: {error}");
        ExitCode::from(error.exit_code())
    })
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

fn check(args: RunArgs) -> Result<ExitCode, AgentError> {
    let Settings { run: options, log } = read(args)?;
    log::start(&log)?;
    let findings = block_on(wiring::check::check(options))?;
    print!("{}", findings.text());
    match findings.faults() {
        0 => Ok(ExitCode::SUCCESS),
        faults => Err(AgentError::Check(faults)),
    }
}

fn man(dir: &Path) -> Result<ExitCode, AgentError> {
    let what = "the man pages cannot be written";
    clap_mangen::generate_to(Cli::command(), dir)
        .map_err(|error| AgentError::System { what, error })?;
    Ok(ExitCode::SUCCESS)
}
