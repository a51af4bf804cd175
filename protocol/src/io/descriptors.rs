//! How many files the process may open: a limit that many systems set far below what thousands of
//! connections need.
//!
//! For programs: a library must not change its host, so nothing here is called by another room of
//! this crate. Numbers are of descriptors; `None` stands for a system without such a limit.

/// Raises the limit that is in force to `wanted`, or as near to it as the system lets it; never lowers
/// it. What cannot be raised is told in the log.
#[cfg(unix)]
pub fn raise(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let known = getrlimit(Resource::Nofile);
    let wanted = known.maximum.map_or(wanted, |hard| hard.min(wanted));
    if known.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: known.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = known.current, "open files stay limited");
    }
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn raise(_wanted: u64) {}

/// The limit in force.
#[cfg(unix)]
#[must_use]
pub fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Other systems have no such limit.
#[cfg(not(unix))]
#[must_use]
pub fn limit() -> Option<u64> {
    None
}

/// How far the limit may be raised.
#[cfg(unix)]
#[must_use]
pub fn most() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

/// Other systems have no such limit.
#[cfg(not(unix))]
#[must_use]
pub fn most() -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be_and_never_lowered() {
        let hard = most();
        for wanted in [65_536, 16] {
            let before = limit();
            raise(wanted);
            let reachable = hard.map_or(wanted, |hard| hard.min(wanted));
            assert!(limit().is_none_or(|soft| soft >= reachable));
            assert!(limit().is_none_or(|soft| before.is_some_and(|before| soft >= before)));
            assert_eq!(most(), hard);
        }
    }
}
