//! Jobs of a host that is none: who works on what, and what is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use device::block_on;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::{Host, Job, JobState, JobStatus, Jobs, Step, Stop, Target, Turn, Unit, Work};
use crate::error::{Error, Result};

/// Each key is so many steps long.
const LONG: u64 = 5;
const LINE: &str = "line";

#[derive(Default)]
struct Fake {
    jobs: Arc<Jobs<Fake>>,
    now: AtomicU64,
    targets: Mutex<BTreeMap<u32, Target>>,
    kept: Mutex<Vec<(u32, JobState)>>,
    /// So many steps may be taken, and those that were: keys and thread.
    gate: Mutex<(u64, Vec<Vec<u32>>)>,
    opened: Condvar,
    /// How often something was kept.
    keeps: AtomicU64,
    /// The next time, a step may be taken, and its thread comes to its end first.
    is_overtaken: AtomicBool,
}

impl Host for Fake {
    type Key = u32;

    fn jobs(&self) -> &Arc<Jobs<Self>> {
        &self.jobs
    }

    fn name(&self) -> &str {
        "fake"
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.now.load(Ordering::Relaxed))
    }

    fn target(&self, key: &u32) -> Target {
        self.targets.lock().unwrap().get(key).copied().unwrap_or(Target::Here)
    }

    async fn keep(self: &Arc<Self>, keys: Vec<u32>) -> Result<()> {
        let states = keys.iter().filter_map(|key| Some((*key, self.jobs.state_of(key)?)));
        self.kept.lock().unwrap().extend(states);
        let keeps = self.keeps.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_overtaken.swap(false, Ordering::Relaxed) {
            self.open(1);
            self.until(|fake| fake.keeps.load(Ordering::Relaxed) > keeps);
        }
        Ok(())
    }

    /// Even and odd keys together, if they are equally far.
    fn work(self: &Arc<Self>, keys: &[(u32, JobStatus)]) -> Vec<Work<Self>> {
        let mut together: BTreeMap<(u32, u64), BTreeSet<u32>> = BTreeMap::new();
        for (key, status) in keys {
            together.entry((key % 2, status.done)).or_default().insert(*key);
        }
        let work = |((_, from), keys)| Work { keys, total: LONG, job: Box::new(Steps { done: from }) };
        together.into_iter().map(work).collect()
    }
}

impl Fake {
    fn open(&self, steps: u64) {
        self.gate.lock().unwrap().0 += steps;
        self.opened.notify_all();
    }

    /// Takes a step as soon as one may be taken.
    fn pass(&self, keys: &BTreeSet<u32>) {
        let gate = self.gate.lock().unwrap();
        let mut gate = self.opened.wait_while(gate, |(left, _)| *left == 0).unwrap();
        gate.0 -= 1;
        gate.1.push(keys.iter().copied().collect());
        self.opened.notify_all();
    }

    fn taken(&self) -> Vec<Vec<u32>> {
        self.gate.lock().unwrap().1.clone()
    }

    fn until(&self, is_so: impl Fn(&Fake) -> bool) {
        while !is_so(self) {
            std::thread::yield_now();
        }
    }

    fn until_taken(&self, steps: usize) {
        self.until(|fake| fake.taken().len() == steps);
    }

    fn states(&self) -> Vec<(u32, JobState)> {
        self.jobs.statuses(self.now()).iter().map(|(key, status)| (*key, status.state)).collect()
    }

    fn kept(&self) -> Vec<(u32, JobState)> {
        std::mem::take(&mut *self.kept.lock().unwrap())
    }
}

/// Counts to [`LONG`].
struct Steps {
    done: u64,
}

impl Job<Fake> for Steps {
    fn name(&self) -> &'static str {
        "count"
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, Fake>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            let host = turn.host()?;
            host.pass(turn.keys());
            if self.done == LONG {
                return Ok(Step::Complete);
            }
            self.done += 1;
            for key in turn.keys() {
                if *key == 13 {
                    return Err(Error::Invalid("thirteen".into()));
                }
                host.jobs.advance(&host, key, self.done, LONG);
            }
            Ok(Step::More { pause: Duration::ZERO })
        }
        .boxed_local()
    }
}

