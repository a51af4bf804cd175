//! HTTP/2 frames as bytes, by prior knowledge: says what no library would say.
//!
//! Must not: check what it sends, or answer the peer by itself (no WINDOW_UPDATE, no acknowledgement),
//! so that every byte on the wire is the test's. Field blocks use plain literals only; blocks that come
//! back are left undecoded: what an answer says is read from its DATA.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types of RFC 9113 §6.
pub mod kind {
    #![allow(missing_docs)]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// `END_STREAM`, and `ACK` of SETTINGS and PING.
pub const END_STREAM: u8 = 1;
/// `END_HEADERS`.
pub const END_HEADERS: u8 = 4;

/// One frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Stream, 0 for the connection.
    pub stream: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Error code of RST_STREAM and GOAWAY.
    pub fn code(&self) -> Option<u32> {
        let at = match self.kind {
            kind::RST_STREAM => 0,
            kind::GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }
}

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + payload.len());
    let len = u32::try_from(payload.len()).expect("a frame's length has 24 bits");
    out.extend(&len.to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// A SETTINGS frame.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in values {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// RST_STREAM.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// WINDOW_UPDATE.
pub fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// A field block of literals that enter no table.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        literal(&mut out, name.as_ref());
        literal(&mut out, value.as_ref());
    }
    out
}

/// A string of RFC 7541 §5.2 without Huffman coding.
fn literal(out: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(len @ ..127) => out.push(len),
        _ => {
            out.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    out.extend(text);
}

/// HEADERS of a GET.
pub fn get(stream: u32, host: &str, path: &str) -> Vec<u8> {
    request(stream, "GET", host, path, END_STREAM | END_HEADERS)
}

/// HEADERS with the usual pseudo fields.
pub fn request(stream: u32, method: &str, host: &str, path: &str, flags: u8) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":authority", host),
        (":path", path),
    ];
    frame(kind::HEADERS, flags, stream, &block(&fields))
}

/// A connection on which the test says every byte.
pub struct RawH2 {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl RawH2 {
    /// Connects and sends the preface and `settings`.
    pub async fn connect(addr: SocketAddr, values: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(addr)
            .await
            .unwrap_or_else(|e| panic!("{addr} does not answer: {e}"));
        drop(stream.set_nodelay(true));
        let mut raw = Self {
            stream,
            buffer: Vec::new(),
        };
        let mut first = PREFACE.to_vec();
        first.extend(settings(values));
        raw.send(&first).await;
        raw
    }

    /// Sends bytes; false if the peer is gone.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame, or nothing once the connection has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.buffer.get(..9)?;
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let payload = self.buffer.get(9..9 + len)?.to_vec();
        self.buffer.drain(..9 + len);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// Splits into halves, so that a flood can read what it provokes.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }
}
