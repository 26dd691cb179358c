//! Client events: reads a message, and makes the body of an HTTP request of it.

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use smallvec::SmallVec;

use super::memory::{ContinuedFrom, ConversationTurn};
use super::provider::HeldConversation;
use crate::error::{ApiError, ErrorKind};
use crate::wire::request::{invalid_json, wrong_type};
use crate::wire::watch::named_members;
use json::{Cursor, JsonError, JsonStr, Member, RawJson, Rope, Scanner, ValueKind, Writer, from_utf8};

/// Longest `stream_id`, in bytes. The interface names no limit; each event of a lane repeats the id.
pub const MAX_STREAM_ID: usize = 256;

/// Members that are read. `type`, `generate` and `stream_id` exist only on the socket.
static MEMBERS: [&str; 9] = [
    "type",
    "generate",
    "stream_id",
    "stream",
    "previous_response_id",
    "input",
    "background",
    "conversation",
    "model",
];
const TYPE: u8 = 0;
const GENERATE: u8 = 1;
const STREAM_ID: u8 = 2;
const STREAM: u8 = 3;
const PREVIOUS: u8 = 4;
const INPUT: u8 = 5;
const BACKGROUND: u8 = 6;
const CONVERSATION: u8 = 7;
const MODEL: u8 = 8;

/// Event of a client.
#[derive(Debug)]
pub enum ClientEvent {
    /// `response.create`: a response is requested.
    Create(Box<Create>),
    /// `response.steer`: input for a response in progress.
    Steer(Box<Steer>),
    /// An event that the interface does not define, or that needs no answer.
    Other,
}

/// Request for a response.
#[derive(Debug)]
pub struct Create {
    /// Lane of the response (`stream_id`). `None` for the lane without a name.
    pub lane: Option<Box<str>>,
    /// Whether output is to be generated. If not, the response only prepares the state for the next one.
    pub generate: bool,
    /// Id of the response that this one continues.
    pub previous: Option<Box<str>>,
    /// Whether the conversation is held by the provider (`conversation`): the input alone does not continue it.
    pub is_elsewhere: bool,
    /// Name of the model; empty if it is absent.
    pub model: Box<str>,
    text: Rope,
    /// Members that stay as they are, as ranges of the text, without the comma between two of them.
    kept: SmallVec<[Range<usize>; 4]>,
    input: Option<(Range<usize>, ValueKind)>,
    /// Elements of the input, once they were asked for.
    items: Option<Bytes>,
}

/// Input for a response in progress.
#[derive(Clone, Debug)]
pub struct Steer {
    /// Id of that response.
    pub previous: Box<str>,
    /// The input, as JSON text; `null` if it is absent.
    pub input: Bytes,
}

/// Length in bytes from which a text has a buffer of its own, or nearly so. A shorter one is part of a read buffer that may
/// be much longer.
const OWN_BUFFER: usize = 64 * 1024;

impl Create {
    /// Makes the request hold no more memory than it needs, because it waits. Returns its bytes.
    pub fn release_buffer(&mut self) -> usize {
        if self.text.len() < OWN_BUFFER {
            let text = std::mem::take(&mut self.text).into_contiguous();
            self.text = Rope::from(Bytes::copy_from_slice(&text));
        }
        size_of::<Create>() + self.text.len()
    }
}

impl Steer {
    /// Makes the input hold no more memory than it needs, because it waits. Returns its bytes.
    pub fn release_buffer(&mut self) -> usize {
        if self.input.len() < OWN_BUFFER {
            self.input = Bytes::copy_from_slice(&self.input);
        }
        size_of::<Steer>() + self.input.len()
    }
}

impl ClientEvent {
    /// Reads a message.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidJson`] if the message is not a JSON object, and [`ErrorKind::InvalidField`] if a
    /// member that only the socket has is not valid. The lane is set in the result if it was read.
    pub fn read(mut text: Rope) -> Result<ClientEvent, (ApiError, Option<Box<str>>)> {
        let mut scan = Scanner::new(&MEMBERS);
        let scanned = text.pieces().try_for_each(|piece| scan.push(piece)).and_then(|()| scan.finish());
        let members = match scanned {
            Ok(members) => members,
            Err(error) => return Err((invalid_json(&error, &mut text), None)),
        };
        let mut fields = Fields { members: &members, text: &mut text };
        let lane = read_lane(&mut fields).map_err(|error| (error, None))?;
        let kind = fields.string(TYPE).map_err(|error| (error, lane.clone()))?;
        match kind.as_deref() {
            None => Err((ApiError::missing("type"), lane)),
            Some("response.create") => match read_create(&mut fields) {
                Ok(create) => Ok(ClientEvent::Create(Box::new(Create { lane, text, ..create }))),
                Err(error) => Err((error, lane)),
            },
            Some("response.steer") => {
                let previous = fields.string(PREVIOUS).map_err(|error| (error, lane))?.unwrap_or_default();
                let input = fields.value(INPUT).unwrap_or(Bytes::from_static(b"null"));
                Ok(ClientEvent::Steer(Box::new(Steer { previous, input })))
            }
            Some(_) => Ok(ClientEvent::Other),
        }
    }
}

