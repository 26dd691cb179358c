//! What must be known of a request body before it is routed: read while the body arrives, without a tree.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::body_members::BodyMembers;
use super::fields::{CONTENT, EXTRA, EXTRA_SNAKE, Fields, MODEL, STREAM, fields};
use super::prompt::name_in;
use super::ranges::check_values;
use super::{Api, form, images};
use crate::canonical::image::ImageRequest;
use crate::error::{ApiError, Kind as ErrorKind};
use crate::json::{Cursor, Edit, Kind, Member, Rope, ScanError, ScanErrorKind, Scanner};

/// Longest model id that is looked up. Providers' ids stay below 100 bytes; the bound keeps logs and errors readable.
const MAX_MODEL: usize = 256;

/// Reads a body while it arrives.
pub struct BodyReader {
    api: Api,
    fields: &'static Fields,
    scan: Scanner,
    body: Rope,
    /// Images are asked for as predictions.
    predict: bool,
    /// The boundary of a form.
    form: Option<String>,
}

/// A body that is complete and valid, with what was found in it.
#[derive(Clone, Debug)]
pub struct Body {
    /// The text as it came.
    pub text: Rope,
    /// The model that the body names; nothing for APIs that name it in the path.
    pub model: Option<String>,
    /// The client wants a stream.
    pub stream: bool,
    stream_options: StreamOptions,
    /// What is wanted, where images are: it has been read, and there is no text any more.
    pub image: Option<Box<ImageRequest>>,
    /// The API that it is for.
    pub(super) api: Api,
    /// What matters to it.
    pub(super) fields: &'static Fields,
    /// The members that do.
    pub(super) members: BodyMembers,
    /// Words of the specification that may be in it, one bit each.
    pub(super) seen: u32,
    /// Members that may be spelled as the specification has them, one bit each.
    pub(super) spelled: u32,
}

/// What a chat request says about usage in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamOptions {
    /// No such member.
    Absent,
    /// `include_usage` is true: the client wants the usage chunk.
    Asked,
    /// Usage is asked for by this edit.
    AskBy(Edit),
    /// Something that the provider is to judge; or another format, which has no such member.
    Strange,
}

impl BodyReader {
    /// Starts reading a body for an API. `batch` tells a Gemini batch of embeddings from a single one.
    pub fn new(api: Api, batch: bool) -> Self {
        let fields = fields(api, batch);
        let predict = batch && api == Api::Images;
        BodyReader {
            api,
            fields,
            scan: Scanner::seeking(fields.sought),
            body: Rope::new(),
            predict,
            form: None,
        }
    }