fn start(fake: &Arc<Fake>, keys: &[u32]) {
    block_on(fake.jobs.start(fake, keys, (Unit::Objects, 0))).unwrap();
}

fn stop(fake: &Arc<Fake>, keys: &[u32], how: Stop) -> usize {
    block_on(fake.jobs.stop(fake, keys, how)).unwrap()
}

#[test]
fn jobs_that_are_equally_far_are_done_together_and_each_change_is_kept() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[2, 4, 3]);
    assert_eq!(fake.kept(), [(2, JobState::Active), (4, JobState::Active), (3, JobState::Active)]);
    fake.open(2 * (LONG + 1));
    block_on(fake.jobs.wait_while(|_, state| state == JobState::Active));
    assert_eq!(fake.taken().iter().filter(|keys| **keys == [2, 4]).count() as u64, LONG + 1);
    assert_eq!(fake.taken().iter().filter(|keys| **keys == [3]).count() as u64, LONG + 1);
    assert!(fake.jobs.statuses(fake.now()).values().all(|job| job.done == LONG && job.total == LONG));
    fake.jobs.end();
    let mut kept = fake.kept();
    kept.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(kept, [2, 3, 4].map(|key| (key, JobState::Complete)));
}

#[test]
fn what_is_suspended_goes_on_where_it_was_and_what_is_cancelled_begins_anew() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[2, 4]);
    fake.open(2);
    fake.until_taken(2);
    assert_eq!(stop(&fake, &[4, 6], Stop::Suspend), 1);
    assert_eq!(stop(&fake, &[4], Stop::Suspend), 0);
    // The step that waits began before.
    fake.open(2);
    fake.until_taken(4);
    assert_eq!(fake.taken()[3], [2]);
    let done = fake.jobs.status(&4).unwrap().done;
    start(&fake, &[4]);
    assert_eq!(fake.jobs.status(&4).unwrap().done, done);
    assert_eq!(stop(&fake, &[2, 4], Stop::Cancel), 2);
    assert_eq!(fake.states(), [(2, JobState::Canceled), (4, JobState::Canceled)]);
    fake.open(2);
    fake.until(|fake| !fake.jobs.is_worked_on(&2) && !fake.jobs.is_worked_on(&4));
    start(&fake, &[4]);
    assert_eq!(fake.jobs.status(&4).unwrap().done, 0);
    fake.open(LONG + 1);
    fake.jobs.forget(&2);
    fake.until(|fake| fake.states() == [(4, JobState::Complete)]);
    fake.jobs.end();
}

#[test]
fn what_went_away_goes_on_when_it_is_back_and_what_failed_is_given_up() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[2, 3]);
    fake.open(2);
    fake.until_taken(2);
    fake.targets.lock().unwrap().extend([(2, Target::Away), (3, Target::Failed)]);
    fake.open(2);
    fake.until(|fake| !fake.jobs.is_worked_on(&2) && !fake.jobs.is_worked_on(&3));
    fake.until(|fake| fake.states() == [(2, JobState::Active), (3, JobState::Canceled)]);
    fake.jobs.resume(&fake);
    assert!(!fake.jobs.is_worked_on(&2), "it is still away");
    fake.targets.lock().unwrap().clear();
    fake.jobs.resume(&fake);
    assert!(fake.jobs.is_worked_on(&2));
    fake.jobs.resume(&fake);
    fake.open(LONG + 1);
    fake.until(|fake| fake.jobs.state_of(&2) == Some(JobState::Complete));
    block_on(fake.jobs.give_up(&fake, |key| *key == 2)).unwrap();
    assert_eq!(fake.jobs.state_of(&2), Some(JobState::Complete), "it is over");
    fake.jobs.end();
}

