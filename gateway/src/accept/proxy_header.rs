//! PROXY protocol, versions 1 and 2: what a trusted proxy says about who connected to it.
//!
//! Pure. Only the header is read; everything behind it is the client's. Refuse, never repair: a
//! trusted proxy that sends something else is misconfigured, and guessing would let a client name
//! its own address.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Longest line of version 1, with its CRLF.
const LINE: usize = 107;

/// Longest body of version 2 (addresses and what proxies add to them).
const BODY: usize = 4096;

/// What the proxy said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxied {
    /// The client's address and the one it connected to.
    Client {
        /// Who connected.
        peer: SocketAddr,
        /// To where.
        local: SocketAddr,
    },
    /// The proxy speaks for itself (a health check), or does not know.
    Itself,
}

/// Not a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no valid PROXY header")]
pub struct NotProxied;

/// Parse the header at the front of `buf`; `None` if it is not complete. Gives its length too.
///
/// # Errors
/// The bytes are no PROXY header.
pub fn parse(buf: &[u8]) -> Result<Option<(Proxied, usize)>, NotProxied> {
    if starts_alike(buf, SIGNATURE) {
        return parse_binary(buf);
    }
    if starts_alike(buf, b"PROXY ") {
        return parse_line(buf);
    }
    Err(NotProxied)
}

/// Bytes that surely still belong to the header that `buf` begins; at least one.
#[must_use]
pub fn missing(buf: &[u8]) -> usize {
    let known = match buf.get(12..16) {
        // Both forms are longer than the signature.
        _ if buf.len() < SIGNATURE.len() => SIGNATURE.len(),
        _ if !buf.starts_with(SIGNATURE) => buf.len() + 1,
        None => 16,
        Some(fixed) => 16 + usize::from(u16::from_be_bytes([fixed[2], fixed[3]])),
    };
    known.saturating_sub(buf.len()).max(1)
}

/// True if the shorter of the two begins the other.
fn starts_alike(buf: &[u8], prefix: &[u8]) -> bool {
    let len = buf.len().min(prefix.len());
    buf[..len] == prefix[..len]
}

fn parse_line(buf: &[u8]) -> Result<Option<(Proxied, usize)>, NotProxied> {
    let Some(end) = buf.iter().take(LINE).position(|b| *b == b'\n') else {
        return match buf.len() >= LINE {
            true => Err(NotProxied),
            false => Ok(None),
        };
    };
    let line = buf[..end].strip_suffix(b"\r").ok_or(NotProxied)?;
    let line = std::str::from_utf8(line).map_err(|_| NotProxied)?;
    let words: Vec<&str> = line.split(' ').collect();
    let proxied = match words[..] {
        ["PROXY", "UNKNOWN", ..] => Proxied::Itself,
        ["PROXY", "TCP4", peer, local, peer_port, local_port] => Proxied::Client {
            peer: address::<Ipv4Addr>(peer, peer_port)?,
            local: address::<Ipv4Addr>(local, local_port)?,
        },
        ["PROXY", "TCP6", peer, local, peer_port, local_port] => Proxied::Client {
            peer: address::<Ipv6Addr>(peer, peer_port)?,
            local: address::<Ipv6Addr>(local, local_port)?,
        },
        _ => return Err(NotProxied),
    };
    Ok(Some((proxied, end + 1)))
}

fn address<A: std::str::FromStr + Into<std::net::IpAddr>>(
    address: &str,
    port: &str,
) -> Result<SocketAddr, NotProxied> {
    let address: A = address.parse().map_err(|_| NotProxied)?;
    let plain = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port: u16 = match plain {
        true => port.parse().map_err(|_| NotProxied)?,
        false => return Err(NotProxied),
    };
    Ok(SocketAddr::new(address.into(), port))
}

