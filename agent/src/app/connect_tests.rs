//! Tests against real sockets of this machine: each kind of failure gives its own reason.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn dialer(target: &str) -> Dialer {
    Dialer::build(Target::parse(target).expect(target), &AppTrust::Anything).expect("dialer")
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    (listener, port)
}

/// A port where nobody listens, kept from everybody else by a bound socket that does not listen.
fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let port = socket.local_addr().expect("address").port();
    (socket, port)
}

#[tokio::test]
async fn an_open_port_connects_with_a_small_send_buffer() {
    let (listener, port) = listener().await;
    let mut socket = dialer(&port.to_string())
        .connect(soon())
        .await
        .expect("connected");
    let AppSocket::Tcp(tcp) = &socket else {
        panic!("not tcp")
    };
    assert!(tcp.nodelay().expect("nodelay"));
    // Linux counts its own bookkeeping and doubles what it was asked for.
    let buffer = socket2::SockRef::from(tcp)
        .send_buffer_size()
        .expect("buffer");
    assert!(buffer <= 2 * 128 * 1024, "{buffer}");
    let (mut peer, _) = listener.accept().await.expect("accept");
    socket.write_all(b"ping").await.expect("write");
    let mut seen = [0; 4];
    peer.read_exact(&mut seen).await.expect("read");
    assert_eq!(&seen, b"ping");
}

#[tokio::test]
async fn a_closed_port_is_refused_with_its_error_number() {
    let (_kept, port) = closed_port();
    let error = dialer(&format!("127.0.0.1:{port}"))
        .connect(soon())
        .await
        .expect_err("closed");
    assert_eq!(error.reason, RefusedReason::ConnectRefused);
    #[cfg(unix)]
    assert_eq!(
        i32::from(error.errno),
        rustix::io::Errno::CONNREFUSED.raw_os_error()
    );
    assert!(error.text.contains(&port.to_string()), "{error}");
}

#[tokio::test]
async fn localhost_finds_an_app_that_listens_on_either_loopback() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    };
    let port = listener.local_addr().expect("address").port();
    dialer(&format!("localhost:{port}"))
        .connect(soon())
        .await
        .expect("connected");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_unreachable() {
    let error = dialer("http://app.invalid:80")
        .connect(soon())
        .await
        .expect_err("no such name");
    assert_eq!(error.reason, RefusedReason::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_never_finishes_tls_times_out_and_an_exchange_whose_time_is_over_expires() {
    let (listener, port) = listener().await;
    // The backlog accepts for the kernel; nobody ever answers the hello.
    let app = dialer(&format!("https://127.0.0.1:{port}"));
    let error = app.connect(soon()).await.expect_err("silent");
    assert_eq!(error.reason, RefusedReason::ConnectTimeout);
    let error = app
        .connect(Instant::now() + Duration::from_millis(100))
        .await
        .expect_err("silent");
    assert_eq!(error.reason, RefusedReason::Expired);
    drop(listener);
}

#[tokio::test]
async fn an_app_that_speaks_no_tls_is_told_apart_from_one_that_is_away() {
    let (listener, port) = listener().await;
    let answer = async {
        let (mut peer, _) = listener.accept().await.expect("accept");
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("write");
        peer
    };
    let app = dialer(&format!("https://127.0.0.1:{port}"));
    let (done, _peer) = tokio::join!(app.connect(soon()), answer);
    assert_eq!(done.expect_err("no tls").reason, RefusedReason::TlsFailed);
}

struct TlsApp {
    acceptor: tokio_rustls::TlsAcceptor,
    certificate: rustls::pki_types::CertificateDer<'static>,
}

fn tls_app() -> TlsApp {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("certificate");
    let certificate = made.cert.der().clone();
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("key");
    let config =
        rustls::ServerConfig::builder_with_provider(bridgehead_protocol::io::tls::provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("config");
    TlsApp {
        acceptor: Arc::new(config).into(),
        certificate,
    }
}

#[tokio::test]
async fn an_encrypted_app_is_verified_unless_its_owner_says_otherwise() {
    let app = tls_app();
    let cases = [
        (AppTrust::Anything, true),
        (AppTrust::Roots(vec![app.certificate.clone()]), true),
        (AppTrust::Roots(vec![tls_app().certificate]), false),
    ];
    for (trust, accepted) in cases {
        let (listener, port) = listener().await;
        let target = Target::parse(&format!("https://localhost:{port}")).expect("target");
        let dialer = Dialer::build(target, &trust).expect("dialer");
        let serve = async {
            let (peer, _) = listener.accept().await.expect("accept");
            app.acceptor.accept(peer).await
        };
        let (done, served) = tokio::join!(dialer.connect(soon()), serve);
        if accepted {
            let mut near = done.expect("connected");
            let mut far = served.expect("served");
            near.write_all(b"ping").await.expect("write");
            near.flush().await.expect("flush");
            let mut seen = [0; 4];
            far.read_exact(&mut seen).await.expect("read");
            assert_eq!(&seen, b"ping");
        } else {
            assert_eq!(
                done.expect_err("wrong root").reason,
                RefusedReason::TlsFailed
            );
        }
    }
}

#[tokio::test]
async fn an_aborted_connection_ends_with_a_reset() {
    let (listener, port) = listener().await;
    let socket = dialer(&port.to_string())
        .connect(soon())
        .await
        .expect("connected");
    let (mut peer, _) = listener.accept().await.expect("accept");
    socket.abort_on_drop();
    drop(socket);
    let error = peer.read_u8().await.expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_connects_and_a_missing_or_dead_one_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("app.sock");
    let target = format!("unix:{}", path.display());
    let error = dialer(&target).connect(soon()).await.expect_err("missing");
    assert_eq!(error.reason, RefusedReason::ConnectRefused);
    let listener = tokio::net::UnixListener::bind(&path).expect("bind");
    dialer(&target).connect(soon()).await.expect("connected");
    // A killed app leaves its file behind.
    drop(listener);
    let error = dialer(&target).connect(soon()).await.expect_err("dead");
    assert_eq!(error.reason, RefusedReason::ConnectRefused);
}

#[test]
fn used_up_descriptors_and_ports_are_the_agents_limit_not_the_apps_fault() {
    #[cfg(unix)]
    for errno in [
        rustix::io::Errno::MFILE,
        rustix::io::Errno::NFILE,
        rustix::io::Errno::ADDRNOTAVAIL,
    ] {
        assert_eq!(classify(&errno.into()), RefusedReason::Limit);
    }
    assert_eq!(
        classify(&io::ErrorKind::HostUnreachable.into()),
        RefusedReason::Unreachable
    );
    assert_eq!(
        classify(&io::ErrorKind::TimedOut.into()),
        RefusedReason::ConnectTimeout
    );
}
