//! The PROXY header: read exactly, never further, and the same however it arrives.

use bridgehead_gateway::accept::proxy_header::{NotProxied, Proxied, missing, parse};

use super::{signature, size};

pub(super) const WORDS: &[&[u8]] = &[
    b"PROXY ",
    b"TCP4 ",
    b"TCP6 ",
    b"UNKNOWN",
    b"192.0.2.1 198.51.100.1 1 65535\r\n",
    b"2001:db8::1 ::1 443 8080\r\n",
    b"\r\n",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\x21\x11\x00\x0c",
    b"\x21\x21\x00\x24",
    b"\x20\x00\x00\x00",
    b"\xff\xff",
    b"\x7f\0\0\x01\x7f\0\0\x01\x00\x50\x01\xbb",
];

/// As the listener reads: as many bytes as surely belong to the header, again and again.
fn read(data: &[u8]) -> Result<Option<(Proxied, usize)>, NotProxied> {
    let mut have = 0;
    loop {
        if let Some(found) = parse(&data[..have])? {
            return Ok(Some(found));
        }
        let more = missing(&data[..have]);
        assert!(more > 0, "reading must go on");
        if have + more > data.len() {
            return Ok(None);
        }
        have += more;
    }
}

pub(super) fn run(data: &[u8]) -> u64 {
    let whole = parse(data);
    let slowly = read(data);
    match (&whole, &slowly) {
        (Ok(Some((proxied, len))), Ok(Some((same, read)))) => {
            assert_eq!(
                (proxied, len),
                (same, read),
                "reading it piece by piece differs"
            );
            assert!(*len <= data.len());
            assert_eq!(
                parse(&data[..*len]),
                whole,
                "what follows changes the header"
            );
            assert_eq!(
                parse(&data[..len - 1]),
                Ok(None),
                "it was complete before its end"
            );
        }
        (Ok(Some(_)), other) => panic!("whole it is a header, in pieces {other:?}"),
        (Ok(None), Ok(Some(_))) => panic!("in pieces it is a header, whole it is not"),
        (Err(_), Ok(Some(_))) => panic!("in pieces it is a header, whole it is none"),
        _ => {}
    }
    let (kind, len) = match &whole {
        Ok(Some((Proxied::Client { peer, .. }, len))) => (3 + u64::from(peer.is_ipv6()), *len),
        Ok(Some((Proxied::Itself, len))) => (5, *len),
        Ok(None) => (1, data.len()),
        Err(_) => (2, data.len()),
    };
    signature(&[kind, size(len), u64::from(slowly.is_err())])
}