fn parse_binary(buf: &[u8]) -> Result<Option<(Proxied, usize)>, NotProxied> {
    let Some(&[kind, family, high, low]) = buf.get(12..16) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > BODY {
        return Err(NotProxied);
    }
    let Some(body) = buf.get(16..16 + len) else {
        return Ok(None);
    };
    let proxied = match (kind, family) {
        (0x20, _) => Proxied::Itself,
        (0x21, 0x11) => four(body)?,
        (0x21, 0x21) => six(body)?,
        // UDP, Unix sockets, or unspecified: not a client of ours.
        (0x21, _) => Proxied::Itself,
        _ => return Err(NotProxied),
    };
    Ok(Some((proxied, 16 + len)))
}

fn four(body: &[u8]) -> Result<Proxied, NotProxied> {
    let (peer, rest) = body.split_first_chunk::<4>().ok_or(NotProxied)?;
    let (local, rest) = rest.split_first_chunk::<4>().ok_or(NotProxied)?;
    let (peer_port, local_port) = ports(rest)?;
    Ok(Proxied::Client {
        peer: (Ipv4Addr::from(*peer), peer_port).into(),
        local: (Ipv4Addr::from(*local), local_port).into(),
    })
}

fn six(body: &[u8]) -> Result<Proxied, NotProxied> {
    let (peer, rest) = body.split_first_chunk::<16>().ok_or(NotProxied)?;
    let (local, rest) = rest.split_first_chunk::<16>().ok_or(NotProxied)?;
    let (peer_port, local_port) = ports(rest)?;
    Ok(Proxied::Client {
        peer: (Ipv6Addr::from(*peer), peer_port).into(),
        local: (Ipv6Addr::from(*local), local_port).into(),
    })
}

fn ports(bytes: &[u8]) -> Result<(u16, u16), NotProxied> {
    match bytes {
        [a, b, c, d, ..] => Ok((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))),
        _ => Err(NotProxied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, local: &str) -> Proxied {
        Proxied::Client {
            peer: peer.parse().expect("an address"),
            local: local.parse().expect("an address"),
        }
    }

    /// Every beginning of `header` is incomplete, and it is read whole in front of other bytes.
    fn read(header: &[u8]) -> Proxied {
        for len in 0..header.len() {
            assert_eq!(parse(&header[..len]), Ok(None), "{len}");
            assert!(len + missing(&header[..len]) <= header.len(), "{len}");
        }
        let with_rest = [header, b"GET / HTTP/1.1\r\n"].concat();
        let (proxied, len) = parse(&with_rest).expect("a header").expect("all of it");
        assert_eq!(len, header.len());
        proxied
    }

    #[test]
    fn a_line_names_the_client() {
        assert_eq!(
            read(b"PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\n"),
            client("192.0.2.1:5000", "192.0.2.9:443")
        );
        assert_eq!(
            read(b"PROXY TCP6 2001:db8::1 ::1 5000 443\r\n"),
            client("[2001:db8::1]:5000", "[::1]:443")
        );
        assert_eq!(read(b"PROXY UNKNOWN\r\n"), Proxied::Itself);
    }

    #[test]
    fn a_binary_header_names_the_client() {
        let mut four = SIGNATURE.to_vec();
        four.extend_from_slice(&[
            0x21, 0x11, 0, 15, 192, 0, 2, 1, 192, 0, 2, 9, 0x13, 0x88, 1, 187,
        ]);
        four.extend_from_slice(&[4, 0, 0]);
        assert_eq!(read(&four), client("192.0.2.1:5000", "192.0.2.9:443"));
        let mut local = SIGNATURE.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 0]);
        assert_eq!(read(&local), Proxied::Itself);
    }

    #[test]
    fn anything_else_is_refused() {
        let mut short = SIGNATURE.to_vec();
        short.extend_from_slice(&[0x21, 0x11, 0, 4, 1, 2, 3, 4]);
        let mut version = SIGNATURE.to_vec();
        version.extend_from_slice(&[0x11, 0x11, 0, 0]);
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(200));
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 192.0.2.9 5000\r\n",
            b"PROXY TCP4 ::1 ::1 1 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 +1 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 70000 1\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.9 1 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 1 1\n",
            &short,
            &version,
            long.as_bytes(),
        ] {
            assert_eq!(parse(bytes), Err(NotProxied), "{}", bytes.escape_ascii());
        }
    }
}