#[test]
fn what_was_active_goes_on_after_the_pool_was_closed() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[2]);
    fake.open(3);
    fake.until_taken(3);
    let ending = std::thread::spawn({
        let fake = Arc::clone(&fake);
        move || fake.jobs.end()
    });
    fake.until(|fake| fake.jobs.is_ending());
    fake.open(1);
    ending.join().unwrap();
    let left = fake.jobs.statuses(fake.now());
    assert_eq!((left[&2].state, left[&2].done), (JobState::Active, 4));
    let again = Arc::<Fake>::default();
    again.jobs.take_up(left);
    assert!(!again.jobs.is_worked_on(&2));
    again.jobs.resume(&again);
    again.open(2);
    again.until(|fake| fake.jobs.state_of(&2) == Some(JobState::Complete));
    again.jobs.end();
}

#[test]
fn an_error_ends_the_thread_and_the_job_stays_active() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[13]);
    fake.open(1);
    fake.until(|fake| !fake.jobs.is_worked_on(&13));
    assert_eq!(fake.states(), [(13, JobState::Active)]);
    fake.jobs.end();
}

#[test]
fn a_job_that_is_as_fast_as_it_was_has_a_time_left() {
    let fake = Arc::<Fake>::default();
    start(&fake, &[2]);
    fake.open(1);
    fake.until(|fake| fake.jobs.status(&2).is_some_and(|job| job.done == 1));
    fake.now.store(2, Ordering::Relaxed);
    fake.open(2);
    fake.until(|fake| fake.jobs.status(&2).is_some_and(|job| job.done == 3));
    let status = fake.jobs.statuses(fake.now())[&2];
    assert_eq!((status.rate, status.time_left()), (Some(1), Some(Duration::from_secs(2))));
    fake.open(LONG);
    fake.jobs.end();
}

fn line_up(fake: &Arc<Fake>, key: u32) {
    let job = Box::new(Steps { done: LONG - 1 });
    fake.jobs.line_up(fake, LINE, key, (Unit::Objects, job)).unwrap();
}

#[test]
fn who_stands_in_line_comes_once_and_in_order() {
    let fake = Arc::<Fake>::default();
    fake.now.store(7, Ordering::Relaxed);
    line_up(&fake, 7);
    fake.until(|fake| fake.jobs.is_worked_on(&7));
    for key in [5, 13, 5, 7, 3] {
        line_up(&fake, key);
    }
    // The one that is worked on may not notice any more what it is to do now.
    assert_eq!(fake.jobs.waiting(LINE), 4);
    fake.jobs.resume(&fake);
    assert!(!fake.jobs.is_worked_on(&5), "it is not its turn");
    fake.open(20);
    block_on(fake.jobs.wait_while(|_, _| true));
    let order: Vec<Vec<u32>> = fake.taken();
    // One that fails is left behind after its first step.
    assert_eq!(order.concat(), [7, 7, 5, 5, 13, 7, 7, 3, 3]);
    assert_eq!(fake.kept(), []);
    // That was the end of the thread; there is another one.
    line_up(&fake, 9);
    fake.until(|fake| fake.states().is_empty());
    fake.jobs.end();
    line_up(&fake, 9);
    assert_eq!(fake.states(), []);
}

#[test]
fn a_job_that_is_started_anew_while_its_thread_comes_to_its_end_is_done_anew() {
    let fake = Arc::new(Fake::default());
    start(&fake, &[2]);
    fake.open(LONG);
    fake.until_taken(LONG as usize);
    fake.is_overtaken.store(true, Ordering::Relaxed);
    start(&fake, &[2]);
    assert_eq!(fake.states(), [(2, JobState::Active)]);
    fake.open(LONG + 1);
    fake.until(|fake| fake.states() == [(2, JobState::Complete)]);
    assert_eq!(fake.taken().len() as u64, 2 * (LONG + 1));
}