/// Members of an event, with its text.
struct Fields<'a> {
    members: &'a [Member],
    text: &'a mut Rope,
}

impl Fields<'_> {
    fn find(&self, name: u8) -> Option<&Member> {
        self.members.iter().find(|member| member.wanted == Some(name) && member.kind != ValueKind::Null)
    }

    fn value(&mut self, name: u8) -> Option<Bytes> {
        let range = self.find(name)?.value.clone();
        Some(self.text.slice(range))
    }

    fn string(&mut self, name: u8) -> Result<Option<Box<str>>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = from_utf8(&value).ok().map(RawJson::from_text).and_then(RawJson::as_str);
        match text {
            Some(text) => Ok(Some(JsonStr::decode(text).into())),
            None => Err(self.wrong(name, &[ValueKind::String])),
        }
    }

    fn boolean(&mut self, name: u8) -> Result<Option<bool>, ApiError> {
        match self.value(name).as_deref() {
            None => Ok(None),
            Some(b"true") => Ok(Some(true)),
            Some(b"false") => Ok(Some(false)),
            Some(_) => Err(self.wrong(name, &[ValueKind::Bool])),
        }
    }

    fn wrong(&self, name: u8, expected: &[ValueKind]) -> ApiError {
        let found = self.find(name).map_or(ValueKind::Null, |member| member.kind);
        wrong_type(MEMBERS.get(usize::from(name)).copied().unwrap_or_default(), expected, found)
    }
}

fn read_lane(fields: &mut Fields<'_>) -> Result<Option<Box<str>>, ApiError> {
    let lane = fields.string(STREAM_ID)?;
    if lane.as_ref().is_some_and(|lane| lane.is_empty() || lane.len() > MAX_STREAM_ID) {
        let message = format!("'stream_id' must have 1 to {MAX_STREAM_ID} bytes.");
        return Err(ApiError::new(ErrorKind::InvalidField, message).param("stream_id"));
    }
    Ok(lane)
}

fn read_create(fields: &mut Fields<'_>) -> Result<Create, ApiError> {
    if fields.boolean(BACKGROUND)? == Some(true) {
        let message = "'background' is not supported over WebSocket.";
        return Err(ApiError::new(ErrorKind::Unsupported, message).param("background"));
    }
    let generate = fields.boolean(GENERATE)?.unwrap_or(true);
    let previous = fields.string(PREVIOUS)?;
    // A wrong type of the model is reported by the reader of the body, as over HTTP.
    let model = fields.string(MODEL).ok().flatten().unwrap_or_default();
    let is_elsewhere = fields.find(CONVERSATION).is_some();
    let mut kept: SmallVec<[Range<usize>; 4]> = SmallVec::new();
    let mut input = None;
    let mut joins = false;
    for member in fields.members {
        if member.wanted == Some(INPUT) {
            input = Some((member.value.clone(), member.kind));
        }
        // `stream` is implied, and the other members are written anew or do not exist over HTTP.
        if matches!(member.wanted, Some(TYPE | GENERATE | STREAM_ID | STREAM | PREVIOUS | INPUT)) {
            joins = false;
            continue;
        }
        let from = member.name.start.saturating_sub(1);
        match kept.last_mut().filter(|_| joins) {
            Some(run) => run.end = member.value.end,
            None => kept.push(from..member.value.end),
        }
        joins = true;
    }
    Ok(Create {
        lane: None,
        generate,
        previous,
        is_elsewhere,
        model,
        text: Rope::new(),
        kept,
        input,
        items: None,
    })
}

