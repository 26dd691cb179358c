//! Results of the health checks of providers (`check`).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::route::check::ProbeOutcome;

/// Results of the last health check of each provider.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ProbeResults(pub(super) Mutex<HashMap<Box<str>, LastProbe>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct LastProbe {
    pub(super) outcome: ProbeOutcome,
    pub(super) status: Option<u16>,
    /// Unix seconds.
    pub(super) time: i64,
}
