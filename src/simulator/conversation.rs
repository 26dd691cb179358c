//! Conversation state: what a response refers to, collected while the turns are read in order.

use super::directive;
use super::script::{Ask, Media};

/// Conversation state, updated by a provider's request reader turn by turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    pub(super) system: String,
    pub(super) media: Media,
    text: String,
    /// The user turn has no text yet. Its first text replaces the text of earlier turns.
    fresh: bool,
    results: Vec<(String, String)>,
    /// Identifiers and names of all tool calls.
    calls: Vec<(String, String)>,
}

impl Conversation {
    /// Adds system instructions. Several are joined by line breaks.
    pub(super) fn instruct(&mut self, text: &str) {
        join(&mut self.system, text);
    }

    /// Starts a user turn. Tool results before it stay those of the last turn: clients add text of their own behind
    /// them, and a response that called the mentioned tools again would never end.
    pub(super) fn user(&mut self) {
        self.fresh = true;
    }

    /// Starts a model turn.
    pub(super) fn assistant(&mut self) {
        self.results.clear();
    }

    /// Adds text of the user turn. Several are joined by line breaks.
    pub(super) fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.fresh) {
            self.text.clear();
        }
        join(&mut self.text, text);
    }

    pub(super) fn call(&mut self, id: &str, name: &str) {
        self.calls.push((id.to_owned(), name.to_owned()));
    }

    /// Adds a tool result. If its call is unknown, its identifier serves as the tool name.
    pub(super) fn result(&mut self, id: &str, text: String) {
        let name = self.calls.iter().rev().find(|(call, _)| call == id).map_or(id, |(_, name)| name.as_str());
        self.results.push((name.to_owned(), text));
    }

    /// Returns the request, as far as the conversation determines it.
    pub(super) fn ask(self, provider: &'static str, model: &str) -> Ask {
        let (directives, text) = directive::take(&self.text);
        Ask {
            model: model.to_owned(),
            provider,
            text,
            directives,
            system: self.system,
            media: self.media,
            results: self.results,
            ..Ask::default()
        }
    }
}

fn join(all: &mut String, text: &str) {
    if !all.is_empty() && !text.is_empty() {
        all.push('\n');
    }
    all.push_str(text);
}
