//! Tests of dialling with real sockets and real certificates.

use bridgehead_protocol::io::tls::{always, provider, server_config};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use super::super::address::Plain;
use super::super::proxy::ProxyAddress;
use super::*;

fn token() -> Token {
    Token::generate("k1", &[7; 32]).expect("token")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn gateway(text: &str) -> GatewayAddress {
    GatewayAddress::parse(text, Plain::Anywhere).expect(text)
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    (listener, port)
}

struct Server {
    acceptor: TlsAcceptor,
    root: CertificateDer<'static>,
}

fn server(name: &str, alpn: &[&[u8]]) -> Server {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("certificate");
    let root = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("key");
    let identity = CertifiedKey::from_der(vec![root.clone()], key, &provider()).expect("identity");
    let config = server_config(always(identity), alpn).expect("config");
    Server {
        acceptor: Arc::new(config).into(),
        root,
    }
}

/// What dials `gateway` and trusts `server`.
fn trusting(server: &Server, gateway: &GatewayAddress) -> Dialer {
    let roots = Roots::Only(vec![server.root.clone()]);
    let gateways = std::slice::from_ref(gateway);
    Dialer::build(gateways, &roots, None, Proxies::none()).expect("dialer")
}

/// Dials `localhost` with TLS while `server` answers there.
async fn dial_tls(server: &Server, trusted: &Server) -> Result<Carrier, DialError> {
    let (listener, port) = listener().await;
    let gateway = gateway(&format!("tls://localhost:{port}"));
    let dialer = trusting(trusted, &gateway);
    let serve = async {
        let (stream, _) = listener.accept().await.expect("accept");
        // A failed handshake is the client's to report here.
        server.acceptor.accept(stream).await.ok()
    };
    let token = token();
    let (dialled, _session) = tokio::join!(dialer.dial(&gateway, &token, soon()), serve);
    dialled
}

#[tokio::test]
async fn a_trusted_tunnel_listener_gives_a_carrier() {
    let server = server("localhost", &[ALPN, ALPN_HTTP1]);
    let carrier = dial_tls(&server, &server).await.expect("carrier");
    assert_eq!(carrier.kind(), CarrierKind::Tls);
}

#[tokio::test]
async fn a_listener_without_our_protocol_is_told_apart() {
    let server = server("localhost", &[]);
    let error = dial_tls(&server, &server).await.expect_err("no alpn");
    assert!(error.to_string().contains("no tunnel listener"), "{error}");
    assert_eq!(error.fault(), Fault::Passing);
}

#[tokio::test]
async fn a_certificate_of_a_stranger_or_for_another_host_names_the_cure() {
    let ours = server("localhost", &[ALPN]);
    let stranger = server("localhost", &[ALPN]);
    let error = dial_tls(&ours, &stranger).await.expect_err("stranger");
    assert!(error.to_string().contains("--ca"), "{error}");
    assert_eq!(error.fault(), Fault::SetUp);
    let elsewhere = server("gw.example.com", &[ALPN]);
    let error = dial_tls(&elsewhere, &elsewhere)
        .await
        .expect_err("another host");
    assert!(error.to_string().contains("--gateway"), "{error}");
    assert_eq!(error.fault(), Fault::SetUp);
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_passing_faults() {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let port = socket.local_addr().expect("address").port();
    for (text, said) in [
        (format!("tcp://127.0.0.1:{port}"), "refused"),
        ("tcp://gateway.invalid:7000".to_owned(), "does not resolve"),
    ] {
        let gateway = gateway(&text);
        let dialer = Dialer::build(&[], &Roots::System, None, Proxies::none()).expect("dialer");
        let error = dialer
            .dial(&gateway, &token(), soon())
            .await
            .expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.fault(), Fault::Passing);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_never_speaks_costs_no_more_than_the_deadline() {
    let (_silent, port) = listener().await;
    let server = server("localhost", &[ALPN]);
    let gateway = gateway(&format!("tls://127.0.0.1:{port}"));
    let dialer = trusting(&server, &gateway);
    let until = Instant::now() + Duration::from_secs(10);
    let error = dialer
        .dial(&gateway, &token(), until)
        .await
        .expect_err("silent");
    assert!(matches!(error, DialError::TimedOut(_)), "{error}");
}

#[tokio::test]
async fn a_dead_address_does_not_hide_a_live_one() {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let dead = socket.local_addr().expect("address");
    let (live, _) = listener().await;
    let live = live.local_addr().expect("address");
    let stream = race(VecDeque::from([dead, live]))
        .await
        .expect("the live one");
    assert_eq!(stream.peer_addr().expect("peer"), live);
}

#[test]
fn the_two_families_take_turns_from_the_resolvers_first() {
    let address = |text: &str| text.parse::<SocketAddr>().expect(text);
    let found = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]
        .map(address)
        .to_vec();
    let order: Vec<_> = alternate(found)
        .into_iter()
        .map(|a| a.to_string())
        .collect();
    assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
    let many = (1..100)
        .map(|n| address(&format!("10.0.0.{n}:1")))
        .collect();
    assert_eq!(alternate(many).len(), MOST_ADDRESSES);
}

#[tokio::test]
async fn a_refused_upgrade_names_its_status_and_the_token_travels_in_the_request() {
    let (listener, port) = listener().await;
    let gateway = gateway(&format!("ws://127.0.0.1:{port}"));
    let dialer = Dialer::build(&[], &Roots::System, None, Proxies::none()).expect("dialer");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("head"));
        }
        let answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("answer");
        String::from_utf8(head).expect("text")
    };
    let token = token();
    let (dialled, head) = tokio::join!(dialer.dial(&gateway, &token, soon()), serve);
    let error = dialled.expect_err("401");
    assert!(
        error.to_string().contains("401") && error.to_string().contains("token"),
        "{error}"
    );
    assert_eq!(error.fault(), Fault::SetUp);
    assert!(
        head.contains(token.reveal()),
        "the request carries the token"
    );
    assert!(!error.to_string().contains(token.reveal()));
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_gateway_by_name() {
    let (listener, port) = listener().await;
    let proxy = ProxyAddress::parse(&format!("127.0.0.1:{port}")).expect("proxy");
    let gateway = gateway("tcp://gateway.invalid:7000");
    let dialer = Dialer::build(&[], &Roots::System, None, Proxies::all(proxy)).expect("dialer");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("head"));
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")
            .await
            .expect("answer");
        String::from_utf8(head).expect("text")
    };
    let token = token();
    let (dialled, head) = tokio::join!(dialer.dial(&gateway, &token, soon()), serve);
    assert!(
        head.starts_with("CONNECT gateway.invalid:7000 HTTP/1.1\r\n"),
        "{head}"
    );
    let mut carrier = dialled.expect("carrier");
    let mut first = [0; 5];
    carrier.read_exact(&mut first).await.expect("bytes");
    assert_eq!(&first, b"hello");
}
