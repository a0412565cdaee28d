//! The client of stores that speak S3: what each answer means, its bounds, and histories over it. The store
//! is our own, which answers as wrongly as is asked; `a_real_store` tries another one, by the variables
//! `CENOTE_S3_BUCKET`, `CENOTE_S3_PREFIX`, `CENOTE_S3_PARAMETERS` (`endpoint=…&region=…`) and those of AWS
//! for credentials (`scripts/try-object-stores`).

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/histories.rs"]
mod histories;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use histories::{Place, history, split};
use objects::bucket::{Bucket, BucketError, S3Bucket, S3Error};
use objects::{Error, Lack, Mode, ObjectDevice, Options, ProbeError, probe};
use server::{Fault, Server};

const SECRET: &str = "hunter2-hunter2";

fn open(bucket: &str, prefix: &str, key: &str, parameters: &[(&str, String)]) -> Result<S3Bucket, S3Error> {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let look = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some(key.to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some(SECRET.to_owned()),
        _ => None,
    };
    S3Bucket::open_in(bucket, prefix, &parameters, &look)
}

fn of(server: &Server, prefix: &str) -> S3Bucket {
    let endpoint = format!("http://{}", server.address);
    open("tank", prefix, "KEY", &[("endpoint", endpoint), ("timeout", "2".into())]).unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn is_unsure<T: std::fmt::Debug>(answer: &Result<T, BucketError>) -> bool {
    matches!(answer, Err(BucketError::Unsure(_)))
}

#[test]
fn objects_are_made_once_read_in_part_deleted_and_listed() {
    let server = Server::new();
    let bucket = of(&server, "a/b");
    assert_eq!(bucket.address(), format!("s3://tank/a/b?endpoint=http://{}&timeout=2", server.address));
    run(async {
        assert_eq!(bucket.create("commit/1", Bytes::from("one")).await, Ok(()));
        assert_eq!(bucket.create("commit/1", Bytes::from("two")).await, Err(BucketError::Exists));
        assert_eq!(bucket.get_all("commit/1", 3).await.unwrap(), "one");
        assert_eq!(bucket.get_all("commit/1", 2).await, Err(BucketError::TooLong));
        bucket.put("commit/1", Bytes::from("three")).await.unwrap();
        assert_eq!(bucket.get("commit/1", 1..3).await.unwrap(), "hr");
        assert_eq!(bucket.get("commit/1", 1..1).await.unwrap(), "");
        for beyond in [1..6, 5..6, 9..12] {
            assert!(is_unsure(&bucket.get("commit/1", beyond.clone()).await), "{beyond:?}");
        }
        assert_eq!(bucket.get_all("commit/2", 9).await, Err(BucketError::Missing));
        assert_eq!(bucket.get("commit/2", 0..1).await, Err(BucketError::Missing));
        assert_eq!(bucket.delete("commit/1").await, Ok(()));
        assert_eq!(bucket.delete("commit/1").await, Ok(()));
        assert_eq!(bucket.get_all("commit/1", 9).await, Err(BucketError::Missing));
        let large = Bytes::from(vec![7; 16 << 20]);
        bucket.put("segment/1", large.clone()).await.unwrap();
        assert_eq!(bucket.get_all("segment/1", 16 << 20).await.unwrap(), large);
        for key in ["../x", "a//b", "/a", "a b", "a?b", "a%2f", ".hidden"] {
            assert!(matches!(bucket.put(key, Bytes::new()).await, Err(BucketError::Refused(_))), "{key}");
        }
        server.store.objects.lock().unwrap().insert("a/bc".into(), vec![]);
        for number in 0..5 {
            bucket.put(&format!("map/{number}"), Bytes::new()).await.unwrap();
        }
        let keys = async |prefix: &str, after: &str, limit| {
            let listed = bucket.list(prefix, after, limit).await.unwrap();
            listed.into_iter().map(|one| (one.key, one.size_bytes)).collect::<Vec<_>>()
        };
        assert_eq!(keys("map/", "map/2", 9).await, [("map/3".into(), 0), ("map/4".into(), 0)]);
        assert_eq!(keys("", "map/4", 9).await, [("segment/1".into(), 16 << 20)]);
        assert_eq!(keys("map/", "", 1).await, [("map/0".into(), 0)]);
        assert_eq!(keys("map/", "map/4", 9).await, []);
    });
}

#[test]
fn answers_that_are_not_sure_are_told_apart_from_those_that_are() {
    let server = Server::new();
    let bucket = of(&server, "");
    let after = |fault: Fault| server.fail_next(fault);
    run(async {
        bucket.put("x", Bytes::from("0123456789")).await.unwrap();
        let unsure = [
            Fault::Says(503, "SlowDown"),
            Fault::Says(409, "ConditionalRequestConflict"),
            Fault::Says(404, "NoSuchUpload"),
            Fault::Says(404, ""),
            Fault::Reset,
            Fault::Late,
        ];
        for fault in unsure {
            after(fault.clone());
            assert!(is_unsure(&bucket.create("new", Bytes::new()).await), "{fault:?}");
            server.settle().await;
            server.store.objects.lock().unwrap().remove("new");
            after(fault.clone());
            assert!(is_unsure(&bucket.get_all("x", 99).await), "{fault:?}");
            after(fault.clone());
            assert!(is_unsure(&bucket.delete("y").await), "{fault:?}");
        }
        // It was done, whatever was said.
        for fault in [Fault::DoneSays(500, "InternalError"), Fault::DoneReset, Fault::Late, Fault::Short] {
            after(fault.clone());
            assert!(is_unsure(&bucket.create("done", Bytes::from("a")).await), "{fault:?}");
            server.settle().await;
            assert_eq!(bucket.create("done", Bytes::from("a")).await, Err(BucketError::Exists), "{fault:?}");
            bucket.delete("done").await.unwrap();
        }
        after(Fault::Twice);
        assert_eq!(bucket.create("twice", Bytes::new()).await, Err(BucketError::Exists));
        after(Fault::WrongETag);
        assert_eq!(bucket.put("etag", Bytes::new()).await, Ok(()), "an ETag means nothing here");

        for fault in [Fault::Short, Fault::Endless, Fault::WholeObject, Fault::OtherRange, Fault::NoLength] {
            after(fault.clone());
            assert!(is_unsure(&bucket.get("x", 2..6).await), "{fault:?}");
        }
        for fault in [Fault::Short, Fault::NoLength, Fault::Endless] {
            after(fault.clone());
            assert!(is_unsure(&bucket.get_all("x", 99).await), "{fault:?}");
        }
        after(Fault::EndlessError);
        assert!(is_unsure(&bucket.get_all("x", 99).await));
        assert_eq!(bucket.get("x", 2..6).await.unwrap(), "2345");
    });
}

#[test]
fn what_asking_again_does_not_mend_is_refused_and_no_secret_is_said() {
    let server = Server::new();
    let endpoint = || format!("http://{}", server.address);
    let said = |bucket: &S3Bucket| run(async { bucket.get_all("x", 9).await.unwrap_err() });
    let stranger = open("tank", "", "OTHER", &[("endpoint", endpoint())]).unwrap();
    let words =
        "403 InvalidAccessKeyId: so it is; the credentials come from AWS_ACCESS_KEY_ID in the environment";
    assert_eq!(said(&stranger), BucketError::Refused(words.into()));
    let elsewhere = open("lake", "", "KEY", &[("endpoint", endpoint())]).unwrap();
    assert!(said(&elsewhere).to_string().contains("there is no bucket 'lake'"));
    let bucket = of(&server, "");
    for fault in [Fault::Says(403, "AccessDenied"), Fault::Says(501, "NotImplemented"), Fault::Says(301, "")]
    {
        server.fail_next(fault.clone());
        assert!(matches!(said(&bucket), BucketError::Refused(_)), "{fault:?}");
    }
    let closed = open("tank", "", "KEY", &[("endpoint", "http://127.0.0.1:1".into())]).unwrap();
    assert!(matches!(said(&closed), BucketError::Unsure(_)));
    let told = [
        format!("{stranger:?} {bucket:?} {closed:?}"),
        said(&stranger).to_string(),
        said(&closed).to_string(),
    ];
    assert!(told.iter().all(|told| !told.contains("hunter2")), "{told:?}");
    let refused = open("tank", "", "KEY", &[("secret", SECRET.into())]).unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("hunter2"));
}

