//! The `status:`, `action:` and `see:` lines about a pool's health.
//!
//! The sentences are OpenZFS's, because people search for them and scripts compare them. There are two sets:
//! for open pools (`zpool status`) and for pools that could be imported (`zpool import`). Lines after the
//! first begin with a tab.

use server::api::{ImportablePool, PoolStatus, Reason, State};

/// Where OpenZFS explains each message.
pub const MESSAGES: &str = "https://openzfs.github.io/openzfs-docs/msg/";

/// Known defects of software that wrote pools (`zpool_errata_t`).
mod errata {
    pub const SCRUB: u64 = 1;
    pub const ASYNC_DESTROY: u64 = 2;
    pub const ENCRYPTION: u64 = 3;
    pub const BOOKMARKS: u64 = 4;
}

/// The identifier of the message, where OpenZFS explains it.
pub fn message_id(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::MissingReplicas => "ZFS-8000-2Q",
        Reason::MissingNoReplicas => "ZFS-8000-3C",
        Reason::CorruptLabelReplicas => "ZFS-8000-4J",
        Reason::CorruptLabelNoReplicas => "ZFS-8000-5E",
        Reason::BadGuidSum => "ZFS-8000-6X",
        Reason::CorruptPool => "ZFS-8000-72",
        Reason::IoFailureWait => "ZFS-8000-HC",
        Reason::IoFailureContinue => "ZFS-8000-JQ",
        Reason::CorruptData => "ZFS-8000-8A",
        Reason::FailingDevice => "ZFS-8000-9P",
        Reason::VersionNewer => "ZFS-8000-A5",
        Reason::HostidMismatch | Reason::HostidActive | Reason::HostidRequired => "ZFS-8000-EY",
        Reason::BadLog => "ZFS-8000-K4",
        Reason::Errata => "ZFS-8000-ER",
        _ => return None,
    })
}

/// Whether it is said that devices have larger sectors than their pool uses: not where this variable is set.
pub fn warns_of_sectors() -> bool {
    std::env::var_os("ZPOOL_STATUS_NON_NATIVE_ASHIFT_IGNORE").is_none()
}

/// Whether `zpool status -x` leaves the pool out.
pub fn is_healthy(reason: Reason) -> bool {
    (reason == Reason::NonNativeAshift && !warns_of_sectors())
        || matches!(
            reason,
            Reason::Ok
                | Reason::VersionOlder
                | Reason::FeaturesDisabled
                | Reason::CompatibilityError
                | Reason::IncompatibleFeatures
        )
}

