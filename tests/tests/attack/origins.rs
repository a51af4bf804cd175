//! The origins behind the grid: a strict double, and servers that people run.
//!
//! Each answers every request with one line, `origin|N|METHOD|TARGET|BODY|X-V[|FIELDS]` (texts in
//! hexadecimal), where N counts the complete requests it has parsed so far. nginx and Apache parse and
//! pass on to a hyper of their own, so that their line says what *they* made of the bytes. One origin
//! speaks HTTP/2 by prior knowledge: behind it the gateway translates in the other direction.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::port;
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::Folder;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::setup::{Missing, program, python};

/// One origin, running until dropped.
pub(crate) struct Origin {
    /// Name of its app.
    pub(crate) name: &'static str,
    /// Target for the agent.
    pub(crate) target: String,
    /// The settings of its app.
    pub(crate) settings: &'static str,
    _alive: Alive,
}

impl Origin {
    /// It answers every request that it understands with its line.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.name, "double" | "hyper" | "hyper-h2c")
    }

    /// `refusal` is the gateway's word that a request for another protocol cannot pass as HTTP/2.
    pub(crate) fn cannot_upgrade(&self, refusal: &str) -> bool {
        self.target.starts_with("h2c://") && refusal.contains("UPGRADE_UNSUPPORTED")
    }
}

/// What ends with the origin.
pub(crate) struct Alive {
    _app: Option<App>,
    _process: Option<Process>,
    _folder: Option<Folder>,
    /// Aborted with it.
    tasks: JoinSet<()>,
}

impl Alive {
    fn none() -> Self {
        Self {
            _app: None,
            _process: None,
            _folder: None,
            tasks: JoinSet::new(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What every origin of our own answers.
fn line(n: u64, method: &str, target: &[u8], body: &[u8], value: &[u8], fields: &[u8]) -> String {
    let (target, body, value, fields) = (hex(target), hex(body), hex(value), hex(fields));
    format!("origin|{n}|{method}|{target}|{body}|{value}|{fields}")
}

/// All origins that can run here, and what is missing for the others.
pub(crate) async fn all() -> (Vec<Origin>, Vec<Missing>) {
    let mut found = vec![
        double().await,
        hyper("hyper", Speaks::Http1).await.0,
        hyper("hyper-h2c", Speaks::Http2).await.0,
    ];
    let mut missing = Vec::new();
    let mut keep = |made: Result<Origin, Missing>| match made {
        Ok(origin) => found.push(origin),
        Err(what) => missing.push(what),
    };
    keep(nginx().await);
    keep(apache().await);
    keep(node());
    keep(uvicorn("uvicorn-h11", "h11"));
    keep(uvicorn("uvicorn-httptools", "httptools"));
    keep(gunicorn());
    for origin in &found {
        let addr = origin.target.split_once("://").map_or("", |(_, addr)| addr);
        let listening = || async { TcpStream::connect(addr).await.ok() };
        let what = format!("{} listening", origin.name);
        wait::until(Duration::from_secs(60), &what, listening).await;
    }
    (found, missing)
}

/// Reads by the letter of RFC 9112 and notes every field and trailer.
pub(crate) async fn double() -> Origin {
    let count = Arc::new(AtomicU64::new(0));
    let app = App::start(move |conn| strict(conn, Arc::clone(&count))).await;
    Origin {
        name: "double",
        target: app.target(),
        settings: "",
        _alive: Alive {
            _app: Some(app),
            ..Alive::none()
        },
    }
}

async fn strict(mut conn: Conn, count: Arc<AtomicU64>) {
    while let Some(head) = conn.read_head().await {
        let Some((body, trailers)) = conn.read_body(&head).await else {
            return;
        };
        let n = count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields: String = head
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        for trailer in trailers {
            fields += &format!("trailer {}\n", trailer.to_ascii_lowercase());
        }
        let value = head.all("x-v").join(", ");
        let (target, value) = (head.target.as_bytes(), value.as_bytes());
        let text = line(n, &head.method, target, &body, value, fields.as_bytes());
        let length = text.len();
        let body = if head.method == "HEAD" { "" } else { &text };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        if !conn.write(answer).await {
            return;
        }
    }
}

/// What an origin of ours speaks.
#[derive(Clone, Copy, PartialEq)]
enum Speaks {
    Http1,
    Http2,
}

/// hyper's server; gives its port too.
async fn hyper(name: &'static str, speaks: Speaks) -> (Origin, u16) {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a loopback port is free");
    let addr = listener.local_addr().expect("an address");
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let serve = hyper::service::service_fn(move |request| answer(request, count.clone()));
            let stream = TokioIo::new(stream);
            // How a connection ends is told by the grid's counts.
            connections.spawn(async move {
                match speaks {
                    Speaks::Http1 => {
                        let mut server = hyper::server::conn::http1::Builder::new();
                        server
                            .half_close(true)
                            .serve_connection(stream, serve)
                            .await
                    }
                    Speaks::Http2 => {
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(stream, serve)
                            .await
                    }
                }
            });
        }
    });
    let (scheme, settings) = match speaks {
        Speaks::Http1 => ("http", ""),
        Speaks::Http2 => ("h2c", "protocol = \"h2c\""),
    };
    let origin = Origin {
        name,
        target: format!("{scheme}://{addr}"),
        settings,
        _alive: Alive {
            tasks,
            ..Alive::none()
        },
    };
    (origin, addr.port())
}

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    count: Arc<AtomicU64>,
) -> Result<hyper::Response<String>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let n = count.fetch_add(1, Ordering::Relaxed) + 1;
    let values: Vec<&[u8]> = parts
        .headers
        .get_all("x-v")
        .iter()
        .map(|v| v.as_bytes())
        .collect();
    // In HTTP/2 the URI is put together from fields of its own.
    let target = match (parts.version, parts.uri.path_and_query()) {
        (http::Version::HTTP_2, Some(target)) => target.to_string(),
        _ => parts.uri.to_string(),
    };
    let method = parts.method.as_str();
    let text = line(
        n,
        method,
        target.as_bytes(),
        &body,
        &values.join(&b", "[..]),
        b"",
    );
    // Without fields, as the other servers: the last column is the double's.
    let text = text.strip_suffix('|').unwrap_or(&text);
    Ok(hyper::Response::new(text.to_owned()))
}

