//! Where random bits come from: the system's generator, or in the simulation a seed.
//!
//! Whatever is drawn here must be unguessable for strangers, so nothing but the simulation plants a
//! seed. It decides nothing; whoever needs bits says what for.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bits; one per gateway.
#[derive(Debug)]
pub struct Chance {
    /// State of the seeded sequence; `None` asks this thread's generator.
    planted: Option<AtomicU64>,
}

impl Chance {
    /// The system's generator.
    #[must_use]
    pub const fn system() -> Self {
        Self { planted: None }
    }

    /// The same bits in each run with the same `seed`.
    #[must_use]
    pub const fn planted(seed: u64) -> Self {
        Self {
            planted: Some(AtomicU64::new(seed)),
        }
    }

    /// The next `N` bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match &self.planted {
            None => rand::fill(&mut bytes),
            Some(state) => {
                for piece in bytes.chunks_mut(8) {
                    let word = splitmix(state.fetch_add(GAMMA, Ordering::Relaxed));
                    piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
                }
            }
        }
        bytes
    }
}

/// Step of the sequence: odd, so that it visits every state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64.
const fn splitmix(state: u64) -> u64 {
    let z = state.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_seed_gives_the_same_bits_again_and_never_the_same_twice() {
        let (one, other) = (Chance::planted(7), Chance::planted(7));
        let drawn: Vec<[u8; 10]> = (0..4).map(|_| one.bytes()).collect();
        assert!(drawn.iter().all(|bytes| *bytes == other.bytes()));
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_system_does_not_repeat_itself() {
        let chance = Chance::system();
        assert_ne!(chance.bytes::<16>(), chance.bytes::<16>());
    }
}
