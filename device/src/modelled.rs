//! Files that are opened as if they lay on another medium.
//!
//! # The idea
//! A process can be told of one directory (once, before it opens anything) whose sub-directories are named
//! after [`Model`]s: a file in `hdd-7200/` is opened behind the timing of a disk of 7200 turns, one in
//! `hdd-7200+10%/` behind that of a disk that takes a tenth longer for everything. So what opens devices by
//! their path, and opens them again after a failure, need not know of it. What is opened so says so:
//! [`Device::modelled`] has the name for every listing.
//!
//! A medium can be slowed down, never made faster: the file's own time is part of the modelled one, and where
//! it takes longer it shows. So that this is seldom, such files are in the page cache and are not flushed:
//! whatever device is below them, the model is slower. They do not outlive this machine's power, as nothing
//! does that is made to be measured.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use crate::{
    Device, FileDevice, IgnorePoison, IoError, OpenOptions, Operation,
    simulated::{Clock, Medium, Model, RealClock, SimulatedDevice},
};

static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// From now on files in sub-directories of `directory` that are named after models are opened as such.
///
/// # Errors
/// The directory does not exist; or another one was named before.
pub fn serve_models_in(directory: &Path) -> std::io::Result<()> {
    let directory = directory.canonicalize()?;
    let named = DIRECTORY.get_or_init(|| directory.clone());
    if *named != directory {
        return Err(std::io::Error::other(format!("modelled devices are in {} already", named.display())));
    }
    Ok(())
}

/// The model that a path asks for.
fn model_of(path: &Path, directory: &Path) -> Option<Model> {
    let path = path.canonicalize().ok()?;
    let parent = path.parent()?;
    if parent.parent()? != directory {
        return None;
    }
    Model::device(parent.file_name()?.to_str()?)
}

impl OpenOptions {
    /// Opens the file or block device at `path`, behind a model where [`serve_models_in`] asks for one; or
    /// what is at an address.
    pub fn open_device(self, path: impl AsRef<Path>) -> Result<Arc<dyn Device>, IoError> {
        let path = path.as_ref();
        if let Some(opened) = crate::address::open(path, self) {
            return opened;
        }
        let Some(model) = DIRECTORY.get().and_then(|directory| model_of(path, directory)) else {
            return Ok(Arc::new(self.open(path)?));
        };
        let file: Arc<FileDevice> = Arc::new(self.buffered().open(path)?);
        // Each device has its own turns of the platter, the same at each run.
        let device = SimulatedDevice::new(file, seed_of(path)).with_model(model, Arc::new(RealClock));
        Ok(Arc::new(device.unflushed()))
    }
}

fn seed_of(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A modelled link between a client and a server: what passes it waits for its turn.
#[derive(Debug)]
pub struct Link {
    model: Model,
    /// From the client, and to it: a link has both directions at once.
    ways: [std::sync::Mutex<Medium>; 2],
}

impl Link {
    /// The link that `model` describes.
    pub fn new(model: Model) -> Self {
        let way = || std::sync::Mutex::new(Medium::new(model, u64::MAX, 0));
        Self { model, ways: [way(), way()] }
    }

    /// Its model.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Waits as long as `len` bytes take from the client to the server.
    pub async fn bring(&self, len: u64) {
        self.pass(0, Operation::Write, len).await;
    }

    /// Waits as long as `len` bytes take from the server to the client.
    pub async fn fetch(&self, len: u64) {
        self.pass(1, Operation::Read, len).await;
    }

    async fn pass(&self, way: usize, operation: Operation, len: u64) {
        let done_ns = {
            let mut medium = self.ways[way].lock().ignore_poison();
            medium.serve(RealClock.now_ns(), operation, 0, len)
        };
        RealClock.sleep_until(done_ns).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_a_directory_named_after_a_model_are_modelled() {
        let directory = std::env::temp_dir().join(format!("cenote-models-{}", std::process::id()));
        for (file, model) in [
            ("hdd-7200/a", Some("hdd-7200")),
            ("optane/b", Some("optane")),
            ("optane+50%/b", Some("optane+50%")),
            ("1gbe/c", None),
            ("else/d", None),
            ("hdd-7200/deep/e", None),
            ("f", None),
        ] {
            let path = directory.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, [0; 4096]).unwrap();
            let directory = directory.canonicalize().unwrap();
            assert_eq!(model_of(&path, &directory).map(|it| it.to_string()).as_deref(), model, "{file}");
        }
        assert_eq!(model_of(&directory.join("hdd-7200/gone"), &directory).map(|model| model.name), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_link_carries_no_more_than_its_bandwidth() {
        let link = Link::new(Model::GIGABIT_ETHERNET);
        let begin_ns = RealClock.now_ns();
        crate::block_on(async {
            for _ in 0..4 {
                link.fetch(1_000_000).await;
            }
        });
        // Four megabytes at 117 MB/s.
        assert!(RealClock.now_ns() - begin_ns >= 34_000_000);
    }
}
