//! Which of an app's tunnels takes the next exchange. Pure.
//!
//! Least in flight relative to weight; a tunnel whose app is known to be down comes last; the rest
//! is decided by the seed, so that equal tunnels share.

use super::registry::{Health, TunnelNumber};

/// One candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The tunnel's number.
    pub number: TunnelNumber,
    /// Exchanges it carries now.
    pub in_flight: usize,
    /// Share of the load; at least 1.
    pub weight: u8,
    /// What the agent says of the app.
    pub health: Health,
    /// It takes new streams.
    pub accepting: bool,
}

/// The position of the candidate to take; `avoid` lists tunnels that were tried and proved not to
/// have delivered. `None` if nobody is left.
#[must_use]
pub fn pick(candidates: &[Candidate], avoid: &[TunnelNumber], seed: u64) -> Option<usize> {
    let count = candidates.len();
    let first = usize::try_from(seed % (count.max(1) as u64)).unwrap_or(0);
    (0..count)
        .map(|step| (first + step) % count)
        .filter(|at| candidates[*at].accepting && !avoid.contains(&candidates[*at].number))
        .min_by_key(|at| load(&candidates[*at]))
}

/// Order of preference: health first, then load per weight in thousandths.
fn load(candidate: &Candidate) -> (bool, usize) {
    let weight = usize::from(candidate.weight.max(1));
    (
        candidate.health == Health::Down,
        candidate.in_flight * 1000 / weight,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u64, in_flight: usize) -> Candidate {
        Candidate {
            number: TunnelNumber(number),
            in_flight,
            weight: 1,
            health: Health::Ready,
            accepting: true,
        }
    }

    #[test]
    fn the_least_loaded_tunnel_is_taken() {
        assert_eq!(
            pick(&[candidate(1, 3), candidate(2, 1), candidate(3, 2)], &[], 0),
            Some(1)
        );
    }

    #[test]
    fn equal_tunnels_share_by_seed() {
        let equal = [candidate(1, 0), candidate(2, 0)];
        assert_eq!(
            (pick(&equal, &[], 0), pick(&equal, &[], 1)),
            (Some(0), Some(1))
        );
    }

    #[test]
    fn weight_divides_the_load() {
        let heavy = Candidate {
            weight: 4,
            ..candidate(2, 3)
        };
        assert_eq!(pick(&[candidate(1, 1), heavy], &[], 0), Some(1));
    }

    #[test]
    fn an_app_known_to_be_down_comes_last_but_is_still_tried() {
        let down = Candidate {
            health: Health::Down,
            ..candidate(1, 0)
        };
        assert_eq!(pick(&[down, candidate(2, 9)], &[], 0), Some(1));
        assert_eq!(pick(&[down], &[], 0), Some(0));
    }

    #[test]
    fn a_tried_or_draining_tunnel_is_not_taken() {
        let draining = Candidate {
            accepting: false,
            ..candidate(2, 0)
        };
        assert_eq!(
            pick(&[candidate(1, 0), draining], &[TunnelNumber(1)], 5),
            None
        );
        assert_eq!(pick(&[], &[], 5), None);
    }
}
