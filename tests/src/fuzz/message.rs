//! Whole answers of an app, and bodies of clients: however the bytes are cut, the codec gives the same
//! pieces, and a body ends where its framing says and nowhere else.

use bridgehead_gateway::h1::{
    BodyDecoder, BodyError, Decoded, HeadLimits, ResponseFraming, encode, parse_response,
};
use bridgehead_gateway::request::front::BodyLength;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};

use super::feed::Feed;
use super::{signature, size, variant};

pub(super) const WORDS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 304 x\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 5\r\nContent-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"\r\n\r\n",
    b"5\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nx-t: 1\r\ncontent-length: 9\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\r\n",
    b"\n",
    b";",
    b" ",
];

/// What a body decoded to.
#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    ended: bool,
    fault: Option<BodyError>,
    /// Bytes behind the end.
    left: usize,
}

fn read(mut decoder: BodyDecoder, data: &[u8], step: usize) -> Body {
    let mut body = Body {
        data: Vec::new(),
        trailers: None,
        ended: false,
        fault: None,
        left: 0,
    };
    let mut buffer = BytesMut::new();
    let mut pieces = data.chunks(step.max(1));
    loop {
        match decoder.decode(&mut buffer) {
            Ok(Some(Decoded::Data(piece))) => {
                assert!(!piece.is_empty(), "a piece is never empty");
                body.data.extend_from_slice(&piece);
            }
            Ok(Some(Decoded::Trailers(map))) => {
                assert!(body.trailers.is_none() && !map.is_empty());
                body.trailers = Some(map);
            }
            Ok(Some(Decoded::End)) => {
                assert!(decoder.is_done());
                body.ended = true;
                body.left = buffer.len() + pieces.map(<[u8]>::len).sum::<usize>();
                return body;
            }
            Ok(None) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return body,
            },
            Err(error) => {
                assert_eq!(decoder.decode(&mut buffer), Err(error), "a fault stays");
                body.fault = Some(error);
                return body;
            }
        }
    }
}

/// A body as every cut must read it. A fault may be found a little earlier or later, but never hides
/// behind an end.
fn same(decoder: &BodyDecoder, data: &[u8], step: usize) -> Body {
    let whole = read(decoder.clone(), data, data.len());
    let slowly = read(decoder.clone(), data, step);
    assert_eq!(whole, slowly, "cuts of {step} bytes change the body");
    whole
}

pub(super) fn run(data: &[u8]) -> u64 {
    let mut feed = Feed::new(data);
    let step = usize::from(feed.byte()) % 11 + 1;
    match feed.byte() % 3 {
        0 => request(feed.rest(), step),
        1 => answer(feed.rest(), step),
        _ => round(&mut feed, step),
    }
}

/// A chunked body by the letter: bare hexadecimal sizes, CRLF, no extensions. Answers what it says and
/// how long it is.
fn strictly(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = |at: usize| data[at..].windows(2).position(|two| two == b"\r\n");
    let (mut at, mut said) = (0, Vec::new());
    loop {
        let size = line(at)?;
        let digits = std::str::from_utf8(&data[at..at + size]).ok()?;
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(digits, 16).ok()?;
        at += digits.len() + 2;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size)?;
        said.extend_from_slice(data.get(at..end)?);
        at = end;
        if line(at)? != 0 {
            return None;
        }
        at += 2;
    }
    // Trailers, of which one may be dropped; the end is an empty line.
    loop {
        match line(at)? {
            0 => return Some((said, at + 2)),
            len => at += len + 2,
        }
    }
}

fn request(data: &[u8], step: usize) -> u64 {
    let body = same(&BodyDecoder::request(BodyLength::Streamed), data, step);
    if body.ended {
        let read = (body.data.clone(), data.len() - body.left);
        assert_eq!(Some(read), strictly(data), "a strict reader finds the same");
    }
    signature(&[
        4,
        size(body.data.len()),
        u64::from(body.ended),
        variant(&body.fault),
        u64::from(body.trailers.is_some()),
    ])
}

fn answer(data: &[u8], step: usize) -> u64 {
    let (head, len) = match parse_response(data, &HeadLimits::APP, &Method::GET) {
        Ok(Some(found)) => found,
        Ok(None) => return 5,
        Err(error) => return variant(&error),
    };
    let rest = &data[len..];
    let body = same(&BodyDecoder::response(head.framing), rest, step);
    match head.framing {
        ResponseFraming::None | ResponseFraming::Length(0) => {
            assert!(body.ended && body.left == rest.len());
        }
        ResponseFraming::Length(n) => {
            assert_eq!(body.ended, rest.len() as u64 >= n);
            assert!(body.data.len() as u64 <= n);
        }
        ResponseFraming::UntilClose => assert!(!body.ended && body.data == rest),
        ResponseFraming::Chunked => {}
    }
    assert!(!(head.keep_alive && head.framing == ResponseFraming::UntilClose));
    signature(&[
        6,
        variant(&head.framing),
        u64::from(head.keep_alive),
        u64::from(body.ended),
        variant(&body.fault),
        size(body.left).min(3),
    ])
}

/// What we write ourselves is read back.
fn round(feed: &mut Feed<'_>, step: usize) -> u64 {
    let mut out = BytesMut::new();
    let mut wanted = Vec::new();
    while !feed.is_empty() {
        let piece = Bytes::copy_from_slice(feed.bytes(64));
        encode::chunk_header(&mut out, piece.len());
        out.extend_from_slice(&piece);
        encode::chunk_end(&mut out, piece.len());
        wanted.extend_from_slice(&piece);
    }
    encode::last_chunk(&mut out);
    out.extend_from_slice(b"behind");
    let body = same(&BodyDecoder::request(BodyLength::Streamed), &out, step);
    assert_eq!((body.data, body.ended, body.left), (wanted, true, 6));
    7
}
