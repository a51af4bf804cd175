//! Who asks, and whether the lists of the app let the address in.

use std::net::IpAddr;

use super::denied::Denied;
use crate::config::Cidr;

/// Who asks, as limits tell clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// An IPv4 address, or the /64 of an IPv6 one: a household is given at least that much.
    Address(u64),
    /// The hash of what a field said. The value itself may be a secret and is not kept.
    Key([u8; 16]),
}

impl Client {
    /// The client behind an address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::Address(u64::from(v4.to_bits())),
            // The upper half of a public address is never below 2³², so the two cannot meet.
            IpAddr::V6(v6) => Self::Address(u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX)),
        }
    }
}

/// The deny list goes before the allow list; an empty allow list means everyone.
pub(super) fn check(allow: &[Cidr], deny: &[Cidr], address: IpAddr) -> Result<(), Denied> {
    let in_list = |list: &[Cidr]| list.iter().any(|net| net.contains(address));
    match in_list(deny) || (!allow.is_empty() && !in_list(allow)) {
        true => Err(Denied::Address),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nets(list: &[&str]) -> Vec<Cidr> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn denied(allow: &[&str], deny: &[&str], address: &str) -> bool {
        check(&nets(allow), &nets(deny), address.parse().unwrap()).is_err()
    }

    #[test]
    fn empty_lists_let_everyone_in() {
        assert!(!denied(&[], &[], "192.0.2.1"));
    }

    #[test]
    fn a_denied_address_stays_out_even_if_it_is_allowed() {
        assert!(denied(&["192.0.2.0/24"], &["192.0.2.1"], "192.0.2.1"));
        assert!(denied(&[], &["192.0.2.1"], "::ffff:192.0.2.1"));
        assert!(!denied(&["192.0.2.0/24"], &["192.0.2.1"], "192.0.2.2"));
    }

    #[test]
    fn with_an_allow_list_everyone_else_stays_out() {
        assert!(denied(&["10.0.0.0/8"], &[], "192.0.2.1"));
        assert!(denied(&["10.0.0.0/8"], &[], "2001:db8::1"));
        assert!(!denied(&["10.0.0.0/8"], &[], "10.1.2.3"));
    }

    #[test]
    fn an_ipv6_household_is_one_client_and_an_ipv4_address_another() {
        let client = |address: &str| Client::at(address.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
