//! `/healthz` and `/readyz` for whoever watches the agent's container; off unless asked for.
//!
//! A few lines of HTTP/1.1 by hand: one GET a connection, answered and closed. Bounded in connections,
//! bytes and time, because the address may be reachable by others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ready::{Counts, Readiness};

/// Longest request head read, bytes.
const HEAD_LIMIT: usize = 4096;

/// Longest time one connection may take.
const CONNECTION_LIMIT: Duration = Duration::from_secs(5);

/// Connections served at once; further ones wait in the backlog.
const CONNECTIONS: usize = 16;

/// Pause after an accept that failed for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The listener, bound.
#[derive(Debug)]
pub struct HealthListener {
    listener: TcpListener,
}

impl HealthListener {
    /// Binds the address.
    ///
    /// # Errors
    /// If the system refuses it.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
        })
    }

    /// Where it listens, with the port that was chosen.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until dropped.
    pub async fn serve(self, readiness: Readiness) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "health listener cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let readiness = readiness.clone();
            tokio::spawn(async move {
                let done = timeout(CONNECTION_LIMIT, answer(stream, &readiness)).await;
                if let Ok(Err(error)) = done {
                    tracing::debug!(%error, "health request failed");
                }
                drop(permit);
            });
        }
    }
}

async fn answer<S>(mut stream: S, readiness: &Readiness) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_LIMIT || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let text = respond(line, readiness.counts());
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// The answer to one request line.
fn respond(line: &[u8], counts: Counts) -> String {
    let Counts {
        up: tunnels,
        suspended,
    } = counts;
    let mut words = line.split(|byte| *byte == b' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/healthz") => ("200 OK", "{\"healthy\":true}\n".to_owned()),
        (b"GET" | b"HEAD", b"/readyz") if tunnels > 0 => (
            "200 OK",
            format!("{{\"ready\":true,\"tunnels\":{tunnels},\"suspended\":{suspended}}}\n"),
        ),
        (b"GET" | b"HEAD", b"/readyz") => (
            "503 Service Unavailable",
            format!("{{\"ready\":false,\"tunnels\":0,\"suspended\":{suspended}}}\n"),
        ),
        (b"GET" | b"HEAD", _) => (
            "404 Not Found",
            "{\"error\":\"/healthz or /readyz\"}\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "{\"error\":\"GET only\"}\n".to_owned(),
        ),
    };
    let length = body.len();
    let body = if method == b"HEAD" {
        String::new()
    } else {
        body
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(request: &str, readiness: &Readiness) -> String {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        near.write_all(request.as_bytes()).await.expect("request");
        let mut seen = String::new();
        let read = async {
            near.read_to_string(&mut seen).await.expect("answer");
        };
        let (done, ()) = tokio::join!(answer(far, readiness), read);
        done.expect("answered");
        seen
    }

    #[tokio::test]
    async fn readiness_follows_the_tunnels() {
        let readiness = Readiness::default();
        let request = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
        assert!(
            asked(request, &readiness)
                .await
                .starts_with("HTTP/1.1 503 ")
        );
        let up = readiness.up();
        let seen = asked(request, &readiness).await;
        assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
        assert!(
            seen.ends_with("{\"ready\":true,\"tunnels\":1,\"suspended\":0}\n"),
            "{seen}"
        );
        up.suspended();
        let seen = asked(request, &readiness).await;
        assert!(seen.starts_with("HTTP/1.1 503 "), "{seen}");
        assert!(seen.contains("\"suspended\":1}"), "{seen}");
        up.resumed();
        assert!(
            asked(request, &readiness)
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        drop(up);
        assert!(
            asked(request, &readiness)
                .await
                .starts_with("HTTP/1.1 503 ")
        );
    }

    #[tokio::test]
    async fn health_says_that_the_process_answers_and_nothing_else_is_found() {
        let readiness = Readiness::default();
        for (line, status) in [
            ("GET /healthz?x=1 HTTP/1.1", "200"),
            ("HEAD /healthz HTTP/1.0", "200"),
            ("GET / HTTP/1.1", "404"),
            ("POST /healthz HTTP/1.1", "405"),
            ("nonsense", "405"),
        ] {
            let seen = asked(&format!("{line}\r\n\r\n"), &readiness).await;
            assert!(
                seen.starts_with(&format!("HTTP/1.1 {status} ")),
                "{line}: {seen}"
            );
            assert_eq!(
                seen.ends_with("\r\n\r\n"),
                line.starts_with("HEAD"),
                "{seen}"
            );
        }
    }

    #[tokio::test]
    async fn an_endless_head_gets_no_answer() {
        let readiness = Readiness::default();
        assert_eq!(asked(&"a".repeat(HEAD_LIMIT + 1), &readiness).await, "");
    }

    #[tokio::test]
    async fn the_listener_answers_on_a_real_socket() {
        let listener = HealthListener::bind("127.0.0.1:0".parse().expect("address"))
            .await
            .expect("bind");
        let address = listener.address().expect("address");
        let serving = tokio::spawn(listener.serve(Readiness::default()));
        let mut stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("connect");
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            .await
            .expect("write");
        let mut seen = String::new();
        stream.read_to_string(&mut seen).await.expect("read");
        assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
        serving.abort();
    }
}