/// Returns an input as the elements of a JSON array, without its brackets: a copy.
fn input_items(value: &[u8], kind: ValueKind) -> Result<Bytes, ApiError> {
    Ok(match kind {
        ValueKind::String => {
            let mut out = BytesMut::with_capacity(value.len() + 48);
            out.put_slice(br#"{"type":"message","role":"user","content":"#);
            out.put_slice(value);
            out.put_u8(b'}');
            out.freeze()
        }
        ValueKind::Array => {
            let inside = value.strip_prefix(b"[").and_then(|value| value.strip_suffix(b"]"));
            Bytes::copy_from_slice(inside.unwrap_or_default().trim_ascii())
        }
        ValueKind::Null => Bytes::new(),
        other => return Err(wrong_type("input", &[ValueKind::String, ValueKind::Array], other)),
    })
}

/// Returns whether a list of input items has a message of the user.
fn has_user_message(list: &str) -> Result<bool, JsonError> {
    let mut json = Cursor::new(list);
    json.begin_array()?;
    while json.next_element()? {
        if json.kind()? != ValueKind::Object {
            json.skip()?;
            continue;
        }
        let [role] = named_members(json.raw()?, ["role"])?;
        if role.and_then(RawJson::as_str).is_some_and(|role| role.is("user")) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Steer {
    /// Returns the input as the elements of a JSON array, without its brackets: a copy.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidField`] if the input is neither a string nor an array with an element.
    pub fn items(&self) -> Result<Bytes, ApiError> {
        let kind = from_utf8(&self.input).ok().and_then(|text| Cursor::new(text).kind().ok());
        let items = input_items(&self.input, kind.unwrap_or(ValueKind::Null))?;
        if items.is_empty() {
            return Err(ApiError::missing("input"));
        }
        Ok(items)
    }

    /// Returns the event that the provider is sent: the members that it accepts, and no lane.
    pub fn event(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.input.len() + self.previous.len() + 96);
        let mut json = Writer::new(&mut out);
        json.begin_object().key("type").string("response.steer");
        json.key("previous_response_id").string(&self.previous);
        json.key("input").raw(RawJson::from_text(from_utf8(&self.input).unwrap_or("null"))).end_object();
        out.freeze()
    }
}

impl Create {
    /// Returns the length of the message, in bytes.
    pub fn length(&self) -> usize {
        self.text.len()
    }

    /// Returns the input as the elements of a JSON array, without its brackets: a copy, so that the memory of a
    /// connection does not hold the tools that were sent beside it.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidField`] if the input is neither a string, an array nor null.
    pub fn items(&mut self) -> Result<Bytes, ApiError> {
        if let Some(items) = &self.items {
            return Ok(items.clone());
        }
        let Some((range, kind)) = self.input.clone() else { return Ok(Bytes::new()) };
        let value = self.text.view(range);
        let value: &[u8] = &value;
        let items = input_items(value, kind)?;
        self.items = Some(items.clone());
        Ok(items)
    }

    /// Returns whether the request begins a turn of an agent: its input has a message of the user. The requests of the
    /// same turn that follow have outputs of tools only.
    pub fn begins_turn(&mut self) -> bool {
        let Some((range, kind)) = self.input.clone() else { return false };
        match kind {
            ValueKind::Array => {
                let value = self.text.view(range);
                from_utf8(&value).is_ok_and(|list| has_user_message(list).unwrap_or(false))
            }
            kind => kind == ValueKind::String,
        }
    }

    /// Makes the body of the HTTP request, in pieces that share the received text. The conversation up to `before` is
    /// put before the request's own input; what `before` does not hold is left to `previous_response_id`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidField`] if the input is neither a string, an array nor null.
    pub fn into_body(mut self, before: Option<&Arc<ConversationTurn>>) -> Result<Vec<Bytes>, ApiError> {
        let mut body = Vec::with_capacity(8 + 2 * self.kept.len());
        body.push(Bytes::from_static(br#"{"stream":true"#));
        for range in std::mem::take(&mut self.kept) {
            body.push(Bytes::from_static(b","));
            body.push(self.text.slice(range));
        }
        let previous = match before {
            None => self.previous.as_deref(),
            Some(turn) => turn.stored(),
        };
        let begins = previous.is_none();
        if let Some(previous) = previous {
            let mut out = BytesMut::with_capacity(previous.len() + 32);
            out.put_slice(br#","previous_response_id":"#);
            Writer::new(&mut out).string(previous);
            body.push(out.freeze());
        }
        let own = self.items()?;
        let items = before.map(|turn| turn.items()).unwrap_or_default();
        let mut items = items.into_iter().chain([own]).filter(|items| !items.is_empty()).peekable();
        if !self.generate && begins && items.peek().is_none() {
            // Only tools may be sent ahead. Over HTTP an input must not be empty; this one reaches no provider.
            body.push(Bytes::from_static(br#","input":"-"}"#));
        } else if before.is_some() {
            body.push(Bytes::from_static(br#","input":["#));
            for (number, items) in items.enumerate() {
                if number > 0 {
                    body.push(Bytes::from_static(b","));
                }
                body.push(items);
            }
            body.push(Bytes::from_static(b"]}"));
        } else if let Some((range, _)) = self.input.take() {
            body.push(Bytes::from_static(br#","input":"#));
            body.push(self.text.slice(range));
            body.push(Bytes::from_static(b"}"));
        } else {
            body.push(Bytes::from_static(b"}"));
        }
        Ok(body)
    }

    /// Returns the part of the body that a provider's socket has if it holds the response that this request continues.
    /// `None` if the body is not made of the conversation up to that response and new items.
    pub fn held(&mut self, before: &Arc<ConversationTurn>) -> Option<HeldConversation> {
        let own = self.items().ok().filter(|own| !own.is_empty())?;
        if before.stored().is_some() {
            return None;
        }
        let mut history = Vec::new();
        for items in before.items().into_iter().filter(|items| !items.is_empty()) {
            history.push(items);
            history.push(Bytes::from_static(b","));
        }
        // What follows is the bracket of the input and the brace of the body.
        (!history.is_empty()).then(|| HeldConversation {
            id: before.id().into(),
            history,
            rest: own.len() + 2,
        })
    }

    /// Returns what the conversation of this request continues, for the memory of the connection.
    pub fn before(&self, turn: Option<Arc<ConversationTurn>>) -> ContinuedFrom {
        match (turn, &self.previous) {
            (Some(turn), _) => ContinuedFrom::ConversationTurn(turn),
            (None, Some(previous)) => ContinuedFrom::Stored(previous.clone()),
            (None, None) => ContinuedFrom::Nothing,
        }
    }
}
