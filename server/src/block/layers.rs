//! What is done around the requests of an export: one type for each concern.
//!
//! # The idea
//! An export answers requests. That requests are listed while they wait, recorded, counted, or brought over a
//! modelled link is no matter of the export, and of no protocol: each is a [`Layer`], which sees each request
//! come and go and knows nothing of the others. [`Layered`] is an export with a layer around it. Several
//! layers are put together in one place, by a layer that calls them in order.
//!
//! All of this is put together by the compiler. A layer gets a request as a pinned future of the caller:
//! nothing is boxed or moved, and a request that is ready when it is polled for the first time stays that.
//!
//! | request | layers see it |
//! |---|---|
//! | read, write, trim, write of zeroes, flush, copy | yes |
//! | what asks for a state (size, room, extents, stability) or for what is kept | no |

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use device::IoBuf;
use device::modelled::Link;
use engine::dmu::Sink;

use super::{Copied, Durability, Export, ExportError, Extent, Room, Stability, UnderWay};

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOperation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Space is given back.
    Trim,
    /// A range becomes zeroes.
    WriteZeroes,
    /// What was written becomes stable.
    Flush,
    /// Bytes come from another export.
    Copy,
}

impl BlockOperation {
    /// Its name, for a person.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::WriteZeroes => "write of zeroes",
            Self::Flush => "flush",
            Self::Copy => "copy",
        }
    }
}

/// A request to an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest {
    /// What is asked for.
    pub operation: BlockOperation,
    /// The first byte; 0 for a flush.
    pub offset: u64,
    /// The bytes; 0 for a flush.
    pub len_bytes: u64,
    /// Whether it is to be stable when it is answered.
    pub is_stable: bool,
}

/// What is done around each request of an export.
pub trait Layer: Send + Sync + 'static {
    /// Does a request, with what is to be done before and after it.
    fn around<T: Send, F>(
        &self,
        asked: BlockRequest,
        request: Pin<&mut F>,
    ) -> impl Future<Output = Result<T, ExportError>> + Send
    where
        F: Future<Output = Result<T, ExportError>> + Send;

    /// A copy was done: bytes came from another export. One that is not done is no failure, so that only this
    /// tells of it.
    fn copied(&self, _offset: u64, _len_bytes: u64) {}

    /// The same of the export that they came from.
    fn copied_away(&self, _offset: u64, _len_bytes: u64) {}

    /// Where requests are listed that are not done yet, if this does so.
    fn under_way(&self) -> Option<&Arc<UnderWay>> {
        None
    }
}

/// A layer that several exports share, and that may be left out.
impl<L: Layer> Layer for Option<Arc<L>> {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        match self {
            Some(layer) => layer.around(asked, request).await,
            None => request.await,
        }
    }

    fn copied(&self, offset: u64, len_bytes: u64) {
        self.iter().for_each(|layer| layer.copied(offset, len_bytes));
    }

    fn copied_away(&self, offset: u64, len_bytes: u64) {
        self.iter().for_each(|layer| layer.copied_away(offset, len_bytes));
    }
}

/// The client is behind the link: what it writes is brought, and what it reads is fetched. A flush is fetched
/// as an answer without bytes.
impl Layer for Link {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        if asked.operation == BlockOperation::Write {
            self.bring(asked.len_bytes).await;
        }
        let answer = request.await?;
        if matches!(asked.operation, BlockOperation::Read | BlockOperation::Flush) {
            self.fetch(asked.len_bytes).await;
        }
        Ok(answer)
    }
}

/// An export with a layer around it.
#[derive(Debug)]
pub struct Layered<L, E> {
    /// The layer.
    pub layer: L,
    /// What it is around.
    pub inner: E,
}

