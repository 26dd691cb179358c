//! `model-gateway audit`: the check of the admin API's audit log.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::out::say;
use super::{Conf, complain, fail};
use admin::verify_audit;

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check the chain of the audit log: whether a line was edited, removed or added.
    ///
    /// Each line has the hash of the one before. The hash of the last line is printed: kept elsewhere, it tells later
    /// whether the end was replaced (--last). Exit status 0 if the chain holds, 1 if not.
    Verify {
        #[command(flatten)]
        conf: Conf,
        /// State folder of the admin API, instead of the one that the configuration names.
        #[arg(long, value_name = "FOLDER", conflicts_with = "conf")]
        state: Option<PathBuf>,
        /// Hash that a line of the log must have: the last line of an earlier check.
        #[arg(long, value_name = "HASH")]
        last: Option<String>,
    },
}

pub(super) fn run(options: &AuditArgs) -> ExitCode {
    let Action::Verify { conf, state, last } = &options.action;
    let folder = match state {
        Some(folder) => folder.clone(),
        None => match config::admin_state_path(&conf.conf) {
            Ok(folder) => folder,
            Err(report) => {
                for problem in &report.problems {
                    complain(problem);
                }
                return fail("the configuration is not valid");
            }
        },
    };
    match verify_audit(&folder, last.as_deref()) {
        Ok(summary) => {
            match summary.range {
                Some((first, end)) => {
                    say!(
                        "{} lines, {first} to {end}, follow each other; the last has the hash {}",
                        summary.lines,
                        summary.last_hash
                    );
                }
                None => say!("The audit log has no lines yet."),
            }
            ExitCode::SUCCESS
        }
        Err(fault) => fail(fault),
    }
}
