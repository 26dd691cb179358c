//! A conversation, read from the first turn to the last: what remains of it is what the answer refers to.

use super::directive;
use super::script::{Ask, Media};

/// What the turns of a conversation come to, collected while a provider reads them from the first to the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    pub(super) system: String,
    pub(super) media: Media,
    text: String,
    /// The user's turn has no text yet: its first one replaces that of the turn before.
    fresh: bool,
    results: Vec<(String, String)>,
    /// Identifiers and names of all calls.
    calls: Vec<(String, String)>,
}

impl Conversation {
    /// Instructions; several are joined.
    pub(super) fn instruct(&mut self, text: &str) {
        join(&mut self.system, text);
    }

    /// A turn of the user begins.
    pub(super) fn user(&mut self) {
        self.results.clear();
        self.fresh = true;
    }

    /// A turn of the model begins.
    pub(super) fn assistant(&mut self) {
        self.results.clear();
    }

    /// A text of the user's turn; several are joined.
    pub(super) fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.fresh) {
            self.text.clear();
        }
        join(&mut self.text, text);
    }

    /// The model called a tool.
    pub(super) fn call(&mut self, id: &str, name: &str) {
        self.calls.push((id.to_owned(), name.to_owned()));
    }

    /// A tool answered. If nobody named it, its identifier stands for its name.
    pub(super) fn result(&mut self, id: &str, text: String) {
        let name = self.calls.iter().rev().find(|(call, _)| call == id).map_or(id, |(_, name)| name.as_str());
        self.results.push((name.to_owned(), text));
    }

    /// What is asked, so far as the turns say it.
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