/// The fault of an open pool, and the advice. Both end with a line end, or are empty.
pub fn of_open_pool(pool: &PoolStatus) -> (String, String) {
    let (status, action) = match pool.health.reason {
        Reason::Ok | Reason::HostidActive | Reason::HostidRequired | Reason::BadGuidSum => ("", ""),
        Reason::Errata => return of_errata(pool.health.errata),
        Reason::MissingReplicas => (
            "One or more devices could not be opened.  Sufficient replicas exist for\n\
             \tthe pool to continue functioning in a degraded state.\n",
            "Attach the missing device and online it using 'zpool online'.\n",
        ),
        Reason::MissingNoReplicas => (
            "One or more devices could not be opened.  There are insufficient\n\
             \treplicas for the pool to continue functioning.\n",
            "Attach the missing device and online it using 'zpool online'.\n",
        ),
        Reason::CorruptLabelReplicas => (
            "One or more devices could not be used because the label is missing or\n\
             \tinvalid.  Sufficient replicas exist for the pool to continue\n\
             \tfunctioning in a degraded state.\n",
            "Replace the device using 'zpool replace'.\n",
        ),
        Reason::CorruptLabelNoReplicas => (
            "One or more devices could not be used because the label is missing \n\
             \tor invalid.  There are insufficient replicas for the pool to continue\n\
             \tfunctioning.\n",
            "Destroy and re-create the pool from\n\ta backup source.\n",
        ),
        Reason::FailingDevice => (
            "One or more devices has experienced an unrecoverable error.  An\n\
             \tattempt was made to correct the error.  Applications are unaffected.\n",
            "Determine if the device needs to be replaced, and clear the errors\n\
             \tusing 'zpool clear' or replace the device with 'zpool replace'.\n",
        ),
        Reason::AwaitingResilver => (
            "One or more devices do not hold what was written while they were\n\
             \taway.  For that the pool does without their copies: it may be lost\n\
             \twith the other devices of their vdevs.\n",
            "Wait for the resilver, or begin one with 'zpool resilver', and keep\n\
             \tthe other devices until it is complete.\n",
        ),
        Reason::OfflineDevice => (
            "One or more devices has been taken offline by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.\n",
            "Online the device using 'zpool online' or replace the device with\n\
             \t'zpool replace'.\n",
        ),
        Reason::RemovedDevice => (
            "One or more devices has been removed by the administrator.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.\n",
            "Online the device using zpool online' or replace the device with\n\
             \t'zpool replace'.\n",
        ),
        Reason::NonNativeAshift if !warns_of_sectors() => ("", ""),
        Reason::NonNativeAshift => (
            "One or more devices are configured to use a non-native block size.\n\
             \tExpect reduced performance.\n",
            "Replace affected devices with devices that support the\n\
             \tconfigured block size, or migrate data to a properly configured\n\
             \tpool.\n",
        ),
        Reason::Resilvering => (
            "One or more devices is currently being resilvered.  The pool will\n\
             \tcontinue to function, possibly in a degraded state.\n",
            "Wait for the resilver to complete.\n",
        ),
        Reason::CorruptData => (
            "One or more devices has experienced an error resulting in data\n\
             \tcorruption.  Applications may be affected.\n",
            "Restore the file in question if possible.  Otherwise restore the\n\
             \tentire pool from backup.\n",
        ),
        Reason::CorruptPool => (
            "The pool metadata is corrupted and the pool cannot be opened.\n",
            "Destroy and re-create the pool from\n\ta backup source.\n",
        ),
        Reason::IoFailureWait | Reason::IoFailureContinue => (
            "One or more devices are faulted in response to IO failures.\n",
            "Make sure the affected devices are connected, then run 'zpool clear'.\n",
        ),
        Reason::VersionOlder => (
            "The pool is formatted using a legacy on-disk format.  The pool can\n\
             \tstill be used, but some features are unavailable.\n",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\
             \tpool will no longer be accessible on software that does not support\n\
             \tfeature flags.\n",
        ),
        Reason::VersionNewer => (
            "The pool has been upgraded to a newer, incompatible on-disk version.\n\
             \tThe pool cannot be accessed on this system.\n",
            "Access the pool from a system running more recent software, or\n\
             \trestore the pool from backup.\n",
        ),
        Reason::FeaturesDisabled => (
            "Some supported and requested features are not enabled on the pool.\n\
             \tThe pool can still be used, but some features are unavailable.\n",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\
             \tthe pool may no longer be accessible by software that does not support\n\
             \tthe features. See zpool-features(7) for details.\n",
        ),
        Reason::CompatibilityError => (
            "This pool has a compatibility list specified, but it could not be\n\
             \tread/parsed at this time. The pool can still be used, but this\n\
             \tshould be investigated.\n",
            "Check the value of the 'compatibility' property against the\n\
             \tappropriate file in /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.\n",
        ),
        Reason::IncompatibleFeatures => (
            "One or more features are enabled on the pool despite not being\n\
             \trequested by the 'compatibility' property.\n",
            "Consider setting 'compatibility' to an appropriate value, or\n\
             \tadding needed features to the relevant file in\n\
             \t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.\n",
        ),
        Reason::UnsupportedFeaturesRead => (
            "The pool cannot be accessed on this system because it uses the\n\
             \tfollowing feature(s) not supported on this system:\n",
            "Access the pool from a system that supports the required feature(s),\n\
             \tor restore the pool from backup.\n",
        ),
        Reason::UnsupportedFeaturesWrite => (
            "The pool can only be accessed in read-only mode on this system. It\n\
             \tcannot be accessed in read-write mode because it uses the following\n\
             \tfeature(s) not supported on this system:\n",
            "The pool cannot be accessed in read-write mode. Import the pool with\n\
             \t\"-o readonly=on\", access the pool from a system that supports the\n\
             \trequired feature(s), or restore the pool from backup.\n",
        ),
        Reason::FaultedReplicas => (
            "One or more devices are faulted in response to persistent errors.\n\
             \tSufficient replicas exist for the pool to continue functioning in a\n\
             \tdegraded state.\n",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\
             \trepaired.\n",
        ),
        Reason::FaultedNoReplicas => (
            "One or more devices are faulted in response to persistent errors.  \
             There are insufficient replicas for the pool to\n\
             \tcontinue functioning.\n",
            "Destroy and re-create the pool from a backup source.  Manually marking the device\n\
             \trepaired using 'zpool clear' may allow some data to be recovered.\n",
        ),
        Reason::BadLog => (
            "An intent log record could not be read.\n\
             \tWaiting for administrator intervention to fix the faulted pool.\n",
            "Either restore the affected device(s) and run 'zpool online',\n\
             \tor ignore the intent log records by running 'zpool clear'.\n",
        ),
        Reason::HostidMismatch => (
            "Mismatch between pool hostid and system hostid on imported pool.\n\
             \tThis pool was previously imported into a system with a different hostid,\n\
             \tand then was verbatim imported into this system.\n",
            "Export this pool on all systems on which it is imported.\n\
             \tThen import it to correct the mismatch.\n",
        ),
    };
    (status.to_owned(), action.to_owned())
}

