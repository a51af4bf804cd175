//! Ports of the loopback that no other test is given by chance.
//!
//! Owns: handing out numbers below the range from which the kernel takes those of `bind` to port 0 and of
//! clients. What is chosen here stays free between being chosen and being listened on, and between an
//! app's end and its next start, whatever else runs meanwhile. Invariant: no number is given twice in a
//! process.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below everything the kernel hands out by itself, above what programs usually listen on.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// How many numbers lie between where two processes begin.
const STEP: u32 = 509;

/// A port of the loopback on which nobody listens.
///
/// # Panics
/// If all are taken.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begins = std::process::id().wrapping_mul(STEP);
    for _ in 0..COUNT {
        let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
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
    fn ports_are_given_once_and_never_by_the_kernel() {
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        let of_kernel = TcpListener::bind("127.0.0.1:0").expect("a port");
        let of_kernel = of_kernel.local_addr().expect("an address").port();
        assert!(one < FIRST + COUNT && of_kernel > FIRST + COUNT);
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, one)).expect("it stays free");
        drop(held);
    }
}
