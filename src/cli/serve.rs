//! `model-gateway serve`: runs the gateway.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use clap::builder::FalseyValueParser;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Conf, complain, fail};
use config::{self, Loaded, LogFormat, LogSettings, WatchedEnvironment};
use observe::metrics::log;
use proxy::{ServeError, ServeOptions, Server};

/// Log directives that silence noise: Pingora logs at error level that a new process waits for the listeners, which is
/// normal in every upgrade. A failed upgrade is logged elsewhere.
const QUIET: &str = "pingora_core=warn,pingora_core::server::transfer_fd=off,\
    hickory_resolver=warn,hickory_net=warn";

/// Target of the gateway's own lines, and beginning of those of its crates and their modules.
const OWN: &str = "model_gateway";
/// Crates of the gateway that write lines, as they stand behind [`OWN`].
const CRATES: [&str; 9] =
    ["_admin", "_cli", "_config", "_driver", "_observe", "_proxy", "_routing", "_storage", "_sync"];

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    conf: Conf,
    /// Take over the listeners of a gateway that runs with the same configuration and is sent SIGQUIT, before or after
    /// this start.
    #[arg(long)]
    upgrade: bool,
    /// Reload when a file of routes, keys, certificates or secrets has changed, as SIGHUP does.
    #[arg(long, env = "MODEL_GATEWAY_WATCH", value_parser = FalseyValueParser::new())]
    watch: bool,
}

pub(super) fn run(options: &ServeArgs) -> ExitCode {
    let vault = WatchedEnvironment::default();
    let loaded = match config::load(&options.conf.conf, &vault) {
        Ok(loaded) => loaded,
        Err(report) => {
            for problem in &report.problems {
                complain(problem);
            }
            return fail("the configuration is not valid");
        }
    };
    init_log(&loaded.settings.log);
    for warning in &loaded.settings.warnings {
        tracing::warn!("{warning}");
    }
    let status = serve(options, loaded, vault);
    log::flush();
    match status {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn serve(options: &ServeArgs, loaded: Loaded, vault: WatchedEnvironment) -> Result<(), ServeError> {
    let http = loaded.settings.http.iter().map(|http| http.listen);
    let listen: Vec<String> =
        loaded.settings.listen.iter().copied().chain(http).map(|address| address.to_string()).collect();
    let tls: Vec<String> = loaded.settings.tls.iter().map(|tls| tls.listen.to_string()).collect();
    let admin = loaded.settings.admin;
    let snapshot = &loaded.snapshot;
    let (models, keys) = (snapshot.routes.models().len(), snapshot.keys.len());
    let serve = ServeOptions { upgrade: options.upgrade, watch: options.watch };
    let server = Server::new(loaded, Box::new(vault), serve)?;
    let started = Box::new(move || {
        let version = observe::VERSION;
        tracing::info!(version, ?listen, ?tls, %admin, models, keys, "model-gateway accepts requests");
    });
    server.run(started)
}

/// Initializes the process log on standard error, panics included. The access log has a destination of its own.
fn init_log(log: &LogSettings) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", log.level));
    let fmt = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| log::LogWriter)
        .log_internal_errors(false);
    std::panic::set_hook(Box::new(log::panicked));
    // A second call fails because a logger is installed already, which is fine.
    let _ = match log.format {
        LogFormat::Json => {
            let json = fmt.json().flatten_event(true).with_current_span(false);
            json.finish().with(filter_fn(is_permitted)).try_init()
        }
        LogFormat::Text => {
            let text = fmt.with_ansi(std::io::stderr().is_terminal());
            text.finish().with(filter_fn(is_permitted)).try_init()
        }
    };
}

/// Returns whether a line may be written, whatever `log.level` says: libraries write heads of requests, bytes of connections
/// and addresses with passwords below the level of warnings.
fn is_permitted(line: &Metadata<'_>) -> bool {
    let target = line.target();
    let (root, _) = target.split_once("::").unwrap_or((target, ""));
    let is_own = root.strip_prefix(OWN).is_some_and(|rest| rest.is_empty() || CRATES.contains(&rest));
    is_own || *line.level() <= Level::WARN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_of_a_library_is_written_from_warnings_on() {
        tracing::subscriber::with_default(
            tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(std::io::sink).finish(),
            || {
                let permitted = |line: Option<&'static Metadata<'static>>| line.is_some_and(is_permitted);
                assert!(permitted(tracing::trace_span!("own").metadata()));
                assert!(permitted(
                    tracing::trace_span!(target: "model_gateway_proxy::server", "own").metadata()
                ));
                assert!(permitted(tracing::warn_span!(target: "ureq_proto::util", "warning").metadata()));
                assert!(!permitted(tracing::info_span!(target: "ureq_proto::util", "line").metadata()));
                assert!(!permitted(tracing::trace_span!(target: "model_gatewayx", "line").metadata()));
            },
        );
    }
}