async fn nginx() -> Result<Origin, Missing> {
    let nginx = program("nginx")?;
    let folder = Folder::new();
    let (inner, upstream) = hyper("inner", Speaks::Http1).await;
    let port = port::free();
    let root = folder.path().display().to_string();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; keepalive_timeout 60s; keepalive_requests 100000;\n\
         client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream};\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $http_host; }} }} }}\n"
    );
    let file = folder.write("nginx.conf", &config);
    let mut command = Command::new(nginx);
    command.arg("-p").arg(folder.path()).arg("-e");
    command
        .arg(folder.path().join("error.log"))
        .arg("-c")
        .arg(file);
    Ok(behind("nginx", command, port, folder, inner))
}

async fn apache() -> Result<Origin, Missing> {
    let apache = program("apache2").or_else(|missing| program("httpd").map_err(|_| missing))?;
    let folder = Folder::new();
    let (inner, upstream) = hyper("inner", Speaks::Http1).await;
    let port = port::free();
    let root = folder.path().display().to_string();
    let modules: String = ["mpm_event", "authz_core", "proxy", "proxy_http"]
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let config = format!(
        "ServerRoot {root}\n{modules}Listen 127.0.0.1:{port}\nServerName localhost\nPidFile {root}/pid\n\
         ErrorLog {root}/error.log\nDefaultRuntimeDir {root}\nKeepAliveTimeout 60\nMaxKeepAliveRequests 0\n\
         AllowEncodedSlashes NoDecode\nProxyPreserveHost On\n\
         ProxyPass / http://127.0.0.1:{upstream}/ nocanon retry=0 disablereuse=on\n"
    );
    let file = folder.write("apache.conf", &config);
    let mut command = Command::new(apache);
    // One process: it ends when it is killed.
    command.arg("-X").arg("-f").arg(file);
    Ok(behind("apache", command, port, folder, inner))
}

fn behind(
    name: &'static str,
    command: Command,
    port: u16,
    folder: Folder,
    mut inner: Origin,
) -> Origin {
    let tasks = std::mem::take(&mut inner._alive.tasks);
    Origin {
        name,
        target: format!("http://127.0.0.1:{port}"),
        settings: "",
        _alive: Alive {
            _process: Some(Process::start(name, command)),
            _folder: Some(folder),
            tasks,
            ..Alive::none()
        },
    }
}

fn program_of(name: &'static str, command: Command, port: u16) -> Origin {
    Origin {
        name,
        target: format!("http://127.0.0.1:{port}"),
        settings: "",
        _alive: Alive {
            _process: Some(Process::start(name, command)),
            ..Alive::none()
        },
    }
}

fn apps() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack/apps")
}

fn node() -> Result<Origin, Missing> {
    let port = port::free();
    let mut command = Command::new(program("node")?);
    command
        .arg(apps().join("count_node.mjs"))
        .arg(port.to_string());
    Ok(program_of("node", command, port))
}

fn module(args: &[&str]) -> Result<Command, Missing> {
    let mut command = Command::new(python()?);
    command
        .arg("-m")
        .args(args)
        .current_dir(apps())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

fn uvicorn(name: &'static str, parser: &str) -> Result<Origin, Missing> {
    let port = port::free();
    let text = port.to_string();
    let mut command = module(&["uvicorn", "count_asgi:app", "--port", &text])?;
    command.args(["--http", parser, "--ws", "none", "--lifespan", "off"]);
    command.args(["--timeout-keep-alive", "60", "--log-level", "error"]);
    Ok(program_of(name, command, port))
}

fn gunicorn() -> Result<Origin, Missing> {
    let port = port::free();
    let bind = format!("127.0.0.1:{port}");
    let mut command = module(&["gunicorn", "count_wsgi:app", "--bind", &bind])?;
    command.args(["--worker-class", "gthread", "--threads", "8"]);
    command.args(["--workers", "1", "--keep-alive", "60"]);
    Ok(program_of("gunicorn", command, port))
}