impl<L: Layer, E: Export> Export for Layered<L, E> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn room(&self) -> Option<Room> {
        self.inner.room()
    }

    fn guid(&self) -> u64 {
        self.inner.guid()
    }

    fn name(&self) -> Option<String> {
        self.inner.name()
    }

    fn under_way(&self) -> Option<&Arc<UnderWay>> {
        self.layer.under_way().or_else(|| self.inner.under_way())
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn is_elsewhere(&self) -> bool {
        self.inner.is_elsewhere()
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        let asked = request(BlockOperation::Read, offset, into.len() as u64, false);
        let read = pin!(self.inner.read(offset, into));
        self.layer.around(asked, read).await
    }

    async fn read_to(&self, offset: u64, len_bytes: usize, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let asked = request(BlockOperation::Read, offset, len_bytes as u64, false);
        let read = pin!(self.inner.read_to(offset, len_bytes, sink));
        self.layer.around(asked, read).await
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        self.inner.extent(offset).await
    }

    async fn write(&self, offset: u64, data: IoBuf, stable: bool) -> Result<(), ExportError> {
        let asked = request(BlockOperation::Write, offset, data.len() as u64, stable);
        let write = pin!(self.inner.write(offset, data, stable));
        self.layer.around(asked, write).await
    }

    async fn trim(&self, offset: u64, len_bytes: u64, stable: bool) -> Result<(), ExportError> {
        let asked = request(BlockOperation::Trim, offset, len_bytes, stable);
        let trim = pin!(self.inner.trim(offset, len_bytes, stable));
        self.layer.around(asked, trim).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len_bytes: u64,
        allocate: bool,
        stable: bool,
    ) -> Result<(), ExportError> {
        let asked = request(BlockOperation::WriteZeroes, offset, len_bytes, stable);
        let write = pin!(self.inner.write_zeroes(offset, len_bytes, allocate, stable));
        self.layer.around(asked, write).await
    }

    fn durability(&self) -> Option<Durability> {
        self.inner.durability()
    }

    fn stability(&self) -> Stability {
        self.inner.stability()
    }

    async fn flush(&self) -> Result<(), ExportError> {
        let asked = request(BlockOperation::Flush, 0, 0, false);
        let flush = pin!(self.inner.flush());
        self.layer.around(asked, flush).await
    }

    async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Option<Copied>, ExportError> {
        let asked = request(BlockOperation::Copy, offset, len_bytes, false);
        let copy = pin!(self.inner.copy_from(&source.inner, source_offset, offset, len_bytes));
        let copied = self.layer.around(asked, copy).await?;
        if copied.is_some() {
            source.layer.copied_away(source_offset, len_bytes);
            self.layer.copied(offset, len_bytes);
        }
        Ok(copied)
    }

    async fn kept(&self) -> Result<Option<String>, ExportError> {
        self.inner.kept().await
    }

    async fn keep(&self, text: Option<String>) -> Result<(), ExportError> {
        self.inner.keep(text).await
    }
}

