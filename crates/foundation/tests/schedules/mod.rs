//! What is atomic only, under every order that the memory model allows (loom): see
//! `docs/decisions/0024-schedules.md`. Threads of loom share one cell of a counter, which is the
//! hard case: no addition may be lost there.

use crate::counter::Counter;
use loom::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

#[test]
fn no_addition_is_lost_and_a_sum_never_goes_back() {
    loom::model(|| {
        let counter = Arc::new(Counter::default());
        let adders = [1, 10].map(|amount| {
            let counter = Arc::clone(&counter);
            loom::thread::spawn(move || counter.add(amount))
        });
        let first = counter.get();
        let second = counter.get();
        assert!(first <= second && [0, 1, 10, 11].contains(&second), "{first}, {second}");
        for adder in adders {
            adder.join().expect("no thread panics");
        }
        assert_eq!(counter.get(), 11);
    });
}

#[test]
fn an_addition_that_happened_before_is_seen() {
    loom::model(|| {
        let shared = Arc::new((Counter::default(), AtomicBool::new(false)));
        let adder = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                shared.0.add(5);
                shared.1.store(true, Ordering::Release);
            })
        };
        if shared.1.load(Ordering::Acquire) {
            assert_eq!(shared.0.get(), 5);
        }
        adder.join().expect("no thread panics");
    });
}
