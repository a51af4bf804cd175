//! A WebSocket as a carrier: frames travel in binary messages, each of one or more whole frames.
//!
//! Owns the message layer only; the HTTP request that leads to it is `upgrade`. No compression.
//! Invariants: a message never holds a part of a frame; at most one message waits for the socket,
//! so the order the scheduler chose is not spoiled by a queue below it; a peer's message is at most
//! [`MAX_INBOUND`] long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Carrier, CarrierKind};
use crate::wire::whole_frames;

/// Bytes of one outbound message; more than one frame of the largest size.
pub const MAX_MESSAGE: usize = 128 * 1024;

/// Bytes of one inbound message, and of one WebSocket frame.
pub const MAX_INBOUND: usize = 1024 * 1024;

/// Read and write buffer of a socket; the library's own is 128 KiB each.
const BUFFER: usize = 8 * 1024;

/// Messages without bytes (pings, pongs, empty ones) taken in one poll: a peer that sends nothing
/// else must not hold the worker.
const IDLE_MESSAGES: usize = 64;

impl Carrier {
    /// The gateway's end of a connection whose upgrade it has answered. `leftover` is what was read
    /// beyond the request.
    pub async fn ws_server<S>(io: S, leftover: &[u8], kind: CarrierKind) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::new(WsIo::new(io, leftover, Role::Server).await, kind)
    }

    /// The agent's end of a connection whose upgrade was answered with 101. `leftover` is what was
    /// read beyond the answer.
    pub async fn ws_client<S>(io: S, leftover: &[u8], kind: CarrierKind) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::new(WsIo::new(io, leftover, Role::Client).await, kind)
    }
}

struct WsIo<S> {
    socket: WebSocketStream<S>,
    /// Rest of the last message read.
    unread: Bytes,
    /// Accepted from the writer, not yet a whole frame.
    unsent: BytesMut,
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WsIo<S> {
    async fn new(io: S, leftover: &[u8], role: Role) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            // One message, its header, and a pong or close beside it.
            .max_write_buffer_size(MAX_MESSAGE + 2 * BUFFER)
            .max_message_size(Some(MAX_INBOUND))
            .max_frame_size(Some(MAX_INBOUND));
        let socket =
            WebSocketStream::from_partially_read(io, leftover.to_vec(), role, Some(config)).await;
        Self {
            socket,
            unread: Bytes::new(),
            unsent: BytesMut::new(),
            ended: false,
        }
    }

    /// Takes the next message with bytes into `unread`, or notes the end.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..IDLE_MESSAGES {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                None | Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                    self.ended = true;
                    return Poll::Ready(Ok(()));
                }
                Some(Ok(Message::Binary(bytes))) if !bytes.is_empty() => {
                    self.unread = bytes;
                    return Poll::Ready(Ok(()));
                }
                // The library queues the pong and sends it with the next poll of either side.
                Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    // Answers the close if the socket takes it at once.
                    let _ = Pin::new(&mut self.socket).poll_flush(cx);
                    self.ended = true;
                    return Poll::Ready(Ok(()));
                }
                Some(Ok(Message::Text(_) | Message::Frame(_))) => {
                    let text = "a message that is not binary";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The message before this one is with the socket first.
        ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(io_error)?;
        let mut taken = 0;
        for slice in slices {
            let room = MAX_MESSAGE - self.unsent.len();
            let part = &slice[..slice.len().min(room)];
            self.unsent.extend_from_slice(part);
            taken += part.len();
        }
        let whole = whole_frames(&self.unsent)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if whole > 0 {
            let message = Message::Binary(self.unsent.split_to(whole).freeze());
            Pin::new(&mut self.socket)
                .start_send(message)
                .map_err(io_error)?;
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.socket).poll_flush(cx) {
                return Poll::Ready(Err(io_error(error)));
            }
        }
        Poll::Ready(Ok(taken))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WsIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.unread.is_empty() && !self.ended {
            ready!(self.poll_message(cx))?;
        }
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WsIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(io_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.socket).poll_close(cx)) {
            Ok(()) | Err(Error::AlreadyClosed | Error::ConnectionClosed) => {}
            Err(error) => return Poll::Ready(Err(io_error(error))),
        }
        Pin::new(self.socket.get_mut()).poll_shutdown(cx)
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

#[cfg(test)]
mod tests;
