//! The agent's TOML file: which keys there are and what each means.
//!
//! Every mistake is told, with its line. Certificates of apps that it names are read; its own and the
//! gateway's CA only once it is known that no flag comes before them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridgehead_protocol::config::{ConfigErrors, Fault, Section, Value, read as read_sections};
use bridgehead_protocol::io::tls::read_certificates;

use crate::app::table::AppSpec;
use crate::app::target::{Place, Target, Tls};
use crate::app::tls::AppTrust;
use crate::carrier::address::{GatewayAddress, Plain};
use crate::carrier::proxy::Proxies;
use crate::cli::LogFormat;

use super::secret::TokenSource;
use super::values;

/// What the file says; what it does not say is absent.
#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    /// Where the gateways are.
    pub gateways: Vec<GatewayAddress>,
    /// The token, or the file that holds it.
    pub token: Option<TokenSource>,
    /// Agent id.
    pub agent: Option<String>,
    /// Tunnels held.
    pub tunnels: Option<NonZeroU8>,
    /// CA file for the gateway's certificate.
    pub ca: Option<PathBuf>,
    /// The agent's own certificate chain.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// HTTP proxy on the way to the gateway.
    pub proxies: Option<Proxies>,
    /// Time to finish when stopping.
    pub grace: Option<Duration>,
    /// Streams a tunnel accepts at once.
    pub max_streams: Option<u32>,
    /// Address of the health endpoint.
    pub health: Option<SocketAddr>,
    /// How the log is written.
    pub log: Option<LogFormat>,
    /// Least level logged.
    pub log_level: Option<String>,
    /// Command to start the app with.
    pub command: Vec<String>,
    /// Apps.
    pub apps: Vec<AppSpec>,
}

/// Reads a configuration file; paths in it are named from its folder. `plain` is what the command line
/// allows; the file may allow more.
///
/// # Errors
/// If it cannot be read, and every mistake in it.
pub fn read(path: &Path, plain: Plain) -> Result<FileSettings, ConfigErrors> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let mend = "name the file with --config FILE";
        ConfigErrors::whole_file(&file, format!("cannot be read ({error})"), mend)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, &file, folder, plain)
}

/// As [`read`], of a text at hand.
///
/// # Errors
/// Every mistake in it.
pub fn parse(
    text: &str,
    file: &str,
    folder: &Path,
    plain: Plain,
) -> Result<FileSettings, ConfigErrors> {
    read_sections(text, file, |_, root| {
        let settings = settings(&root, folder, plain);
        root.finish();
        settings
    })
}

fn settings(root: &Section<'_>, folder: &Path, plain: Plain) -> FileSettings {
    let path = |key| root.read(key, |v| Ok(folder.join(v.text()?)));
    let text = |v: &Value<'_>| v.text().map(str::to_owned);
    let plain = match root.read("insecure_plain", Value::switch) {
        Some(true) => Plain::Anywhere,
        Some(false) | None => plain,
    };
    let gateways = root.list("gateway", |v| values::gateway(v.text()?, plain));
    FileSettings {
        gateways: gateways.unwrap_or_default(),
        token: token(root, folder),
        agent: root.read("agent", |v| values::agent_id(v.text()?)),
        tunnels: root.read("tunnels", |v| values::tunnels(v.whole()?)),
        ca: path("ca"),
        cert: path("cert"),
        key: path("key"),
        proxies: root.read("proxy", |v| values::proxy(v.text()?)),
        grace: root.read("grace", |v| values::grace(v.duration()?)),
        max_streams: root.read("max_streams", |v| values::max_streams(v.whole()?)),
        health: root.read("health", |v| values::health(v.text()?)),
        log: root.read("log", |v| values::log_format(v.text()?)),
        log_level: root.read("log_level", text),
        command: root.list("command", text).unwrap_or_default(),
        apps: apps(root, folder),
    }
}

fn token(root: &Section<'_>, folder: &Path) -> Option<TokenSource> {
    let given = root.read("token", |v| values::token(v.text()?));
    let file = root.read("token_file", |v| Ok(folder.join(v.text()?)));
    if root.has("token") && root.has("token_file") {
        let mend = "give one of them";
        root.report("token_file", Fault::new("stands beside token", mend));
    }
    given
        .map(TokenSource::Given)
        .or(file.map(TokenSource::File))
}

fn apps(root: &Section<'_>, folder: &Path) -> Vec<AppSpec> {
    let (mut apps, mut names) = (Vec::new(), BTreeSet::new());
    for section in root.tables("app") {
        let spec = app(&section, folder);
        section.finish();
        let Some(spec) = spec else { continue };
        if !names.insert(spec.name.clone()) {
            let what = format!("`{}` is there twice", spec.name);
            section.report("name", Fault::new(what, "name each app once"));
        }
        apps.push(spec);
    }
    apps
}

fn app(section: &Section<'_>, folder: &Path) -> Option<AppSpec> {
    let name = wanted(section, "name", "demo", values::app_name);
    let target = wanted(section, "target", "http://127.0.0.1:3000", values::target);
    let weight = section.read("weight", |v| values::weight(v.whole()?));
    let host = section.read("host", |v| values::host(v.text()?));
    let trust = trust(section, target.as_ref(), folder);
    Some(AppSpec {
        name: name?,
        target: target?,
        weight: weight.unwrap_or(1),
        host: host.unwrap_or_default(),
        trust,
    })
}

