//! The command line of `bh-gateway`: what may be typed, and every command that ends by itself.
//!
//! Owns flags, help texts, exit codes and the wording of usage mistakes. Must not start listeners:
//! `dev` and `serve` are handed to `wiring` as [`Work`]. Place in the path: `main` calls [`run`]
//! first. Invariant: a mistake is one line on the error stream (a configuration: one line each) and
//! exit code 2, with nothing on the output stream.

mod commands;
mod help;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bridgehead_agent::app::Target;
use bridgehead_protocol::handshake::Token;
use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::{
    AppName, Config, app_name_argument, duration_argument, listener_argument, window_argument,
};
use crate::telemetry::Format;

/// Everything went well.
pub const EXIT_OK: u8 = 0;
/// It failed while running.
pub const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const EXIT_USAGE: u8 = 2;

/// The public edge of Bridgehead: a tunnel gateway that never lies about whether your app saw the
/// request.
#[derive(Debug, Parser)]
#[command(name = "bh-gateway", version, after_help = help::ROOT, arg_required_else_help = true,
          disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run gateway and agent in one process, to try things out on this machine.
    #[command(after_help = help::DEV)]
    Dev(DevArgs),
    /// Run the gateway with a configuration file.
    #[command(after_help = help::SERVE)]
    Serve(ServeArgs),
    /// Read a configuration file and its certificates, say what they mean or what is wrong.
    #[command(after_help = help::CHECK)]
    Check(ConfigArg),
    /// Make tokens for agents.
    #[command(subcommand_required = true, arg_required_else_help = true, after_help = help::TOKEN)]
    Token {
        /// What to do with tokens.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Explain the codes that failed requests are answered with.
    #[command(after_help = help::CODES)]
    Codes(CodesArgs),
    /// Print a completion script for a shell.
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Which shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write man pages, one for each command.
    #[command(after_help = help::MAN)]
    Man {
        /// Folder to write into; made if it is not there.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token, print it once, and print what to paste into the configuration.
    #[command(after_help = help::TOKEN)]
    New(NewTokenArgs),
}

#[derive(Debug, Args)]
struct DevArgs {
    /// The app: `3000`, http://127.0.0.1:3000, https://HOST, h2c://HOST:PORT or unix:/path.
    /// Without it a small demo app is built in, with pages to try each verdict.
    #[arg(long, value_name = "URL", env = "BH_DEV_APP", value_parser = target_argument)]
    app: Option<Target>,
    /// Name of the app; it answers at `http://NAME.localhost:PORT`.
    #[arg(long, value_name = "NAME", env = "BH_DEV_NAME", default_value = "demo",
          value_parser = app_name_argument)]
    name: AppName,
    /// Where clients connect.
    #[arg(long, value_name = "ADDR", env = "BH_DEV_PUBLIC", default_value = "127.0.0.1:8080",
          value_parser = listener_argument)]
    public: SocketAddr,
    /// Where agents dial in, without TLS.
    #[arg(long, value_name = "ADDR", env = "BH_DEV_TUNNEL", default_value = "127.0.0.1:7000",
          value_parser = listener_argument)]
    tunnel: SocketAddr,
    /// Where the admin API listens; loopback only.
    #[arg(long, value_name = "ADDR", env = "BH_DEV_ADMIN", default_value = "127.0.0.1:9090",
          value_parser = listener_argument)]
    admin: SocketAddr,
    /// How long the app may be silent before its answer begins. Default: 30s.
    #[arg(long, value_name = "DUR", env = "BH_DEV_FIRST_FRAME_WINDOW", value_parser = window_argument)]
    first_frame_window: Option<Duration>,
    /// How long an answer that has begun may be silent. Default: 15s.
    #[arg(long, value_name = "DUR", env = "BH_DEV_STALL_WINDOW", value_parser = window_argument)]
    stall_window: Option<Duration>,
    /// How long a request waits for an app that is not there; 0s = not at all. Default: 10s.
    #[arg(long, value_name = "DUR", env = "BH_DEV_HOLD", value_parser = duration_argument)]
    hold: Option<Duration>,
    /// Print the ready line as JSON, with the token made for this run.
    #[arg(long, env = "BH_DEV_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Args)]
