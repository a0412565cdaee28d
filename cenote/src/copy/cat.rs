//! `cenote cat`: the bytes of a file, or of a whole volume, to the standard output.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};

use super::target::{Content, Target, find};
use crate::exported::PoolPlace;

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of `cenote cat`.
#[derive(Debug, clap::Args)]
pub struct CatArguments {
    #[command(flatten)]
    place: PoolPlace,
    /// What to print: POOL/FS[@SNAPSHOT]:/PATH, or a volume
    target: Target,
}

/// Prints it.
pub fn run(arguments: &CatArguments) -> Result<()> {
    device::block_on(async {
        let target = &arguments.target;
        let (_dsl, content, _) = target.open(&arguments.place).await?;
        // Not through `Stdout`, which looks for line ends and holds back what follows the last.
        let mut out = File::from(std::io::stdout().as_fd().try_clone_to_owned().context("cannot write")?);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        match content {
            Content::Filesystem(zpl) => {
                let file = find(&zpl, &target.path).await?.open_file();
                loop {
                    let read = file.read_at(offset, &mut buffer).await;
                    let read = read.with_context(|| format!("cannot read '{target}' at offset {offset}"))?;
                    if read == 0 {
                        break;
                    }
                    out.write_all(&buffer[..read]).context("cannot write")?;
                    offset += read as u64;
                }
            }
            Content::Volume(volume) => {
                ensure!(target.path.is_empty(), "'{}' is a volume; it has no files", target.dataset);
                while offset < volume.size() {
                    let length =
                        usize::try_from(volume.size() - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                    let read = volume.read_at(offset, &mut buffer[..length]).await;
                    read.with_context(|| format!("cannot read '{target}' at offset {offset}"))?;
                    out.write_all(&buffer[..length]).context("cannot write")?;
                    offset += length as u64;
                }
            }
        }
        Ok(())
    })
}
