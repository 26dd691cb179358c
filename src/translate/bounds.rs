//! How much of a request is translated: bounds on what there may be many of, far beyond what anybody needs.
//!
//! Reading, adapting and writing a request takes time in proportion to its length, and room in proportion to the number
//! of its parts: a part of thirty bytes becomes a block of two hundred. What passes as it is is not read for these.

use crate::canonical::{Block, Request, ToolChoice};
use crate::error::{ApiError, Kind};
use crate::wire::Format;

/// Tools at most. OpenAI takes 128 and Gemini 512; who offers more lets the model search among them.
pub const MOST_TOOLS: usize = 4_096;
/// Calls of tools at most. In a million tokens of context there is no room for so many: a call and its result have thirty.
pub const MOST_CALLS: usize = 65_536;
/// Turns and their parts at most, those in results of tools included: one for each four tokens of a million.
pub const MOST_PARTS: usize = 262_144;

/// Checks a request.
///
/// # Errors
/// It has too many of something; the error names the member.
pub(super) fn check(request: &Request<'_>, client: Format) -> Result<(), ApiError> {
    let conversation = match client {
        Format::Chat | Format::Messages => "messages",
        Format::Responses => "input",
        Format::Generate => "contents",
    };
    let names = match &request.tool_choice {
        Some(ToolChoice::Allowed { names, .. }) => names.len(),
        _ => 0,
    };
    let (mut parts, mut calls) = (request.turns.len(), 0);
    for block in request.turns.iter().flat_map(|turn| &turn.blocks) {
        parts += 1;
        match block {
            Block::ToolUse { .. } => calls += 1,
            Block::ToolResult { content, .. } => parts += content.len(),
            Block::Reasoning { text, .. } => parts += text.len().saturating_sub(1),
            _ => {}
        }
    }
    for (count, most, member, what) in [
        (request.tools.len(), MOST_TOOLS, "tools", "tools"),
        (names, MOST_TOOLS, "tool_choice", "tools"),
        (calls, MOST_CALLS, conversation, "tool calls"),
        (parts, MOST_PARTS, conversation, "messages and parts"),
    ] {
        if count > most {
            let message = format!("'{member}' has {count} {what}; at most {most} are translated.");
            return Err(ApiError::new(Kind::InvalidField, message).param(member));
        }
    }
    Ok(())
}