struct ConfigArg {
    /// The configuration, TOML.
    #[arg(long = "config", value_name = "FILE", env = "BH_CONFIG")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct LogArgs {
    /// How log and access log are written. Default: json for serve, text for dev.
    #[arg(long = "log", value_name = "FORMAT", env = "BH_LOG")]
    format: Option<LogFormat>,
    /// Least level logged: error, warn, info, debug, trace.
    #[arg(
        long = "log-level",
        value_name = "LEVEL",
        env = "BH_LOG_LEVEL",
        default_value = "info"
    )]
    level: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

#[derive(Debug, Args)]
struct NewTokenArgs {
    /// The agent it is for; an agent may have two during a rotation.
    #[arg(long, value_name = "ID", value_parser = agent_id_argument)]
    agent: String,
    /// An app the agent may serve: a name, or the beginning of names and a star (shop-*).
    #[arg(long = "app", value_name = "NAME", required = true, num_args = 1..,
          value_parser = pattern_argument)]
    apps: Vec<String>,
    /// How long it is valid, such as 90d. Default: until it is removed.
    #[arg(long, value_name = "DUR", value_parser = window_argument)]
    expires: Option<Duration>,
}

#[derive(Debug, Args)]
struct CodesArgs {
    /// One code, such as BH_APP_TIMEOUT.
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// As JSON, the same that the gateway's own hosts serve.
    #[arg(long)]
    json: bool,
}

/// What `main` has to do after the command line was understood.
#[derive(Debug)]
pub enum Outcome {
    /// End with this code; everything has been said.
    Exit(u8),
    /// Start something that runs until it is stopped.
    Work(Box<Work>),
}

/// Something that runs until it is stopped.
#[derive(Debug)]
pub enum Work {
    /// `dev`.
    Dev(DevRun),
    /// `serve`.
    Serve(ServeRun),
}

/// A `dev` run, ready to start.
#[derive(Debug)]
pub struct DevRun {
    /// Configuration of the gateway; it knows `token`.
    pub config: Config,
    /// Name of the app.
    pub name: AppName,
    /// The app; `None` = the built-in demo.
    pub target: Option<Target>,
    /// Made for this run; every app name is in its scope.
    pub token: Token,
    /// Print the ready line as JSON.
    pub json: bool,
    /// How to log.
    pub log: LogOptions,
}

/// A `serve` run, ready to start.
#[derive(Debug)]
pub struct ServeRun {
    /// Where the configuration came from.
    pub file: PathBuf,
    /// The configuration; certificates were readable a moment ago.
    pub config: Config,
    /// How to log.
    pub log: LogOptions,
}

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// JSON or text, for log and access log.
    pub format: Format,
    /// Least level; unchecked directives of the log filter.
    pub level: String,
}

impl LogArgs {
    fn options(self, default: Format) -> LogOptions {
        let format = match self.format {
            None => default,
            Some(LogFormat::Json) => Format::Json,
            Some(LogFormat::Text) => Format::Text,
        };
        LogOptions {
            format,
            level: self.level,
        }
    }
}

/// The command line as clap knows it, for completions, man pages and tests.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Understands a command line (program name first) and does what ends by itself.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Outcome {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return Outcome::Exit(explain(&error, out, err)),
    };
    let done = match cli.command {
        Command::Dev(args) => return work(dev(args).map(Work::Dev), err),
        Command::Serve(args) => return work(serve(args).map(Work::Serve), err),
        Command::Check(args) => commands::check(&args.file),
        Command::Token {
            command: TokenCommand::New(args),
        } => commands::new_token(&args.agent, &args.apps, args.expires),
        Command::Codes(args) => commands::codes(args.code.as_deref(), args.json),
        Command::Completions { shell } => Ok(commands::completions(shell)),
        Command::Man { dir } => commands::man(&dir),
    };
    let code = match done {
        Ok(said) => {
            say(err, &said.hints);
            say(out, &said.text)
        }
        Err(mistake) => {
            say(err, &mistake.text);
            mistake.exit
        }
    };
    Outcome::Exit(code)
}

