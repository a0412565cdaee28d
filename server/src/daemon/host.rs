//! This host, as pools know it.

#![allow(unsafe_code, reason = "`gethostid`, and the C library's local time")]

/// This host's id, as OpenZFS's tools determine it.
pub(in crate::daemon) fn host_id() -> u64 {
    let parse = |text: &str| {
        let text = text.trim();
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let of_module = || std::fs::read_to_string("/sys/module/spl/parameters/spl_hostid").ok();
    let given = std::env::var("ZFS_HOSTID").ok().and_then(|text| parse(&text));
    let id = given.or_else(|| of_module().and_then(|text| parse(&text))).filter(|id| *id != 0);
    // SAFETY: gethostid has no preconditions.
    id.unwrap_or_else(|| unsafe { libc::gethostid() } as u64) & 0xffff_ffff
}

/// This host's name.
pub(in crate::daemon) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Seconds to add to UTC at this moment for the clock of this host.
pub(in crate::daemon) fn utc_offset(seconds: i64) -> i32 {
    // SAFETY: an all-zero `tm` is a valid value; localtime_r only writes to it.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and nothing here changes the environment that names the
    // time zone.
    let filled = unsafe { libc::localtime_r(&seconds, &mut tm) };
    if filled.is_null() { 0 } else { i32::try_from(tm.tm_gmtoff).unwrap_or(0) }
}
