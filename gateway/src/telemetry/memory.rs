//! How much memory the process holds and may hold, and how many files, from the kernel's own account.
//!
//! Reads small files of `/proc` and the cgroup's; decides nothing about budgets.

use std::path::{Path, PathBuf};

/// Resident set of this process in bytes; `None` where the kernel does not say.
#[must_use]
pub fn resident() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Open files of this process; `None` where the kernel does not say.
#[must_use]
pub fn open_files() -> Option<u64> {
    // The folder is open itself while it is read.
    let all = std::fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(all.saturating_sub(1)).ok()
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
    let group = groups().iter().filter_map(|group| limit_of(group)).min();
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total(&text));
    match (group, machine) {
        (Some(group), Some(machine)) => Some(machine.min(group)),
        (group, machine) => group.or(machine),
    }
}

/// Where the kernel shows cgroups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Folders of this process's cgroup and of those it lies in. Inside a container the path of the
/// outside may be told; the root of what is shown is asked in any case.
fn groups() -> Vec<PathBuf> {
    let told = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = group_of(&told).unwrap_or_default();
    let own = Path::new(GROUPS).join(own);
    let shown = |folder: &&Path| folder.starts_with(GROUPS);
    own.ancestors()
        .take_while(shown)
        .map(Path::to_path_buf)
        .collect()
}

/// The path in the line of the unified hierarchy, `0::/path`.
fn group_of(told: &str) -> Option<&str> {
    let line = told.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!line.split('/').any(|part| part == "..")).then_some(line)
}

/// The limit of one cgroup; `max` is none.
fn limit_of(group: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("memory.max")).ok()?;
    text.trim().parse().ok()
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
    fn the_own_cgroup_is_the_one_of_the_unified_hierarchy() {
        let told = "12:memory:/old\n0::/system.slice/bh-gateway.service\n";
        assert_eq!(group_of(told), Some("system.slice/bh-gateway.service"));
        assert_eq!(group_of("0::/\n"), Some(""));
        assert_eq!(group_of("0::/../../outside\n"), None);
        assert_eq!(group_of("1:cpu:/x\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn open_files_are_counted() {
        let files: Vec<_> = (0..100)
            .map(|_| std::fs::File::open("/proc/self/stat"))
            .collect();
        assert!(open_files().expect("linux says") >= 100);
        drop(files);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_a_resident_size() {
        assert!(resident().expect("linux says") > 100_000);
    }
}
