//! Limits on the number of elements in a translated request, far above real requests.
//!
//! Translation takes time proportional to the length of a request, and memory proportional to the number of its parts:
//! a part of 30 bytes becomes a block of 200 bytes. Requests that pass unchanged are not checked.

use crate::canonical::{Block, Request, ToolChoice};
use crate::error::{ApiError, ErrorKind};
use crate::wire::Format;

/// Maximum number of tools. OpenAI accepts 128 and Gemini 512; clients with more tools let the model search them.
pub const MOST_TOOLS: usize = 4_096;
/// Maximum number of tool calls. A context of a million tokens cannot hold as many: a call and its result take 30
/// tokens.
pub const MOST_CALLS: usize = 65_536;
/// Maximum number of turns and their parts, including parts of tool results: one per four tokens of a million.
pub const MOST_PARTS: usize = 262_144;

/// Checks a decoded request against the limits.
///
/// # Errors
/// Returns [`ApiError`] if a limit is exceeded; the error names the request member.
pub(super) fn check(request: &Request<'_>, client: Format) -> Result<(), ApiError> {
    let conversation = match client {
        Format::Chat | Format::Messages | Format::Converse => "messages",
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
            return Err(ApiError::new(ErrorKind::InvalidField, message).param(member));
        }
    }
    Ok(())
}
