//! Table of what was tried.

use std::fmt::Write as _;
use std::io::Write as _;

use super::client::Client;
use super::scenarios::Outcome;

/// Prints the outcomes of a client, past the test harness, which shows the output of failed tests only.
pub(super) fn print(client: Client, outcomes: &[Outcome]) {
    let mut table = String::new();
    for outcome in outcomes {
        let first = outcome.ended.first_request.map_or(0.0, |time| time.as_secs_f64());
        let verdict = if outcome.result.is_ok() { "passed" } else { "FAILED" };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {verdict} | {} responses, first request after {first:.1} s, end after {:.1} s |",
            client.title(),
            outcome.case.upstream.name(),
            outcome.case.scenario.name(),
            outcome.case.transport.name(),
            outcome.requests,
            outcome.ended.time.as_secs_f64(),
        );
    }
    let mut hosts: Vec<&str> =
        outcomes.iter().flat_map(|outcome| &outcome.hosts).map(String::as_str).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if !hosts.is_empty() {
        let _ = writeln!(table, "{} asked for other hosts, in vain: {}", client.title(), hosts.join(", "));
    }
    let _ = std::io::stderr().write_all(table.as_bytes());
}
