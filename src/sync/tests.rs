//! Model checks: each runs in every order in which its threads can interleave.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;
use std::time::Duration;

/// Makes this thread of a model the one with this index.
fn be(index: usize) {
    thread_index::INDEX.with(|own| own.set(index));
}

/// A waiter that looks after the drain has begun is woken by the end of the last guard, or sees it.
#[test]
fn loom_drain_is_not_missed_by_the_last_guard() {
    loom::model(|| {
        let (count, idle) = (Arc::new(DrainCount::default()), Arc::new(Notify::new()));
        count.add();
        let guard = thread::spawn({
            let (count, idle) = (count.clone(), idle.clone());
            move || {
                be(1);
                if count.remove() {
                    idle.notify();
                }
            }
        });
        if !count.drain() {
            // Blocks for ever, which loom reports, if the guard has seen no drain.
            while !count.is_idle() {
                idle.wait();
            }
        }
        guard.join().unwrap();
    });
}

/// Of two guards that are removed at the same time, by other threads than those that added them, one is the last.
#[test]
fn loom_drain_wakes_for_the_last_guard() {
    loom::model(|| {
        let count = Arc::new(DrainCount::default());
        count.add();
        count.add_request();
        assert!(!count.drain());
        let other = thread::spawn({
            let count = count.clone();
            move || {
                be(1);
                count.remove()
            }
        });
        let own = count.remove_request();
        assert!(own | other.join().unwrap());
        assert!(count.is_idle() && count.is_draining());
    });
}

/// A request that is counted before another guard is gone keeps the process from being idle, whatever thread counts.
#[test]
fn loom_drain_waits_for_a_request_that_takes_over_from_a_guard() {
    loom::model(|| {
        let count = Arc::new(DrainCount::default());
        count.add();
        assert!(!count.drain());
        let request = thread::spawn({
            let count = count.clone();
            move || {
                be(1);
                count.add_request();
                assert!(!count.remove());
                // Its end: only now may the process be idle.
                be(0);
                count.remove_request()
            }
        });
        if count.is_idle() {
            assert_eq!(count.requests(), 0);
        }
        assert!(request.join().unwrap());
    });
}

/// No more than the limit are admitted, though threads hold grants.
#[test]
fn loom_summed_limit_is_not_exceeded() {
    loom::model(|| {
        let all = Arc::new((DrainCount::default(), SummedLimit::new(3)));
        let enter = |all: &(DrainCount, SummedLimit)| {
            all.0.add_request();
            usize::from(all.1.admits(|| all.0.requests()))
        };
        let other = thread::spawn({
            let all = all.clone();
            move || {
                be(1);
                enter(&all) + enter(&all)
            }
        });
        let own = enter(&all) + enter(&all);
        let admitted = own + other.join().unwrap();
        assert!((2..=3).contains(&admitted), "{admitted}");
    });
}

/// A request that leaves makes room, though what is left was granted to another thread.
#[test]
fn loom_summed_limit_takes_grants_back() {
    loom::model(|| {
        let all = Arc::new((DrainCount::default(), SummedLimit::new(3)));
        let enter = |all: &(DrainCount, SummedLimit)| {
            all.0.add_request();
            all.1.admits(|| all.0.requests())
        };
        // Has a grant of one.
        assert!(enter(&all));
        let other = thread::spawn({
            let all = all.clone();
            move || {
                be(1);
                enter(&all) & enter(&all)
            }
        });
        assert!(other.join().unwrap());
        assert!(!enter(&all));
        let _ = (all.0.remove_request(), all.0.remove_request());
        assert!(enter(&all));
    });
}

/// Runs the writing thread until it is stopped, and returns what it wrote.
fn write(buffer: &LineBuffer) -> Vec<u8> {
    let (mut all, mut taken) = (Vec::new(), Vec::new());
    loop {
        let wakeup = buffer.take(&mut taken);
        all.extend_from_slice(&taken);
        let more = buffer.on_written();
        if wakeup.stop && !more {
            return all;
        }
    }
}

fn buffer(batch: usize) -> Arc<LineBuffer> {
    // Loom knows no time: a time-out never ends a wait, so that nothing here may rest on one.
    Arc::new(LineBuffer::new(Buffering { flush: Duration::MAX, batch, max_buffered: 100 }))
}

/// A line that reaches the batch size wakes the writing thread, whatever that does at the moment.
#[test]
fn loom_line_wakes_the_writing_thread() {
    loom::model(|| {
        let buffer = buffer(1);
        let writing = thread::spawn({
            let buffer = buffer.clone();
            move || write(&buffer)
        });
        assert!(buffer.append(b"a"));
        assert!(buffer.append(b"b"));
        buffer.stop();
        assert_eq!(writing.join().unwrap(), b"ab");
        assert!(buffer.is_written());
    });
}

/// A flush ends without the thread's own time-out.
#[test]
fn loom_flush_needs_no_time_out() {
    loom::model(|| {
        let buffer = buffer(10);
        let writing = thread::spawn({
            let buffer = buffer.clone();
            move || write(&buffer)
        });
        assert!(buffer.append(b"a"));
        buffer.flush(Duration::from_secs(3600));
        assert!(buffer.is_written());
        buffer.stop();
        assert_eq!(writing.join().unwrap(), b"a");
    });
}

/// A request to open the destination again is carried out once, and without a time-out.
#[test]
fn loom_reopen_needs_no_time_out() {
    loom::model(|| {
        let (buffer, reopened) = (buffer(10), Arc::new(AtomicBool::new(false)));
        let writing = thread::spawn({
            let (buffer, reopened) = (buffer.clone(), reopened.clone());
            move || {
                let mut taken = Vec::new();
                while !buffer.take(&mut taken).reopen {
                    buffer.on_written();
                }
                reopened.store(true, Ordering::Release);
            }
        });
        buffer.reopen();
        writing.join().unwrap();
        assert!(reopened.load(Ordering::Acquire));
    });
}
