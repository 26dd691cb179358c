//! What a request, an answer and an event mean, in nobody's format.
//!
//! Here lives the hub that every wire format is decoded into and encoded from: a [`Request`] with its [`content`] and
//! [`tools`], the [`Event`]s of an answer with their strict grammar ([`Grammar`]), the [`Answer`] that events fold
//! into, [`Usage`] under one arithmetic, sealed reasoning ([`Seal`]) and what a model can be asked for ([`Dialect`]).
//! Text is carried still escaped and borrowed from the bytes that it came in.
//!
//! Beside it stand what is asked for in other ways than a conversation: vectors ([`embed`]), orders ([`rank`]) and
//! images ([`image`]) and videos ([`video`]); and what is billed otherwise than by tokens ([`Product`]).
//!
//! What is looked for among many is found with an [`Index`].
//!
//! Here must not live: the name of a format or of a provider, or any input or output.

pub mod answer;
pub mod content;
pub mod dialect;
pub mod embed;
pub mod event;
pub mod grammar;
pub mod image;
pub mod index;
pub mod lost;
pub mod quirks;
pub mod rank;
pub mod request;
pub mod seal;
pub mod time;
pub mod tools;
pub mod usage;
pub mod video;

pub use answer::Answer;
pub use content::{Block, CacheMark, Role, Source, Turn};
pub use dialect::Dialect;
pub use event::{BlockKind, Citation, Delta, Event, Finish, Start, ToolKind};
pub use grammar::Grammar;
pub use index::{Index, Key, Queues, Slots};
pub use lost::ElementLoss;
pub use quirks::Quirks;
pub use request::{Effort, OutputFormat, Request, Sampling, Thinking};
pub use seal::{Seal, Sealed};
pub use tools::{Input, Tool, ToolChoice};
pub use usage::{Product, Usage};