/// What a command prints: its product, and hints for a person.
#[derive(Debug, Default)]
struct Said {
    text: String,
    hints: String,
}

/// Why a command failed.
#[derive(Debug)]
struct Mistake {
    text: String,
    exit: u8,
}

impl Mistake {
    fn usage(text: impl Into<String>) -> Self {
        Self {
            text: format!("error: {}\n", text.into()),
            exit: EXIT_USAGE,
        }
    }

    fn failed(text: impl Into<String>) -> Self {
        Self {
            text: format!("error: {}\n", text.into()),
            exit: EXIT_FAILED,
        }
    }
}

fn work(ready: Result<Work, Mistake>, err: &mut dyn Write) -> Outcome {
    match ready {
        Ok(work) => Outcome::Work(Box::new(work)),
        Err(mistake) => {
            say(err, &mistake.text);
            Outcome::Exit(mistake.exit)
        }
    }
}

/// Writes text as far as the other side takes it: `codes | head` is no failure.
fn say(to: &mut dyn Write, text: &str) -> u8 {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => EXIT_OK,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => EXIT_OK,
        Err(_) => EXIT_FAILED,
    }
}

fn dev(args: DevArgs) -> Result<DevRun, Mistake> {
    commands::dev(args)
}

fn serve(args: ServeArgs) -> Result<ServeRun, Mistake> {
    let config = commands::load(&args.config.file)?;
    Ok(ServeRun {
        file: args.config.file,
        config,
        log: args.log.options(Format::Json),
    })
}

/// Help and version are answers; a usage mistake becomes one line that ends with where to look.
fn explain(error: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => say(out, &text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say(err, &text);
            EXIT_USAGE
        }
        _ => {
            say(err, &one_line(&text));
            EXIT_USAGE
        }
    }
}

/// `clap` explains in a paragraph; this keeps its words and drops its layout.
fn one_line(text: &str) -> String {
    let (mistake, rest) = text.split_once("\nUsage: ").unwrap_or((text, ""));
    let mistake = mistake
        .split("For more information, try")
        .next()
        .unwrap_or(mistake);
    let mistake = mistake.replace("\n  tip: ", "; ");
    let words: Vec<&str> = mistake.split_whitespace().collect();
    // The usage line begins with the command that was meant.
    let called: Vec<&str> = rest
        .split_whitespace()
        .take_while(|word| !word.starts_with(['-', '<', '[']))
        .collect();
    let called = match called.is_empty() {
        true => "bh-gateway".to_owned(),
        false => called.join(" "),
    };
    format!(
        "{} (see `{called} --help`)\n",
        words.join(" ").replace(" ; ", "; ")
    )
}

fn target_argument(text: &str) -> Result<Target, String> {
    let target = Target::parse(text)?;
    match target.kind {
        crate::config::AppKind::Tcp => Err(format!(
            "`{text}`: a TCP app needs a port of its own, which only a configuration gives; use serve"
        )),
        crate::config::AppKind::Http1 | crate::config::AppKind::H2c => Ok(target),
    }
}

fn agent_id_argument(text: &str) -> Result<String, String> {
    match bridgehead_protocol::handshake::is_agent_id(text) {
        true => Ok(text.to_owned()),
        false => Err("use 1 to 64 letters, digits, dots, underscores and hyphens".to_owned()),
    }
}

fn pattern_argument(text: &str) -> Result<String, String> {
    match bridgehead_protocol::handshake::AppPattern::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("write for example demo, shop-* or *".to_owned()),
    }
}