    /// Starts reading a form.
    pub fn form(api: Api, boundary: String) -> Self {
        BodyReader { form: Some(boundary), ..BodyReader::new(api, false) }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The body is not valid JSON so far. Reading on gives the same error again.
    pub fn push(&mut self, piece: Bytes) -> Result<(), ApiError> {
        let scanned = if self.form.is_some() { Ok(()) } else { self.scan.push(&piece) };
        self.body.push(piece);
        scanned.map_err(|error| invalid_json(&error, &mut self.body))
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// True before the first byte.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body is incomplete, a required field is missing or of the wrong type.
    pub fn finish(mut self) -> Result<Body, ApiError> {
        if let Some(boundary) = self.form.take() {
            return read_form(self.body, &boundary);
        }
        let seen = self.scan.seen();
        let members = self.scan.finish().map_err(|error| invalid_json(&error, &mut self.body))?;
        let members = BodyMembers::new(members);
        let find = |index: usize| members.find(index);
        if let Some(model) = members.second_model() {
            return Err(ambiguous(&mut self.body, model));
        }
        for &(index, kinds) in self.fields.required {
            let name = self.fields.name(index);
            match find(index) {
                None if index == CONTENT && content_is_elsewhere(self.api, find) => {}
                None => return Err(ApiError::missing(name)),
                Some(member) if kinds.contains(&member.kind) => {}
                Some(member) => return Err(wrong_type(name, kinds, member.kind)),
            }
        }
        let stream = match find(STREAM) {
            Some(member) if member.kind == Kind::Bool => &self.body.look(member.value.clone())[..] == b"true",
            Some(member) if member.kind != Kind::Null && self.api != Api::Generate => {
                return Err(wrong_type("stream", &[Kind::Bool], member.kind));
            }
            _ => false,
        };
        let model = match find(MODEL) {
            Some(member) if !matches!(self.api, Api::Generate | Api::EmbedContent) => {
                Some(read_model(&mut self.body, member)?)
            }
            _ => None,
        };
        let spelled = check_values(self.api, &members, self.fields, &mut self.body)?;
        let stream_options = match find(EXTRA) {
            _ if self.api != Api::Chat => StreamOptions::Strange,
            Some(member) => read_stream_options(&mut self.body, member),
            None => StreamOptions::Absent,
        };
        if self.api == Api::Images {
            let text = self.body.into_contiguous();
            let text = std::str::from_utf8(&text).map_err(|_| images::not_utf8())?;
            let image =
                if self.predict { images::predict::decode(text)? } else { images::request::decode(text)? };
            return Ok(Body::of_images(model, image));
        }
        Ok(Body {
            image: None,
            model,
            stream,
            stream_options,
            text: self.body,
            api: self.api,
            fields: self.fields,
            seen,
            spelled,
            members,
        })
    }
}

/// A form for images.
fn read_form(body: Rope, boundary: &str) -> Result<Body, ApiError> {
    let parts = form::read(&body.into_contiguous(), boundary)?;
    let model = parts.iter().find(|part| part.name == "model").ok_or_else(|| ApiError::missing("model"))?;
    let model = check_model(model.text()?)?.to_owned();
    Ok(Body::of_images(Some(model), images::request::decode_form(&parts)?))
}

impl Body {
    fn of_images(model: Option<String>, image: ImageRequest) -> Body {
        Body {
            text: Rope::new(),
            model,
            stream: false,
            stream_options: StreamOptions::Strange,
            image: Some(Box::new(image)),
            api: Api::Images,
            fields: fields(Api::Images, false),
            members: BodyMembers::default(),
            seen: 0,
            spelled: 0,
        }
    }

    /// The member with this index.
    pub(super) fn member(&self, index: usize) -> Option<&Member> {
        self.members.find(index)
    }

    /// Where the model's name stands, quotes included. `None` for APIs that name it in the path.
    fn model_at(&self) -> Option<Range<usize>> {
        let member = self.member(MODEL).filter(|member| member.kind == Kind::String)?;
        Some(member.value.clone())
    }

    /// Requests inside the body, each of which may name the model again.
    fn inner(&self) -> Option<&Member> {
        match self.api {
            Api::Generate => self.member(EXTRA).or_else(|| self.member(EXTRA_SNAKE)),
            Api::EmbedContent => self.member(CONTENT).filter(|member| member.kind == Kind::Array),
            _ => None,
        }
    }

    /// The edits, in no order, that put another model in the place of the one that the client named. Gemini's bodies
    /// name it as a resource, `models/{model}`, and the provider refuses a name that is not the path's.
    pub fn set_model(&self, model: &str) -> SmallVec<[Edit; 1]> {
        let quoted = |name: &str| {
            let mut text = Vec::with_capacity(name.len() + 2);
            crate::json::Writer::new(&mut text).string(name);
            Bytes::from(text)
        };
        let names_resource = matches!(self.api, Api::Generate | Api::EmbedContent);
        let name = if names_resource { quoted(&format!("models/{model}")) } else { quoted(model) };
        let inner = self.inner().map(|member| inner_models(&mut self.text.clone(), member));
        let places = self.model_at().into_iter().chain(inner.unwrap_or_default());
        places.map(|range| Edit { range, text: name.clone() }).collect()
    }

    /// The beginning of what the request is about, at most so many bytes; nothing where it is said elsewhere.
    pub fn beginning(&mut self, most: usize) -> Option<Bytes> {
        let at = self.member(CONTENT)?.value.clone();
        let end = at.end.min(at.start.saturating_add(most));
        Some(self.text.slice(at.start..end))
    }

    /// What the client calls the conversation, as it is written: the key of its prompt cache, or its user, who in the
    /// case of coding agents is a session.
    pub fn label(&mut self) -> Option<Bytes> {
        let label = self.members.find(self.fields.label?)?;
        name_in(label, b"\"user_id\"", &mut self.text)
    }

    /// The id of what the provider has of the conversation, as it is written: a response, or all of it.
    pub fn kept(&mut self) -> Option<Bytes> {
        let kept = (0..u32::BITS as usize).filter(|index| self.fields.kept >> index & 1 == 1);
        let mut members = kept.filter_map(|index| self.members.find(index));
        members
            .find(|member| matches!(member.kind, Kind::String | Kind::Object))
            .and_then(|member| name_in(member, b"\"id\"", &mut self.text))
    }

    /// The edit that puts another member in the place of the model, for providers that have the model in the address.
    /// Nothing where the member's name is written in a way that is not worth reading.
    pub fn replace_model(&self, name: &str, value: &str) -> Option<Edit> {
        const KEY: &[u8] = b"\"model\"";
        let at = self.model_at()?;
        let from = at.start.saturating_sub(64);
        let before = self.text.clone().slice(from..at.start);
        let key = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
        key.strip_suffix(KEY)?;
        let mut text = Vec::with_capacity(name.len() + value.len() + 8);
        crate::json::Writer::new(&mut text).string(name);
        text.push(b':');
        crate::json::Writer::new(&mut text).string(value);
        Some(Edit { range: from + key.len() - KEY.len()..at.end, text: Bytes::from(text) })
    }

    /// The edit that puts another model in the place of the client's, with another member behind it.
    pub fn set_model_beside(&self, model: &str, name: &str, value: &str) -> Option<Edit> {
        let range = self.model_at()?;
        let mut text = Vec::with_capacity(model.len() + name.len() + value.len() + 16);
        crate::json::Writer::new(&mut text).string(model);
        text.push(b',');
        crate::json::Writer::new(&mut text).string(name);
        text.push(b':');
        crate::json::Writer::new(&mut text).string(value);
        Some(Edit { range, text: Bytes::from(text) })
    }

    /// Whether the client of a chat stream asked for the usage chunk.
    pub fn asks_usage(&self) -> bool {
        self.stream_options == StreamOptions::Asked
    }

    /// The edit that asks the provider of a chat stream for the usage chunk; nothing when it is asked for already or
    /// cannot be.
    pub fn ask_usage(&self) -> Option<Edit> {
        match &self.stream_options {
            StreamOptions::Absent => {
                let at = self.member(STREAM)?.value.end;
                Some(Edit {
                    range: at..at,
                    text: Bytes::from_static(br#","stream_options":{"include_usage":true}"#),
                })
            }
            StreamOptions::AskBy(edit) => Some(edit.clone()),
            StreamOptions::Asked | StreamOptions::Strange => None,
        }
    }
}

/// Whether a request may do without its content: a stored prompt (responses), or a whole request whose tokens are to
/// be counted (generate).
fn content_is_elsewhere<'m>(api: Api, find: impl Fn(usize) -> Option<&'m Member>) -> bool {
    match api {
        Api::Responses => find(EXTRA).is_some(),
        Api::Generate => find(EXTRA).or_else(|| find(EXTRA_SNAKE)).is_some(),
        _ => false,
    }
}

/// Where `model` stands in a request inside the body, or in each of a list of requests.
fn inner_models(body: &mut Rope, member: &Member) -> Vec<Range<usize>> {
    let start = member.value.start;
    let text = body.slice(member.value.clone());
    let text = std::str::from_utf8(&text).unwrap_or_default();
    let mut found = Vec::new();
    let mut json = Cursor::new(text);
    let mut read_one = |json: &mut Cursor<'_>| {
        super::watch::members(json, |key, json| {
            if !key.is("model") {
                return json.skip();
            }
            if let Some(at) = super::watch::placed_string(json)? {
                found.push(start + at.start..start + at.end);
            }
            Ok(())
        })
    };
    // The scanner found the text to be sound.
    let _ = match member.kind {
        Kind::Array => super::watch::elements(&mut json, read_one).map(|_| ()),
        _ => read_one(&mut json),
    };
    found
}

/// A second name for the model, to readers that make no difference between upper and lower case.
fn ambiguous(body: &mut Rope, member: &Member) -> ApiError {
    let name = body.slice(member.name.clone());
    let name: String = String::from_utf8_lossy(&name).chars().take(64).collect();
    let message = format!("The member '{name}' is ambiguous: the model is named by 'model', in lower case.");
    ApiError::new(ErrorKind::InvalidField, message).param(name)
}

fn read_model(body: &mut Rope, member: &Member) -> Result<String, ApiError> {
    let text = body.look(member.value.start + 1..member.value.end - 1);
    let escaped = std::str::from_utf8(&text).unwrap_or_default();
    let model = crate::json::JsonStr::from_escaped(escaped).decode();
    check_model(&model).map(str::to_owned)
}

fn check_model(model: &str) -> Result<&str, ApiError> {
    if model.is_empty() {
        return Err(ApiError::new(ErrorKind::InvalidField, "'model' must not be empty.").param("model"));
    }
    if model.len() > MAX_MODEL {
        let message = format!("'model' is longer than {MAX_MODEL} bytes.");
        return Err(ApiError::new(ErrorKind::InvalidField, message).param("model"));
    }
    Ok(model)
}

fn read_stream_options(body: &mut Rope, member: &Member) -> StreamOptions {
    const ASK: &[u8] = br#"{"include_usage":true}"#;
    if member.kind == Kind::Null {
        return StreamOptions::AskBy(Edit { range: member.value.clone(), text: Bytes::from_static(ASK) });
    }
    if member.kind != Kind::Object {
        return StreamOptions::Strange;
    }
    let start = member.value.start;
    let text = body.slice(member.value.clone());
    let Ok(text) = std::str::from_utf8(&text) else { return StreamOptions::Strange };
    let mut json = Cursor::new(text);
    let mut read = || {
        let mut members = 0;
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            members += 1;
            let value = json.raw()?;
            if key.is("include_usage") {
                let end = json.offset();
                return Ok(match value.text() {
                    "true" => StreamOptions::Asked,
                    "false" | "null" => StreamOptions::AskBy(Edit {
                        range: start + end - value.text().len()..start + end,
                        text: Bytes::from_static(b"true"),
                    }),
                    _ => StreamOptions::Strange,
                });
            }
        }
        let text: &'static [u8] =
            if members == 0 { br#""include_usage":true"# } else { br#""include_usage":true,"# };
        Ok::<_, crate::json::JsonError>(StreamOptions::AskBy(Edit {
            range: start + 1..start + 1,
            text: Bytes::from_static(text),
        }))
    };
    read().unwrap_or(StreamOptions::Strange)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "an object",
        Kind::Array => "an array",
        Kind::String => "a string",
        Kind::Number => "a number",
        Kind::Bool => "a boolean",
        Kind::Null => "null",
    }
}

fn wrong_type(name: &'static str, kinds: &[Kind], found: Kind) -> ApiError {
    let expected: Vec<&str> = kinds.iter().copied().map(kind_name).collect();
    let message = format!(
        "Invalid type for '{name}': expected {}, but got {} instead.",
        expected.join(" or "),
        kind_name(found)
    );
    ApiError::new(ErrorKind::InvalidField, message).param(name)
}

fn invalid_json(ScanError { at, kind }: &ScanError, body: &mut Rope) -> ApiError {
    let message = match kind {
        ScanErrorKind::Duplicate(range) => {
            let name = body.slice(range.clone());
            let name: String = String::from_utf8_lossy(&name).chars().take(64).collect();
            format!("The request body has the member \"{name}\" twice.")
        }
        ScanErrorKind::NotAnObject => "The request body must be a JSON object.".to_owned(),
        ScanErrorKind::Empty => "The request body is empty; a JSON object is expected.".to_owned(),
        ScanErrorKind::TooManyMembers => format!("The request body is refused: {kind}."),
        ScanErrorKind::Syntax(what) => format!("The request body is not valid JSON: {what} at byte {at}."),
    };
    ApiError::new(ErrorKind::InvalidJson, message)
}
