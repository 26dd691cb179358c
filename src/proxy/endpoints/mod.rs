//! Endpoints that are not one exchange with one provider: jobs, tasks and token counts.
//!
//! Must not live here: the calls themselves (`client`) and the steps of a job (`crate::job`).

pub(in crate::proxy) mod count;
pub(in crate::proxy) mod job;
pub(in crate::proxy) mod task;
