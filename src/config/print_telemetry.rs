//! `[telemetry]` of the configuration in effect, with the environment variables that it comes from.

use std::fmt::Write as _;

use super::TelemetrySettings;
use super::masking::masked_url;
use super::print::{span, text};
use observe::telemetry::sampling::SlowRule;
use routing::account::Amount;

/// Writes the table. The destinations, which may differ by signal, are comments.
pub(super) fn write(out: &mut String, settings: &TelemetrySettings) -> std::fmt::Result {
    let TelemetrySettings {
        traces,
        logs,
        metrics,
        interval,
        sample,
        slow,
        trust,
        propagate,
        names,
        service_name,
        resource,
        queue,
        batch,
        delay,
        conventions,
        files: _,
        origins,
    } = settings;
    writeln!(out, "\n[telemetry]")?;
    for (key, destination) in [("traces", traces), ("logs", logs), ("metrics", metrics)] {
        let Some(destination) = destination else { continue };
        let gzip = if destination.gzip { "gzip" } else { "none" };
        writeln!(
            out,
            "# {key}: {}, {gzip}, within {}",
            masked_url(&destination.url),
            span(destination.timeout)
        )?;
        for (name, _) in &destination.headers {
            writeln!(out, "# {key}: header {name}: ***")?;
        }
    }
    for (key, variable) in origins {
        writeln!(out, "# {key}: from {variable}")?;
    }
    if settings.is_on() {
        writeln!(out, "traces       = {}", traces.is_some())?;
        writeln!(out, "logs         = {}", logs.is_some())?;
        writeln!(out, "metrics      = {}", metrics.is_some())?;
    }
    let sample = i64::try_from(*sample).unwrap_or(i64::MAX);
    let slow = match slow {
        SlowRule::Off => text("off"),
        SlowRule::Percentile99 => text("p99"),
        SlowRule::Above(bound) => span(*bound),
    };
    let trust: Vec<String> = trust.iter().map(|network| format!("\"{network}\"")).collect();
    writeln!(out, "sample       = {}", Amount(sample))?;
    writeln!(out, "slow         = {slow}")?;
    writeln!(out, "trust        = [{}]", trust.join(", "))?;
    writeln!(out, "propagate    = {propagate}")?;
    writeln!(out, "names        = {names}")?;
    writeln!(out, "interval     = {}", span(*interval))?;
    writeln!(out, "queue        = {queue}")?;
    writeln!(out, "batch        = {batch}")?;
    writeln!(out, "delay        = {}", span(*delay))?;
    writeln!(out, "conventions  = {}", text(conventions.name()))?;
    writeln!(out, "service_name = {}", text(service_name))?;
    for (key, value) in resource {
        writeln!(out, "resource.{} = {}", text(key), text(value))?;
    }
    Ok(())
}
