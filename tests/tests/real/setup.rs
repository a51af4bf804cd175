//! Finds or installs what a real app needs, and starts it behind an agent.
//!
//! Owns: one Python environment and one Node folder, shared by all tests and kept between runs.
//! Must not: retry an installation, or pass a test whose app is missing.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use bridgehead_tests::process::{self, Process};
use bridgehead_tests::world::{Agent, Setup, World};
use bridgehead_tests::{binaries, wait};
use tokio::net::TcpStream;

/// Python packages, all pure wheels or with wheels for the usual platforms.
const PYTHON: &[&str] = &[
    "fastapi",
    "uvicorn",
    "httptools",
    "websockets",
    "python-multipart",
    "gunicorn",
    "grpcio",
    "hypercorn",
    "kosoku",
];

/// Node packages.
const NODE: &[&str] = &[
    "express@5",
    "socket.io@4",
    "socket.io-client@4",
    "ws@8",
    "vite@8",
    "playwright-core@1",
];

/// The HTTP/2 conformance suite; its very version, for what it finds is argued case by case.
const HTTPWG: &[&str] = &["httpwg-cli@0.2.5"];

/// Time for an installation on a slow machine; only a hang reaches it.
const INSTALL: Duration = Duration::from_secs(600);

/// Why a test cannot run here.
#[derive(Clone, Debug)]
pub(crate) struct Missing(pub(crate) String);

/// `return` from the test, loudly, unless this is CI.
macro_rules! needs {
    ($found:expr) => {
        match $found {
            Ok(value) => value,
            Err(missing) => {
                crate::setup::skip(std::thread::current().name().unwrap_or("a test"), &missing);
                return;
            }
        }
    };
}
pub(crate) use needs;

/// Says on the real stderr (which the test harness does not capture) that a test did not run.
pub(crate) fn skip(test: &str, missing: &Missing) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} cannot run, and CI skips nothing: {}",
        missing.0
    );
    let line = format!(
        "SKIPPED {test}: {}\n",
        missing.0.lines().next().unwrap_or_default()
    );
    drop(std::io::stderr().write_all(line.as_bytes()));
    let list = binaries::scratch("").join("skipped.txt");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(list);
    drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
}

/// A program on the search path.
pub(crate) fn program(name: &str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .chain(sbin)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file());
    found.ok_or_else(|| Missing(format!("{name} is not installed")))
}

/// The Python of an environment that has every package.
pub(crate) fn python() -> Result<PathBuf, Missing> {
    static PYTHON_READY: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    PYTHON_READY
        .get_or_init(|| install("python", PYTHON, install_python))
        .clone()
        .map(|folder| folder.join("bin/python"))
}

/// The folder whose `node_modules` has every package.
pub(crate) fn node() -> Result<PathBuf, Missing> {
    static NODE_READY: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    NODE_READY
        .get_or_init(|| install("node", NODE, install_node))
        .clone()
}

/// The HTTP/2 conformance suite's program.
pub(crate) fn httpwg() -> Result<PathBuf, Missing> {
    static HTTPWG_READY: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    HTTPWG_READY
        .get_or_init(|| install("httpwg", HTTPWG, install_cargo(HTTPWG)))
        .clone()
        .map(|folder| folder.join("bin/httpwg"))
}

/// Runs an installation unless a marker says that these very packages are there already.
fn install(
    name: &str,
    packages: &[&str],
    run: impl FnOnce(&Path) -> Result<(), Missing>,
) -> Result<PathBuf, Missing> {
    let folder = binaries::scratch("real").join(name);
    let marker = folder.join("installed.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|text| text == packages.join("\n")) {
        return Ok(folder);
    }
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).map_err(|error| Missing(error.to_string()))?;
    run(&folder)?;
    std::fs::write(&marker, packages.join("\n")).map_err(|error| Missing(error.to_string()))?;
    Ok(folder)
}

fn install_python(folder: &Path) -> Result<(), Missing> {
    let mut venv = Command::new(program("python3")?);
    run(venv.args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    run(pip
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(PYTHON))
}

fn install_node(folder: &Path) -> Result<(), Missing> {
    std::fs::write(
        folder.join("package.json"),
        "{\"private\": true, \"type\": \"module\"}\n",
    )
    .map_err(|error| Missing(error.to_string()))?;
    let mut npm = Command::new(program("npm")?);
    run(npm
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        .args(NODE)
        .current_dir(folder))
}

/// Quick to build rather than quick to run; what building leaves is removed.
fn install_cargo(packages: &'static [&str]) -> impl FnOnce(&Path) -> Result<(), Missing> {
    move |folder| {
        let build = folder.join("build");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        run(cargo
            .args(["install", "--locked", "--quiet", "--profile", "dev"])
            .arg("--root")
            .arg(folder)
            .args(packages)
            .env("CARGO_TARGET_DIR", &build)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .current_dir(folder))?;
        std::fs::remove_dir_all(build).map_err(|error| Missing(error.to_string()))
    }
}

fn run(command: &mut Command) -> Result<(), Missing> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = std::mem::replace(command, Command::new(&name));
    let done = process::run_to_end(&name, command, INSTALL);
    if done.code == Some(0) {
        Ok(())
    } else {
        Err(Missing(format!("{name} failed: {}", done.stderr.trim())))
    }
}

/// A file of this suite's apps.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/real/apps")
        .join(name)
}

/// A real app behind an agent.
pub(crate) struct Real {
    pub(crate) world: World,
    _app: Process,
    _agent: Agent,
}

/// Starts `command` and waits until it listens on `port`.
pub(crate) async fn listening(command: Command, port: u16) -> Process {
    let app = Process::start("the app", command);
    let connects = || async { TcpStream::connect(("127.0.0.1", port)).await.ok() };
    wait::until(Duration::from_secs(60), "the app listening", connects).await;
    app
}

/// Starts `command` (which listens on `port`) as app `demo`, with the scheme its protocol needs.
pub(crate) async fn behind(setup: Setup, command: Command, port: u16, scheme: &str) -> Real {
    let app = listening(command, port).await;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let world = setup.start().await;
    let agent = world
        .join("a1", &[("demo", &format!("{scheme}://{addr}"))])
        .await;
    Real {
        world,
        _app: app,
        _agent: agent,
    }
}

/// Runs a client program against the gateway; it prints what it checked and exits with 0.
pub(crate) fn client(name: &str, command: Command) -> String {
    let done = process::run_to_end(name, command, Duration::from_secs(120));
    assert_eq!(
        done.code,
        Some(0),
        "{name}:\n{}\n{}",
        done.stdout,
        done.stderr
    );
    done.stdout
}
