//! Command line: one file for each command.
//!
//! Contains arguments, terminal output and exit statuses. Functions that are useful without a terminal must not live
//! here.

mod accounts;
mod admin;
mod audit;
mod catalogue;
mod check;
mod clients;
mod completions;
mod demo;
mod explain;
mod health;
pub mod import;
mod keys;
mod man;
mod out;
mod record;
mod replay;
mod schema;
mod serve;
mod style;
mod table;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// Gateway between applications and large language models.
///
/// Applications reach every model provider through one address, in the wire format that they already speak: OpenAI chat
/// completions and responses, Anthropic messages, Gemini generateContent.
#[derive(Debug, Parser)]
#[command(name = "model-gateway", version = observe::VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  \
    model-gateway demo                                  try it, without any configuration or provider key\n  \
    model-gateway keys create alice --conf gateway.toml create a key (it is shown once)\n  \
    model-gateway check --conf gateway.toml             check whether a configuration is valid\n  \
    model-gateway serve --conf gateway.toml             run it")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    ///
    /// Signals: SIGHUP reloads routes and keys; SIGTERM stops the gateway after the lame duck time and the requests in
    /// flight, SIGINT after the requests in flight; SIGUSR2 starts a new process of the program and hands the listeners
    /// over to it; SIGQUIT hands them to a process that was started with --upgrade.
    Serve(serve::ServeArgs),
    /// Check a configuration: report every fault at once, with its position and a hint.
    ///
    /// Exit status 0 if it is valid, 1 if it is not.
    Check(check::CheckArgs),
    /// Show what the gateway knows about models, check a configuration against it, and compare or import other catalogues.
    Catalogue(catalogue::CatalogueArgs),
    /// Ask a running gateway on this machine whether it is ready for requests.
    ///
    /// Exit status 0 if it is, 1 if it is not or does not respond: for health checks of containers and scripts.
    Health(health::HealthArgs),
    /// Try the gateway with simulated providers; example requests to paste are printed.
    ///
    /// Needs no file, no provider key and no network. Its data is in a temporary folder, which is removed at the end;
    /// Ctrl-C ends the demo at once.
    Demo(demo::DemoArgs),
    /// Start a coding client that uses the gateway; no file of the user is changed.
    ///
    /// The key is read from the variable MODEL_GATEWAY_KEY. Arguments behind -- go to the client unchanged. The exit status
    /// is that of the client.
    Run(clients::RunArgs),
    /// Write the settings of a coding client, so that it uses the gateway; unconfigure restores them.
    Configure(clients::ConfigureArgs),
    /// Restore the settings of a coding client as they were before configure.
    ///
    /// A file that was not changed since is restored byte for byte; otherwise each key that still has the value that
    /// configure wrote. Exit status 1 if a key stays because it was changed.
    Unconfigure(clients::UnconfigureArgs),
    /// Examine a coding client: its program, its settings, and whether the gateway accepts its key.
    Doctor(clients::DoctorArgs),
    /// Import the configuration of another gateway: LiteLLM, New API, One API, Bifrost or Portkey.
    ///
    /// Writes gateway.toml, routes.toml, keys.toml and secrets.env, and prints a report of each field: taken over,
    /// changed, or not possible and what to do instead. The result passes the checks of `check` before it is written.
    /// Exit status 0 if it was written, 1 if not.
    Import(import::ImportArgs),
    /// Create, list, enable and disable keys in keys.toml.
    ///
    /// A running gateway applies changes on SIGHUP (systemctl reload model-gateway).
    Keys(keys::KeysArgs),
    /// Create, credit, show, enable and disable accounts, audit them, and write backups.
    ///
    /// A running gateway applies changes by itself, within a second.
    Accounts(accounts::AccountsArgs),
    /// Create, list, enable and disable tokens of the admin API, and print its OpenAPI document.
    Admin(admin::AdminArgs),
    /// Check the audit log of the admin API.
    Audit(audit::AuditArgs),
    /// Show usage and cost, by day, account, key or model.
    Usage(usage::UsageArgs),
    /// Show a request translated to another format, and what is lost in translation.
    ///
    /// The translated request goes to standard output, the losses to standard error. Nothing is sent.
    Explain(explain::ExplainArgs),
    /// Run a recorded response through the translator, offline.
    Replay(replay::ReplayArgs),
    /// Print the JSON Schema of a configuration file, for editors.
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell.
    ///
    /// For bash: model-gateway completions bash > /usr/share/bash-completion/completions/model-gateway
    Completions(completions::CompletionsArgs),
    /// Write the manual pages of all commands and of the configuration files.
    Man(man::ManArgs),
}

/// Returns the definition of the command line, from which completions and manual pages are made.
fn definition() -> clap::Command {
    Cli::command()
}

/// Configuration file argument.
#[derive(Clone, Debug, Args)]
struct Conf {
    /// Configuration file, which names routes.toml and keys.toml.
    #[arg(long, value_name = "FILE", default_value = "/etc/model-gateway/gateway.toml")]
    conf: PathBuf,
}

/// Parses the arguments and runs the command.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Catalogue(options) => catalogue::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Run(options) => clients::run(&options),
        Command::Configure(options) => clients::configure(&options),
        Command::Unconfigure(options) => clients::unconfigure(&options),
        Command::Doctor(options) => clients::doctor(&options),
        Command::Import(options) => import::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Accounts(options) => accounts::run(&options),
        Command::Admin(options) => admin::run(&options),
        Command::Audit(options) => audit::run(&options),
        Command::Usage(options) => usage::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Health(options) => health::run(&options),
        Command::Schema(options) => schema::run(&options),
        Command::Completions(options) => completions::run(&options),
        Command::Man(options) => man::run(&options),
    }
}

/// Prints a message to standard error. Ignores write errors, since there is no other place to report them.
fn complain(message: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Prints an error message and returns the exit status of a failure.
fn fail(message: impl std::fmt::Display) -> ExitCode {
    complain(format_args!("{} {message}", style::bad("error:")));
    ExitCode::FAILURE
}
