//! Workers: panics, and when they look whether the store rests.

use super::*;
use crate::support::until;
use thermocline_foundation::sync::atomic::AtomicUsize;
use thermocline_foundation::{Clock, SystemClock};

/// Gives out one job that panics where it says, and none after that was told.
#[derive(Debug, Default)]
struct Plan {
    at: Option<At>,
    given: AtomicBool,
    told: Arc<Mutex<Vec<String>>>,
    dropped: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Planning,
    Step,
    Drop,
}

#[derive(Debug)]
struct Faulty {
    at: Option<At>,
    told: Arc<Mutex<Vec<String>>>,
    dropped: Arc<AtomicUsize>,
}

impl Planner for Plan {
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>> {
        if lane != Lane::Bulk || self.given.swap(true, Ordering::AcqRel) {
            return None;
        }
        assert!(self.at != Some(At::Planning), "the plan is broken");
        let (told, dropped) = (Arc::clone(&self.told), Arc::clone(&self.dropped));
        Some(Box::new(Faulty { at: self.at, told, dropped }))
    }

    fn failed(&self, job: &'static str, _begun: Moment, error: &Error) {
        self.told.lock().push(format!("{job} failed: {error}"));
    }

    fn panicked(&self, job: &'static str, text: &str) {
        self.told.lock().push(format!("{job} panicked: {text}"));
    }
}

impl Job for Faulty {
    fn name(&self) -> &'static str {
        "the faulty job"
    }

    fn step(&mut self) -> Result<Step> {
        assert!(self.at != Some(At::Step), "a step is broken");
        Ok(Step::Done)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
        if self.at == Some(At::Step) {
            assert_eq!(self.told.lock().len(), 1, "told before claims are given back");
        }
        assert!(self.at != Some(At::Drop), "the end is broken");
    }
}

#[test]
fn a_worker_lives_on_after_a_panic_and_the_planner_is_told_before_the_job_goes() {
    for (at, said) in [
        (At::Planning, "planning panicked: the plan is broken"),
        (At::Step, "the faulty job panicked: a step is broken"),
        (At::Drop, "the faulty job panicked: the end is broken"),
    ] {
        let plan = Arc::new(Plan { at: Some(at), ..Plan::default() });
        let planner: Arc<dyn Planner> = Arc::clone(&plan) as Arc<dyn Planner>;
        let jobs = Arc::new(Jobs::default());
        jobs.start(&planner, &[Lane::Flush], 1).unwrap();
        jobs.wait_idle();
        assert_eq!(*plan.told.lock(), [said]);
        assert_eq!(plan.dropped.load(Ordering::Acquire), usize::from(at != At::Planning));
        jobs.stop();
    }
}

/// Rests at the third look.
#[derive(Debug, Default)]
struct Resting {
    looks: AtomicUsize,
    plans: AtomicUsize,
}

impl Planner for Resting {
    fn plan(&self, _lane: Lane) -> Option<Box<dyn Job>> {
        self.plans.fetch_add(1, Ordering::AcqRel);
        None
    }

    fn failed(&self, job: &'static str, _begun: Moment, error: &Error) {
        panic!("{job}: {error}");
    }

    fn panicked(&self, job: &'static str, text: &str) {
        panic!("{job}: {text}");
    }

    fn look_for_rest(&self) -> Look {
        match self.looks.fetch_add(1, Ordering::AcqRel) {
            0 | 1 => Look::Again,
            2 => Look::Rests,
            _ => Look::Ended,
        }
    }
}

#[test]
fn idle_workers_look_for_rest_plan_once_it_is_there_and_then_sleep() {
    let plan = Arc::new(Resting::default());
    let planner: Arc<dyn Planner> = Arc::clone(&plan) as Arc<dyn Planner>;
    let every = Duration::from_millis(1);
    let jobs = Arc::new(Jobs { look_every: LookEvery(every), ..Jobs::default() });
    jobs.start(&planner, &[Lane::Flush], 1).unwrap();
    until("the look behind the rest", || {
        jobs.wait_idle();
        // Other processes may keep the workers from the processor.
        SystemClock::new().sleep(every);
        plan.looks.load(Ordering::Acquire) == 4
    });
    jobs.wait_idle();
    let plans = plan.plans.load(Ordering::Acquire);
    assert!(plans >= 4, "two workers planned twice: {plans}");
    jobs.stop();
    assert_eq!(plan.looks.load(Ordering::Acquire), 4, "no look follows the last one");
}

/// Gives out one job that finds no descriptor, and is told so.
#[derive(Debug, Default)]
struct Refusing {
    given: AtomicBool,
    jobs: Arc<Jobs>,
}

impl Planner for Refusing {
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>> {
        let is_given = lane != Lane::Bulk || self.given.swap(true, Ordering::AcqRel);
        (!is_given).then(|| Box::new(Refused) as _)
    }

    fn failed(&self, job: &'static str, begun: Moment, error: &Error) {
        self.jobs.shortage.note(job, begun, error);
    }

    fn panicked(&self, job: &'static str, text: &str) {
        panic!("{job}: {text}");
    }
}

#[derive(Debug)]
struct Refused;

impl Job for Refused {
    fn name(&self) -> &'static str {
        "the refused job"
    }

    fn step(&mut self) -> Result<Step> {
        Err(Error::new(ErrorKind::TooManyOpenFiles, "no descriptor"))
    }
}

#[test]
fn a_refused_job_that_no_plan_finds_again_is_told_no_more() {
    for workers in [Workers::Threads, Workers::Stepped(Arc::new(Stepper::new(1)))] {
        let jobs = Arc::new(Jobs::new(&workers));
        let plan = Arc::new(Refusing { jobs: Arc::clone(&jobs), ..Refusing::default() });
        let planner: Arc<dyn Planner> = Arc::clone(&plan) as Arc<dyn Planner>;
        jobs.start(&planner, &[Lane::Flush], 1).unwrap();
        jobs.wait_idle();
        assert!(plan.given.load(Ordering::Acquire));
        assert_eq!(jobs.shortage.reason(ErrorKind::TooManyOpenFiles), None);
        jobs.stop();
    }
}
