//! What the benches of protocols share: a volume that OpenZFS made, all of it in the ARC.

use std::sync::Arc;

use engine::dmu::Sink;
use engine::dsl::Dsl;
use engine::pool::discovery;
use engine::pool::import::{self, ImportOptions};
use engine::zvol::Zvol;
use server::block::{Caller, Export, ExportError, Exports, Extent, FailureKind, Listed, Unopened};
use testkit::GoldenPool;

/// Its blocks have 16 KiB.
const VOLUME: &str = "volumes/v16K";
/// The name that it is served under.
pub const NAME: &str = "v";

/// A volume of a golden pool, cached by the engine.
pub struct Volume(Arc<Zvol>);

impl Export for Volume {
    fn size_bytes(&self) -> u64 {
        self.0.size()
    }

    fn block_bytes(&self) -> u32 {
        self.0.block_size() as u32
    }

    async fn read(&self, offset: u64, mut into: &mut [u8]) -> Result<(), ExportError> {
        self.read_to(offset, into.len(), &mut into).await
    }

    async fn read_to(&self, offset: u64, len_bytes: usize, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let failed = |error: engine::Error| ExportError { kind: FailureKind::Io, message: error.to_string() };
        self.0.read_to(offset, len_bytes as u64, sink).await.map_err(failed)
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: self.size_bytes() - offset, is_hole: false })
    }
}

/// Exports of one volume.
pub struct One(Arc<Volume>);

impl Exports for One {
    type Export = Volume;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all(NAME)]
    }

    async fn open(&self, _: &str, _: Caller<'_>) -> Result<Arc<Volume>, Unopened> {
        Ok(Arc::clone(&self.0))
    }
}

impl One {
    /// The volume, all of which was read once, so that it is cached; and its size. None without the golden
    /// pools.
    pub fn open() -> Option<(Arc<Self>, u64)> {
        let pool = testkit::golden::pool("volumes")?;
        let volume = device::block_on(open_volume(&pool)).unwrap_or_else(|error| panic!("{VOLUME}: {error}"));
        let size_bytes = volume.size();
        Some((Arc::new(Self(Arc::new(Volume(volume)))), size_bytes))
    }
}

async fn open_volume(pool: &GoldenPool) -> engine::Result<Arc<Zvol>> {
    let found = discovery::scan(&[&pool.dir]).await?;
    let found = import::select(found, &pool.name).expect("the golden pool");
    let pool = import::import(&found, &ImportOptions::read_only()).await.expect("the golden pool opens");
    let dsl = Dsl::open(&pool).await?;
    let objset = dsl.open_objset(&dsl.find(VOLUME).await?).await?;
    let volume = Zvol::open(&objset).await?;
    let mut all = vec![0; volume.size() as usize];
    volume.read_at(0, &mut all).await?;
    Ok(volume)
}

/// The middle one of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
