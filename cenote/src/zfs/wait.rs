//! `zfs wait`: returns when what goes on in a filesystem has ended.
//!
//! OpenZFS knows one such activity: the delete queue, in which files are that were removed while they were
//! open, or whose blocks are still being freed. A filesystem that is not mounted frees nothing, and is not
//! waited for. The command looks when the daemon's feed says that something changed ([`crate::feed`]).
//!
//! Source of the facts: OpenZFS 2.4 `zfs_main.c` (`zfs_do_wait`), `zfs-wait.8`.

use anyhow::Result;
use server::api::GetActivity;

use crate::feed;
use crate::output::usage;

/// The activities.
const ACTIVITIES: [&str; 1] = ["deleteq"];

/// Arguments of `zfs wait`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Activities to wait for (deleteq); all if not given
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',')]
    activities: Vec<String>,
    /// The filesystem
    #[arg(value_name = "FILESYSTEM")]
    filesystems: Vec<String>,
}

impl Arguments {
    /// Waits.
    pub fn run(self) -> Result<()> {
        if let Some(unknown) = self.activities.iter().find(|name| !ACTIVITIES.contains(&name.as_str())) {
            return Err(usage(format!("invalid activity '{unknown}'")));
        }
        let dataset = match &self.filesystems[..] {
            [] => return Err(usage("missing 'filesystem' argument")),
            [one] => one.clone(),
            _ => return Err(usage("too many arguments")),
        };
        let request = GetActivity { dataset };
        feed::until(|| {
            let activity = super::change(&request, || super::absent(&request.dataset))?;
            Ok(activity.delete_queue == 0)
        })
    }
}
