//! End-to-end tests: a running gateway between test clients and scripted providers.
//!
//! Each test starts its own gateway process on loopback. Tests assert what happens and in which order, not how long it
//! takes; `upgrade.rs` has the one exception.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "these are tests"
)]
#![allow(dead_code)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod added_members;
mod admin;
mod agent_headers;
mod aws_credentials;
mod bedrock_invoke;
mod bodies;
mod bounds;
mod broken_frames;
mod broken_off;
mod call_ids;
mod catalogue;
mod chains;
mod checks;
mod claude_code;
mod cloud_tokens;
mod compaction;
mod compressed;
mod connections;
mod converse;
mod counting;
mod descriptors;
mod edge;
mod embeddings;
mod errors;
mod faults;
mod fetching;
mod fleet;
mod fleet_tasks;
mod group;
mod half_close;
mod histories;
mod hold;
mod home;
mod http1_syntax;
mod http2_syntax;
mod images;
mod importing;
mod importing_samples;
mod invoke_ingress;
mod jobs;
mod keys;
mod lame_duck;
mod large;
mod limits;
mod linked;
mod listeners;
mod listing;
mod losses;
mod memory;
mod models;
mod names;
mod odd_answers;
mod operator_catalogue;
mod other_models;
mod overflow;
mod overload;
mod owned;
mod parity;
mod pictures;
mod prompt_cache;
mod provider_certificates;
mod quotas;
mod references;
mod refit;
mod refusals;
mod reload;
mod rerank;
mod resend;
mod resume;
mod routing;
mod secrets;
mod signed;
mod silence;
mod slow;
mod spelled;
mod stall;
mod state_file;
mod stderr;
mod stop;
mod stored;
mod streams;
mod surrogates;
mod switching;
mod target_prices;
mod tasks;
mod telemetry;
mod tiers;
mod upgrade;
mod upstreams;
mod vault;
mod verbatim;
mod video_money;
mod video_rules;
mod videos;
mod websocket;
