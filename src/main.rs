//! Binary entry point: runs the command line and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