fn of_errata(number: u64) -> (String, String) {
    let (more, action) = match number {
        errata::SCRUB => ("", "To correct the issue run 'zpool scrub'.\n"),
        errata::ENCRYPTION => (
            "\tExisting encrypted datasets contain an on-disk incompatibility\n\
             \t which needs to be corrected.\n",
            "To correct the issue backup existing encrypted datasets to new\n\
             \tencrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\
             \tbe used to temporarily mount existing encrypted datasets readonly.\n",
        ),
        errata::BOOKMARKS => (
            "\tExisting encrypted snapshots and bookmarks contain an on-disk\n\
             \tincompatibility. This may cause on-disk corruption if they are used\n\
             \twith 'zfs recv'.\n",
            "To correct theissue, enable the bookmark_v2 feature. No additional\n\
             \taction is needed if there are no encrypted snapshots or bookmarks.\n\
             \tIf preservingthe encrypted snapshots and bookmarks is required, use\n\
             \ta non-raw send to backup and restore them. Alternately, they may be\n\
             \tremoved to resolve the incompatibility.\n",
        ),
        _ => ("", ""),
    };
    (format!("Errata #{number} detected.\n{more}"), action.to_owned())
}

/// Lines of text, with `indent` in front of each after the first.
fn lines(indent: &str, lines: &[&str]) -> String {
    lines.join(&format!("\n\t{indent}")) + "\n"
}

/// The fault of a pool that could be imported; empty if there is none.
pub fn of_importable(pool: &ImportablePool, indent: &str) -> String {
    let text: &[&str] = match pool.reason {
        Reason::Ok | Reason::FailingDevice | Reason::RemovedDevice | Reason::NonNativeAshift => {
            return String::new();
        }
        Reason::MissingReplicas | Reason::MissingNoReplicas | Reason::BadGuidSum => {
            &["One or more devices are missing from the system."]
        }
        Reason::CorruptLabelReplicas | Reason::CorruptLabelNoReplicas => {
            &["One or more devices contains corrupted data."]
        }
        Reason::CorruptData => &["The pool data is corrupted."],
        Reason::OfflineDevice => &["One or more devices are offlined."],
        Reason::CorruptPool | Reason::IoFailureWait | Reason::IoFailureContinue => {
            &["The pool metadata is corrupted."]
        }
        Reason::VersionOlder => &["The pool is formatted using a legacy on-disk version."],
        Reason::VersionNewer => &["The pool is formatted using an incompatible version."],
        Reason::FeaturesDisabled => &[
            "Some supported features are not enabled on the pool.",
            "(Note that they may be intentionally disabled if the",
            "'compatibility' property is set.)",
        ],
        Reason::CompatibilityError => {
            &["Error reading or parsing the file(s) indicated by the 'compatibility'", "property."]
        }
        Reason::IncompatibleFeatures => &[
            "One or more features are enabled on the pool despite not being",
            "requested by the 'compatibility' property.",
        ],
        Reason::UnsupportedFeaturesRead => {
            let intro = "The pool uses the following feature(s) not supported on this system:\n".to_owned();
            return intro + &features(pool);
        }
        Reason::UnsupportedFeaturesWrite => {
            let intro = [
                "The pool can only be accessed in read-only mode on this system. It",
                "cannot be accessed in read-write mode because it uses the following",
                "feature(s) not supported on this system:",
            ];
            return lines(indent, &intro) + &features(pool);
        }
        Reason::HostidActive => &["The pool is currently imported by another system."],
        Reason::HostidRequired => &[
            "The pool has the multihost property on.  It cannot",
            "be safely imported when the system hostid is not set.",
        ],
        Reason::HostidMismatch => &["The pool was last accessed by another system."],
        Reason::FaultedReplicas | Reason::FaultedNoReplicas => &["One or more devices are faulted."],
        Reason::BadLog => &["An intent log record cannot be read."],
        Reason::Resilvering => &["One or more devices were being resilvered."],
        Reason::AwaitingResilver => &["One or more devices missed writes and await a resilver."],
        Reason::Errata => return format!("Errata #{} detected.\n", pool.errata),
    };
    lines(indent, text)
}

