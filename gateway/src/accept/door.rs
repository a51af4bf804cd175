//! The door of a full house: whoever there is no place for is told so, as long as that is cheap.
//!
//! A plain connection gets its first request answered and is closed; for one with TLS the handshake
//! would cost more than it saves, so it is reset. Few are told at a time and each only briefly: a
//! crowd at the door must not become a second house.

use std::time::Duration;

use super::{Corridor, Limits, Refusal, Spoken};
use crate::request::front::{ClientAnswer, ClientBody, ClientInfo, ClientProtocol, RawHead};

/// Longest time somebody stands at the door.
pub(super) const DOOR: Duration = Duration::from_secs(3);
/// Longest wait for each of the things a client has to do there.
const STEP: Duration = Duration::from_secs(1);
/// Bytes of an unwanted body that are thrown away so that the answer arrives.
const DISCARD: u64 = 256 * 1024;

/// A corridor that refuses everything.
#[derive(Clone, Debug)]
pub(super) struct Doorkeeper<C>(pub(super) C);

impl<C: Corridor> Corridor for Doorkeeper<C> {
    type Place = C::Place;

    fn connected(&self, spoken: Spoken) -> C::Place {
        self.0.connected(spoken)
    }

    async fn exchange<B: ClientBody, A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        head: RawHead,
        _: &mut B,
        answer: &mut A,
    ) {
        self.0
            .refuse(info, head.protocol, Refusal::Overload, answer);
    }

    fn refuse<A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        protocol: ClientProtocol,
        refusal: Refusal,
        answer: &mut A,
    ) {
        self.0.refuse(info, protocol, refusal, answer);
    }
}

/// The bounds of a connection at the door.
pub(super) fn limits(limits: &Limits) -> Limits {
    Limits {
        head_time: STEP,
        keep_alive: STEP,
        write_stall: STEP,
        discard_time: STEP,
        discard_bytes: DISCARD,
        handshake: STEP,
        ..limits.clone()
    }
}
