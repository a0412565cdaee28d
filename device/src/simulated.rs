//! `SimulatedDevice`: any device, made slower and less reliable on purpose.
//!
//! # The idea
//! It stands over another device and does three things to each operation: it asks the [`Fault`]s that were
//! injected whether the operation fails or what it returns is damaged; it lets the other device do the work;
//! and it completes when the [`Model`] of a medium says that the medium would have, on a [`Clock`] that is
//! real or virtual.
//!
//! Everything that looks like chance comes from the seed and from the order of operations. On a
//! [`VirtualClock`] one thread runs everything, so that a seed is all that is needed to replay a run.
//!
//! # Faults behave as on a disk
//! Damage stays where it is: the same range is bad at every read, in the same bits. A write over a bad range
//! replaces it, as a disk does that writes anew or remaps the sector.

mod clock;
mod disk;
mod fault;
mod medium;
mod model;

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex},
};

pub use clock::{Clock, RealClock, VirtualClock};
pub use fault::Fault;
pub use medium::Medium;
pub use model::{Arm, Model};

use crate::{Cause, Device, IgnorePoison, IoBuf, IoError, IoFuture, Operation, SectorSizes, Traits};
use fault::{Faults, WriteFate};

/// A device with injected faults and the timing of a modelled medium.
pub struct SimulatedDevice {
    inner: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Whether the device below is flushed, too.
    flushes: bool,
}

/// Changed only at the start of an operation; never locked across an await.
struct State {
    faults: Faults,
    medium: Option<Medium>,
}

impl SimulatedDevice {
    /// A device like `inner`, as yet without faults and without delays.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Self {
        let state = State { faults: Faults::new(seed), medium: None };
        Self { inner, clock: Arc::new(RealClock), state: Mutex::new(state), flushes: true }
    }

    /// Gives operations the timing of `model`, measured by `clock`.
    pub fn with_model(self, model: Model, clock: Arc<dyn Clock>) -> Self {
        let Self { inner, state, flushes, .. } = self;
        let mut state = state.into_inner().ignore_poison();
        state.medium = Some(Medium::new(model, inner.size_bytes(), state.faults.seed()));
        Self { inner, clock, state: Mutex::new(state), flushes }
    }

    /// Flushes nothing below it: for one that need not outlive this machine's power, whose flush takes as
    /// long as its model says, and no longer.
    pub fn unflushed(self) -> Self {
        Self { flushes: false, ..self }
    }

    /// Measures delays by `clock`, which is otherwise the real one.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Adds a fault, from the next operation on.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.inject(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.lock().faults.heal();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn error(&self, operation: Operation, offset: u64, len: u64) -> impl FnOnce(Cause) -> IoError {
        move |cause| IoError::new(self.inner.path(), operation, offset, len, cause)
    }

    /// Decides when an operation that starts now completes.
    fn deadline_ns(&self, state: &mut State, operation: Operation, offset: u64, len: u64) -> Option<u64> {
        let delay_ns = state.faults.delay_ns(offset, len);
        if state.medium.is_none() && delay_ns == 0 {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let served_ns = match &mut state.medium {
            Some(medium) => medium.serve(now_ns, operation, offset, len),
            None => now_ns,
        };
        Some(served_ns.saturating_add(delay_ns))
    }

    async fn wait_until(&self, deadline_ns: Option<u64>) {
        if let Some(deadline_ns) = deadline_ns {
            self.clock.sleep_until(deadline_ns).await;
        }
    }

    async fn simulated_read(&self, offset: u64, len: usize) -> Result<IoBuf, IoError> {
        let (fate, deadline_ns) = {
            let mut state = self.lock();
            let fate = state.faults.check_read(offset, len as u64);
            (fate, self.deadline_ns(&mut state, Operation::Read, offset, len as u64))
        };
        if let Err(cause) = fate {
            self.wait_until(deadline_ns).await;
            return Err(self.error(Operation::Read, offset, len as u64)(cause));
        }
        // The other device's own time is part of the modelled one.
        let mut buf = self.inner.read(offset, len).await?;
        self.wait_until(deadline_ns).await;
        self.lock().faults.flip_bits(offset, &mut buf);
        Ok(buf)
    }

    async fn simulated_write(&self, offset: u64, data: IoBuf) -> Result<IoBuf, IoError> {
        let len = data.len() as u64;
        let sector_bytes = u64::from(self.inner.sector_sizes().logical_bytes);
        let (fate, deadline_ns) = {
            let mut state = self.lock();
            let fate = state.faults.check_write(offset, len, sector_bytes);
            (fate, self.deadline_ns(&mut state, Operation::Write, offset, len))
        };
        match fate {
            Ok(WriteFate::Whole) => {
                let data = self.inner.write(offset, data).await?;
                self.wait_until(deadline_ns).await;
                self.lock().faults.replaced(offset, len);
                Ok(data)
            }
            Ok(WriteFate::Torn { kept_bytes }) => {
                self.wait_until(deadline_ns).await;
                if kept_bytes > 0 {
                    self.inner.write(offset, IoBuf::from(&data[..kept_bytes as usize])).await?;
                }
                Err(self.error(Operation::Write, offset, len)(Cause::Missing))
            }
            Err(cause) => {
                self.wait_until(deadline_ns).await;
                Err(self.error(Operation::Write, offset, len)(cause))
            }
        }
    }

    async fn simulated_flush(&self) -> Result<(), IoError> {
        let (fate, deadline_ns) = {
            let mut state = self.lock();
            let fate = state.faults.check_presence();
            (fate, self.deadline_ns(&mut state, Operation::Flush, 0, 0))
        };
        if fate.is_ok() && self.flushes {
            self.inner.flush().await?;
        }
        self.wait_until(deadline_ns).await;
        fate.map_err(self.error(Operation::Flush, 0, 0))
    }

    async fn simulated_discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let fate = self.lock().faults.check_presence();
        fate.map_err(self.error(Operation::Discard, offset, len))?;
        self.inner.discard(offset, len).await
    }
}

impl Device for SimulatedDevice {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn update_size(&self) -> Result<u64, IoError> {
        self.inner.update_size()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.inner.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn modelled(&self) -> Option<String> {
        self.lock().medium.as_ref().map(|medium| medium.model().to_string())
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(self.simulated_read(offset, len))
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(self.simulated_write(offset, data))
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(self.simulated_flush())
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(self.simulated_discard(offset, len))
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDevice").field("inner", &self.inner).finish_non_exhaustive()
    }
}
