//! `mount.zfs`: what `mount` of the system starts for `mount -t zfs tank/fs /mnt`, and for such lines of
//! `fstab`, when a link of that name in `/sbin` leads to this program. It mounts filesystems with
//! `mountpoint=legacy`, and snapshots. As OpenZFS's helper it mounts any filesystem where the option
//! `zfsutil` is given, and takes a device of a pool for the pool's root.
//!
//! | link | what runs it |
//! |---|---|
//! | `mount.zfs` | `mount -t zfs` |
//! | `mount.cenote` | `mount -t cenote`, where `mount.zfs` is OpenZFS's |
//! | `mount.fuse.zfs` | `mount -o remount` of what is mounted, whose type is that of FUSE and this one |
//! | `mount.fuse.cenote` | the same of what an older daemon mounted, before it handed over |

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use engine::pool::discovery;
use engine::vdev::label::{best_label, read_labels};
use server::api::{Mount, MountsChanged};
use server::fuse::MountOptions;

use crate::output;

/// The option of those who mount what its property does not leave to `mount`.
const ZFSUTIL: &str = "zfsutil";
/// Exit code of a mount that failed.
const MOUNT_FAILED: u8 = 32;

/// Arguments of `mount.zfs`, as `mount` gives them.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// The filesystem or snapshot
    #[arg(value_name = "DATASET")]
    dataset: String,
    /// Where
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Mount options
    #[arg(short = 'o', value_name = "OPTION,…", value_delimiter = ',')]
    options: Vec<String>,
    /// Do everything but mount
    #[arg(short)]
    fake: bool,
    /// Say more, of which there is nothing to say
    #[arg(short, hide = true)]
    verbose: bool,
    /// Do not write `/etc/mtab` (it is never written)
    #[arg(short, hide = true)]
    no_mtab: bool,
    /// Pass over options that mean nothing
    #[arg(short)]
    sloppy: bool,
    /// The type
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    kind: Option<String>,
}

impl Arguments {
    fn mount(self) -> Result<()> {
        if self.fake {
            return Ok(());
        }
        // A mountpoint that went with its mount is made again; `mount` gives the path of what is there.
        let at = match self.directory.is_absolute() {
            true => self.directory,
            false => std::fs::canonicalize(&self.directory)
                .with_context(|| format!("cannot mount on '{}'", self.directory.display()))?,
        };
        anyhow::ensure!(at.is_dir() || !at.exists(), "cannot mount on '{}': not a directory", at.display());
        let implied = implied(&self.options);
        let is_zfsutil = self.options.iter().any(|word| word == ZFSUTIL);
        let means_nothing = |word: &str| self.sloppy && word != "remount" && !MountOptions::knows(word);
        let is_meant = |word: &String| !is_for_mount(word) && !means_nothing(word);
        let options = implied.chain(self.options.into_iter().filter(is_meant)).collect();
        let request = Mount {
            dataset: Some(pool_on(&self.dataset)?.unwrap_or(self.dataset)),
            at: Some(at),
            options,
            overlay: true,
            legacy: !is_zfsutil,
            ..Mount::default()
        };
        let changed = output::ask(&request, |request| MountsChanged {
            failed: output::none_of(&request.dataset, "dataset does not exist"),
            ..MountsChanged::default()
        })?;
        output::complain(&changed.failed)
    }

    /// Mounts, with the exit codes that `mount` knows.
    pub fn run(self) -> Result<()> {
        self.mount().map_err(|error| {
            let _ = output::report(error);
            output::Exit(MOUNT_FAILED).into()
        })
    }
}

/// The pool of a device, where one is named in place of a dataset.
fn pool_on(dataset: &str) -> Result<Option<String>> {
    let path = Path::new(dataset);
    if !path.is_absolute() {
        return Ok(None);
    }
    let opened = discovery::open_device(path).with_context(|| format!("cannot open '{dataset}'"))?;
    let label = best_label(device::block_on(read_labels(&*opened)));
    let name = label.and_then(|label| label.name).map(|name| name.to_string());
    name.map(Some).with_context(|| format!("'{dataset}' is not a dataset of a pool"))
}

/// What the words of `mount -o remount` do not say because it is so without them: beside a directory alone
/// they are those of the mount table with what was asked for, and there what is allowed has no word.
fn implied(options: &[String]) -> impl Iterator<Item = String> + use<> {
    let has = |wanted: &[&str]| options.iter().any(|word| wanted.contains(&word.as_str()));
    let is_whole = has(&["remount"]) && options.iter().any(|word| word.starts_with("user_id="));
    let allowed = [
        ("exec", has(&["noexec", "exec"])),
        ("suid", has(&["nosuid", "suid"])),
        ("dev", has(&["nodev", "dev"])),
        ("strictatime", has(&["noatime", "relatime", "strictatime"])),
    ];
    allowed.into_iter().filter(move |(_, is_said)| is_whole && !is_said).map(|(word, _)| word.to_owned())
}

/// Options that are meant for others than the filesystem: those of `fstab`, and those of the mount table,
/// which `mount -o remount` repeats.
fn is_for_mount(word: &str) -> bool {
    const WORDS: [&str; 14] = [
        ZFSUTIL,
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "_netdev",
        "nofail",
        "async",
        "silent",
        "loud",
        "default_permissions",
    ];
    const STARTS: [&str; 6] = ["x-", "X-", "comment=", "user_id=", "group_id=", "max_read="];
    WORDS.contains(&word) || STARTS.iter().any(|start| word.starts_with(start))
}
