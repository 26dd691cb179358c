//! What was adapted in a request is undone in its answer: tools get their own names back, tools with free text are
//! called with free text, and an answer that had to come as a tool's arguments becomes the answer.

use crate::canonical::{BlockKind, Delta, Event, Finish, Index, Key, Slots, ToolKind};
use crate::json::{Cursor, JsonStr};

/// What was adapted.
#[derive(Clone, Debug, Default)]
pub struct Restore {
    renamed: Vec<Renamed>,
    /// Where in `renamed` names stand: those at the target, those at the client, and the latter with their namespaces.
    at_target: Index,
    by_name: Index,
    by_both: Index,
    /// Names (at the client) of tools with free text that the target knows as functions.
    custom: Index,
    answer_tool: Option<String>,
    /// Texts of answers may begin with reasoning between tags.
    pub(super) tagged: bool,
}

#[derive(Clone, Debug)]
struct Renamed {
    at_target: String,
    name: String,
    namespace: String,
}

impl Restore {
    /// Whether there is nothing to undo in the events of an answer.
    pub fn is_empty(&self) -> bool {
        self.renamed.is_empty() && self.custom.is_empty() && self.answer_tool.is_none()
    }

    pub(super) fn names(&self) -> usize {
        self.renamed.len()
    }

    pub(super) fn rename(&mut self, at_target: &str, name: JsonStr<'_>, namespace: JsonStr<'_>) {
        self.at_target.push(Key::of(at_target));
        self.by_name.push(Key::of(name));
        self.by_both.push(Key::of((name, namespace)));
        self.renamed.push(Renamed {
            at_target: at_target.to_owned(),
            name: name.escaped().to_owned(),
            namespace: namespace.escaped().to_owned(),
        });
    }

    /// What a tool is called at the target, if it was renamed. A choice names no namespace: the first that fits.
    pub(super) fn name_at_target(&self, name: JsonStr<'_>, namespace: JsonStr<'_>) -> Option<&str> {
        let at = if namespace.is_empty() {
            self.by_name.first(Key::of(name))
        } else {
            self.by_both.first(Key::of((name, namespace)))
        };
        self.renamed.get(at?).map(|renamed| &*renamed.at_target)
    }

    pub(super) fn add_custom(&mut self, name: JsonStr<'_>) {
        self.custom.push(Key::of(name));
    }

    pub(super) fn set_answer_tool(&mut self, name: &str) {
        self.answer_tool = Some(name.to_owned());
    }

    fn tool(&self, name: &str) -> Option<&Renamed> {
        self.renamed.get(self.at_target.first(Key::of(name))?)
    }
}

/// Undoes it, event by event.
#[derive(Debug)]
pub(super) struct Restorer {
    restore: Restore,
    /// Blocks that are not what they were sent as.
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

    /// Passes an event on, undone.
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
                let known = self.restore.tool(name.escaped());
                let (name, namespace) = known.map_or((name, namespace), |tool| {
                    (JsonStr::from_escaped(&tool.name), JsonStr::from_escaped(&tool.namespace))
                });
                let custom = self.restore.custom.has(Key::of(name));
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
            // The text of the arguments is the text of the answer.
            (OpenPart::Answer, Delta::Arguments(text)) => {
                sink(&Event::Delta { index, delta: Delta::Text(text) })
            }
            (OpenPart::Answer, Delta::Object(object)) => {
                let text = escaped(object.text());
                sink(&Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(&text)) });
            }
            (OpenPart::Custom, Delta::Arguments(text)) => self.arguments.push_str(text.escaped()),
            (OpenPart::Custom, Delta::Object(object)) => self.arguments = escaped(object.text()),
            // The provider wants it back with the call, whatever the call is to the client.
            (OpenPart::Custom, Delta::Seal(_)) => sink(&Event::Delta { index, delta }),
            _ => {}
        }
    }

    fn stop(self, sink: &mut impl FnMut(&Event<'_>)) {
        if self.what == OpenPart::Custom {
            let text = JsonStr::from_escaped(&self.arguments);
            let object = text.decode();
            // What is no such object is the model's own idea of the input.
            let delta = Delta::Arguments(input_of(&object).unwrap_or(text));
            sink(&Event::Delta { index: self.index, delta });
        }
    }
}

/// Plain text as the inside of a JSON string.
fn escaped(plain: &str) -> String {
    let mut out = Vec::with_capacity(plain.len() + 16);
    crate::json::push_escaped(&mut out, plain);
    String::from_utf8(out).unwrap_or_default()
}

/// The member `input` of an object.
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
