//! The commands that end by themselves, and the preparation of those that do not.
//!
//! They return what to print and never print. May read files, the clock and the system's source of
//! randomness; this is the edge of the program.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridgehead_agent::app::Target;
use bridgehead_protocol::handshake::Token;
use bridgehead_protocol::io::descriptors;
use bridgehead_protocol::verdict::Code;
use clap_complete::Shell;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use zeroize::Zeroizing;

use super::{DevArgs, DevRun, Mistake, Said, command};
use crate::answer::{codes_json, codes_text};
use crate::cert::CertStore;
use crate::clock::rfc3339;
use crate::config::{
    AgentKey, AppKind, CertificateFiles, Config, DevOptions, nearest_word, summary,
};
use crate::outlook::{self, Stores, tunnel_certificates};
use crate::telemetry::Format;

/// Subject of the token that `dev` makes.
const DEV_AGENT: &str = "dev";
/// A token that outlives this is one that never expires.
const LONGEST_LIFE: Duration = Duration::from_secs(100 * 365 * 86_400);

pub(super) fn load(file: &Path) -> Result<Config, Mistake> {
    Config::load(file).map_err(|errors| {
        let lines: Vec<String> = errors
            .as_slice()
            .iter()
            .map(|error| format!("error: {error}\n"))
            .collect();
        Mistake {
            text: lines.concat(),
            exit: super::EXIT_USAGE,
        }
    })
}

pub(super) fn check(file: &Path) -> Result<Said, Mistake> {
    let config = load(file)?;
    let now = now_seconds();
    let ahead = look_ahead(&config, now)?;
    Ok(Said {
        text: format!(
            "{} is valid\n{}",
            file.display(),
            summary(&config, now, ahead)
        ),
        hints: String::new(),
    })
}

/// What `serve` would say of it. The limit of open files is that of whoever checks.
fn look_ahead(config: &Config, now: u64) -> Result<Vec<String>, Mistake> {
    let load = |files: &[CertificateFiles]| {
        CertStore::load(files).map_err(|error| Mistake::usage(error.to_string()))
    };
    let public = match config.public.https.is_empty() {
        true => None,
        false => Some(load(&config.public.tls)?),
    };
    let tunnel = match config.tunnel.plain {
        true => None,
        false => Some(load(tunnel_certificates(config))?),
    };
    let stores = Stores {
        public: public.as_ref(),
        tunnel: tunnel.as_ref(),
    };
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    Ok(outlook::warnings(config, stores, now, descriptors::most()))
}

pub(super) fn dev(args: DevArgs) -> Result<DevRun, Mistake> {
    let kind = args
        .app
        .as_ref()
        .map_or(AppKind::Http1, |target: &Target| target.kind);
    let options = DevOptions {
        name: args.name,
        kind,
        public: args.public,
        tunnel: args.tunnel,
        admin: args.admin,
        first_frame_window: args.first_frame_window,
        stall_window: args.stall_window,
        hold: args.hold,
    };
    let token = fresh_token()?;
    let config = Config::for_dev(&options, DEV_AGENT, AgentKey::for_token(&token))
        .map_err(|errors| Mistake::usage(errors.to_string().replace('\n', "; ")))?;
    Ok(DevRun {
        config,
        name: options.name,
        target: args.app,
        token,
        json: args.json,
        log: args.log.options(Format::Text),
    })
}

pub(super) fn new_token(
    agent: &str,
    apps: &[String],
    expires: Option<Duration>,
) -> Result<Said, Mistake> {
    let expires = match expires {
        Some(life) if life > LONGEST_LIFE => {
            return Err(Mistake::usage(
                "--expires is over a hundred years away, leave it out for a token without end",
            ));
        }
        Some(life) => format!(", expires = {}", second(now_seconds() + life.as_secs())),
        None => String::new(),
    };
    let token = fresh_token()?;
    let (id, hash) = (token.key_id(), token.hash().to_config());
    let names: Vec<String> = apps.iter().map(|app| format!("\"{app}\"")).collect();
    let mut hints = String::from("# For the gateway's configuration:\n[[agent]]\n");
    // Writing to a String cannot fail.
    let _ = writeln!(hints, "id = \"{agent}\"");
    let _ = writeln!(
        hints,
        "keys = [{{ id = \"{id}\", hash = \"{hash}\"{expires} }}]"
    );
    let _ = writeln!(hints, "apps = [{}]", names.join(", "));
    hints.push_str("\n# The token, shown only now; for --token-file or BH_TOKEN of the agent:\n");
    Ok(Said {
        text: format!("{}\n", token.reveal()),
        hints,
    })
}

pub(super) fn codes(wanted: Option<&str>, json: bool) -> Result<Said, Mistake> {
    let code = wanted.map(find_code).transpose()?;
    let mut text = match json {
        true => codes_json(code),
        false => codes_text(code),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(Said {
        text,
        hints: String::new(),
    })
}

fn find_code(text: &str) -> Result<Code, Mistake> {
    let upper = text.to_ascii_uppercase();
    Code::parse(&upper).ok_or_else(|| {
        let names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        let mend = match nearest_word(&upper, &names) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "`bh-gateway codes` lists them all".to_owned(),
        };
        Mistake::usage(format!("\"{text}\" is not a code, {mend}"))
    })
}

pub(super) fn completions(shell: Shell) -> Said {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "bh-gateway", &mut script);
    Said {
        text: String::from_utf8_lossy(&script).into_owned(),
        hints: String::new(),
    }
}

pub(super) fn man(dir: &Path) -> Result<Said, Mistake> {
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command(), dir))
        .map_err(|error| {
            let dir = dir.display();
            Mistake::failed(format!(
                "man pages cannot be written to {dir} ({error}), give a folder you may write to"
            ))
        })?;
    Ok(Said::default())
}

/// A token with a key id of its own. The id is random too, so that two tokens of one agent differ,
/// and free of `_`, so that a person can take the token apart.
fn fresh_token() -> Result<Token, Mistake> {
    let unlucky = |what: &str| Mistake::failed(format!("no token could be made ({what})"));
    let mut id = [0_u8; 5];
    let mut secret = Zeroizing::new([0_u8; 32]);
    OsRng
        .try_fill_bytes(&mut id)
        .and_then(|()| OsRng.try_fill_bytes(secret.as_mut_slice()))
        .map_err(|error| unlucky(&error.to_string()))?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Token::generate(&format!("k{id}"), &secret).map_err(|error| unlucky(&error.to_string()))
}

fn now_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// A second of the epoch as TOML and people write it.
fn second(seconds: u64) -> String {
    rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)).replace(".000Z", "Z")
}