fn features(pool: &ImportablePool) -> String {
    pool.unknown_features.iter().map(|feature| format!("\t{feature}\n")).collect()
}

/// The advice for a pool that could be imported; empty if none is needed.
pub fn action_of_importable(pool: &ImportablePool, indent: &str) -> String {
    let text: &[&str] = match (pool.state, pool.reason) {
        (State::Healthy, Reason::VersionOlder | Reason::FeaturesDisabled) => &[
            "The pool can be imported using its name or numeric identifier, though",
            "some features will not be available without an explicit 'zpool upgrade'.",
        ],
        (State::Healthy, Reason::CompatibilityError) => &[
            "The pool can be imported using its name or numeric",
            "identifier, though the file(s) indicated by its 'compatibility'",
            "property cannot be parsed at this time.",
        ],
        (State::Healthy, Reason::HostidMismatch) => {
            &["The pool can be imported using its name or numeric identifier and", "the '-f' flag."]
        }
        (State::Healthy, Reason::Errata) => errata_action(pool.errata),
        (State::Healthy, _) => &["The pool can be imported using its name or numeric identifier."],
        (State::Degraded, _) => &[
            "The pool can be imported despite missing or damaged devices.  The",
            "fault tolerance of the pool may be compromised if imported.",
        ],
        (_, Reason::VersionNewer) => &[
            "The pool cannot be imported.  Access the pool on a system running newer",
            "software, or recreate the pool from backup.",
        ],
        (_, Reason::UnsupportedFeaturesRead) => &[
            "The pool cannot be imported. Access the pool on a system that supports",
            "the required feature(s), or recreate the pool from backup.",
        ],
        (_, Reason::UnsupportedFeaturesWrite) => &[
            "The pool cannot be imported in read-write mode. Import the pool with",
            "'-o readonly=on', access the pool on a system that supports the",
            "required feature(s), or recreate the pool from backup.",
        ],
        (_, Reason::MissingReplicas | Reason::MissingNoReplicas | Reason::BadGuidSum) => {
            &["The pool cannot be imported. Attach the missing", "devices and try again."]
        }
        (_, Reason::HostidActive) => {
            let host = pool.hostname.as_deref().unwrap_or("unknown");
            let must = format!("The pool must be exported from {host} (hostid={:x})", pool.hostid);
            return lines(indent, &[&must, "before it can be safely imported."]);
        }
        (_, Reason::HostidRequired) => &["Set a unique system hostid with the zgenhostid(8) command."],
        _ => &["The pool cannot be imported due to damaged devices or data."],
    };
    if text.is_empty() { String::new() } else { lines(indent, text) }
}

fn errata_action(number: u64) -> &'static [&'static str] {
    match number {
        errata::SCRUB => &[
            "The pool can be imported using its name or numeric identifier,",
            "however there is a compatibility issue which should be corrected",
            "by running 'zpool scrub'",
        ],
        errata::ASYNC_DESTROY => &[
            "The pool cannot be imported with this version of ZFS due to",
            "an active asynchronous destroy. Revert to an earlier version",
            "and allow the destroy to complete before updating.",
        ],
        errata::ENCRYPTION => &[
            "Existing encrypted datasets contain an on-disk incompatibility, which",
            "needs to be corrected. Backup these datasets to new encrypted datasets",
            "and destroy the old ones.",
        ],
        errata::BOOKMARKS => &[
            "Existing encrypted snapshots and bookmarks contain an on-disk",
            "incompatibility. This may cause on-disk corruption if they are used",
            "with 'zfs recv'. To correct the issue, enable the bookmark_v2 feature.",
            "No additional action is needed if there are no encrypted snapshots or",
            "bookmarks. If preserving the encrypted snapshots and bookmarks is",
            "required, use a non-raw send to backup and restore them. Alternately,",
            "they may be removed to resolve the incompatibility.",
        ],
        _ => &[],
    }
}
