//! What one attacked connection makes the gateway hold: measured as its growth with each attacker more.

use std::net::SocketAddr;
use std::time::Duration;

use bridgehead_tests::app::App;
use bridgehead_tests::h2c::{self, H2};
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::ALONE;
use crate::attackers::ATTACKS;
use crate::floods::{Door, live, victim};

/// What one connection may hold.
const MOST_OF_ONE: u64 = 4 << 20;
/// What `h2` itself takes for a hundred connections to an app, one an exchange: 28 KiB each for its codec.
const OF_H2: u64 = 100 * (28 << 10);
/// Attackers that hold all they can before it is measured: what a process takes once, with the first of
/// them, belongs to none.
const FIRST: usize = 2;
/// Attackers by whom it grows.
const MORE: usize = 4;

/// By how much the gateway may still grow when it has taken what it will.
const STEADY: u64 = 256 << 10;
/// Rounds after which it is measured as it is.
const ROUNDS: usize = 20;

/// The most that the gateway has, once it grows no more: what is held may be given back before its
/// holder leaves. A round lasts until somebody else is answered, who asked last: on a busy machine the
/// app comes to answer an attacker only after a second, and nothing grows until then.
async fn settled(world: &World) -> u64 {
    let mut most = world.gateway.resident();
    for _ in 0..ROUNDS {
        let before = most;
        world.get("/fine").await;
        for _ in 0..10 {
            wait::dawdle(Duration::from_millis(50)).await;
            most = most.max(world.gateway.resident());
        }
        if most <= before + STEADY {
            break;
        }
    }
    most
}

/// Bytes by which the gateway grows with each attacker that holds all it can.
async fn grown<T>(world: &World, attacker: impl AsyncFn() -> T) -> u64 {
    let mut held = Vec::new();
    for _ in 0..FIRST {
        held.push(attacker().await);
    }
    let before = settled(world).await;
    for _ in 0..MORE {
        held.push(attacker().await);
    }
    settled(world).await.saturating_sub(before) / MORE as u64
}

