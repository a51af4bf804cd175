//! The app behind every path: answers at once, so that what is measured is the path.
//!
//! `GET /small` → 5 bytes; `GET /bulk/N` → N zero bytes; `POST` → the number of bytes read.

use anyhow::Context;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves until killed; prints its address first.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A broken connection is the other side's news; the origin has nothing to tell.
            drop(connection(stream).await);
        });
    }
}

async fn connection(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut buffer = BytesMut::with_capacity(64 * 1024);
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&buffer.split_to(end)).to_ascii_lowercase();
        let target = head.split(' ').nth(1).context("a target")?;
        if let Some(length) = head.split("content-length: ").nth(1) {
            let length: u64 = length
                .split("\r\n")
                .next()
                .context("a length")?
                .trim()
                .parse()?;
            discard(&mut stream, &mut buffer, length).await?;
            answer(&mut stream, &length.to_string()).await?;
        } else if let Some(length) = target.strip_prefix("/bulk/") {
            bulk(&mut stream, length.parse()?).await?;
        } else {
            answer(&mut stream, "hello").await?;
        }
    }
}

async fn answer(stream: &mut TcpStream, body: &str) -> anyhow::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ";
    Ok(stream
        .write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())
        .await?)
}

async fn discard(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    mut left: u64,
) -> anyhow::Result<()> {
    loop {
        let take = usize::try_from(left)?.min(buffer.len());
        buffer.advance(take);
        left -= take as u64;
        if left == 0 {
            return Ok(());
        }
        buffer.reserve(64 * 1024);
        anyhow::ensure!(stream.read_buf(buffer).await? > 0, "the body ended early");
    }
}

async fn bulk(stream: &mut TcpStream, mut left: u64) -> anyhow::Result<()> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {left}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let zeros = vec![0; 64 * 1024];
    while left > 0 {
        let part = usize::try_from(left)?.min(zeros.len());
        stream.write_all(&zeros[..part]).await?;
        left -= part as u64;
    }
    Ok(())
}
