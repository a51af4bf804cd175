//! The command line of `bh-agent`; every flag has an environment variable.
//!
//! Owns names and help only. What values mean is `config::parse`'s.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Connects your app to a Bridgehead gateway: dials out, copies bytes, keeps count.
#[derive(Debug, Parser)]
#[command(
    name = "bh-agent",
    version,
    about,
    disable_help_subcommand = true,
    after_help = HELP
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve apps through a gateway until stopped.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Serve one HTTP app: `bh-agent http 3000 --name demo`.
    #[command(after_help = HTTP_HELP)]
    Http(HttpArgs),
    /// Dial, authenticate, try each app, and say what is wrong.
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: bh-agent completions bash > /etc/bash_completion.d/bh-agent")]
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Write the man pages into a folder.
    #[command(after_help = "Example: bh-agent man /usr/local/share/man/man1")]
    Man {
        /// Which folder; it is made if it is not there.
        dir: PathBuf,
    },
}

const HELP: &str = "\
Examples:
  bh-agent http 3000 --name demo --gateway tls://gw.example.com:7000 --token-file token
  bh-agent run --config /etc/bridgehead/agent.toml
  bh-agent check --config /etc/bridgehead/agent.toml

Exit codes: 0 as asked, 1 failed at run time, 2 wrong usage, configuration, token or certificate.
With -- CMD the code of the app, if that ended by itself.";

/// What stands below each command that names apps.
macro_rules! target_help {
    ($($example:literal)*) => {
        concat!(
            "\
The token is read from --token-file at every dial, or from BH_TOKEN.
TARGET is 3000, http://127.0.0.1:3000, https://HOST, h2c://HOST:PORT, unix:/path or tcp://HOST:PORT.
DUR is for example 500ms, 30s, 5m or 1h.

Examples:",
            $("\n  ", $example,)*
        )
    };
}

const RUN_HELP: &str = concat!(
    target_help!(
        "bh-agent run --gateway tls://gw.example.com:7000 --token-file token --app demo=3000"
        "bh-agent run --gateway wss://gw.example.com --app demo=3000 --app db=tcp://127.0.0.1:5432"
        "BH_TOKEN=bh_… bh-agent run --gateway tls://gw.example.com:7000 --app demo=3000 -- npm start"
    ),
    "\n\nWith -- CMD ARGS the agent starts the app itself and ends with it."
);

const HTTP_HELP: &str = target_help!(
    "bh-agent http 3000 --name demo --gateway tls://gw.example.com:7000 --token-file token"
    "bh-agent http unix:/run/demo.sock --name demo --gateway wss://gw.example.com -- ./demo"
);

const CHECK_HELP: &str = target_help!(
    "bh-agent check --config /etc/bridgehead/agent.toml"
    "bh-agent check --gateway tls://gw.example.com:7000 --token-file token --app demo=3000"
);

/// How to reach the gateway, shared by the commands that do.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    /// TOML file with the same settings; flags and environment come first.
    #[arg(long, env = "BH_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the gateway is: `tls://HOST:PORT`, `wss://HOST`, `tcp://…` or `ws://…`; may be repeated.
    #[arg(long, env = "BH_GATEWAY", value_name = "URL", value_delimiter = ',')]
    pub gateway: Vec<String>,
    /// File that holds the token; read again at every dial. BH_TOKEN holds the token itself.
    #[arg(long, env = "BH_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Id of this agent within its token; a newer agent of the same id takes over. Default: random.
    #[arg(long, env = "BH_AGENT", value_name = "ID")]
    pub agent: Option<String>,
    /// PEM file with the only CA to trust for the gateway's certificate. Default: the system's.
    #[arg(long, env = "BH_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with this agent's own certificate, for a gateway that asks for one; read at every dial.
    #[arg(long, env = "BH_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file with the key of --cert.
    #[arg(long, env = "BH_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Allow tcp:// and ws:// to another machine; the token then travels readable.
    #[arg(long, env = "BH_INSECURE_PLAIN")]
    pub insecure_plain: bool,
    /// HTTP proxy towards the gateway, or `off`. Default: HTTPS_PROXY, NO_PROXY.
    #[arg(long, env = "BH_PROXY", value_name = "URL", hide_env_values = true)]
    pub proxy: Option<String>,
    /// How to write the log. Default: text.
    #[arg(long, env = "BH_LOG", value_name = "FORMAT")]
    pub log: Option<LogFormat>,
    /// Least level logged: error, warn, info, debug, trace, or a filter such as `bridgehead_agent=debug`. Default: info.
    #[arg(long, env = "BH_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// How a running agent behaves, shared by the commands that run one.
