//! A gateway, its agents and their configuration, as separate processes wired for one test.
//!
//! Owns: one folder per world (configuration, tokens, certificates), removed with it. Invariants:
//! every port is 0 and read back from the `ready ` line; nothing outlives the [`World`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::client::{self, Answer, H1};
use crate::h2c::H2;
use crate::metrics::{self, Snapshot};
use crate::pki::{self, Certificate};
use crate::process::{self, Process, Stream};
use crate::{binaries, wait};

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one below the target directory.
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let path = binaries::scratch("worlds").join(name);
        std::fs::create_dir_all(&path).expect("a folder below the target directory can be made");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the test's folder can be written");
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A token as `bh-gateway token new` made it.
#[derive(Clone, Debug)]
pub struct Token {
    /// Id of its key.
    pub key: String,
    /// The secret, whole.
    pub secret: String,
    /// What the gateway keeps.
    pub hash: String,
}

impl Token {
    /// Asks the gateway's own command for one.
    pub fn make(agent: &str, apps: &[&str]) -> Self {
        let mut command = Command::new(binaries::gateway());
        command.args(["token", "new", "--agent", agent]);
        for app in apps {
            command.args(["--app", app]);
        }
        let done = process::run_to_end("bh-gateway token new", command, wait::SOON);
        assert_eq!(done.code, Some(0), "token new: {}", done.stderr);
        let said = done.stdout + &done.stderr;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':');
        let words: Vec<&str> = said.split(|c| !plain(c)).collect();
        let find = |start: &str, least: usize| {
            let word = words
                .iter()
                .find(|w| w.starts_with(start) && w.len() >= least);
            (*word.unwrap_or_else(|| panic!("no {start} in: {said}"))).to_owned()
        };
        let secret = find("bh_", 48);
        let key = secret
            .split('_')
            .nth(1)
            .expect("a token names its key")
            .to_owned();
        Self {
            key,
            hash: find("blake3:", 71),
            secret,
        }
    }
}

/// What a world is to be; everything has a default that suits most tests.
pub struct Setup {
    own_hosts: Vec<String>,
    tunnel_at: String,
    apps: Vec<(String, String)>,
    defaults: String,
    sections: BTreeMap<String, String>,
    tls: bool,
    tunnel_tls: bool,
    gateway_args: Vec<String>,
    agents: Vec<(String, Vec<String>)>,
}

/// A world with one app `demo` and windows short enough for a test. Its clients have one address
/// between them, so one client may take every place unless the test says otherwise.
pub fn setup() -> Setup {
    Setup {
        own_hosts: vec!["gw.localhost".into(), "localhost".into()],
        tunnel_at: "127.0.0.1:0".into(),
        apps: vec![("demo".into(), String::new())],
        defaults: "hold = \"0s\"\nclient_share = \"100%\"\n".into(),
        sections: BTreeMap::new(),
        tls: false,
        tunnel_tls: false,
        gateway_args: Vec::new(),
        agents: vec![("a1".into(), vec!["*".into()])],
    }
}

impl Setup {
    /// Adds lines to `[defaults]`; a key said again replaces what it was.
    #[must_use]
    pub fn defaults(mut self, toml: &str) -> Self {
        let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
        let said: Vec<String> = toml.lines().map(key).collect();
        let kept = self
            .defaults
            .lines()
            .filter(|line| !said.contains(&key(line)));
        self.defaults = kept.fold(String::new(), |text, line| text + line + "\n");
        let _ = writeln!(self.defaults, "{toml}");
        self
    }

    /// Adds lines to a section such as `limits` or `public`.
    #[must_use]
    pub fn section(mut self, name: &str, toml: &str) -> Self {
        let text = self.sections.entry(name.to_owned()).or_default();
        let _ = writeln!(text, "{toml}");
        self
    }

    /// Names the gateway's own hosts; `localhost` is then free for an app.
    #[must_use]
    pub fn own_hosts(mut self, hosts: &[&str]) -> Self {
        self.own_hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        self
    }

    /// Has agents come to this address instead of the loopback.
    #[must_use]
    pub fn tunnel_at(mut self, ip: std::net::IpAddr) -> Self {
        self.tunnel_at = SocketAddr::from((ip, 0)).to_string();
        self
    }

    /// Adds an app, with lines for its `[[app]]`; `demo` replaces the built-in one.
    #[must_use]
    pub fn app(mut self, name: &str, toml: &str) -> Self {
        self.apps.retain(|(known, _)| known != name);
        self.apps.push((name.to_owned(), toml.to_owned()));
        self
    }

    /// Adds an agent that may serve these apps; by default `a1` may serve all.
    #[must_use]
    pub fn agent(mut self, id: &str, apps: &[&str]) -> Self {
        self.agents.retain(|(known, _)| known != id);
        self.agents.push((
            id.to_owned(),
            apps.iter().map(|a| (*a).to_owned()).collect(),
        ));
        self
    }

    /// Opens a TLS listener for clients too.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Makes agents use TLS.
    #[must_use]
    pub fn tunnel_tls(mut self) -> Self {
        self.tunnel_tls = true;
        self
    }

