//! Streams of the responses format.
//!
//! ```text
//! response.created, response.in_progress
//!   response.output_item.added                     one for each item, output_index counts up
//!     message:    content_part.added, output_text.delta* | refusal.delta*, output_text.annotation.added*,
//!                 output_text.done | refusal.done, content_part.done        for each part
//!     reasoning:  reasoning_summary_part.added, reasoning_summary_text.delta*, .done, reasoning_summary_part.done
//!     call:       function_call_arguments.delta*, .done | custom_tool_call_input.delta*, .done
//!   response.output_item.done
//! response.completed | response.incomplete | response.failed
//! ```
//!
//! An item's id is fixed when the item is added. The `*.done` events repeat the content of the deltas, and the
//! terminal event repeats all items. The encoder therefore stores the content once, in its item, and copies it from
//! there.

mod close;
mod decode;
mod encode;
mod fast_path;
mod frames;
mod item;
mod parse;
mod slot;
mod whole;

pub use decode::Decoder;
pub use encode::Encoder;
