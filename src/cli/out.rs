//! Standard output of the commands: the only way to it.
//!
//! A reader that closes the pipe early, such as `head`, ends a command as it ends every other program: by SIGPIPE, without a
//! message (exit status 141 in a shell). `println!` would panic, because the runtime of Rust ignores this signal. Commands
//! that change something print when it is done.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line to standard output.
macro_rules! say {
    () => { $crate::out::line(format_args!("")) };
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(super) use say;

/// Writes a line to standard output. Ends the process if that is not possible.
pub(super) fn line(text: fmt::Arguments<'_>) {
    settle(writeln!(io::stdout().lock(), "{text}"));
}

/// Writes bytes to standard output, all of them. Ends the process if that is not possible.
pub(super) fn write(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    settle(out.write_all(bytes).and_then(|()| out.flush()));
}

/// Ends the process if standard output could not be written: by SIGPIPE if its reader is gone, otherwise with a message.
pub(super) fn settle(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => end_by_sigpipe(),
        Err(error) => {
            super::complain(format_args!("{} standard output: {error}", super::style::bad("error:")));
            std::process::exit(1);
        }
    }
}

/// Ends the process as the signal does by default.
#[allow(unsafe_code, reason = "the standard library cannot raise a signal")]
fn end_by_sigpipe() -> ! {
    // SAFETY: signal() restores the default handler, and raise() sends the signal to this thread; both take integers and
    // touch no memory of this process.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    // The signal is blocked.
    std::process::exit(128 + libc::SIGPIPE);
}
