//! `model-gateway completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::Args;
use clap_complete::aot::{Shell, generate};

use super::{definition, out};

/// Name of the program.
const PROGRAM: &str = "model-gateway";

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(options: &CompletionsArgs) -> ExitCode {
    out::write(script(options.shell).as_bytes());
    ExitCode::SUCCESS
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut definition(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    // clap_complete 4.6 gives a program with a hyphen two different names in its script for bash, so that nothing behind
    // the program is completed: it takes the hyphen for the boundary of a subcommand in one of them.
    match shell {
        Shell::Bash => script.replace(&PROGRAM.replace('-', "__subcmd__"), &PROGRAM.replace('-', "__")),
        _ => script,
    }
}
