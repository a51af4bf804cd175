//! The agent's TOML file as written.
//!
//! Owns the list of keys and the refusal of unknown ones with their path and the nearest known key.
//! Values stay texts; what they mean is `parse`'s.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::ConfigError;
use super::nearest::nearest;

/// Keys of the file itself.
pub const KEYS: &[&str] = &[
    "gateway",
    "token",
    "token_file",
    "agent",
    "tunnels",
    "ca",
    "cert",
    "key",
    "insecure_plain",
    "proxy",
    "grace",
    "max_streams",
    "health",
    "log",
    "log_level",
    "command",
    "app",
];

/// Keys of one `[[app]]`.
pub const APP_KEYS: &[&str] = &["name", "target", "weight", "host", "ca", "verify"];

/// One gateway, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// `gateway = "…"`
    One(String),
    /// `gateway = ["…", "…"]`
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl From<OneOrMany> for Vec<String> {
    fn from(value: OneOrMany) -> Self {
        match value {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// The file.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConfig {
    /// Where the gateways are.
    pub gateway: OneOrMany,
    /// The token itself.
    pub token: Option<String>,
    /// A file that holds it.
    pub token_file: Option<PathBuf>,
    /// Agent id.
    pub agent: Option<String>,
    /// Tunnels held.
    pub tunnels: Option<u8>,
    /// CA file for the gateway's certificate.
    pub ca: Option<PathBuf>,
    /// The agent's own certificate chain.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Allow plain carriers beyond loopback.
    pub insecure_plain: Option<bool>,
    /// HTTP proxy on the way to the gateway; `"off"` ignores the environment's.
    pub proxy: Option<String>,
    /// Time to finish when stopping.
    pub grace: Option<String>,
    /// Streams a tunnel accepts at once.
    pub max_streams: Option<u32>,
    /// Address of the health endpoint.
    pub health: Option<String>,
    /// `text` or `json`.
    pub log: Option<String>,
    /// Least level logged.
    pub log_level: Option<String>,
    /// Command to start the app with.
    pub command: Vec<String>,
    /// Apps.
    pub app: Vec<RawApp>,
}

/// One `[[app]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawApp {
    /// Name.
    pub name: String,
    /// Where it listens.
    pub target: String,
    /// Share of the load.
    pub weight: Option<u8>,
    /// Host header it wants to see.
    pub host: Option<String>,
    /// CA file for its certificate.
    pub ca: Option<PathBuf>,
    /// `false` takes any certificate.
    pub verify: Option<bool>,
}

/// Reads a configuration file.
///
/// # Errors
/// If it cannot be read, is no TOML, has an unknown key or a value of the wrong type; the position is named.
pub fn read(path: &Path) -> Result<RawConfig, ConfigError> {
    let failed = |what: String| ConfigError::File {
        path: path.to_owned(),
        what,
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| failed(one_line(&error, &text)))?;
    refuse_unknown(path, &table)?;
    toml::from_str(&text).map_err(|error| failed(one_line(&error, &text)))
}

fn refuse_unknown(path: &Path, table: &Table) -> Result<(), ConfigError> {
    let check = |prefix: String, table: &Table, known: &'static [&'static str]| match table
        .keys()
        .find(|key| !known.contains(&key.as_str()))
    {
        None => Ok(()),
        Some(key) => Err(ConfigError::UnknownKey {
            path: path.to_owned(),
            key: format!("{prefix}{key}"),
            nearest: nearest(key, known),
        }),
    };
    check(String::new(), table, KEYS)?;
    let apps = table
        .get("app")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (index, app) in apps.filter_map(Value::as_table).enumerate() {
        check(format!("app[{index}]."), app, APP_KEYS)?;
    }
    Ok(())
}

/// The parser's message with its line, on one line.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<RawConfig, ConfigError> {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), text).expect("write");
        read(file.path())
    }

    fn said(text: &str) -> String {
        match read_text(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_listed_key_is_known_to_the_file() {
        let all = r#"
            gateway = ["tls://a", "tls://b"]
            token = "t"
            token_file = "f"
            agent = "a"
            tunnels = 1
            ca = "c"
            cert = "c"
            key = "k"
            insecure_plain = true
            proxy = "off"
            grace = "1s"
            max_streams = 5
            health = "127.0.0.1:9091"
            log = "json"
            log_level = "debug"
            command = ["npm", "start"]
            [[app]]
            name = "n"
            target = "3000"
            weight = 1
            host = "h"
            ca = "c"
            verify = true
        "#;
        let raw = read_text(all).expect("all keys");
        let table: Table = all.parse().expect("toml");
        assert_eq!(
            table.len(),
            KEYS.len(),
            "the example above must hold every key"
        );
        let app = table["app"][0].as_table().expect("app");
        assert_eq!(app.len(), APP_KEYS.len());
        assert_eq!(Vec::from(raw.gateway), ["tls://a", "tls://b"]);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_path_and_the_nearest_one() {
        let text = said("gatway = \"tls://a\"");
        assert!(
            text.contains("`gatway`") && text.contains("did you mean `gateway`?"),
            "{text}"
        );
        let text = said(
            "[[app]]\nname = \"a\"\ntarget = \"1\"\n[[app]]\nname = \"b\"\ntarget = \"1\"\nwieght = 2",
        );
        assert!(
            text.contains("`app[1].wieght`") && text.contains("`weight`"),
            "{text}"
        );
        let text = said("[colours]\nred = 1");
        assert!(
            text.contains("`colours`") && !text.contains("did you mean"),
            "{text}"
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_told_with_its_line_on_one_line() {
        for (text, line) in [
            ("gateway = \"a\"\ntunnels = \"two\"", 2),
            ("a\nb = 1", 1),
            ("[[app]]\nname = 5", 2),
        ] {
            let said = said(text);
            assert!(said.contains(&format!("line {line}:")), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }
}