    /// Adds arguments to `bh-gateway serve`.
    #[must_use]
    pub fn gateway_args(mut self, args: &[&str]) -> Self {
        self.gateway_args
            .extend(args.iter().map(|a| (*a).to_owned()));
        self
    }

    /// Starts the gateway and waits for its `ready ` line; agents are started by [`World::join`].
    pub async fn start(self) -> World {
        let folder = Folder::new();
        let names = ["localhost", "demo.localhost", "*.localhost", "gw.localhost"];
        let certificate = pki::make(folder.path(), "gateway", &names);
        let mut tokens = BTreeMap::new();
        for (id, apps) in &self.agents {
            let apps: Vec<&str> = apps.iter().map(String::as_str).collect();
            tokens.insert(id.clone(), Token::make(id, &apps));
        }
        let config = self.config(&certificate, &tokens);
        let file = folder.write("gateway.toml", &config);
        let (gateway, places) = World::run_gateway(&file, &self.gateway_args);
        World {
            gateway,
            places,
            config: file,
            args: self.gateway_args,
            tokens,
            certificate,
            tunnel_tls: self.tunnel_tls,
            folder,
        }
    }

    fn config(&self, certificate: &Certificate, tokens: &BTreeMap<String, Token>) -> String {
        let pair = format!(
            "[{{ cert = {:?}, key = {:?} }}]",
            certificate.cert, certificate.key
        );
        let mut public = "http = [\"127.0.0.1:0\"]\ndomain = \"localhost\"\n".to_owned();
        if self.tls {
            let _ = writeln!(public, "https = [\"127.0.0.1:0\"]\ntls = {pair}");
        }
        let mut tunnel = format!("listen = {:?}\n", self.tunnel_at);
        let _ = if self.tunnel_tls {
            writeln!(tunnel, "tls = {pair}")
        } else {
            writeln!(tunnel, "plain = true")
        };
        let gateway = format!("hosts = {:?}\n", self.own_hosts);
        let built_in = [
            ("gateway", gateway.as_str()),
            ("public", public.as_str()),
            ("tunnel", tunnel.as_str()),
            ("admin", "listen = \"127.0.0.1:0\"\n"),
            ("defaults", self.defaults.as_str()),
            ("limits", ""),
        ];
        let mut text = String::new();
        for (name, lines) in built_in {
            let more = self.sections.get(name).map_or("", String::as_str);
            let _ = writeln!(text, "[{name}]\n{lines}{more}");
        }
        for (id, apps) in &self.agents {
            let token = &tokens[id];
            let _ = writeln!(
                text,
                "[[agent]]\nid = {id:?}\nkeys = [{{ id = {:?}, hash = {:?} }}]\napps = {apps:?}\n",
                token.key, token.hash
            );
        }
        for (name, lines) in &self.apps {
            let _ = writeln!(text, "[[app]]\nname = {name:?}\n{lines}\n");
        }
        text
    }
}

/// Where a gateway listens.
#[derive(Clone, Debug)]
pub struct Places {
    /// Clients, plain.
    pub public: SocketAddr,
    /// Clients, TLS.
    pub public_tls: Option<SocketAddr>,
    /// Admin.
    pub admin: SocketAddr,
    /// Agents.
    pub tunnel: SocketAddr,
}

impl Places {
    /// Reads the `ready ` line.
    pub fn parse(line: &str) -> Self {
        let values: Vec<&str> = line
            .split(' ')
            .filter_map(|w| w.split_once('='))
            .map(|(_, v)| v)
            .collect();
        let value = |name: &str| {
            let found = line
                .split(' ')
                .find_map(|w| w.strip_prefix(&format!("{name}=")));
            place(found.unwrap_or_else(|| panic!("no {name} in: {line}")))
        };
        Self {
            public: value("public"),
            public_tls: values
                .iter()
                .find(|v| v.starts_with("https://"))
                .map(|v| place(v)),
            admin: value("admin"),
            tunnel: value("tunnel"),
        }
    }
}

/// `http://demo.localhost:8080` or `127.0.0.1:7000`, as an address of the loopback.
fn place(text: &str) -> SocketAddr {
    let bare = text
        .split("://")
        .last()
        .unwrap_or(text)
        .trim_end_matches('/');
    let port = bare
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("no port in {text}"));
    bare.parse()
        .unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A running gateway with all that agents need to join it.
pub struct World {
    /// The gateway's process.
    pub gateway: Process,
    /// Where it listens.
    pub places: Places,
    /// Its configuration file.
    pub config: PathBuf,
    /// Its certificate, made for this world.
    pub certificate: Certificate,
    /// Its folder.
    pub folder: Folder,
    args: Vec<String>,
    tokens: BTreeMap<String, Token>,
    tunnel_tls: bool,
}

/// A running agent. Dropped, it is killed.
pub struct Agent {
    /// Its process.
    pub process: Process,
}

impl Agent {
    /// Ends it in order; one that is killed is waited for by its gateway.
    pub fn stop(mut self) {
        self.process.signal("TERM");
        self.process.wait_exit(wait::SOON);
    }
}

