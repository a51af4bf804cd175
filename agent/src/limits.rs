//! Limits of the process that the operating system sets too low by default.
//!
//! Belongs to the binary, like signals: a library must not change its host.

/// Descriptors asked for: one for each stream of a few full tunnels. Not more, because the app's process
/// inherits the limit.
#[cfg(unix)]
const DESCRIPTORS: u64 = 65_536;

/// Raises the soft limit of open files towards the hard one; 1024, as many systems start with, would be
/// used up by a quarter of the streams a tunnel may carry. What cannot be raised is refused per stream.
#[cfg(unix)]
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let known = getrlimit(Resource::Nofile);
    let wanted = known
        .maximum
        .map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
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
pub fn raise_descriptors() {}

#[cfg(all(test, unix))]
mod tests {
    use rustix::process::{Resource, getrlimit};

    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be() {
        let before = getrlimit(Resource::Nofile);
        raise_descriptors();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.maximum, before.maximum);
        let reachable = before
            .maximum
            .map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
        assert!(after.current.is_none_or(|soft| soft >= reachable));
    }
}
