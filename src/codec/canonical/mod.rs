//! Canonical model of requests, responses and stream events, independent of any wire format.
//!
//! It is the hub that every wire format decodes into and encodes from: a [`Request`] with its [`content`] and
//! [`tools`], the [`Event`]s of a response with their grammar checker ([`Grammar`]), the [`Answer`] that collects these
//! events, [`Usage`] with one counting rule for all formats, provider signatures ([`ProviderSignature`]), the
//! capability profile of a model ([`Dialect`]), automatic prompt-cache [`breakpoints`] and fingerprints of the
//! [sections of a prompt](prompt_sections). Text stays escaped and is borrowed from the bytes that it arrived in.
//!
//! It also holds the requests that are not conversations: embeddings ([`embed`]), reranking ([`rank`]), images
//! ([`image`]) and videos ([`video`]); billing units other than tokens ([`Product`]); and [`Index`], a constant-time
//! key lookup.
//!
//! This module must not name a wire format or a provider, and performs no I/O.

pub mod answer;
pub mod breakpoints;
pub mod content;
pub mod dialect;
pub mod effort_set;
pub mod embed;
pub mod event;
pub mod features;
pub mod grammar;
pub mod image;
pub mod index;
pub mod lost;
pub mod member_set;
pub mod prompt_sections;
pub mod quirks;
pub mod rank;
pub mod request;
pub mod seal;
pub mod service_tier;
pub mod source;
pub mod time;
pub mod tools;
pub mod usage;
pub mod video;

pub use answer::Answer;
pub use breakpoints::{BreakpointRule, BreakpointSupport, CachePolicy};
pub use content::{Block, CacheBreakpoint, MediaSource, ResultObject, Role, SearchResult, Turn};
pub use dialect::Dialect;
pub use effort_set::EffortSet;
pub use event::{BlockKind, Citation, Delta, Event, Finish, LocationUnit, SourceLocation, Start, ToolKind};
pub use features::RequestFeatures;
pub use grammar::Grammar;
pub use index::{Index, IndexKey, Queues, Slots};
pub use lost::ElementLoss;
pub use member_set::MemberSet;
pub use quirks::Quirks;
pub use request::{Effort, OutputFormat, Request, Sampling, Thinking};
pub use seal::{ProviderSignature, SealedSignature};
pub use service_tier::{Region, ServiceTier, TierRequest, TierSet};
pub use source::ClientText;
pub use tools::{Input, Tool, ToolChoice};
pub use usage::{Product, Usage};
