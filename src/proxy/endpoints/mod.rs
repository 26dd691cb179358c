//! Endpoints that are not one exchange with one provider: jobs, tasks and token counts.
//!
//! Must not live here: the calls themselves (`client`) and the steps of a job (`codec::job`).

pub(crate) mod count;
pub(crate) mod job;
pub(crate) mod task;

use super::client::send::CallLog;
use super::gateway::context::Context;

/// Adds the log of a request's calls to its record.
fn record_calls(ctx: &mut Context, log: CallLog) {
    let record = &mut ctx.record;
    record.attempts += log.attempts;
    record.head_received_at = log.head_received_at;
    record.upstream_status = log.status;
    record.upstream_id = log.id;
    record.detail = log.detail;
}
