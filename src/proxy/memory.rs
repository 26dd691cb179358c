//! What the process asks of the system's allocator.
//!
//! A request's body is read whole, in pieces, and freed when it has been sent. glibc gives the top of its heap back to
//! the system whenever 128 KiB of it are free, and fetches it again, page by page, for the next body: with 5 MB bodies
//! that was a tenth of all CPU time. So it may keep some, and takes larger blocks from the heap as well. Other
//! allocators are left as they are.

/// Sets the allocator up; to be called before there are other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator can be told in no other way")]
pub(super) fn set_up() {
    /// What is kept of the heap's free top, in bytes, for each of the allocator's arenas.
    const KEPT: i32 = 64 << 20;
    /// Blocks of this size and more come from the system and go back to it, in bytes.
    const LARGE: i32 = 4 << 20;
    // SAFETY: `mallopt` takes two integers, touches no memory of ours, and ignores what it does not know.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Other allocators need no settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn set_up() {}
