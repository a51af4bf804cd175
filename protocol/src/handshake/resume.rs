//! Who may continue a tunnel: what the gateway remembers of one, and what it asks of a HELLO.
//!
//! Pure. Must not look tunnels up; whoever does answers [`gone`] for one it does not know. Invariants:
//! a wrong secret, another identity and another instance get the same answer as a tunnel that never
//! was, so that nobody learns which tunnels there are; an epoch is accepted once.
//!
//! The agent chooses the epoch: one more than in any HELLO before. So a WELCOME that was lost costs
//! nothing, and an attempt that was overtaken by a later one is known as such.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::wire::{Refuse, RefuseCode, ResumeTicket};

use super::server::{Applicant, Identity};

/// What must be shown to continue a tunnel.
#[derive(Clone)]
pub struct Resumable {
    identity: Identity,
    instance: u128,
    secret: [u8; 32],
    /// The highest that was accepted.
    epoch: u32,
}

/// Shows no secret.
impl fmt::Debug for Resumable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumable")
            .field("identity", &self.identity)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Resumable {
    /// What the first WELCOME of a tunnel has promised.
    #[must_use]
    pub fn new(identity: Identity, instance: u128, ticket: &ResumeTicket) -> Self {
        Self {
            identity,
            instance,
            secret: ticket.secret,
            epoch: ticket.epoch,
        }
    }

    /// The epoch of the latest carrier that was let in.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Lets the applicant continue this tunnel. Answers the ticket for WELCOME; from then on no
    /// earlier attempt is let in.
    ///
    /// # Errors
    /// The REFUSE to send: [`gone`], or [`RefuseCode::StaleEpoch`] for one that has the right to know.
    pub fn judge(&mut self, applicant: &Applicant) -> Result<ResumeTicket, Refuse> {
        let Some(ticket) = applicant.resume() else {
            return Err(gone());
        };
        let secret = bool::from(ticket.secret.ct_eq(&self.secret));
        let same = *applicant.identity() == self.identity && applicant.instance() == self.instance;
        if !(secret && same) {
            return Err(gone());
        }
        if ticket.epoch <= self.epoch {
            let text = "a later connection of this tunnel came first";
            return Err(Refuse::of(RefuseCode::StaleEpoch, text));
        }
        self.epoch = ticket.epoch;
        Ok(ticket.clone())
    }
}

/// The answer for a tunnel that is not here, or not for this applicant.
#[must_use]
pub fn gone() -> Refuse {
    Refuse::of(RefuseCode::ResumeGone, "no such tunnel; start anew")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{applicant, ticket};
    use super::*;

    fn resumable() -> Resumable {
        let (identity, instance) = {
            let first = applicant(None, |_| ());
            (first.identity().clone(), first.instance())
        };
        Resumable::new(identity, instance, &ticket(1))
    }

    #[test]
    fn whoever_shows_the_secret_goes_on_under_a_higher_epoch() {
        let mut resumable = resumable();
        let shown = resumable.judge(&applicant(Some(ticket(2)), |_| ()));
        assert_eq!(shown, Ok(ticket(2)));
        assert_eq!(resumable.epoch(), 2);
        // A WELCOME that was lost costs an epoch, nothing else.
        assert!(resumable.judge(&applicant(Some(ticket(9)), |_| ())).is_ok());
    }

    #[test]
    fn an_epoch_is_accepted_once_and_never_a_lower_one() {
        let mut resumable = resumable();
        for epoch in [1, 0] {
            let refused = resumable.judge(&applicant(Some(ticket(epoch)), |_| ()));
            assert_eq!(refused.map_err(|r| r.code), Err(RefuseCode::StaleEpoch));
        }
        assert!(resumable.judge(&applicant(Some(ticket(5)), |_| ())).is_ok());
        for epoch in [5, 4] {
            let refused = resumable.judge(&applicant(Some(ticket(epoch)), |_| ()));
            assert_eq!(refused.map_err(|r| r.code), Err(RefuseCode::StaleEpoch));
        }
    }

    #[test]
    fn a_stranger_cannot_tell_a_tunnel_from_none() {
        let mut resumable = resumable();
        let mut wrong = ticket(7);
        wrong.secret[31] ^= 1;
        let strangers = [
            applicant(Some(wrong.clone()), |_| ()),
            applicant(Some(ticket(7)), |hello| hello.agent = "a2".to_owned()),
            applicant(Some(ticket(7)), |hello| hello.instance = 6),
            // Nor does a wrong secret learn which epochs are over.
            applicant(Some(ResumeTicket { epoch: 0, ..wrong }), |_| ()),
        ];
        for stranger in strangers {
            assert_eq!(resumable.judge(&stranger), Err(gone()));
        }
        assert_eq!(resumable.epoch(), 1, "a stranger uses up no epoch");
    }

    #[test]
    fn the_secret_is_never_printed() {
        assert!(!format!("{:?}", resumable()).contains('3'));
    }
}
