//! Reads through a thread's ring: many at once, abandoned, moved between threads, embedded in another
//! reactor.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    io::Write,
    os::fd::AsFd,
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
};

use device::{Device, FileDevice, IoBuf, IoError, OpenOptions, RingDriver, block_on, submit_and_reap};
use futures_util::{
    FutureExt,
    future::{join, join_all, poll_fn},
};

const BLOCK_BYTES: usize = 4096;

/// A file whose block `n` is full of `n`, truncated to a byte.
fn numbered_blocks(count: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for number in 0..count {
        file.write_all(&[number as u8; BLOCK_BYTES]).unwrap();
    }
    file.as_file().sync_all().unwrap();
    file
}

fn assert_block(number: usize, read: Result<IoBuf, IoError>) {
    assert_eq!(*read.unwrap(), [number as u8; BLOCK_BYTES], "block {number}");
}

fn offset(number: usize) -> u64 {
    (number * BLOCK_BYTES) as u64
}

#[test]
fn more_reads_than_the_ring_holds_all_complete() {
    let file = numbered_blocks(256);
    let device = FileDevice::open(&file).unwrap();
    let reads = (0..5000).map(|number| device.read(offset(number % 256), BLOCK_BYTES));
    for (number, read) in block_on(join_all(reads)).into_iter().enumerate() {
        assert_block(number % 256, read);
    }
}

#[test]
fn an_abandoned_read_writes_into_nobody_elses_memory() {
    let file = numbered_blocks(64);
    let device = FileDevice::open(&file).unwrap();
    for _ in 0..50 {
        block_on(async {
            let mut reads: Vec<_> = (0..64).map(|number| device.read(offset(number), BLOCK_BYTES)).collect();
            for read in &mut reads {
                assert!(read.now_or_never().is_none());
            }
            drop(reads);
            // If an abandoned read had freed its buffer, these would be given its memory.
            let mut mine: Vec<IoBuf> = (0..64).map(|_| IoBuf::for_overwrite(BLOCK_BYTES)).collect();
            mine.iter_mut().for_each(|buf| buf.fill(0xee));
            assert_block(7, device.read(offset(7), BLOCK_BYTES).await);
            assert!(mine.iter().all(|buf| buf.iter().all(|byte| *byte == 0xee)));
        });
    }
}

#[test]
fn a_device_may_be_closed_while_a_read_is_in_flight() {
    let file = numbered_blocks(4);
    block_on(async {
        for _ in 0..100 {
            let device = FileDevice::open(&file).unwrap();
            assert!(device.read(0, BLOCK_BYTES).now_or_never().is_none());
        }
    });
}

#[test]
fn a_read_begun_on_one_thread_ends_on_another() {
    let file = numbered_blocks(8);
    let device: &'static FileDevice = Box::leak(Box::new(FileDevice::open(&file).unwrap()));
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        for (number, read) in receiver {
            let read: Pin<Box<dyn Future<Output = _> + Send>> = read;
            assert_block(number, block_on(read));
        }
    });
    for round in 0..200 {
        let number = round % 8;
        block_on(async {
            let mut read = device.read(offset(number), BLOCK_BYTES);
            assert!((&mut read).now_or_never().is_none());
            sender.send((number, read)).unwrap();
        });
    }
    drop(sender);
    reader.join().unwrap();
}

#[test]
fn a_wake_from_another_thread_ends_a_sleep_in_the_ring() {
    let file = numbered_blocks(1);
    let device = FileDevice::open(&file).unwrap();
    for _ in 0..200 {
        block_on(async {
            assert_block(0, device.read(0, BLOCK_BYTES).await);
            let (waker_sender, wakers) = mpsc::channel::<Waker>();
            let (done_sender, done) = mpsc::channel();
            let waking = thread::spawn(move || {
                let waker = wakers.recv().unwrap();
                done_sender.send(()).unwrap();
                waker.wake();
            });
            let mut asked = false;
            poll_fn(|context| {
                if !asked {
                    asked = true;
                    waker_sender.send(context.waker().clone()).unwrap();
                }
                done.try_recv().map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            waking.join().unwrap();
        });
    }
}

#[test]
fn block_on_within_block_on_loses_no_wakeup() {
    let file = numbered_blocks(16);
    let device = FileDevice::open(&file).unwrap();
    block_on(async {
        let outer = join_all((0..16).map(|number| device.read(offset(number), BLOCK_BYTES)));
        let inner = async {
            for number in 0..16 {
                assert_block(number, block_on(device.read(offset(number), BLOCK_BYTES)));
            }
        };
        let (outer, ()) = join(outer, inner).await;
        outer.into_iter().enumerate().for_each(|(number, read)| assert_block(number, read));
    });
}

#[test]
fn a_thread_without_a_driver_reads_at_once() {
    let file = numbered_blocks(2);
    let device = FileDevice::open(&file).unwrap();
    assert_block(1, device.read(offset(1), BLOCK_BYTES).now_or_never().unwrap());
}

#[test]
fn writes_through_the_ring_arrive() {
    let file = numbered_blocks(64);
    let device = OpenOptions::read_write().open(&file).unwrap();
    block_on(async {
        let mut block = IoBuf::zeroed(BLOCK_BYTES);
        let writes = (0..64).map(|number| {
            block.fill(255 - number as u8);
            device.write(offset(number), IoBuf::from(&*block))
        });
        join_all(writes)
            .await
            .into_iter()
            .for_each(|written| assert_eq!(written.unwrap().len(), BLOCK_BYTES));
        device.flush().await.unwrap();
        for number in 0..64 {
            assert_block(255 - number, device.read(offset(number), BLOCK_BYTES).await);
        }
    });
}

#[test]
fn an_embedded_ring_completes_when_its_eventfd_is_polled() {
    struct Ignore;
    impl Wake for Ignore {
        fn wake(self: Arc<Self>) {}
    }

    let file = numbered_blocks(64);
    let device = FileDevice::open(&file).unwrap();
    let Some(driver) = RingDriver::attach().unwrap() else { return };
    let waker = Waker::from(Arc::new(Ignore));
    for round in 0..50 {
        let mut reads = Box::pin(join_all((0..64).map(|number| device.read(offset(number), BLOCK_BYTES))));
        let read = loop {
            if let Poll::Ready(read) = reads.as_mut().poll(&mut Context::from_waker(&waker)) {
                break read;
            }
            if submit_and_reap() {
                continue;
            }
            let mut polled =
                [rustix::event::PollFd::from_borrowed_fd(driver.as_fd(), rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
            assert_eq!(
                rustix::event::poll(&mut polled, Some(&timeout)).unwrap(),
                1,
                "no completion in round {round}"
            );
            rustix::io::read(&driver, &mut [0; 8]).unwrap();
        };
        read.into_iter().enumerate().for_each(|(number, read)| assert_block(number, read));
    }
    assert!(device.read(0, BLOCK_BYTES).now_or_never().is_none());
    drop(driver);
    assert_block(0, device.read(0, BLOCK_BYTES).now_or_never().unwrap());
}