#[test]
fn no_more_connections_are_made_than_requests_are_allowed() {
    let server = Server::new();
    let parameters = [("endpoint", format!("http://{}", server.address)), ("concurrency", "3".into())];
    let bucket = open("tank", "", "KEY", &parameters).unwrap();
    run(async {
        let puts = (0..64).map(|number| (format!("x/{number}"), Bytes::from(vec![1; 10_000])));
        let puts: Vec<_> = puts.collect();
        let done = join_all(puts.iter().map(|(key, body)| bucket.put(key, body.clone()))).await;
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    });
    let most = server.store.most_open.load(Ordering::SeqCst);
    // A connection that is given back may cross one that is being made.
    assert!(most <= 6, "{most}");
}

#[test]
fn a_bucket_is_used_in_one_runtime_after_another() {
    let server = Server::new();
    let bucket: Arc<dyn Bucket> = Arc::new(of(&server, "device"));
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    idle.block_on(probe(&*bucket, Duration::from_secs(30))).unwrap();
    idle.block_on(objects::create(&*bucket, 64 << 20, &Options::default())).unwrap();
    // Its connections are those of a runtime that is not polled any more.
    let device = ObjectDevice::open(Arc::clone(&bucket), Mode::Write, Options::default()).unwrap();
    let data = device::IoBuf::from(&[5; 8192][..]);
    device::block_on(device::Device::write(&device, 4096, data)).unwrap();
    device::block_on(device::Device::flush(&device)).unwrap();
    drop(device);
    let device = ObjectDevice::open(bucket, Mode::Read, Options::default()).unwrap();
    let read = device::block_on(device::Device::read(&device, 0, 8192)).unwrap();
    assert_eq!((read[4095], read[4096]), (0, 5));
    assert!(server.log().iter().all(|line| line.split(' ').nth(1).unwrap().starts_with("/tank/device/")));
}

