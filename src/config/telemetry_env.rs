//! Environment variables of OpenTelemetry (specification 1.x, "OpenTelemetry Environment Variable Specification" and
//! "OpenTelemetry Protocol Exporter"): they fill what `[telemetry]` leaves unset.

use std::cell::RefCell;
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
}

impl<'v> OtelVariables<'v> {
    pub(super) fn new(vault: &'v dyn Vault) -> Self {
        OtelVariables { vault, origins: RefCell::default(), faults: RefCell::default() }
    }

    pub(super) fn vault(&self) -> &'v dyn Vault {
        self.vault
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

/// Parses the name of an exporter: whether a signal is exported.
pub(super) fn exporter(text: &str) -> Result<bool, String> {
    match text {
        "otlp" => Ok(true),
        "none" => Ok(false),
        _ => {
            Err("write \"otlp\" or \"none\"; metrics are on /metrics of the admin port in any case"
                .to_owned())
        }
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
