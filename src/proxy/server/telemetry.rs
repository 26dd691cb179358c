//! Start and end of telemetry, with the terms of the configuration.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::gateway::state::{GatewayTelemetry, WeakGateway};
use config::{self, Environment, TelemetrySettings};
use observe::metrics::Metrics;
use observe::telemetry::sampling::Sampler;
use observe::telemetry::{MetricTerms, SignalTerms, Telemetry, TelemetryError, TelemetryTerms};

/// Telemetry that runs before the gateway exists.
pub(crate) struct StartedTelemetry {
    pub(crate) telemetry: GatewayTelemetry,
    running: RunningGateway,
}

/// The gateway that telemetry collects metrics from, once it exists.
#[derive(Clone, Default)]
pub(crate) struct RunningGateway(Arc<OnceLock<WeakGateway>>);

impl RunningGateway {
    /// Sets the gateway. Only the first call has an effect.
    pub(crate) fn set(&self, gateway: WeakGateway) {
        let _ = self.0.set(gateway);
    }
}

impl StartedTelemetry {
    pub(crate) fn split(self) -> (GatewayTelemetry, RunningGateway) {
        (self.telemetry, self.running)
    }
}

/// Starts the exporter. `None` if nothing is exported.
///
/// # Errors
/// Returns [`TelemetryError`] if a client certificate cannot be used or the thread cannot be started.
pub(crate) fn start(
    settings: &TelemetrySettings,
    metrics: &Arc<Metrics>,
) -> Result<Option<StartedTelemetry>, TelemetryError> {
    if !settings.is_on() {
        return Ok(None);
    }
    let mut resource = vec![
        ("service.name".to_owned(), settings.service_name.clone()),
        ("service.version".to_owned(), observe::VERSION.to_owned()),
        // Two processes of one service, during an upgrade too, must not write to the same series.
        ("service.instance.id".to_owned(), format!("{:032x}", rand::random::<u128>())),
    ];
    for (key, value) in &settings.resource {
        resource.retain(|(other, _)| other != key);
        resource.push((key.clone(), value.clone()));
    }
    let signal = |destination: &Option<_>| destination.clone().map(|destination| SignalTerms { destination });
    let every = settings.interval;
    let terms = TelemetryTerms {
        resource,
        version: observe::VERSION,
        conventions: settings.conventions,
        traces: signal(&settings.traces),
        logs: signal(&settings.logs),
        metrics: settings.metrics.clone().map(|destination| MetricTerms { destination, every }),
        sampler: Sampler::new(settings.share(), settings.slow),
        queue: settings.queue,
        batch: settings.batch,
        delay: settings.delay,
    };
    let running = RunningGateway::default();
    let (late, registry) = (running.clone(), metrics.clone());
    let source = move || {
        // Some gauges are set when they are read, as for a scrape.
        if let Some(gateway) = late.0.get().and_then(WeakGateway::upgrade) {
            gateway.refresh_health();
            gateway.refresh_checks();
            gateway.refresh_threads();
        }
        registry.gather()
    };
    let exporter = Arc::new(Telemetry::start(terms, metrics, Box::new(source))?);
    let telemetry = GatewayTelemetry {
        exporter,
        trust: settings.trust.clone(),
        propagate: settings.propagate,
        names: settings.names,
    };
    Ok(Some(StartedTelemetry { telemetry, running }))
}

/// Reads headers and certificates of the collector again. Blocks.
pub(crate) fn renew(telemetry: &Telemetry, file: &Path) {
    let settings = match config::load_telemetry(file, &Environment) {
        Ok(settings) => settings,
        Err(report) => {
            for problem in &report.problems {
                tracing::error!(%problem, "the new secrets of telemetry were rejected; the old ones stay in effect");
            }
            return;
        }
    };
    let TelemetrySettings { traces, logs, metrics, .. } = &settings;
    match telemetry.renew([traces.as_ref(), logs.as_ref(), metrics.as_ref()]) {
        Ok(true) => tracing::info!("new headers or certificates of telemetry are in effect"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%error, "the new secrets of telemetry were rejected; the old ones stay in effect");
        }
    }
}

/// Exports what is queued at the end of the process. Waits at most 2 s.
pub(crate) fn close(telemetry: Option<&Telemetry>) {
    if let Some(telemetry) = telemetry {
        telemetry.close();
    }
}
