//! Lasting faults in force: about whom, which way, from where, until when. And the draws.
//!
//! Pure.

use std::time::Duration;

use super::decision::LinkId;
use super::script::{Direction, Effect};

/// Connections a span is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    All,
    One(LinkId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) rule: usize,
    pub(super) fault: usize,
    pub(super) whom: Whom,
    pub(super) effect: Effect,
    pub(super) direction: Option<Direction>,
    pub(super) until: Option<Duration>,
    /// First position, each way, that is behind the moment at which it began.
    pub(super) from: [u64; 2],
}

impl Span {
    /// True if it has nothing to do with these bytes.
    pub(super) fn spares(&self, link: LinkId, way: Direction, offset: u64, now: Duration) -> bool {
        self.whom != Whom::All && self.whom != Whom::One(link)
            || self.direction.is_some_and(|d| d != way)
            || self.until.is_some_and(|until| until <= now)
            || offset < self.from[way.index()]
    }
}

/// The finaliser of SplitMix64.
pub(super) const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}
