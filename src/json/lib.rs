//! JSON text: reading and writing without a document tree.
//!
//! This module has slices of JSON text that are passed on unread ([`JsonStr`], [`RawJson`]), a pull reader over a whole
//! document ([`Cursor`]), a push scanner over a document that arrives in pieces ([`Scanner`]), the places
//! ([`ArrayTail`]) and a reader ([`ReverseReader`]) of the last elements of a long array, the pieces themselves
//! ([`Rope`]), documents that are known to be UTF-8 ([`JsonText`], [`JsonRope`]), a speculative template for repeated
//! documents ([`FrameTemplate`]) and a writer ([`Writer`]) that appends to a byte buffer or to a rope ([`RopeBuilder`]).
//!
//! This module must not depend on the meaning of a member or name a wire format. It allocates nothing per value read.

mod array_tail;
mod block;
mod container;
mod cursor;
mod document;
mod frame_template;
mod long_run;
mod members;
mod reverse;
mod rope;
mod rope_builder;
mod run;
mod scan;
mod scan_error;
mod scan_state;
mod sink;
mod surrogates;
mod text;
mod utf8;
mod wanted_members;
mod wanted_words;
mod write;

#[cfg(test)]
mod tests;

pub use array_tail::{ArrayTail, ElementSpan, NOTED_ELEMENTS};
pub use cursor::{Cursor, JsonError, ValueKind};
pub use document::{DocumentReader, JsonRope, JsonText, ScannedDocument};
pub use frame_template::{FrameTemplate, TemplateMatch, TemplateParts};
pub use members::Member;
pub use reverse::{ReverseReader, Truncated, read_from_end};
pub use rope::{Edit, Rope};
pub use rope_builder::RopeBuilder;
pub use run::before_backslash;
pub use scan::Scanner;
pub use scan_error::{MOST_MEMBERS, ScanError, ScanErrorKind};
pub use sink::Sink;
pub use surrogates::with_whole_characters;
pub use text::{EscapedString, JsonStr, RawJson};
pub use utf8::{Utf8Error, from_utf8};
pub use wanted_members::WantedMembers;
pub use wanted_words::{ValueLook, WantedValue, WantedWord};
pub use write::{Writer, push_escaped};
