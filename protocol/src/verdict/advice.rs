//! What the sender of a failed request may do. Total over every code and over everything that is
//! not one of our codes; the values themselves stand in the table of `code`.
//!
//! A batch is classified item by item, by the code of each.

use super::{Code, Delivery, Operation};

words! {
    /// What may be done with the same request.
    Advice {
        /// Repeat after the stated pause, a bounded number of times.
        Safe = "safe",
        /// Repeating creates no duplicate, but is useless until the cause is repaired.
        AfterFix = "after_fix",
        /// Look for the effect first; repeat only if it is provably absent.
        VerifyFirst = "verify_first",
        /// Repair the cause or hand the case to a person; a changed request is a new attempt.
        NeverAutomatic = "never_automatic",
    }
}

/// Advice for a client that knows only a code (or not even that).
///
/// An unknown code, or a failure without our envelope, may be read again within bounds; a write
/// has to be verified.
#[must_use]
pub fn classify(code: Option<&str>, operation: Operation) -> Advice {
    match (code.and_then(Code::parse), operation) {
        (Some(code), operation) => code.row().advice(operation),
        (None, Operation::Read) => Advice::Safe,
        (None, Operation::Write) => Advice::VerifyFirst,
    }
}

/// Advice for one answer, whose evidence may be stronger than its code's row.
///
/// `not_delivered` lifts `verify_first` to `safe`. Nothing else changes, nothing is lowered.
#[must_use]
pub fn advise(code: Code, delivery: Delivery, operation: Operation) -> Advice {
    match (code.row().advice(operation), delivery) {
        (Advice::VerifyFirst, Delivery::NotDelivered) => Advice::Safe,
        (advice, _) => advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_is_read_again_and_a_write_is_verified() {
        for code in [
            None,
            Some(""),
            Some("bh_app_timeout"),
            Some("BH_APP_TIMEOUT "),
            Some("502"),
        ] {
            assert_eq!(classify(code, Operation::Read), Advice::Safe);
            assert_eq!(classify(code, Operation::Write), Advice::VerifyFirst);
        }
    }

    #[test]
    fn a_known_code_gives_the_advice_of_its_row() {
        for &code in Code::ALL {
            for &operation in Operation::ALL {
                assert_eq!(
                    classify(Some(code.as_str()), operation),
                    code.row().advice(operation)
                );
            }
        }
    }

    #[test]
    fn only_not_delivered_changes_advice_and_only_verify_first_to_safe() {
        for &code in Code::ALL {
            for &operation in Operation::ALL {
                let row = code.row().advice(operation);
                assert_eq!(advise(code, Delivery::Unknown, operation), row);
                assert_eq!(advise(code, Delivery::Delivered, operation), row);
                let proven = advise(code, Delivery::NotDelivered, operation);
                if row == Advice::VerifyFirst {
                    assert_eq!(proven, Advice::Safe);
                } else {
                    assert_eq!(proven, row);
                }
            }
        }
    }
}