#[test]
fn a_store_that_overwrites_without_a_word_is_found() {
    let server = Server::new();
    let bucket = of(&server, "");
    assert_eq!(run(probe(&bucket, Duration::from_secs(30))), Ok(()));
    assert!(server.store.objects.lock().unwrap().is_empty(), "nothing stays");
    server.store.overwrites.store(true, Ordering::SeqCst);
    let refused = run(probe(&bucket, Duration::from_secs(30))).unwrap_err();
    let ProbeError::Unsafe { lacks, .. } = &refused else { panic!("{refused}") };
    assert!(lacks.contains(&Lack::Overwrites) && lacks.contains(&Lack::SeveralMake), "{lacks:?}");
    assert!(refused.to_string().contains("s3://tank?endpoint="), "{refused}");
    assert!(server.store.objects.lock().unwrap().is_empty(), "nothing stays");
    server.store.one_in.store(1, Ordering::SeqCst);
    for _ in 0..64 {
        server.fail_next(Fault::Says(501, "NotImplemented"));
    }
    let refused = run(probe(&bucket, Duration::from_secs(1))).unwrap_err();
    assert!(
        matches!(refused, ProbeError::Store(Error::Store { error: BucketError::Refused(_), .. })),
        "{refused}"
    );
}

/// Histories with the faults of a store on the wire, and those of [`objects::bucket::FaultyBucket`] besides.
fn on_wire(run_one: fn(u64, &Place)) {
    for seed in seeds(3) {
        let server = Server::new();
        let place = Place { store: Arc::new(of(&server, &format!("seed-{seed}"))), is_real: true };
        server.store.one_in.store(if seed == 0 { 0 } else { 40 }, Ordering::SeqCst);
        run_one(seed, &place);
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let many = std::env::var("CENOTE_S3_SEEDS").ok().and_then(|many| many.parse().ok());
    0..many.unwrap_or(count)
}

#[test]
fn nothing_acknowledged_is_lost_on_the_wire() {
    on_wire(history);
}

#[test]
fn of_two_owners_on_the_wire_the_first_is_told() {
    on_wire(split);
}

/// One check of a real store, whose result is a line that begins with `CHECK`.
fn said(name: &str, check: impl FnOnce() -> Result<(), String> + std::panic::UnwindSafe) -> bool {
    let begun = std::time::Instant::now();
    let done = std::panic::catch_unwind(check).unwrap_or_else(|_| Err("panicked; see above".into()));
    let seconds = begun.elapsed().as_secs_f64();
    match &done {
        Ok(()) => println!("CHECK {name}: ok ({seconds:.1} s)"),
        Err(why) => println!("CHECK {name}: {why}"),
    }
    done.is_ok()
}

#[test]
#[ignore = "needs a store: scripts/try-object-stores"]
fn a_real_store() {
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let parameters = set("CENOTE_S3_PARAMETERS");
    let parameters: Vec<_> = parameters
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let below = |prefix: String| -> Arc<dyn Bucket> {
        let prefix = format!("{}/{prefix}", set("CENOTE_S3_PREFIX"));
        Arc::new(S3Bucket::open(&set("CENOTE_S3_BUCKET"), &prefix, &parameters).unwrap())
    };
    let run_id = fastrand::u64(..);
    let probed = below(format!("{run_id}-probe"));
    let is_safe = said(
        "probe",
        std::panic::AssertUnwindSafe(|| {
            run(probe(&*probed, Duration::from_secs(20))).map_err(|error| error.to_string())
        }),
    );
    assert!(is_safe, "the store is not safe");
    let all = [("torture", history as fn(u64, &Place)), ("fence", split)];
    let done = all.map(|(name, run_one)| {
        said(
            name,
            std::panic::AssertUnwindSafe(|| {
                for seed in seeds(5) {
                    let place = Place { store: below(format!("{run_id}-{name}-{seed}")), is_real: true };
                    run_one(seed, &place);
                    place.run(remove_all(&*place.store));
                }
                Ok(())
            }),
        )
    });
    assert!(done.iter().all(|done| *done));
}

/// Removes what a history left.
async fn remove_all(bucket: &dyn Bucket) {
    loop {
        let listed = bucket.list("", "", 1000).await.unwrap();
        if listed.is_empty() {
            return;
        }
        for done in join_all(listed.iter().map(|one| bucket.delete(&one.key))).await {
            done.unwrap();
        }
    }
}
