//! Tests of the `wire` module: paths, request bodies and their edits, error bodies, model lists, and the facts that the
//! meter reads.
//!
//! One file per subject. Tests of whole streams live in `translate`.

mod body_facts;
mod content_last;
mod error;
mod models;
mod overflow;
mod own_settings;
mod path;
mod provenance;
mod provider_error;
mod request;
mod request_edits;
mod root_schema;
mod spellings;
mod values;
mod watch;
mod watch_usage;
