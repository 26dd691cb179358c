//! What a user of the formats would notice: which endpoint a path means, what is read from a request and what is left
//! alone in it, what an error looks like, what the meter reads from an answer.
//!
//! One file a subject. Here must not live: streams as a whole, which `translate` puts together.

mod body_facts;
mod error;
mod models;
mod path;
mod provider_error;
mod request;
mod request_edits;
mod spellings;
mod watch;
mod watch_usage;
