//! The gateway's own calls to providers, outside of an exchange: calls of jobs and tasks, downloads of remote media, and
//! health checks.
//!
//! Must not live here: what the calls are for (`endpoints`).

pub(in crate::proxy) mod call;
pub(in crate::proxy) mod check;
pub(in crate::proxy) mod fetch;
