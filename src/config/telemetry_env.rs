//! Environment variables of OpenTelemetry (specification 1.x, "OpenTelemetry Environment Variable Specification" and
//! "OpenTelemetry Protocol Exporter"): they fill what `[telemetry]` leaves unset.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::Vault;
use super::node::ConfigTable;

/// Environment variables, with the keys that they have filled and the faults found in them.
pub(super) struct OtelVariables<'v> {
    vault: &'v dyn Vault,
    /// Key of `[telemetry]` and the variable that it comes from.
    origins: RefCell<Vec<(&'static str, String)>>,
    faults: RefCell<Vec<(String, String)>>,
    warnings: RefCell<Vec<(String, String)>>,
    /// Files that variables name.
    files: RefCell<Vec<PathBuf>>,
}

impl<'v> OtelVariables<'v> {
    pub(super) fn new(vault: &'v dyn Vault) -> Self {
        OtelVariables {
            vault,
            origins: RefCell::default(),
            faults: RefCell::default(),
            warnings: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// Reads a file that a variable names.
    pub(super) fn file(&self, path: &str) -> Result<String, String> {
        let path = PathBuf::from(path);
        let text = self.vault.file(&path).map_err(|error| error.to_string());
        self.files.borrow_mut().push(path);
        text
    }

    /// Returns the files that variables have named so far.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().clone()
    }

    /// Warns of a variable that is valid and has no effect.
    pub(super) fn warn(&self, name: &str, reason: &str, hint: &str) {
        let message = format!("the environment variable {name} {reason}");
        self.warnings.borrow_mut().push((message, hint.to_owned()));
    }

    /// Reads the exporter of a signal: whether it is exported over OTLP. Other exporters of OpenTelemetry are no fault,
    /// since the environment may be that of several programs.
    pub(super) fn exporter(&self, key: &'static str, name: &str) -> Option<bool> {
        let names = self.get(name)?;
        let mut is_on = false;
        for exporter in names.split(',').map(str::trim) {
            match exporter {
                "otlp" => is_on = true,
                "none" | "" => {}
                // They are on /metrics in any case.
                "prometheus" if key == "metrics" => {}
                _ => self.warn(
                    name,
                    "names an exporter that the gateway does not have",
                    "otlp and none are known; metrics are on /metrics of the admin port in any case",
                ),
            }
        }
        self.origins.borrow_mut().push((key, name.to_owned()));
        Some(is_on)
    }

    /// Warns of variables whose values the gateway cannot follow.
    pub(super) fn warn_of_others(&self) {
        if let Some(names) = self.get("OTEL_PROPAGATORS")
            && names.split(',').map(str::trim).any(|name| !matches!(name, "tracecontext" | "baggage"))
        {
            let hint =
                "the gateway continues W3C Trace Context; telemetry.propagate sends it on to providers";
            self.warn("OTEL_PROPAGATORS", "names a propagator that the gateway does not have", hint);
        }
        let name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        if self.get(name).is_some_and(|value| !value.eq_ignore_ascii_case("cumulative")) {
            let hint =
                "all sums and histograms are cumulative; a collector converts them (cumulativetodelta)";
            self.warn(name, "has no effect", hint);
        }
    }

    /// Returns a variable. An empty one counts as unset, as the specification says.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.vault.setting(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Reads a variable for a key. The error of `parse` is a hint; the value, which may be a secret, is not shown.
    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(&self.get(name)?) {
            Ok(value) => {
                self.origins.borrow_mut().push((key, name.to_owned()));
                Some(value)
            }
            Err(hint) => {
                self.fault(name, hint);
                None
            }
        }
    }

    /// Reads the variable of a signal, or the one for all signals.
    pub(super) fn of_signal<T>(
        &self,
        key: &'static str,
        signal: &str,
        part: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_{part}");
        let name = if self.get(&own).is_some() { own } else { format!("OTEL_EXPORTER_OTLP_{part}") };
        self.parsed(key, &name, parse)
    }

    /// Reads a variable of the processors of spans, or else of log records.
    pub(super) fn of_processor<T>(
        &self,
        key: &'static str,
        part: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let own = format!("OTEL_BSP_{part}");
        let name = if self.get(&own).is_some() { own } else { format!("OTEL_BLRP_{part}") };
        self.parsed(key, &name, parse)
    }

    pub(super) fn fault(&self, name: &str, hint: String) {
        self.faults.borrow_mut().push((format!("the environment variable {name} is not valid"), hint));
    }

    /// Reports the faults, and returns the keys that variables have filled.
    pub(super) fn finish(self, root: &ConfigTable<'_>) -> Vec<(&'static str, String)> {
        let mut faults = self.faults.into_inner();
        faults.dedup();
        for (message, hint) in faults {
            root.wrong(message, hint);
        }
        let mut warnings = self.warnings.into_inner();
        warnings.dedup();
        for (message, hint) in warnings {
            root.warn(message, hint);
        }
        let mut origins = self.origins.into_inner();
        origins.sort();
        origins.dedup();
        origins
    }
}

/// Parses milliseconds.
pub(super) fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| "write a number of milliseconds".to_owned())
}

/// Parses `true` or `false`.
pub(super) fn truth(text: &str) -> Result<bool, String> {
    match () {
        () if text.eq_ignore_ascii_case("true") => Ok(true),
        () if text.eq_ignore_ascii_case("false") => Ok(false),
        () => Err("write \"true\" or \"false\"".to_owned()),
    }
}

/// Parses pairs `key=value,key=value` with percent-encoded values.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pairs = parts.map(|part| {
        let (key, value) = part.split_once('=').ok_or("write pairs such as \"key=value,other=value\"")?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| "values must be UTF-8")?;
        Ok((key.trim().to_owned(), value.into_owned()))
    });
    pairs.collect::<Result<_, &str>>().map_err(str::to_owned)
}

/// Parses headers as such pairs.
pub(super) fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    pairs(text)?.iter().map(|(name, value)| header(name, value)).collect()
}

/// Makes a header. The error is a hint without the value, which may be a secret.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let managed =
        ["host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection"];
    let known = HeaderName::from_bytes(name.as_bytes()).ok();
    let known = known.filter(|name| !managed.contains(&name.as_str()));
    let value = HeaderValue::from_str(value).map(|mut value| {
        value.set_sensitive(true);
        value
    });
    match (known, value) {
        (Some(name), Ok(value)) => Ok((name, value)),
        (None, _) => Err("choose a header that the gateway does not manage itself".to_owned()),
        (_, Err(_)) => Err("use visible ASCII characters only".to_owned()),
    }
}
