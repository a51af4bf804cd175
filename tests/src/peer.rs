//! A scripted agent: speaks the tunnel's frames over a plain connection, and keeps only the rules it
//! is told to keep.
//!
//! Must not: judge what the gateway says. Whatever it hears is handed to the test, PING included.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bridgehead_protocol::wire::{
    AppHealth, AppKind, AppOffer, Frame, Hello, Limits, PeerLimits, decode, encode,
};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A connection to the tunnel's listener.
pub struct Peer {
    stream: TcpStream,
    heard: BytesMut,
}

impl Peer {
    /// Dials, and says nothing yet.
    pub async fn dial(tunnel: SocketAddr) -> Self {
        let stream = TcpStream::connect(tunnel)
            .await
            .unwrap_or_else(|e| panic!("{tunnel} does not answer: {e}"));
        drop(stream.set_nodelay(true));
        Self {
            stream,
            heard: BytesMut::new(),
        }
    }

    /// Dials from that address of this machine. Whom the listener refuses may get a reset here already.
    pub async fn dial_from(from: IpAddr, tunnel: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(from, 0))?;
        Ok(Self {
            stream: socket.connect(tunnel).await?,
            heard: BytesMut::new(),
        })
    }

    /// Says a frame; false if the gateway is gone.
    pub async fn say(&mut self, frame: &Frame) -> bool {
        let mut out = BytesMut::new();
        encode(frame, &mut out);
        self.say_bytes(&out).await
    }

    /// Says anything.
    pub async fn say_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame, or nothing once the gateway has closed the connection.
    pub async fn hear(&mut self) -> Option<Frame> {
        loop {
            match decode(&mut self.heard, &Limits::default()) {
                Ok(Some(frame)) => return Some(frame),
                Ok(None) => {}
                Err(error) => panic!("the gateway broke the protocol: {error}"),
            }
            match self.stream.read_buf(&mut self.heard).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Hears until `wanted` gives something; PINGs are answered on the way.
    pub async fn until<T>(&mut self, mut wanted: impl FnMut(&Frame) -> Option<T>) -> Option<T> {
        loop {
            let frame = self.hear().await?;
            if let Frame::Ping(bytes) = frame {
                self.say(&Frame::Pong(bytes)).await;
                continue;
            }
            if let Some(found) = wanted(&frame) {
                return Some(found);
            }
        }
    }
}

/// What an agent says first.
pub fn hello(token: &str, agent: &str, apps: &[&str]) -> Hello {
    Hello {
        versions: vec![1],
        features: Vec::new(),
        agent: agent.to_owned(),
        instance: 7,
        token: token.to_owned(),
        apps: apps.iter().map(|name| offer(name)).collect(),
        limits: PeerLimits {
            max_streams: 100,
            initial_credit: 65_536,
            linger: Duration::from_secs(1),
        },
        resume: None,
    }
}

/// An app that is ready.
pub fn offer(name: &str) -> AppOffer {
    AppOffer {
        name: name.to_owned(),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    }
}
