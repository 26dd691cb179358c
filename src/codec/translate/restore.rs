//! Reversal of request adaptations in the response: tools get their original names, custom tools get free-text input,
//! and a response that was forced through a tool call becomes text again.

use crate::canonical::{BlockKind, Delta, Event, Finish, Index, IndexKey, Slots, ToolKind};
use json::{Cursor, JsonStr};

/// Adaptations of a request that its response must reverse.
#[derive(Clone, Debug, Default)]
pub struct Restore {
    renamed: Vec<Renamed>,
    /// Positions in `renamed` by target name, by client name, and by client name with namespace.
    at_target: Index,
    by_name: Index,
    by_both: Index,
    /// Client names with namespaces of custom tools that were sent to the target as functions.
    custom: Index,
    answer_tool: Option<String>,
    /// Whether texts of the response may start with reasoning between tags.
    pub(super) tagged: bool,
}

#[derive(Clone, Debug)]
struct Renamed {
    at_target: String,
    name: String,
    namespace: String,
}

impl Restore {
    /// Returns true if no events of the response need to change.
    pub fn is_empty(&self) -> bool {
        self.renamed.is_empty() && self.custom.is_empty() && self.answer_tool.is_none()
    }

    pub(super) fn names(&self) -> usize {
        self.renamed.len()
    }

    pub(super) fn rename(&mut self, at_target: &str, name: JsonStr<'_>, namespace: JsonStr<'_>) {
        self.at_target.push(IndexKey::of(at_target));
        self.by_name.push(IndexKey::of(name));
        self.by_both.push(IndexKey::of((name, namespace)));
        self.renamed.push(Renamed {
            at_target: at_target.to_owned(),
            name: name.escaped().to_owned(),
            namespace: namespace.escaped().to_owned(),
        });
    }

    /// Returns the target name of a renamed tool; `None` if it was not renamed. Without a namespace, the first match
    /// counts.
    pub(super) fn name_at_target(&self, name: JsonStr<'_>, namespace: JsonStr<'_>) -> Option<&str> {
        let at = if namespace.is_empty() {
            self.by_name.first(IndexKey::of(name))
        } else {
            self.by_both.first(IndexKey::of((name, namespace)))
        };
        self.renamed.get(at?).map(|renamed| &*renamed.at_target)
    }

    pub(super) fn add_custom(&mut self, name: JsonStr<'_>, namespace: JsonStr<'_>) {
        self.custom.push(IndexKey::of((name, namespace)));
    }

    pub(super) fn set_answer_tool(&mut self, name: &str) {
        self.answer_tool = Some(name.to_owned());
    }

    fn tool(&self, name: &str) -> Option<&Renamed> {
        self.renamed.get(self.at_target.first(IndexKey::of(name))?)
    }
}

/// Reverses the adaptations event by event.
#[derive(Debug)]
pub(super) struct Restorer {
    restore: Restore,
    /// Open blocks whose kind differs between provider and client.
    open: Slots<Open>,
    called: bool,
    answered: bool,
}

#[derive(Debug)]
struct Open {
    index: u32,
    what: OpenPart,
    arguments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPart {
    Custom,
    Answer,
}

impl Restorer {
    pub(super) fn new(restore: Restore) -> Self {
        Restorer { restore, open: Slots::default(), called: false, answered: false }
    }

    /// Passes an event on with the adaptations reversed.
    pub(super) fn event(&mut self, event: &Event<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        match *event {
            Event::BlockStart { index, choice, kind: BlockKind::ToolUse { id, name, kind, namespace } } => {
                if self.restore.answer_tool.as_deref() == Some(name.escaped()) {
                    self.answered = true;
                    self.open
                        .push(index.into(), Open { index, what: OpenPart::Answer, arguments: String::new() });
                    sink(&Event::BlockStart { index, choice, kind: BlockKind::Text });
                    return;
                }
                self.called = true;
                // The model uses the target's name of the tool, and the client knows only its own.
                let known = self.restore.tool(name.escaped());
                let (name, namespace) = known.map_or((name, namespace), |tool| {
                    (JsonStr::from_escaped(&tool.name), JsonStr::from_escaped(&tool.namespace))
                });
                let custom = self.restore.custom.has(IndexKey::of((name, namespace)));
                let kind = if custom { ToolKind::Custom } else { kind };
                sink(&Event::BlockStart {
                    index,
                    choice,
                    kind: BlockKind::ToolUse { id, name, kind, namespace },
                });
                if custom {
                    self.open
                        .push(index.into(), Open { index, what: OpenPart::Custom, arguments: String::new() });
                }
            }
            Event::Delta { index, delta } => match self.open.get_mut(index.into()) {
                Some(open) => open.delta(delta, sink),
                None => sink(event),
            },
            Event::BlockStop { index } => {
                if let Some(open) = self.open.remove(index.into()) {
                    open.stop(sink);
                }
                sink(event);
            }
            // The answer tool is invisible to the client: without another call, the finish reason must not be tool use.
            Event::Finish { choice, finish: Finish::ToolUse } if self.answered && !self.called => {
                sink(&Event::Finish { choice, finish: Finish::Stop });
            }
            _ => sink(event),
        }
    }
}

impl Open {
    fn delta(&mut self, delta: Delta<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        let index = self.index;
        match (self.what, delta) {
            // The arguments text of the answer tool is the response text.
            (OpenPart::Answer, Delta::Arguments(text)) => {
                sink(&Event::Delta { index, delta: Delta::Text(text) })
            }
            (OpenPart::Answer, Delta::Object(object)) => {
                let text = escaped(object.text());
                sink(&Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(&text)) });
            }
            // The input is a member of a JSON object, so it can be taken out only when all of it has arrived.
            (OpenPart::Custom, Delta::Arguments(text)) => self.arguments.push_str(text.escaped()),
            (OpenPart::Custom, Delta::Object(object)) => self.arguments = escaped(object.text()),
            // The signature belongs to the call in any form: the provider needs it back.
            (OpenPart::Custom, Delta::Signature(_)) => sink(&Event::Delta { index, delta }),
            _ => {}
        }
    }

    fn stop(self, sink: &mut impl FnMut(&Event<'_>)) {
        if self.what == OpenPart::Custom {
            let text = JsonStr::from_escaped(&self.arguments);
            let object = text.decode();
            // Arguments without the expected member are passed as they are: the model chose its own form of the input.
            let delta = Delta::Arguments(input_of(&object).unwrap_or(text));
            sink(&Event::Delta { index: self.index, delta });
        }
    }
}

/// Escapes plain text as the inside of a JSON string.
fn escaped(plain: &str) -> String {
    let mut out = Vec::with_capacity(plain.len() + 16);
    json::push_escaped(&mut out, plain);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the string member `input` of an object; `None` if it is absent, not a string, or the object is malformed.
fn input_of(object: &str) -> Option<JsonStr<'_>> {
    let mut json = Cursor::new(object);
    json.begin_object().ok()?;
    while let Some(key) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        if key.is("input") {
            return value.as_str();
        }
    }
    None
}
