//! The groups of a user.
//!
//! With a request the kernel reports the user and the group of the process, but neither its other groups nor
//! its capabilities. So the groups are looked up, and user number 0 counts as the superuser.

use super::wire::Caller;

impl Caller {
    /// Whether the process behind a request is of a group, or may do as if it were.
    pub(super) fn is_of_group(self, gid: u32) -> bool {
        self.uid == 0 || self.gid == gid || others(self.pid).any(|group| group == gid)
    }
}

/// The further groups of a process; none, if it is gone.
pub(super) fn others(pid: u32) -> impl Iterator<Item = u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let groups: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    groups.into_iter()
}
