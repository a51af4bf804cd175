//! What may be said about a request that failed, and what its sender may do next.
//!
//! Owns the closed list of codes with its one table ([`Code`], [`Row`]), the three verdicts
//! ([`Delivery`]), how far a request got ([`Stage`]), why it failed ([`Reason`]), the advice
//! ([`classify`], [`advise`]) and the one function that turns counters into a verdict ([`judge`]).
//! Everything is pure and total. It must not know HTTP types, frames or clocks: the corridor
//! brings evidence here, `gateway::answer` puts the result into words for a client.
//!
//! Invariants: an answer's evidence is never weaker than its code's row; `not_delivered` is said
//! only where no byte of the request reached the app or ever will; what is not proven is `unknown`.

/// Declares a closed list of words: the enum, all its values in order, and both directions of the
/// mapping to text, from one place so that they cannot drift apart.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$inner])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word used on the wire, in logs and in metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value of a word; `None` for a word that is not in the list. Exact, case-sensitive.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

mod advice;
mod code;
mod delivery;
mod evidence;
mod operation;
mod reason;

pub use advice::{Advice, advise, classify};
pub use code::{Code, Reached, RetryAfter, Row};
pub use delivery::{Delivery, Stage};
pub use evidence::{Evidence, Judgement, Terminal, judge};
pub use operation::Operation;
pub use reason::{Reason, WindowKind};
