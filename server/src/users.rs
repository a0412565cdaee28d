//! Users and groups by number and by name, from the system's databases.

#![allow(unsafe_code, reason = "the C library's tables of users and groups")]

use std::ffi::{CStr, CString};

use ondisk::accounting::AccountingObject;

/// The longest entry that is looked at.
const MAX_ENTRY_BYTES: usize = 64 << 10;

/// Name of a user or group. Projects have numbers only.
pub(crate) fn name_of(owner: AccountingObject, id: u64) -> Option<String> {
    match owner {
        AccountingObject::User => name(id),
        AccountingObject::Group => group_name(id),
        AccountingObject::Project => None,
    }
}

pub(crate) fn group_name(gid: u64) -> Option<String> {
    let gid = libc::gid_t::try_from(gid).ok()?;
    let mut buffer = vec![0; MAX_ENTRY_BYTES];
    // SAFETY: an all-zero `group` is a valid one with null pointers.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer's length is the one given.
    let code = unsafe { libc::getgrgid_r(gid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if code != 0 || found.is_null() || entry.gr_name.is_null() {
        return None;
    }
    // SAFETY: the name is terminated and lies in `buffer`, which lives until the end of this function.
    let name = unsafe { CStr::from_ptr(entry.gr_name) };
    Some(name.to_string_lossy().into_owned())
}

/// Name of a user.
pub(crate) fn name(uid: u64) -> Option<String> {
    let uid = libc::uid_t::try_from(uid).ok()?;
    let mut buffer = vec![0; MAX_ENTRY_BYTES];
    // SAFETY: an all-zero `passwd` is a valid one with null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer's length is the one given.
    let code = unsafe { libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if code != 0 || found.is_null() || entry.pw_name.is_null() {
        return None;
    }
    // SAFETY: the name is terminated and lies in `buffer`, which lives until the end of this function.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

/// Number of a user, group or project, given as a number or by its name. Projects have numbers only.
pub(crate) fn id(owner: AccountingObject, who: &str) -> Option<u64> {
    if let Ok(number) = who.parse() {
        return Some(number);
    }
    match owner {
        AccountingObject::User => uid(who),
        AccountingObject::Group => gid(who),
        AccountingObject::Project => None,
    }
}

fn uid(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; MAX_ENTRY_BYTES];
    // SAFETY: an all-zero `passwd` is a valid one with null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name is terminated, all pointers are valid for the call, and the buffer's length is the one
    // given.
    let code =
        unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    (code == 0 && !found.is_null()).then_some(entry.pw_uid.into())
}

pub(crate) fn gid(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; MAX_ENTRY_BYTES];
    // SAFETY: an all-zero `group` is a valid one with null pointers.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name is terminated, all pointers are valid for the call, and the buffer's length is the one
    // given.
    let code =
        unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    (code == 0 && !found.is_null()).then_some(entry.gr_gid.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_0_is_root_both_ways() {
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(name_of(AccountingObject::Group, 0).as_deref(), Some("root"));
        assert_eq!(name_of(AccountingObject::Project, 0), None);
        assert_eq!(id(AccountingObject::User, "root"), Some(0));
        assert_eq!(id(AccountingObject::Group, "root"), Some(0));
        assert_eq!(id(AccountingObject::Project, "root"), None);
        assert_eq!(id(AccountingObject::User, "12"), Some(12));
    }
}
