//! Ports of the loopback that no other test is given by chance.
//!
//! Owns: handing out numbers below the range from which kernels by default take those of `bind` to port 0
//! and of clients. What is chosen here stays free between being chosen and being listened on, and between an
//! app's end and its next start, whatever else runs meanwhile. Invariant: no number is given a second
//! time before all have had their turn.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what kernels hand out by themselves, above what programs usually listen on.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// How many numbers lie between where two processes begin.
const STEP: u32 = 509;

/// A port of the loopback on which nobody listens.
///
/// # Panics
/// If all are taken.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begins = std::process::id().wrapping_mul(STEP);
    for _ in 0..COUNT {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = begins.wrapping_add(next) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of the loopback is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_below_the_kernels_and_nobody_listens_on_them() {
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        for port in [one, other] {
            assert!((FIRST..FIRST + COUNT).contains(&port), "{port}");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        }
    }
}
