//! Synchronization: the primitives of lock-free code, small structures whose interleavings are model-checked, and
//! threads that are restarted ([`supervise`]).
//!
//! `make loom` compiles this crate, and the modules that take their primitives from it, with those of loom, which runs
//! a test in every order in which its threads can interleave, weak memory included. All other builds use those of the
//! standard library. Here live the primitives and structures without a purpose of their own. Here must not live: money,
//! routing, sockets, files.

mod drain_count;
mod line_buffer;
mod per_thread;
mod summed_limit;
pub mod supervise;
#[cfg(all(test, model_check))]
mod tests;
#[cfg(not(model_check))]
mod thread_index;
/// Indexes of the threads of a model. The model sets them: all of them run on one thread of the system.
#[cfg(model_check)]
mod thread_index {
    loom::thread_local! {
        pub(super) static INDEX: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    pub(super) fn thread_index() -> usize {
        INDEX.with(std::cell::Cell::get)
    }
}

#[cfg(model_check)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(model_check))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};

pub use drain_count::DrainCount;
pub use line_buffer::{Buffering, LineBuffer, Wakeup};
pub use per_thread::PerThread;
pub use summed_limit::SummedLimit;
