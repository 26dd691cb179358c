//! `model-gateway serve`

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use tracing_subscriber::EnvFilter;

use super::{Conf, complain, fail};
use crate::config::{self, Environment, Loaded, Log, LogFormat};
use crate::metrics::log;
use crate::proxy::{ServeError, ServeOptions, Server};

/// Pingora says at error level what every client that goes away does, which stands in the access log, and that a new
/// process waits for the listeners, which is how every upgrade begins; that it failed is said elsewhere.
const QUIET: &str = "pingora_proxy=off,pingora_core=warn,pingora_core::server::transfer_fd=off,\
    hickory_resolver=warn,hickory_net=warn";

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    conf: Conf,
    /// Take the listeners over from a gateway that runs with the same configuration, and was or will be sent SIGQUIT.
    #[arg(long)]
    upgrade: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    let loaded = match config::load(&options.conf.conf, &Environment) {
        Ok(loaded) => loaded,
        Err(report) => {
            for problem in &report.problems {
                complain(problem);
            }
            return fail("the configuration is not sound");
        }
    };
    init_log(&loaded.settings.log);
    let status = serve(options, loaded);
    log::flush();
    match status {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn serve(options: &Options, loaded: Loaded) -> Result<(), ServeError> {
    let listen: Vec<String> = loaded.settings.listen.iter().map(ToString::to_string).collect();
    let tls: Vec<String> = loaded.settings.tls.iter().map(|tls| tls.listen.to_string()).collect();
    let admin = loaded.settings.admin;
    let snapshot = &loaded.snapshot;
    let (models, keys) = (snapshot.routes.models().len(), snapshot.keys.len());
    let serve = ServeOptions { upgrade: options.upgrade };
    let server = Server::new(loaded, Box::new(Environment), serve)?;
    let started = Box::new(move || {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, ?listen, ?tls, %admin, models, keys, "model-gateway accepts requests");
    });
    server.run(started)
}

/// Log lines go to standard error, and panics with them; the access log has its own place.
fn init_log(log: &Log) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", log.level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| log::Writer)
        .log_internal_errors(false);
    std::panic::set_hook(Box::new(log::panicked));
    // A second call finds a logger already there, which is as good.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
}