impl World {
    fn run_gateway(config: &Path, args: &[String]) -> (Process, Places) {
        let mut command = Command::new(binaries::gateway());
        command.arg("serve").arg("--config").arg(config).args(args);
        let gateway = Process::start("bh-gateway", command);
        let line = gateway.line("that it is ready", |l| l.starts_with("ready "));
        let places = Places::parse(&line);
        (gateway, places)
    }

    /// Kills the gateway and starts it again; the ports are new ones.
    pub fn restart_gateway(&mut self) {
        self.gateway.kill();
        (self.gateway, self.places) = Self::run_gateway(&self.config, &self.args);
    }

    /// Host under which an app answers.
    pub fn host(&self, app: &str) -> String {
        format!("{app}.localhost:{}", self.places.public.port())
    }

    /// Token of an agent.
    pub fn token(&self, agent: &str) -> &Token {
        &self.tokens[agent]
    }

    /// The agent's command up to the apps, for tests that add flags of their own.
    pub fn agent_command(&self, id: &str) -> Command {
        self.agent_command_with(id, &self.tokens[id])
    }

    /// The same with a token that the world did not make; `name` is that of the token's file.
    pub fn agent_command_with(&self, name: &str, token: &Token) -> Command {
        let file = self
            .folder
            .write(&format!("{name}.token"), &format!("{}\n", token.secret));
        let mut command = Command::new(binaries::agent());
        let scheme = if self.tunnel_tls { "tls" } else { "tcp" };
        let tunnel = self.places.tunnel;
        let host = if self.tunnel_tls {
            "localhost".to_owned()
        } else {
            tunnel.ip().to_string()
        };
        let gateway = format!("{scheme}://{host}:{}", tunnel.port());
        command.args(["run", "--gateway", &gateway, "--token-file"]);
        command.arg(file);
        if self.tunnel_tls {
            command.arg("--ca").arg(&self.certificate.cert);
        } else {
            command.arg("--insecure-plain");
        }
        command
    }

    /// Starts agent `id` for these apps (`name`, target) and waits until the gateway has its tunnel.
    pub async fn join(&self, id: &str, apps: &[(&str, &str)]) -> Agent {
        let mut command = self.agent_command(id);
        for (name, target) in apps {
            command.args(["--app", &format!("{name}={target}")]);
        }
        self.run_agent(id, command).await
    }

    /// As [`World::join`], with a command of the test's own.
    pub async fn run_agent(&self, id: &str, command: Command) -> Agent {
        let process = Process::start(&format!("bh-agent {id}"), command);
        // A tunnel that the agent itself speaks of: those of others may still be coming.
        let joined = || async {
            let told = process.text(Stream::Err) + &process.text(Stream::Out);
            let all = self.admin("/v1/tunnels").await;
            let ids = all["tunnels"].as_array()?.iter();
            let mut ids = ids.filter_map(|tunnel| tunnel["id"].as_str());
            ids.any(|id| told.contains(id)).then_some(())
        };
        wait::until(wait::SOON, &format!("agent {id} joining"), joined).await;
        Agent { process }
    }

    /// Number of tunnels that the gateway counts.
    pub async fn tunnels(&self) -> u64 {
        // A gauge of whole things.
        self.metrics().await.sum("tunnels", &[]) as u64
    }

    /// Number of tunnels in one state: `live`, `suspended` or `draining`.
    pub async fn tunnels_in(&self, state: &str) -> u64 {
        self.metrics().await.sum("tunnels", &[("state", state)]) as u64
    }

    /// Waits until every tunnel is in this state, and there is one.
    pub async fn until_all(&self, state: &str, limit: Duration) {
        let reached = || async {
            let all = self.tunnels().await;
            (all > 0 && self.tunnels_in(state).await == all).then_some(())
        };
        wait::until(limit, &format!("every tunnel being {state}"), reached).await;
    }

    /// Waits until the gateway counts this many tunnels.
    pub async fn until_tunnels(&self, count: u64) {
        let reached = || async { (self.tunnels().await == count).then_some(()) };
        wait::until(wait::SOON, &format!("{count} tunnels"), reached).await;
    }

    /// One reading of the metrics.
    pub async fn metrics(&self) -> Snapshot {
        metrics::read(self.places.admin).await
    }

    /// One admin answer as JSON.
    pub async fn admin(&self, path: &str) -> Value {
        let answer = client::ask(
            self.places.admin,
            "GET",
            path,
            &self.places.admin.to_string(),
        )
        .await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// One admin command.
    pub async fn command(&self, path: &str) -> Answer {
        let admin = self.places.admin;
        client::ask(admin, "POST", path, &admin.to_string()).await
    }

    /// A connection to the public listener.
    pub async fn h1(&self) -> H1 {
        H1::connect(self.places.public).await
    }

    /// An HTTP/2 connection to the public listener, by prior knowledge.
    pub async fn h2(&self) -> H2 {
        H2::connect(self.places.public).await
    }

    /// One request to `demo` on a connection of its own.
    pub async fn ask(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        self.h1()
            .await
            .ask(method, target, &self.host("demo"), &[], body)
            .await
    }

    /// `GET` to `demo` on a connection of its own.
    pub async fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, b"").await
    }
}
