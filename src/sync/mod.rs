//! Synchronization: the primitives of lock-free code, and small structures whose interleavings are model-checked.
//!
//! `make loom` compiles this module, and the modules that take their primitives from it, with those of loom, which runs
//! a test in every order in which its threads can interleave, weak memory included. All other builds use those of the
//! standard library. Here live the primitives and structures without a purpose of their own. Here must not live: money,
//! routing, sockets, files.

mod drain_count;
mod line_buffer;
mod per_thread;
#[cfg(all(test, loom))]
mod tests;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

pub use drain_count::DrainCount;
pub use line_buffer::{Buffering, LineBuffer, Wakeup};
pub use per_thread::PerThread;