#[derive(Clone, Debug, Default, Args)]
pub struct ServingArgs {
    /// Tunnels to hold. Default: 2.
    #[arg(long, env = "BH_TUNNELS", value_name = "N")]
    pub tunnels: Option<u8>,
    /// Time for what runs to finish when the agent stops; up to 5s of it are for an app that it started. Default: 30s.
    #[arg(long, env = "BH_GRACE", value_name = "DUR")]
    pub grace: Option<String>,
    /// Connections to apps each tunnel may have at once. Default: 4096.
    #[arg(long, env = "BH_MAX_STREAMS", value_name = "N")]
    pub max_streams: Option<u32>,
    /// Serve /healthz and /readyz there, for example 127.0.0.1:9091. Default: off.
    #[arg(long, env = "BH_HEALTH", value_name = "ADDR")]
    pub health: Option<String>,
}

/// `run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// How to reach the gateway.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How to behave.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// An app and where it listens; may be repeated.
    #[arg(
        long,
        env = "BH_APP",
        value_name = "NAME=TARGET",
        value_delimiter = ','
    )]
    pub app: Vec<String>,
    /// Command to start the app with.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `http`.
#[derive(Clone, Debug, Args)]
pub struct HttpArgs {
    /// Where the app listens: 3000, or any TARGET below.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Name of the app.
    #[arg(long, env = "BH_NAME")]
    pub name: String,
    /// How to reach the gateway.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How to behave.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Command to start the app with.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `check`.
#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// How to reach the gateway.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// An app and where it listens; may be repeated.
    #[arg(
        long,
        env = "BH_APP",
        value_name = "NAME=TARGET",
        value_delimiter = ','
    )]
    pub app: Vec<String>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For a person.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<HttpArgs> for RunArgs {
    fn from(http: HttpArgs) -> Self {
        Self {
            connection: http.connection,
            serving: http.serving,
            app: vec![format!("{}={}", http.name, http.target)],
            command: http.command,
        }
    }
}

impl From<CheckArgs> for RunArgs {
    fn from(check: CheckArgs) -> Self {
        Self {
            connection: check.connection,
            app: check.app,
            ..Self::default()
        }
    }
}

/// clap's message about a mistake, on one line.
#[must_use]
pub fn mistake(error: &clap::Error) -> String {
    let text = error.render().to_string();
    // The first paragraph says what is wrong; usage and tips follow.
    let paragraph = text.lines().take_while(|line| !line.is_empty());
    let words: Vec<&str> = paragraph.flat_map(str::split_whitespace).collect();
    let said = words.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    format!("{said}; see `{} --help`", asked(&text))
}

/// The command, with its subcommand, that a usage line in `text` is of.
fn asked(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words: Vec<&str> = usage
        .unwrap_or("bh-agent")
        .split_whitespace()
        .take_while(is_name)
        .collect();
    words.join(" ")
}

/// Writes the completion script for a shell.
///
/// # Errors
/// What the system says.
pub fn write_completions(shell: Shell, out: &mut dyn io::Write) -> io::Result<()> {
    // The library panics when its writer fails, as a pipe whose reader has gone does.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bh-agent", &mut script);
    out.write_all(&script)
}

/// Writes the man pages into a folder.
///
/// # Errors
/// What the system says.
pub fn write_man(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        for command in Cli::command().get_subcommands() {
            for flag in command
                .get_arguments()
                .filter(|flag| flag.get_long().is_some())
            {
                let variable = flag
                    .get_env()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                assert!(
                    variable.starts_with("BH_"),
                    "--{} of {}",
                    flag.get_id(),
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn the_short_form_means_one_app() {
        let cli = Cli::parse_from([
            "bh-agent", "http", "3000", "--name", "demo", "--", "npm", "run", "--x",
        ]);
        let Command::Http(http) = cli.command else {
            panic!("not http")
        };
        let run = RunArgs::from(http);
        assert_eq!(run.app, ["demo=3000"]);
        assert_eq!(run.command, ["npm", "run", "--x"]);
    }

    #[test]
    fn a_mistake_is_one_line_that_names_it() {
        for (line, named, see) in [
            (
                &["bh-agent", "run", "--nonsense"][..],
                "'--nonsense'",
                "`bh-agent run --help`",
            ),
            (
                &["bh-agent", "http", "3000"],
                "--name",
                "`bh-agent http --help`",
            ),
            (&["bh-agent", "dance"], "'dance'", "`bh-agent --help`"),
            (&["bh-agent", "run", "--log", "xml"], "'xml'", " --help`"),
        ] {
            let said = mistake(&Cli::try_parse_from(line).expect_err(named));
            assert!(said.contains(named) && !said.contains('\n'), "{said}");
            assert!(said.ends_with(see), "{said}");
        }
    }

    #[test]
    fn there_is_a_man_page_for_each_command() {
        let folder = tempfile::tempdir().expect("folder");
        let folder = folder.path().join("man1");
        write_man(&folder).expect("pages");
        for page in ["bh-agent.1", "bh-agent-run.1", "bh-agent-check.1"] {
            assert!(folder.join(page).exists(), "{page}");
        }
        let mut script = Vec::new();
        write_completions(Shell::Bash, &mut script).expect("script");
        assert!(String::from_utf8_lossy(&script).contains("--token-file"));
    }
}
