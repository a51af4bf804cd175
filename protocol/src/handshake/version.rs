//! Versions of the protocol and features: what both sides have.

use crate::wire::RefuseCode;

/// The version this code speaks best.
pub const NEWEST: u16 = 1;

/// The version before it, as long as there is one: N and N−1 are spoken.
pub const OLDEST: u16 = if NEWEST > 1 { NEWEST - 1 } else { 1 };

/// What this code says in HELLO, highest first.
pub const SPOKEN: &[u16] = if OLDEST == NEWEST {
    &[NEWEST]
} else {
    &[NEWEST, OLDEST]
};

/// The highest version that is in `offered` and within `oldest..=newest`.
pub(super) fn choose(offered: &[u16], oldest: u16, newest: u16) -> Result<u16, RefuseCode> {
    offered
        .iter()
        .copied()
        .filter(|version| (oldest..=newest).contains(version))
        .max()
        .ok_or(RefuseCode::VersionUnsupported)
}

/// The names of `ours` that are in `theirs`, in our order, each once.
pub(super) fn common(ours: &[String], theirs: &[String]) -> Vec<String> {
    let mut both: Vec<String> = Vec::new();
    for name in ours {
        if theirs.contains(name) && !both.contains(name) {
            both.push(name.clone());
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_within_n_and_n_minus_one_is_chosen() {
        assert_eq!(choose(&[5, 4, 3], 3, 4), Ok(4));
        assert_eq!(choose(&[3], 3, 4), Ok(3));
        assert_eq!(choose(&[2, 1], 3, 4), Err(RefuseCode::VersionUnsupported));
        assert_eq!(choose(&[6, 5], 3, 4), Err(RefuseCode::VersionUnsupported));
        assert_eq!(choose(&[], 3, 4), Err(RefuseCode::VersionUnsupported));
    }

    #[test]
    fn what_we_say_we_speak_is_what_we_accept() {
        for version in SPOKEN {
            assert_eq!(choose(&[*version], OLDEST, NEWEST), Ok(*version));
        }
    }

    #[test]
    fn features_are_those_of_both_each_once() {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let ours = names(&["a", "b", "b", "c"]);
        assert_eq!(common(&ours, &names(&["c", "b", "x"])), names(&["b", "c"]));
    }
}
