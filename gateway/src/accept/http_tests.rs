//! Whole connections over real sockets: TLS by server name, ALPN, prior knowledge, PROXY headers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

use super::*;
use crate::accept::gate::Gate;
use crate::accept::listener;
use crate::accept::testing::Scripted;
use crate::cert::CertStore;
use crate::config::{CertificateFiles, Cidr, Config};
use crate::shutdown::Shutdown;
use crate::telemetry::labels::{ConnectionRefused, Listener};
use crate::telemetry::metrics::Metrics;

struct World {
    address: SocketAddr,
    corridor: Scripted,
    gate: Arc<Gate>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
    running: tokio::task::JoinHandle<()>,
}

fn loopback() -> Vec<Cidr> {
    let text = "[public]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[tunnel]\nplain = true\n";
    let config = Config::from_toml(text, "test", Path::new(".")).expect("a configuration");
    config.public.trusted_proxies
}

fn terms(store: &Arc<CertStore>) -> Arc<PublicTerms> {
    PublicTerms::open(store.server_config(&ALPN).expect("terms"))
}

async fn start(tls: Option<Arc<PublicTerms>>, trusted: Vec<Cidr>) -> World {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = socket.local_addr().expect("an address");
    let (corridor, metrics, shutdown) = (Scripted::default(), Metrics::new(), Shutdown::new());
    let gate = Gate::new(8, 2, metrics.listener(Listener::Public));
    let front = HttpFront {
        corridor: corridor.clone(),
        limits: Arc::new(ArcSwap::from_pointee(Limits::default())),
        opening: Arc::new(ArcSwap::from_pointee(Opening {
            proxy_headers: !trusted.is_empty(),
            trusted,
            patience: Duration::from_secs(5),
        })),
        tls,
        signal: shutdown.signal(),
    };
    let loop_ = listener::run(socket, Arc::clone(&gate), front, shutdown.signal());
    World {
        address,
        corridor,
        gate,
        metrics,
        shutdown,
        running: tokio::spawn(loop_),
    }
}

impl World {
    async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address).await;
        connected.expect("a connection")
    }

    async fn say(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.expect("a write");
        let mut answer = String::new();
        // A reset is an empty answer here.
        let _end = stream.read_to_string(&mut answer).await;
        answer
    }
}

/// Self-signed pairs, each for one name, and a client that trusts them.
struct Pairs {
    _folder: TempDir,
    files: Vec<CertificateFiles>,
    roots: RootCertStore,
}

fn pairs(names: &[&str]) -> Pairs {
    let folder = tempfile::tempdir().expect("a folder");
    let mut roots = RootCertStore::empty();
    let mut files = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let made = rcgen::generate_simple_self_signed([(*name).to_owned()]).expect("a pair");
        let cert = folder.path().join(format!("{at}.crt"));
        let key = folder.path().join(format!("{at}.key"));
        std::fs::write(&cert, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        roots.add(made.cert.der().clone()).expect("a root");
        files.push(CertificateFiles { cert, key });
    }
    Pairs {
        _folder: folder,
        files,
        roots,
    }
}

impl Pairs {
    async fn connect(
        &self,
        world: &World,
        name: &str,
        alpn: &[&[u8]],
    ) -> std::io::Result<ClientStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, world.connect().await).await
    }
}

fn leaf(stream: &ClientStream<TcpStream>) -> CertificateDer<'static> {
    let chain = stream.get_ref().1.peer_certificates().expect("a chain");
    chain[0].clone().into_owned()
}

const GET: &str = "GET /ignore HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_plain_client_is_served_in_the_http_it_speaks() {
    let world = start(None, Vec::new()).await;
    assert!(world.say(GET).await.ends_with("ignored"));
    // A beginning of the preface that turns into something else is still HTTP/1.
    let early = "PRI /ignore HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(world.say(early).await.ends_with("ignored"));

    let (mut client, connection) = h2::client::handshake(world.connect().await)
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    let request = Request::get("http://a/ignore").body(()).expect("a request");
    let (response, _): (_, h2::SendStream<Bytes>) =
        client.send_request(request, true).expect("a stream");
    assert_eq!(response.await.expect("an answer").status(), 200);
    let seen = world.corridor.seen();
    let peers: Vec<bool> = seen.iter().map(|s| s.head.is_some()).collect();
    assert_eq!(peers, [true; 3]);
}