/// A text that an app cannot be without.
fn wanted<T>(
    section: &Section<'_>,
    key: &'static str,
    example: &str,
    read: impl FnOnce(&str) -> Result<T, Fault>,
) -> Option<T> {
    if !section.has(key) {
        let mend = format!("add {key} = \"{example}\"");
        section.report(key, Fault::new("is missing", mend));
    }
    section.read(key, |v| read(v.text()?))
}

/// Whom to believe to be the app.
fn trust(section: &Section<'_>, target: Option<&Target>, folder: &Path) -> AppTrust {
    let verify = section.read("verify", Value::switch);
    let roots = section.read("ca", |v| {
        read_certificates(&folder.join(v.text()?)).map_err(|error| values::fault(error.to_string()))
    });
    let encrypted = |target: &Target| matches!(target.place, Place::Tcp { tls: Tls::Yes, .. });
    if let Some(target) = target.filter(|target| !encrypted(target)) {
        let what = format!("is for https:// targets, not for {target}");
        for key in ["ca", "verify"].into_iter().filter(|key| section.has(key)) {
            section.report(key, Fault::new(what.clone(), "take it out"));
        }
    }
    match (verify, roots) {
        (Some(false), roots) => {
            if roots.is_some() {
                let what = "is useless beside verify = false";
                section.report("ca", Fault::new(what, "give one of them"));
            }
            AppTrust::Anything
        }
        (_, Some(roots)) => AppTrust::Roots(roots),
        (_, None) => AppTrust::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "bh_k1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

    fn parsed(text: &str) -> Result<FileSettings, ConfigErrors> {
        parse(text, "agent.toml", Path::new("/etc/bh"), Plain::default())
    }

    fn said(text: &str) -> Vec<String> {
        let Err(errors) = parsed(text) else {
            panic!("accepted: {text}")
        };
        errors.as_slice().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_key_is_read() {
        let text = format!(
            "gateway = [\"tls://a\", \"tcp://b:1\"]\ntoken = \"{TOKEN}\"\nagent = \"a\"\ntunnels = 1\n\
             ca = \"ca.pem\"\ncert = \"c\"\nkey = \"/k\"\ninsecure_plain = true\nproxy = \"off\"\n\
             grace = \"1s\"\nmax_streams = 5\nhealth = \"127.0.0.1:9091\"\nlog = \"json\"\n\
             log_level = \"debug\"\ncommand = [\"npm\", \"start\"]\n[[app]]\nname = \"n\"\n\
             target = \"https://x\"\nweight = 3\nhost = \"h\"\nverify = false\n"
        );
        let file = parsed(&text).expect("all keys");
        assert_eq!(file.gateways.len(), 2);
        assert!(matches!(file.token, Some(TokenSource::Given(_))));
        assert_eq!(file.agent.as_deref(), Some("a"));
        assert_eq!(file.tunnels.map(NonZeroU8::get), Some(1));
        assert_eq!(file.ca.as_deref(), Some(Path::new("/etc/bh/ca.pem")));
        assert_eq!(file.key.as_deref(), Some(Path::new("/k")));
        assert_eq!(file.grace, Some(Duration::from_secs(1)));
        assert_eq!(file.max_streams, Some(5));
        assert_eq!(file.log, Some(LogFormat::Json));
        assert_eq!(file.command, ["npm", "start"]);
        let app = &file.apps[0];
        assert_eq!((app.weight, app.host.as_str()), (3, "h"));
        assert_eq!(app.trust, AppTrust::Anything);
    }

    #[test]
    fn every_mistake_is_told_at_once_each_with_its_line_and_on_one_line() {
        let lines = said(
            "gatway = \"tls://a\"\ntunnels = \"two\"\ngrace = \"5\"\nhealth = \"9091\"\n\
             [[app]]\nname = \"Demo\"\ntarget = \"ftp://x:1\"\nwieght = 2\n\
             [[app]]\ntarget = \"3000\"\nca = \"/nowhere.pem\"\nweight = 0\n",
        );
        let wanted = [
            "agent.toml:1: gatway: unknown key, did you mean gateway?",
            "agent.toml:2: tunnels: text stands where a whole number is wanted",
            "agent.toml:3: grace: \"5\" is not a duration, write 5s",
            "agent.toml:4: health: `9091` is not an address with a port",
            "agent.toml:6: [[app]].name: `Demo` is not an app name",
            "agent.toml:7: [[app]].target: `ftp://x:1`: scheme `ftp` is unknown",
            "agent.toml:8: [[app]].wieght: unknown key, did you mean weight?",
            "agent.toml:9: [[app]].name: is missing, add name = \"demo\"",
            "agent.toml:11: [[app]].ca: /nowhere.pem",
            "agent.toml:11: [[app]].ca: is for https:// targets",
            "agent.toml:12: [[app]].weight: 0 is not from 1 to 100",
        ];
        assert_eq!(lines.len(), wanted.len(), "{lines:#?}");
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(line.starts_with(wanted), "{line}\n{wanted}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let app = "[[app]]\nname = \"a\"\ntarget = \"3000\"\n";
        for (text, wanted) in [
            (
                format!("token = \"{TOKEN}\"\ntoken_file = \"t\""),
                "stands beside token",
            ),
            (format!("{app}{app}"), "`a` is there twice"),
            (
                format!("{app}verify = true"),
                "not for http://localhost:3000",
            ),
            (
                "token = \"bh_secret\"".to_owned(),
                "`bh-gateway token new` makes one",
            ),
            ("a\nb = 1".to_owned(), "not TOML at line 1"),
        ] {
            let lines = said(&text);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(wanted), "{lines:?}");
            assert!(!lines[0].contains("secret"), "{lines:?}");
        }
    }
}
