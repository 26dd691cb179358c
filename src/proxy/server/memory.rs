//! Settings of the system allocator (glibc only).
//!
//! A request body is read whole, in pieces, and freed after it was sent. By default glibc returns the top of its heap
//! to the system whenever 128 KiB of it are free, and faults it in again, page by page, for the next body: with 5 MB
//! bodies that was a tenth of all CPU time. These settings keep more free memory and serve larger blocks from the heap.

/// Configures the allocator. Must be called before the process starts other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator has no safe interface for this setting")]
pub(in crate::proxy) fn set_up() {
    /// Free memory that glibc retains at the top of each arena's heap, in bytes.
    const KEPT: i32 = 64 << 20;
    /// Size from which glibc uses `mmap` for a block and returns it on free, in bytes.
    const LARGE: i32 = 4 << 20;
    // SAFETY: `mallopt` takes two integers, touches no memory of ours, and ignores what it does not know.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Does nothing: other allocators need no settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(in crate::proxy) fn set_up() {}
