//! The load: closed loops over keep-alive connections, every answer checked.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::paths::Path;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) enum Case {
    /// Requests per second of small exchanges.
    Small { connections: usize, span: Duration },
    /// Bytes per second of one answer.
    Download { bytes: u64 },
    /// Bytes per second of one request body.
    Upload { bytes: u64 },
}

impl Case {
    /// As a row's name.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Small { connections, .. } => {
                format!("small requests, {connections} connections, per second")
            }
            Self::Download { bytes } => format!("download of {} MiB, MiB per second", bytes >> 20),
            Self::Upload { bytes } => format!("upload of {} MiB, MiB per second", bytes >> 20),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Requests or MiB per second.
    pub(crate) rate: f64,
    /// Times of single requests; empty for bulk.
    pub(crate) times: Vec<Duration>,
}

/// Runs one case over one path.
pub(crate) async fn run(path: &Path, case: &Case) -> anyhow::Result<Measured> {
    let result = match case {
        Case::Small { connections, span } => small(path, *connections, *span).await,
        Case::Download { bytes } => download(path, *bytes).await,
        Case::Upload { bytes } => upload(path, *bytes).await,
    };
    result.with_context(|| format!("{}: {}", path.name, case.name()))
}

async fn small(path: &Path, connections: usize, span: Duration) -> anyhow::Result<Measured> {
    let begun = Instant::now();
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (addr, host) = (path.addr, path.host.clone());
        loops.spawn(async move {
            let request = format!("GET /small HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut client = Client::connect(addr).await?;
            let mut times = Vec::new();
            while begun.elapsed() < span {
                let sent = Instant::now();
                client.stream.write_all(request.as_bytes()).await?;
                let length = client.head().await?;
                client.body(length).await?;
                ensure!(length == 5, "an answer of {length} bytes");
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = loops.join_next().await {
        times.extend(done??);
    }
    Ok(Measured {
        rate: times.len() as f64 / begun.elapsed().as_secs_f64(),
        times,
    })
}

async fn download(path: &Path, bytes: u64) -> anyhow::Result<Measured> {
    let mut client = Client::connect(path.addr).await?;
    let begun = Instant::now();
    let request = format!("GET /bulk/{bytes} HTTP/1.1\r\nHost: {}\r\n\r\n", path.host);
    client.stream.write_all(request.as_bytes()).await?;
    let length = client.head().await?;
    ensure!(length == bytes, "an answer of {length} bytes");
    client.body(length).await?;
    Ok(per_second(bytes, begun))
}

async fn upload(path: &Path, bytes: u64) -> anyhow::Result<Measured> {
    let mut client = Client::connect(path.addr).await?;
    let begun = Instant::now();
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: {}\r\nContent-Length: {bytes}\r\n\r\n",
        path.host
    );
    client.stream.write_all(head.as_bytes()).await?;
    let zeros = vec![0; 64 * 1024];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left)?.min(zeros.len());
        client.stream.write_all(&zeros[..part]).await?;
        left -= part as u64;
    }
    let length = client.head().await?;
    let body = client.body(length).await?;
    ensure!(
        body == bytes.to_string().as_bytes(),
        "{} of {bytes} arrived",
        String::from_utf8_lossy(&body)
    );
    Ok(per_second(bytes, begun))
}

fn per_second(bytes: u64, begun: Instant) -> Measured {
    let rate = bytes as f64 / f64::from(1 << 20) / begun.elapsed().as_secs_f64();
    Measured {
        rate,
        times: Vec::new(),
    }
}

struct Client {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    async fn connect(addr: std::net::SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(128 * 1024),
        })
    }

    /// Reads a head, checks that it is a 200, and gives the length of its body.
    async fn head(&mut self) -> anyhow::Result<u64> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            ensure!(
                self.stream.read_buf(&mut self.buffer).await? > 0,
                "the connection ended"
            );
        };
        let head = String::from_utf8_lossy(&self.buffer.split_to(end)).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 200"), "{head}");
        let length = head.split("content-length: ").nth(1).context("a length")?;
        Ok(length
            .split("\r\n")
            .next()
            .context("a length")?
            .trim()
            .parse()?)
    }

    /// Reads a body; only its last read's worth is kept.
    async fn body(&mut self, mut left: u64) -> anyhow::Result<BytesMut> {
        loop {
            if left <= self.buffer.len() as u64 {
                return Ok(self.buffer.split_to(usize::try_from(left)?));
            }
            left -= self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.reserve(128 * 1024);
            ensure!(
                self.stream.read_buf(&mut self.buffer).await? > 0,
                "the body ended {left} bytes early"
            );
        }
    }
}
