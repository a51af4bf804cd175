//! How much memory the process holds, from the kernel's own account.
//!
//! Reads one small file of `/proc`; decides nothing about budgets.

/// Resident set of this process in bytes; `None` where the kernel does not say.
#[must_use]
pub fn resident() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The `VmRSS` line of `/proc/PID/status`, which is always in kibibytes.
fn parse(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Bytes this process may use: the cgroup's limit, else the machine's memory; `None` if neither can
/// be read.
#[must_use]
pub fn limit() -> Option<u64> {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total(&text));
    match (group, machine) {
        (Some(group), Some(machine)) => Some(machine.min(group)),
        (group, machine) => group.or(machine),
    }
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_size_is_read_in_bytes() {
        assert_eq!(
            parse("Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n"),
            Some(2_097_152)
        );
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       24000 kB\n"),
            Some(24_576_000)
        );
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_a_resident_size() {
        assert!(resident().expect("linux says") > 100_000);
    }
}
