//! The values of `sharenfs` and `sharesmb`: `on`, `off`, and options of shares.
//!
//! The options of NFS are those of `exports(5)` and a few that OpenZFS translates into them, separated by
//! commas. Those of SMB are some of illumos'; OpenZFS on Linux knows only `on` and `off`, and shares nothing
//! that has others. Values that a pool has already, or that a stream brings, are kept as they are: other
//! systems have other options.
//!
//! Source of the facts: OpenZFS 2.3 `os/linux/nfs.c`, `os/linux/smb.c`, `exports(5)` of nfs-utils 2.6,
//! `sharesmb` of illumos' `zfs(8)`.

use ondisk::nearest::meant;

use super::table::Prop;

/// Options of NFS without a value.
const WORDS: [&str; 27] = [
    "secure",
    "insecure",
    "async",
    "sync",
    "wdelay",
    "no_wdelay",
    "hide",
    "nohide",
    "crossmnt",
    "subtree_check",
    "no_subtree_check",
    "nosub",
    "secure_locks",
    "insecure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "acl",
    "no_acl",
    "nordirplus",
    "pnfs",
    "no_pnfs",
    "security_label",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "fsuid",
];
/// Options of NFS with a value. `root` is one of illumos and FreeBSD.
const WITH_VALUE: [&str; 6] = ["sec", "fsid", "refer", "replicas", "xprtsec", "root"];
/// Options of NFS with a path, or a list of hosts, as value, or without one.
const WITH_OR_WITHOUT: [&str; 4] = ["ro", "rw", "mountpoint", "mp"];
/// Options of NFS whose value is the number of a user or group; -1 stands for none.
const WITH_NUMBER: [&str; 4] = ["anonuid", "anongid", "anon", "root_mapping"];

/// Options of SMB without a value, and with one.
const SMB_WORDS: [&str; 3] = ["ro", "rw", "guestok"];
const SMB_WITH_VALUE: [&str; 3] = ["name", "description", "guestok"];

/// Checks a value of a property of shares; others are none of this.
///
/// # Errors
/// Why it is no such value.
pub(super) fn check(prop: Prop, text: &str) -> Result<(), String> {
    match (prop, text) {
        (Prop::Sharenfs | Prop::Sharesmb, "on" | "off") => Ok(()),
        (Prop::Sharenfs, options) => options.split(',').try_for_each(check_nfs),
        (Prop::Sharesmb, options) => options.split(',').try_for_each(check_smb),
        _ => Ok(()),
    }
}

fn check_nfs(option: &str) -> Result<(), String> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let has = |names: &[&str]| names.contains(&name);
    let is_number = |value: &str| value.parse::<i64>().is_ok_and(|number| number >= -1);
    match value {
        _ if name.is_empty() => Err("an option is empty".to_owned()),
        None if has(&WORDS) || has(&WITH_OR_WITHOUT) => Ok(()),
        Some(value) if has(&WITH_VALUE) || has(&WITH_OR_WITHOUT) => match value.is_empty() {
            true => Err(format!("'{name}=' has no value")),
            false => Ok(()),
        },
        Some(value) if has(&WITH_NUMBER) => match is_number(value) {
            true => Ok(()),
            false => Err(format!("'{name}' needs a number")),
        },
        None if has(&WITH_VALUE) || has(&WITH_NUMBER) => Err(format!("'{name}' needs a value")),
        Some(_) if has(&WORDS) => Err(format!("'{name}' takes no value")),
        _ => {
            let known = ["on", "off"].iter().chain(&WORDS).chain(&WITH_VALUE).chain(&WITH_OR_WITHOUT);
            let meant = meant(&name.to_lowercase(), known.chain(&WITH_NUMBER).copied());
            Err(format!("'{name}' is neither 'on' nor 'off', and no option of exports(5){meant}"))
        }
    }
}

fn check_smb(option: &str) -> Result<(), String> {
    match option.split_once('=') {
        _ if option.is_empty() => Err("an option is empty".to_owned()),
        None if SMB_WORDS.contains(&option) => Ok(()),
        Some((name, "")) if SMB_WITH_VALUE.contains(&name) => Err(format!("'{name}=' has no value")),
        Some(("guestok", "true" | "false")) => Ok(()),
        Some(("guestok", _)) => Err("'guestok' is true or false".to_owned()),
        Some((name, _)) if SMB_WITH_VALUE.contains(&name) => Ok(()),
        Some((name, _)) if SMB_WORDS.contains(&name) => Err(format!("'{name}' takes no value")),
        None if SMB_WITH_VALUE.contains(&option) => Err(format!("'{option}' needs a value")),
        split => {
            let name = split.map_or(option, |(name, _)| name);
            let known = ["on", "off"].iter().chain(&SMB_WORDS).chain(&SMB_WITH_VALUE).copied();
            let meant = meant(&name.to_lowercase(), known);
            Err(format!("'{name}' is neither 'on' nor 'off', and no option of a share by SMB{meant}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_on_or_off_or_have_options_that_there_are() {
        for text in [
            "on",
            "off",
            "rw",
            "ro=@192.168.0.0/16:host.example:*.example.org,no_root_squash",
            "rw=@[fd00::]/8,sec=krb5p:sys,async,no_subtree_check,crossmnt",
            "anonuid=65534,anongid=-1,fsid=0,mountpoint=/srv,mp",
        ] {
            assert_eq!(check(Prop::Sharenfs, text), Ok(()), "{text}");
        }
        for (text, why) in [
            ("ON", "'ON' is neither 'on' nor 'off', and no option of exports(5); did you mean 'on'?"),
            (
                "no_rot_squash",
                "'no_rot_squash' is neither 'on' nor 'off', and no option of exports(5); did you \
                               mean 'no_root_squash'?",
            ),
            ("", "an option is empty"),
            ("rw,,async", "an option is empty"),
            ("rw=", "'rw=' has no value"),
            ("async=1", "'async' takes no value"),
            ("sec", "'sec' needs a value"),
            ("anonuid=nobody", "'anonuid' needs a number"),
        ] {
            assert_eq!(check(Prop::Sharenfs, text), Err(why.to_owned()), "{text}");
        }
        for text in ["off", "name=docs,description=All of them,ro,guestok", "rw,guestok=false"] {
            assert_eq!(check(Prop::Sharesmb, text), Ok(()), "{text}");
        }
        for (text, why) in [
            ("On", "'On' is neither 'on' nor 'off', and no option of a share by SMB; did you mean 'on'?"),
            ("guest_ok=y", "'guest_ok' is neither"),
            ("guestok=y", "'guestok' is true or false"),
            ("name", "'name' needs a value"),
            ("name=", "'name=' has no value"),
            ("ro=host", "'ro' takes no value"),
            ("ro,,rw", "an option is empty"),
        ] {
            let said = check(Prop::Sharesmb, text).unwrap_err();
            assert!(said.starts_with(why), "{text}: {said}");
        }
    }
}