#[tokio::test]
async fn a_tls_client_chooses_the_certificate_by_name_and_the_protocol_by_alpn() {
    let pairs = pairs(&["one.example", "*.two.example"]);
    let store = Arc::new(CertStore::load(&pairs.files).expect("certificates"));
    let world = start(Some(terms(&store)), Vec::new()).await;

    let mut one = pairs
        .connect(&world, "one.example", &[])
        .await
        .expect("TLS");
    one.write_all(GET.as_bytes()).await.expect("a write");
    let mut answer = String::new();
    one.read_to_string(&mut answer).await.expect("a clean end");
    assert!(answer.ends_with("ignored"), "{answer}");

    let wild = pairs
        .connect(&world, "a.two.example", &ALPN)
        .await
        .expect("TLS");
    assert_eq!(wild.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_ne!(leaf(&wild), leaf(&one));
    let (mut client, connection) = h2::client::handshake(wild).await.expect("a handshake");
    tokio::spawn(connection);
    let request = Request::get("https://a.two.example/ignore").body(());
    let (response, _): (_, h2::SendStream<Bytes>) = client
        .send_request(request.expect("a request"), true)
        .expect("a stream");
    assert_eq!(response.await.expect("an answer").status(), 200);

    let stranger = pairs.connect(&world, "three.example", &[]).await;
    assert!(stranger.is_err(), "the first certificate does not cover it");
}

#[tokio::test]
async fn a_reload_serves_new_handshakes_and_a_bad_one_changes_nothing() {
    let (old, new) = (pairs(&["a.example"]), pairs(&["a.example"]));
    let store = Arc::new(CertStore::load(&old.files).expect("certificates"));
    let world = start(Some(terms(&store)), Vec::new()).await;
    assert!(old.connect(&world, "a.example", &[]).await.is_ok());
    let mixed = CertificateFiles {
        cert: new.files[0].cert.clone(),
        key: old.files[0].key.clone(),
    };
    assert!(store.prepare(&[mixed]).is_err());
    assert!(store.prepare(&[]).is_err());
    assert!(old.connect(&world, "a.example", &[]).await.is_ok());
    let prepared = store.prepare(&new.files).expect("usable");
    assert!(prepared.differs());
    store.replace(prepared);
    assert!(old.connect(&world, "a.example", &[]).await.is_err());
    assert!(new.connect(&world, "a.example", &[]).await.is_ok());
}

#[tokio::test]
async fn a_trusted_proxy_says_who_connected_and_must_say_it() {
    let world = start(None, loopback()).await;
    let header = "PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\n";
    assert!(
        world
            .say(&format!("{header}{GET}"))
            .await
            .ends_with("ignored")
    );
    let info = world.corridor.clients.lock().expect("a lock")[0].clone();
    assert_eq!(info.peer, "192.0.2.1:5000".parse().expect("an address"));
    assert_eq!(info.local, "192.0.2.9:443".parse().expect("an address"));
    assert!(info.announced);
    assert_eq!(
        world.say(GET).await,
        "",
        "a proxy without header is refused"
    );
}

#[tokio::test]
async fn a_proxy_that_says_nothing_valid_is_counted_and_one_that_only_looks_in_is_not() {
    let world = start(None, loopback()).await;
    let refused = || world.gate.refused(ConnectionRefused::ProxyHeader);
    let mut looks_in = world.connect().await;
    looks_in.shutdown().await.expect("an end");
    assert_eq!(looks_in.read(&mut [0]).await.unwrap_or(0), 0, "it is over");
    assert_eq!(refused(), 0);
    let mut stops = world.connect().await;
    stops.write_all(b"PROX").await.expect("a write");
    stops.shutdown().await.expect("an end");
    assert_eq!(stops.read(&mut [0]).await.unwrap_or(0), 0, "it is over");
    assert_eq!(refused(), 1);
    world.say(GET).await;
    assert_eq!(refused(), 2);
}

#[tokio::test]
async fn handshakes_that_come_to_nothing_are_counted_by_the_reason() {
    let pairs = pairs(&["one.example"]);
    let store = Arc::new(CertStore::load(&pairs.files).expect("certificates"));
    let world = start(Some(terms(&store)), Vec::new()).await;
    let failed = |reason: &str| {
        let line =
            format!(r#"bridgehead_tls_failures_total{{listener="public",reason="{reason}"}} "#);
        let text = world.metrics.render().expect("consistent");
        let count = text.lines().find_map(|l| l.strip_prefix(&line));
        count.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    world.say(GET).await;
    assert_eq!((failed("failed"), failed("closed")), (1, 0));
    let mut leaves = world.connect().await;
    leaves.shutdown().await.expect("an end");
    assert_eq!(leaves.read(&mut [0]).await.unwrap_or(0), 0, "it is over");
    assert_eq!((failed("failed"), failed("closed")), (1, 1));
}

#[tokio::test]
async fn a_header_of_a_stranger_is_a_malformed_request() {
    let world = start(None, Vec::new()).await;
    let header = "PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\n";
    let answer = world.say(&format!("{header}{GET}")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn one_address_has_few_places_and_a_drain_ends_idle_connections() {
    let world = start(None, Vec::new()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = world.connect().await;
        let keep = "GET /ignore HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(keep.as_bytes()).await.expect("a write");
        let mut byte = [0];
        stream.read_exact(&mut byte).await.expect("an answer");
        held.push(stream);
    }
    let told = world.say(GET).await;
    assert!(
        told.starts_with("HTTP/1.1 503 ") && told.ends_with("Overload"),
        "{told}"
    );
    let refused = world.gate.refused(ConnectionRefused::PerIp);
    assert_eq!((world.gate.open(), refused), (2, 1));
    world.shutdown.drain();
    world.running.await.expect("the loop ends");
    assert_eq!(world.gate.open(), 0);
}
