//! Prompt caching of one attempt: what is planned, and what was added to the body.

use http::HeaderValue;

use codec::canonical::BreakpointRule;
use codec::canonical::prompt_sections::PromptSections;
use codec::translate::PromptCaching;
use codec::wire::request::Body;
use json::Edit;

/// Prompt caching that is planned for one attempt. Nothing by default.
#[derive(Debug, Default)]
pub(crate) struct CachePlan {
    pub(super) is_on: bool,
    pub(super) is_paused: bool,
    pub(super) breakpoints: Option<BreakpointRule>,
    pub(super) key: Option<Box<str>>,
    /// Fingerprints of the prompt. `None` unless the requests of its key are watched for misses.
    pub(super) sections: Option<Box<PromptSections>>,
}

impl CachePlan {
    /// Returns the plan for a request that is translated.
    pub(crate) fn for_translation(&self) -> PromptCaching<'_> {
        PromptCaching { breakpoints: self.breakpoints, key: self.key.as_deref() }
    }

    /// Returns what was added to a translated request with this number of breakpoints.
    pub(crate) fn translated(&self, breakpoints: u8) -> CacheAction {
        self.action(breakpoints, self.key.is_some())
    }

    /// Adds the edits of a body that is forwarded, and returns what they add.
    pub(crate) fn edit(&self, body: &Body, edits: &mut Vec<Edit>) -> CacheAction {
        let key = self.key.as_deref().and_then(|key| body.set_cache_key(key));
        let has_key = key.is_some();
        edits.extend(key);
        let breakpoints = self.breakpoints.map(|rule| body.breakpoints(&rule)).unwrap_or_default();
        edits.extend(breakpoints.edits);
        self.action(breakpoints.marks, has_key)
    }

    fn action(&self, breakpoints: u8, has_key: bool) -> CacheAction {
        match breakpoints {
            _ if !self.is_on => CacheAction::Off,
            _ if self.is_paused => CacheAction::Paused,
            0 if has_key => CacheAction::Key,
            0 => CacheAction::None,
            count => CacheAction::Breakpoints(count),
        }
    }
}

/// What automatic prompt caching added to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CacheAction {
    /// Automatic prompt caching is off for the request.
    #[default]
    Off,
    /// Nothing: the client has its own, the prompt is too short, or the provider takes neither breakpoints nor a key.
    None,
    /// Nothing, because the reads of the key do not repay its writes.
    Paused,
    /// A prompt-cache key.
    Key,
    /// This number of breakpoints.
    Breakpoints(u8),
}

impl CacheAction {
    /// Returns the label in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            CacheAction::Off | CacheAction::None => "none",
            CacheAction::Paused => "paused",
            CacheAction::Key => "key",
            CacheAction::Breakpoints(_) => "breakpoints",
        }
    }

    /// Returns the value of the `x-gateway-cache` header. `None` if automatic prompt caching is off.
    pub(crate) fn header(self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static(match self {
            CacheAction::Off => return None,
            CacheAction::Breakpoints(1) => "breakpoints=1",
            CacheAction::Breakpoints(2) => "breakpoints=2",
            CacheAction::Breakpoints(3) => "breakpoints=3",
            CacheAction::Breakpoints(_) => "breakpoints=4",
            other => other.label(),
        }))
    }
}