fn judge(name: &str, each: u64, most: u64) {
    let mib = each as f64 / f64::from(1 << 20);
    println!("{name:>60}: {mib:.2} MiB a connection");
    assert!(each <= most, "{name}: {each} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_attacked_connection_holds_little() {
    let _alone = ALONE.lock().await;
    let app = App::start(victim).await;
    for attack in ATTACKS {
        // A process of its own: memory that an earlier attack gave back would hide what this one takes.
        // Every stream has a place, so that the app answers all of them.
        let world = setup().app("demo", "in_flight = 1000").start().await;
        let _agent = world.join("a1", &[("demo", &app.target())]).await;
        let host = world.host("demo");
        drop(live(&world, Door::Plain, Duration::from_millis(250)).await);
        let mut burst = Vec::new();
        (0..20).for_each(|n| burst.extend((attack.burst)(n, &host)));
        let one = async || {
            let connected = TcpStream::connect(world.places.public).await;
            let mut stream = connected.expect("the gateway accepts");
            let sent = stream.write_all(&burst).await;
            sent.expect("it takes the requests");
            stream
        };
        judge(attack.name, grown(&world, one).await, MOST_OF_ONE);
    }
}

/// Requests of a client that keeps to every rule of HTTP/2, a hundred at once.
struct Holding {
    name: &'static str,
    /// What the app does, see [`http1`].
    path: &'static str,
    /// With a body.
    sends: bool,
    /// Bytes of an answer that the client takes.
    window: u32,
    most: u64,
}

const HOLDING: &[Holding] = &[
    Holding {
        name: "bodies that the app does not take",
        path: "/deaf",
        sends: true,
        window: 65_535,
        most: MOST_OF_ONE,
    },
    Holding {
        name: "bodies that the app takes and does not answer",
        path: "/silent",
        sends: true,
        window: 65_535,
        most: MOST_OF_ONE,
    },
    Holding {
        name: "bodies that the app does not take, and answers unread",
        path: "/gush",
        sends: true,
        window: 0,
        // Both ways at once: `h2_held` twice, beside full windows of HTTP/2.
        most: 6 << 20,
    },
    Holding {
        name: "answers whose client stops reading",
        path: "/gush",
        sends: false,
        window: 1 << 18,
        most: MOST_OF_ONE,
    },
];

/// More than anybody between the client and the app holds of one body.
const BODY: usize = 1 << 20;
static ZEROES: [u8; BODY] = [0; BODY];

/// A connection with a hundred requests, which takes its window's worth of each answer. Ends when dropped.
async fn hold(addr: SocketAddr, host: &str, holding: &Holding) -> JoinSet<()> {
    let stream = TcpStream::connect(addr).await.expect("it accepts");
    let handshake = h2::client::Builder::new()
        .initial_window_size(holding.window)
        .initial_connection_window_size(1 << 30)
        .handshake(stream);
    let (send, connection) = handshake.await.expect("an HTTP/2 connection");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    for _ in 0..100 {
        let send = send.clone().ready().await;
        let request = H2::head("POST", host, holding.path);
        let asked = send.and_then(|mut send| send.send_request(request, !holding.sends));
        let (answer, mut body) = asked.expect("the connection stands");
        tasks.spawn(async move {
            let answer = answer.await;
            std::future::pending::<()>().await;
            drop(answer);
        });
        if !holding.sends {
            continue;
        }
        tasks.spawn(async move {
            h2c::send_all(&mut body, Bytes::from_static(&ZEROES), false).await;
            std::future::pending::<()>().await;
        });
    }
    tasks
}

/// Takes nothing behind a head, or all and answers nothing, or answers without end and takes nothing.
async fn http1(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let got = stream.read(&mut buffer[..1024]).await?;
        let head = String::from_utf8_lossy(&buffer[..got]).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path {
            "/deaf" => std::future::pending().await,
            "/silent" => while stream.read(&mut buffer).await? > 0 {},
            "/gush" => {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                loop {
                    stream.write_all(&buffer).await?;
                }
            }
            "" => return Ok(()),
            _ => {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
                stream.write_all(answer.as_bytes()).await?;
            }
        }
    }
}

/// The same by HTTP/2.
async fn http2(stream: TcpStream) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    let mut exchanges = JoinSet::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        exchanges.spawn(async move {
            let path = request.uri().path().to_owned();
            let mut body = request.into_body();
            let mut answer = |end| respond.send_response(http::Response::new(()), end);
            match path.as_str() {
                "/deaf" => std::future::pending().await,
                "/silent" => {
                    while let Some(Ok(part)) = body.data().await {
                        drop(body.flow_control().release_capacity(part.len()));
                    }
                }
                "/gush" => {
                    let Ok(mut send) = answer(false) else { return };
                    for _ in 0..1024 {
                        h2c::send_all(&mut send, Bytes::from_static(&ZEROES), false).await;
                    }
                }
                _ => drop(answer(true)),
            }
        });
    }
}

/// An app; it records nothing.
async fn listen<F>(app: fn(TcpStream) -> F) -> (SocketAddr, JoinSet<()>)
where
    F: Future<Output: Send> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(async move { drop(app(stream).await) });
        }
    });
    (addr, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_nobody_takes_or_reads_hold_little() {
    let _alone = ALONE.lock().await;
    let (by_http1, _tasks) = listen(http1).await;
    let (by_http2, _tasks_too) = listen(http2).await;
    for holding in HOLDING {
        for (protocol, target, beside) in [
            ("http1", format!("http://{by_http1}"), 0),
            ("h2c", format!("h2c://{by_http2}"), OF_H2),
        ] {
            let app = format!("in_flight = 1000\nprotocol = \"{protocol}\"");
            let world = setup().app("demo", &app).start().await;
            let _agent = world.join("a1", &[("demo", &target)]).await;
            let host = world.host("demo");
            drop(live(&world, Door::Plain, Duration::from_millis(250)).await);
            let one = async || hold(world.places.public, &host, holding).await;
            let each = grown(&world, one).await;
            let most = holding.most + beside;
            judge(&format!("{protocol}: {}", holding.name), each, most);
        }
    }
}
