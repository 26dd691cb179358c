//! The commands of the program, one file each.
//!
//! Here live arguments, what a person reads on a terminal, and exit statuses. Here must not live: anything that a
//! program would want to do without a terminal.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this folder is what talks to people")]

mod accounts;
mod check;
mod demo;
mod explain;
mod keys;
mod replay;
mod serve;
mod style;
mod table;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// The gateway between applications and large language models.
///
/// Applications reach every model provider through one address, in the wire format that they already speak: OpenAI chat
/// completions and responses, Anthropic messages, Gemini generateContent.
#[derive(Debug, Parser)]
#[command(name = "model-gateway", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  \
    model-gateway demo                                  try it, without any configuration or provider key\n  \
    model-gateway keys create alice --conf gateway.toml make a key (it is shown once)\n  \
    model-gateway check --conf gateway.toml             see whether a configuration is sound\n  \
    model-gateway serve --conf gateway.toml             run it")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    ///
    /// Signals: SIGHUP reads routes and keys again; SIGTERM and SIGINT stop after the answers under way; SIGUSR2
    /// starts the program anew and hands its listeners over; SIGQUIT hands them to a process that was started with
    /// --upgrade.
    Serve(serve::Options),
    /// Check a configuration: every fault at once, with its place and what would be right.
    ///
    /// Exit status 0 if it is sound, 1 if it is not.
    Check(check::Options),
    /// Try the gateway: it runs with simulated providers, and lines to paste are printed.
    ///
    /// Needs no file, no provider key and no network. What is kept meanwhile is in a temporary folder, which is removed
    /// at the end; Ctrl-C ends the demo at once.
    Demo(demo::Options),
    /// Make, list and switch keys in keys.toml.
    ///
    /// A running gateway takes changes over on SIGHUP (systemctl reload model-gateway).
    Keys(keys::Options),
    /// Make, credit, show and switch accounts, check them, and write backups.
    ///
    /// A running gateway takes changes over by itself, within a second.
    Accounts(accounts::Options),
    /// Show what was used and what it cost, by day, account, key or model.
    Usage(usage::Options),
    /// Show what a request becomes in another format, and what would be lost.
    ///
    /// The request that would be sent goes to standard output, the losses to standard error. Nothing is sent.
    Explain(explain::Options),
    /// Run a recorded answer through the translator, offline.
    Replay(replay::Options),
}

/// Which configuration.
#[derive(Clone, Debug, Args)]
struct Conf {
    /// The configuration file; routes.toml and keys.toml are found through it.
    #[arg(long, value_name = "FILE", default_value = "/etc/model-gateway/gateway.toml")]
    conf: PathBuf,
}

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Accounts(options) => accounts::run(&options),
        Command::Usage(options) => usage::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Replay(options) => replay::run(&options),
    }
}

/// Says something on standard error. Where that cannot be written, nobody hears it, and that is all.
fn complain(message: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Says what went wrong and gives the exit status for it.
fn fail(message: impl std::fmt::Display) -> ExitCode {
    complain(format_args!("{} {message}", style::bad("error:")));
    ExitCode::FAILURE
}
