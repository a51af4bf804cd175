//! The ways to one and the same origin: direct, through Bridgehead, and through what else one could pick.
//!
//! A tool that is not installed is left out, and said so.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bridgehead_tests::port;
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Agent, Folder, World, setup};
use tokio::net::TcpStream;

/// The app, as a process of its own.
pub(crate) struct Origin {
    addr: SocketAddr,
    _process: Process,
}

impl Origin {
    /// Starts this very program in its other role.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("origin");
        let process = Process::start("the origin", command);
        let line = process.line("its address", |l| l.starts_with("ready "));
        Ok(Self {
            addr: line["ready ".len()..].parse()?,
            _process: process,
        })
    }
}

/// One way to the origin.
pub(crate) struct Path {
    /// As a column's name.
    pub(crate) name: String,
    /// Where clients connect.
    pub(crate) addr: SocketAddr,
    /// What they ask for.
    pub(crate) host: String,
    _kept: Kept,
}

/// What must live as long as the path.
#[allow(dead_code, reason = "held for its drop only")]
enum Kept {
    Nothing,
    Processes(Vec<Process>, Folder),
    World(Box<World>, Agent),
}

/// Every path that can be had here, direct first.
pub(crate) async fn all(origin: &Origin) -> anyhow::Result<Vec<Path>> {
    let host = origin.addr.to_string();
    let mut paths = vec![Path {
        name: "direct".into(),
        addr: origin.addr,
        host,
        _kept: Kept::Nothing,
    }];
    match nginx(origin).await {
        Some(path) => paths.push(path),
        None => eprintln!("nginx is not installed: its column is left out"),
    }
    match rathole(origin).await {
        Some(path) => paths.push(path),
        None => {
            eprintln!("rathole is not installed (cargo install rathole): its column is left out")
        }
    }
    paths.push(bridgehead(origin, "bridgehead", false).await);
    paths.push(bridgehead(origin, "bridgehead, TLS tunnel", true).await);
    Ok(paths)
}

async fn bridgehead(origin: &Origin, name: &str, tls: bool) -> Path {
    let setup = if tls { setup().tunnel_tls() } else { setup() };
    // Without the access line: the others write none either.
    let world = setup.start().await;
    let agent = world
        .join("a1", &[("demo", &format!("http://{}", origin.addr))])
        .await;
    let (addr, host) = (world.places.public, world.host("demo"));
    Path {
        name: name.into(),
        addr,
        host,
        _kept: Kept::World(Box::new(world), agent),
    }
}

/// nginx as a reverse proxy: not a tunnel, but what most put in front of an app.
async fn nginx(origin: &Origin) -> Option<Path> {
    let program = program("nginx")?;
    let folder = Folder::new();
    let port = port::free();
    let root = folder.path().display().to_string();
    let config = format!(
        "daemon off; worker_processes 2; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_max_body_size 0; proxy_request_buffering off; proxy_buffering on;\n\
         client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; keepalive_requests 1000000;\n\
         upstream app {{ server {}; keepalive 64; keepalive_requests 1000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://app; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_max_temp_file_size 0; }} }} }}\n",
        origin.addr
    );
    let file = folder.write("nginx.conf", &config);
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-e")
        .arg(folder.path().join("error.log"))
        .arg("-c")
        .arg(file);
    let process = Process::start("nginx", command);
    let addr = listening(port).await;
    let host = addr.to_string();
    Some(Path {
        name: "nginx".into(),
        addr,
        host,
        _kept: Kept::Processes(vec![process], folder),
    })
}

/// rathole: a TCP tunnel without HTTP, the least that any tunnel does.
async fn rathole(origin: &Origin) -> Option<Path> {
    let program = program("rathole")?;
    let folder = Folder::new();
    let (control, port) = (port::free(), port::free());
    let server = folder.write(
        "server.toml",
        &format!(
            "[server]\nbind_addr = \"127.0.0.1:{control}\"\ndefault_token = \"bench\"\n\
             [server.services.app]\nbind_addr = \"127.0.0.1:{port}\"\n"
        ),
    );
    let client = folder.write(
        "client.toml",
        &format!(
            "[client]\nremote_addr = \"127.0.0.1:{control}\"\ndefault_token = \"bench\"\n\
             [client.services.app]\nlocal_addr = \"{}\"\n",
            origin.addr
        ),
    );
    let start = |role: &str, file| {
        let mut command = Command::new(&program);
        command.arg(role).arg(file);
        Process::start(&format!("rathole {role}"), command)
    };
    let server = start("--server", server);
    listening(control).await;
    let client = start("--client", client);
    let addr = listening(port).await;
    let host = addr.to_string();
    Some(Path {
        name: "rathole".into(),
        addr,
        host,
        _kept: Kept::Processes(vec![server, client], folder),
    })
}

async fn listening(port: u16) -> SocketAddr {
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let open = || async { TcpStream::connect(addr).await.ok() };
    wait::until(Duration::from_secs(20), "a tool listening", open).await;
    addr
}

fn program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/usr/local/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(sbin)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file())
}
