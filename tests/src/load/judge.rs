//! What was told, held against what the app saw.
//!
//! Pure. A lie is: `not_delivered` although the app saw a byte; `delivered` although it never answered;
//! a request that arrived twice; a whole answer that is wrong, or that the app never gave.

use std::fmt;

use serde::Serialize;

use super::told::Told;
use crate::oracle::book::{Given, Level, Seen};

/// Something told that is not so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lie {
    /// Number of the request.
    pub id: u64,
    /// What was told and what was so.
    pub what: String,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: {}", self.id, self.what)
    }
}

/// Judges one request; more than one thing may be wrong with it, the first is named.
pub fn judge(id: u64, told: &Told, seen: Seen) -> Option<Lie> {
    let what = match told {
        _ if seen.arrivals > 1 => format!("it reached the app {} times", seen.arrivals),
        Told::Refused(verdict) => match verdict.delivery.as_str() {
            "not_delivered" if seen.level > Level::Nothing => format!(
                "told not_delivered ({}, {}), but the app saw {:?} of it",
                verdict.code, verdict.reason, seen.level
            ),
            "delivered" if seen.given == Given::Nothing => format!(
                "told delivered ({}, {}), but the app did not answer a byte",
                verdict.code, verdict.reason
            ),
            "not_delivered" | "delivered" | "unknown" => return None,
            other => format!("told {other:?}, which is no verdict"),
        },
        Told::Wrong(how) => how.clone(),
        Told::Right if seen.given == Given::Nothing => "answered, but not by the app".to_owned(),
        Told::Right
        | Told::AppSays(_)
        | Told::Foreign(_)
        | Told::Empty(_)
        | Told::Aborted(_)
        | Told::Unreachable(_)
        | Told::Late => return None,
    };
    Some(Lie { id, what })
}

#[cfg(test)]
mod tests {
    use super::super::told::Verdict;
    use super::*;

    fn verdict(delivery: &str) -> Told {
        Told::Refused(Verdict {
            code: "BH_APP_STARTING".into(),
            delivery: delivery.into(),
            reason: "tunnel_lost".into(),
            stage: "none".into(),
        })
    }

    fn seen(level: Level, given: Given) -> Seen {
        Seen {
            level,
            arrivals: u32::from(level > Level::Nothing),
            given,
        }
    }

    #[test]
    fn each_word_is_a_lie_exactly_where_it_is_not_so() {
        use Level::{All, Nothing, PartOfHead};
        for (delivery, level, given, lies) in [
            ("not_delivered", Nothing, Given::Nothing, false),
            ("not_delivered", PartOfHead, Given::Nothing, true),
            ("not_delivered", All, Given::All, true),
            ("unknown", Nothing, Given::Nothing, false),
            ("unknown", All, Given::Nothing, false),
            ("unknown", All, Given::All, false),
            ("delivered", All, Given::Begun, false),
            ("delivered", All, Given::Nothing, true),
            ("perhaps", Nothing, Given::Nothing, true),
        ] {
            let found = judge(1, &verdict(delivery), seen(level, given));
            assert_eq!(found.is_some(), lies, "{delivery} {level:?} {given:?}");
        }
    }

    #[test]
    fn what_reached_the_app_twice_is_a_lie_whatever_was_told() {
        let twice = Seen {
            level: Level::All,
            arrivals: 2,
            given: Given::All,
        };
        for told in [
            Told::Right,
            Told::Late,
            verdict("unknown"),
            verdict("delivered"),
        ] {
            assert!(judge(1, &told, twice).is_some(), "{told:?}");
        }
    }

    #[test]
    fn a_whole_answer_must_be_the_app_s() {
        assert!(judge(1, &Told::Right, seen(Level::All, Given::Nothing)).is_some());
        assert!(judge(1, &Told::Right, seen(Level::All, Given::Begun)).is_none());
        assert!(
            judge(
                1,
                &Told::Wrong("a byte differs".into()),
                seen(Level::All, Given::All)
            )
            .is_some()
        );
        assert!(
            judge(
                1,
                &Told::Aborted("short".into()),
                seen(Level::All, Given::Begun)
            )
            .is_none()
        );
    }
}
