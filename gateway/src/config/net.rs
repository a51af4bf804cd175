//! Addresses: listeners (`127.0.0.1:8080`, `:8080`) and networks (`10.0.0.0/8`).
//!
//! Pure text to values. Invariant: an IPv4 client that arrives as `::ffff:a.b.c.d` is the same
//! client as `a.b.c.d`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bridgehead_protocol::config::Fault;

/// A network: all addresses that share its first `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}

impl Cidr {
    /// True if `address` lies inside.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                high_bits(u128::from(base.to_bits()) << 96, self.bits)
                    == high_bits(u128::from(address.to_bits()) << 96, self.bits)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                high_bits(base.to_bits(), self.bits) == high_bits(address.to_bits(), self.bits)
            }
            _ => false,
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let fault = || {
            Fault::new(
                format!("\"{text}\" is not a network"),
                "write for example 10.0.0.0/8, 192.0.2.7 or fd00::/8",
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().map_err(|_| fault())?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse::<u8>().map_err(|_| fault())?,
            None => width,
        };
        if bits > width {
            return Err(fault());
        }
        let all = match base {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        if high_bits(all, bits) != all {
            // `10.1.2.3/8` is nearly always a mistake for one host or another mask.
            return Err(Fault::new(
                format!("\"{text}\" has bits set behind its mask"),
                "write the network's first address",
            ));
        }
        Ok(Self { base, bits })
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|fault| fault.to_string())
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

fn high_bits(value: u128, bits: u8) -> u128 {
    match bits {
        0 => 0,
        bits => value & (u128::MAX << (128 - u32::from(bits))),
    }
}

/// Parses a listener's address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for
/// every IPv4 address of the machine.
pub(super) fn parse_listener(text: &str) -> Result<SocketAddr, Fault> {
    let fault = || {
        Fault::new(
            format!("\"{text}\" is not an address with a port"),
            "write for example 127.0.0.1:8080, [::1]:8080 or :8080",
        )
    };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
    let ip = match host {
        "" => Ipv4Addr::UNSPECIFIED,
        "localhost" => Ipv4Addr::LOCALHOST,
        _ => return Err(fault()),
    };
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits).ok_or_else(fault)?;
    Ok(SocketAddr::new(ip.into(), port))
}

/// True if both cannot be bound at once.
pub(super) fn clash(left: SocketAddr, right: SocketAddr) -> bool {
    if left.port() != right.port() || left.port() == 0 {
        return false;
    }
    left.ip() == right.ip() || left.ip().is_unspecified() || right.ip().is_unspecified()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_network_contains_its_addresses_in_both_spellings_of_ipv4() {
        let net = Cidr::parse("10.0.0.0/8").unwrap();
        assert!(net.contains("10.255.0.1".parse().unwrap()));
        assert!(net.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!net.contains("11.0.0.1".parse().unwrap()));
        assert!(!net.contains("::1".parse().unwrap()));
        let one = Cidr::parse("192.0.2.7").unwrap();
        assert!(one.contains("192.0.2.7".parse().unwrap()));
        assert!(!one.contains("192.0.2.8".parse().unwrap()));
        let six = Cidr::parse("fd00::/8").unwrap();
        assert!(six.contains("fd12::1".parse().unwrap()));
        assert!(!six.contains("fe80::1".parse().unwrap()));
        assert!(
            Cidr::parse("0.0.0.0/0")
                .unwrap()
                .contains("8.8.8.8".parse().unwrap())
        );
    }

    #[test]
    fn a_network_with_stray_bits_or_a_bad_mask_is_refused() {
        for bad in [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0",
            "fd00::/129",
            "example.com",
            "",
        ] {
            assert!(Cidr::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_listener_needs_a_port_and_no_name_but_localhost() {
        assert_eq!(
            parse_listener(":8080").unwrap(),
            "0.0.0.0:8080".parse().unwrap()
        );
        assert_eq!(
            parse_listener("localhost:0").unwrap(),
            "127.0.0.1:0".parse().unwrap()
        );
        assert_eq!(
            parse_listener("[::1]:7000").unwrap(),
            "[::1]:7000".parse().unwrap()
        );
        for bad in [
            "8080",
            "127.0.0.1",
            "example.com:80",
            ":x",
            ":99999",
            ":+80",
            "",
        ] {
            assert!(parse_listener(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn listeners_clash_on_one_port_unless_their_addresses_differ() {
        let at = |text: &str| parse_listener(text).unwrap();
        assert!(clash(at(":8080"), at("127.0.0.1:8080")));
        assert!(clash(at("127.0.0.1:8080"), at("127.0.0.1:8080")));
        assert!(!clash(at("127.0.0.1:8080"), at("127.0.0.2:8080")));
        assert!(!clash(at("127.0.0.1:0"), at("127.0.0.1:0")));
        assert!(!clash(at(":8080"), at(":8081")));
    }
}