fn request(operation: BlockOperation, offset: u64, len_bytes: u64, is_stable: bool) -> BlockRequest {
    BlockRequest { operation, offset, len_bytes, is_stable }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use device::simulated::Model;
    use futures_util::FutureExt;

    use super::*;
    use crate::block::FailureKind;

    /// Notes what it sees.
    #[derive(Debug, Default)]
    struct Noting {
        seen: Mutex<Vec<String>>,
    }

    impl Noting {
        fn note(&self, what: String) {
            self.seen.lock().unwrap().push(what);
        }

        fn seen(&self) -> Vec<String> {
            std::mem::take(&mut *self.seen.lock().unwrap())
        }
    }

    impl Layer for Noting {
        async fn around<T: Send, F>(
            &self,
            asked: BlockRequest,
            request: Pin<&mut F>,
        ) -> Result<T, ExportError>
        where
            F: Future<Output = Result<T, ExportError>> + Send,
        {
            let BlockRequest { operation, offset, len_bytes, is_stable } = asked;
            self.note(format!("{} {offset}+{len_bytes} {is_stable}", operation.name()));
            let answer = request.await;
            self.note(if answer.is_ok() { "done".into() } else { "failed".into() });
            answer
        }

        fn copied(&self, offset: u64, len_bytes: u64) {
            self.note(format!("copied {offset}+{len_bytes}"));
        }

        fn copied_away(&self, offset: u64, len_bytes: u64) {
            self.note(format!("copied away {offset}+{len_bytes}"));
        }
    }

    /// Reads sevens, cannot be written, and copies where it may.
    #[derive(Debug, Default)]
    struct Sevens {
        copies: bool,
    }

    impl Export for Sevens {
        fn size_bytes(&self) -> u64 {
            1 << 20
        }

        fn block_bytes(&self) -> u32 {
            4096
        }

        async fn read(&self, _: u64, into: &mut [u8]) -> Result<(), ExportError> {
            into.fill(7);
            Ok(())
        }

        async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
            Ok(Extent { len_bytes: 1 << 20, is_hole: false })
        }

        async fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), ExportError> {
            Ok(())
        }

        async fn copy_from(&self, _: &Self, _: u64, _: u64, _: u64) -> Result<Option<Copied>, ExportError> {
            Ok(self.copies.then_some(Copied { cloned_bytes: 0 }))
        }
    }

    fn layered(copies: bool) -> Layered<Noting, Sevens> {
        Layered { layer: Noting::default(), inner: Sevens { copies } }
    }

    #[test]
    fn each_request_passes_the_layer_once_and_is_answered_by_the_export() {
        let disk = layered(false);
        let mut bytes = [0; 3];
        disk.read(512, &mut bytes).now_or_never().unwrap().unwrap();
        assert_eq!((bytes, disk.layer.seen()), ([7; 3], vec!["read 512+3 false".into(), "done".into()]));
        let mut sink = &mut bytes[..2];
        disk.read_to(0, 2, &mut sink).now_or_never().unwrap().unwrap();
        assert_eq!(disk.layer.seen(), ["read 0+2 false", "done"]);
        let refused = disk.write(4096, IoBuf::zeroed(512), true).now_or_never().unwrap().unwrap_err();
        assert_eq!((refused.kind, disk.layer.seen().len()), (FailureKind::ReadOnly, 2));
        disk.trim(1, 2, true).now_or_never().unwrap().unwrap();
        assert_eq!(disk.layer.seen(), ["trim 1+2 true", "done"]);
        assert!(disk.write_zeroes(1, 2, false, false).now_or_never().unwrap().is_err());
        assert_eq!(disk.layer.seen(), ["write of zeroes 1+2 false", "failed"]);
        disk.flush().now_or_never().unwrap().unwrap();
        assert_eq!(disk.layer.seen(), ["flush 0+0 false", "done"]);
        assert_eq!(disk.extent(0).now_or_never().unwrap().unwrap().len_bytes, disk.size_bytes());
        assert!(disk.layer.seen().is_empty(), "a state was asked for");
    }

    #[test]
    fn only_a_copy_that_was_done_is_told() {
        let (to, from) = (layered(true), layered(true));
        assert!(to.copy_from(&from, 8, 0, 4).now_or_never().unwrap().unwrap().is_some());
        assert_eq!(to.layer.seen(), ["copy 0+4 false", "done", "copied 0+4"]);
        assert_eq!(from.layer.seen(), ["copied away 8+4"]);
        let to = layered(false);
        assert_eq!(to.copy_from(&from, 8, 0, 4).now_or_never().unwrap(), Ok(None));
        assert_eq!(to.layer.seen(), ["copy 0+4 false", "done"]);
        assert!(from.layer.seen().is_empty());
    }

    #[test]
    fn a_layer_that_is_left_out_changes_nothing() {
        let (none, some) = (None::<Arc<Noting>>, Some(Arc::new(Noting::default())));
        let asked = request(BlockOperation::Read, 0, 1, false);
        assert_eq!(none.around(asked, pin!(ready(Ok(5)))).now_or_never(), Some(Ok(5)));
        assert_eq!(some.around(asked, pin!(ready(Ok(5)))).now_or_never(), Some(Ok(5)));
        assert_eq!(some.unwrap().seen(), ["read 0+1 false", "done"]);
        assert_eq!(none.around(asked, pin!(pending::<Result<(), _>>())).now_or_never(), None);
    }

    /// Keeps a page while it waits.
    #[derive(Debug)]
    struct Large;

    impl Export for Large {
        fn size_bytes(&self) -> u64 {
            4096
        }

        fn block_bytes(&self) -> u32 {
            4096
        }

        async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
            let page = [offset as u8; 4096];
            std::future::ready(()).await;
            into.copy_from_slice(&page[..into.len()]);
            Ok(())
        }

        async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
            Ok(Extent { len_bytes: 4096, is_hole: false })
        }
    }

    #[test]
    fn layers_keep_no_copy_of_a_request() {
        let layer = || None::<Arc<Noting>>;
        let two = Layered { layer: layer(), inner: Layered { layer: layer(), inner: Large } };
        let mut into = [0; 8];
        let alone = size_of_val(&Large.read(0, &mut into));
        let inside = size_of_val(&two.read(0, &mut into));
        assert!(alone >= 4096 && inside < alone + 1024, "{alone} bytes alone, {inside} in layers");
    }

    #[test]
    fn a_link_brings_what_is_written_and_fetches_what_is_read() {
        let link = Link::new(Model::GIGABIT_ETHERNET);
        let took = |operation, len_bytes| {
            let began = Instant::now();
            let asked = request(operation, 0, len_bytes, false);
            let done = device::block_on(link.around(asked, pin!(ready(Ok(())))));
            assert_eq!(done, Ok(()));
            began.elapsed()
        };
        // A second's worth of bytes is 125 MB; waiting for a part of that is the least that it can take.
        let least = Duration::from_millis(8);
        assert!(took(BlockOperation::Read, 1 << 20) >= least);
        assert!(took(BlockOperation::Write, 1 << 20) >= least);
        let asked = request(BlockOperation::Trim, 0, 1 << 30, false);
        let trimmed = link.around(asked, pin!(ready(Ok(())))).now_or_never();
        assert_eq!(trimmed, Some(Ok(())), "a trim has no bytes on the way");
        let failed = ExportError { kind: FailureKind::Io, message: String::new() };
        let asked = request(BlockOperation::Read, 0, 1 << 30, false);
        let answer = link.around::<(), _>(asked, pin!(ready(Err(failed.clone())))).now_or_never();
        assert_eq!(answer, Some(Err(failed)), "an error is answered at once");
    }
}
