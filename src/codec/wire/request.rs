//! Request bodies before routing: the members that routing, limits and pricing need are found while the body arrives,
//! without building a JSON tree.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::body_members::BodyMembers;
use super::fields::{CONTENT, EXTRA, EXTRA_SNAKE, Fields, MODEL, STREAM, fields, responses};
use super::invoke_body::MemberInserter;
use super::prompt::name_in;
use super::ranges::check_values;
use super::{Api, form, images};
use crate::canonical::image::ImageRequest;
use crate::error::{ApiError, ErrorKind};
use json::{
    ArrayTail, Cursor, DocumentReader, Edit, JsonRope, Member, Rope, ScanError, ScanErrorKind,
    ScannedDocument, ValueKind,
};

/// Maximum length of a model id in bytes. Providers' ids stay below 100 bytes; the bound keeps logs and errors
/// readable.
const MAX_MODEL: usize = 256;

/// Incremental reader of a request body.
pub struct BodyReader {
    api: Api,
    fields: &'static Fields,
    document: DocumentReader,
    /// Whether the body is an image request in Gemini's `:predict` form.
    predict: bool,
    /// Multipart form, which is parsed at the end. `None` for JSON bodies.
    form: Option<ReceivedForm>,
    /// Inserter of the members that the path states. `None` for bodies that are complete.
    inserter: Option<MemberInserter>,
}

/// Multipart form that arrives in pieces.
struct ReceivedForm {
    boundary: String,
    body: Rope,
}

/// Request body that is complete and valid, with the members that were found in it.
#[derive(Clone, Debug)]
pub struct Body {
    /// Text of the body, unchanged.
    pub text: JsonRope,
    /// Model that the body names. `None` for APIs that name it in the path.
    pub model: Option<String>,
    /// Whether the client requested a stream.
    pub stream: bool,
    stream_options: StreamOptions,
    /// Decoded image request. `Some` only for images; the text is empty then.
    pub image: Option<Box<ImageRequest>>,
    /// API of the request.
    pub(super) api: Api,
    /// Whether it came through InvokeModel.
    pub(super) is_invocation: bool,
    /// Table of the members that matter to the API.
    pub(super) fields: &'static Fields,
    /// Members of the body that matter to the API.
    pub(super) members: BodyMembers,
    /// Last elements of those members that are lists of objects.
    pub(super) tails: Vec<ArrayTail>,
    /// Wanted words that occur in the body, one bit each.
    pub(super) words_found: u32,
    /// Members that may need a different spelling (`super::spelling`), one bit each.
    pub(super) spelled: u32,
    /// Whether the request needs a response or item that the gateway stores itself, and no provider knows.
    pub needs_store: bool,
}

/// Content of `stream_options` in a chat request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamOptions {
    /// The member is absent.
    Absent,
    /// `include_usage` is true: the client wants the usage chunk.
    Asked,
    /// Usage is not requested; this edit requests it.
    AskBy(Edit),
    /// A value that cannot be edited and is left to the provider; or another API, which has no such member.
    Strange,
}

impl BodyReader {
    /// Creates a reader for the body of an API. `batch` is true for a batch of Gemini embeddings, and for images in
    /// Gemini's `:predict` form.
    pub fn new(api: Api, batch: bool) -> Self {
        let fields = fields(api, batch);
        let predict = batch && api == Api::Images;
        let document = DocumentReader::new(fields.sought);
        BodyReader { api, fields, document, predict, form: None, inserter: None }
    }

    /// Creates a reader for the body of InvokeModel: a messages request without the model and the choice of a stream,
    /// which the path states. The body that was read has both.
    pub fn invoke(model: &str, stream: bool) -> Self {
        let inserter = Some(MemberInserter::new(model, stream));
        BodyReader { inserter, ..BodyReader::new(Api::Messages, false) }
    }

    /// Creates a reader for a multipart form with this boundary.
    pub fn form(api: Api, boundary: String) -> Self {
        BodyReader { form: Some(ReceivedForm { boundary, body: Rope::new() }), ..BodyReader::new(api, false) }
    }

    /// Joins the pieces of a body of `length` bytes in one block while they arrive. For a body that will be needed in one
    /// piece: it is not in memory twice.
    pub fn join(&mut self, length: usize) {
        let inserted = self.inserter.as_ref().map_or(0, MemberInserter::inserted);
        self.document.join(length.saturating_add(inserted));
    }

    /// Returns the number of bytes that are held.
    pub fn held(&self) -> usize {
        self.form.as_ref().map_or(self.document.held(), |form| form.body.held())
    }

    /// Adds the next piece of the body.
    ///
    /// # Errors
    /// Returns [`ApiError`] if the body is not valid JSON so far. Further calls return the same error.
    pub fn push(&mut self, piece: Bytes) -> Result<(), ApiError> {
        if let Some(form) = &mut self.form {
            form.body.push(piece);
            return Ok(());
        }
        // Members are only named twice at the end, so this error names none.
        let invalid = |error| invalid_json(&error, &mut Rope::new());
        match &mut self.inserter {
            None => self.document.push(piece).map_err(invalid),
            Some(inserter) => inserter.feed(piece, |part| self.document.push(part).map_err(invalid)),
        }
    }

    /// Returns the number of bytes received so far.
    pub fn len(&self) -> usize {
        self.form.as_ref().map_or(self.document.len(), |form| form.body.len())
    }

    /// Returns whether no byte was received yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the body and checks it.
    ///
    /// # Errors
    /// Returns [`ApiError`] if the body is incomplete, or if a member is missing, ambiguous, of the wrong type or out
    /// of range.
    pub fn finish(self) -> Result<Body, ApiError> {
        if let Some(form) = self.form {
            return read_form(form.body, &form.boundary);
        }
        let ScannedDocument { text, members, tails, words_found } = match self.document.finish() {
            Ok(document) => document,
            Err(mut invalid) => return Err(invalid_json(&invalid.0, &mut invalid.1)),
        };
        let members = BodyMembers::new(members);
        let find = |index: usize| members.find(index);
        // Checked before all else: authorization and price depend on the model.
        if let Some(model) = members.second_model() {
            return Err(ambiguous(&text, model));
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
            Some(member) if member.kind == ValueKind::Bool => text.view(member.value.clone()) == "true",
            Some(member)
                if member.kind != ValueKind::Null && !matches!(self.api, Api::Generate | Api::Converse) =>
            {
                return Err(wrong_type("stream", &[ValueKind::Bool], member.kind));
            }
            _ => false,
        };
        let model = match find(MODEL) {
            Some(member) if !matches!(self.api, Api::Generate | Api::EmbedContent | Api::Converse) => {
                Some(read_model(&text, member)?)
            }
            _ => None,
        };
        let spelled = check_values(self.api, &members, self.fields, &text)?;
        let stream_options = match find(EXTRA) {
            _ if self.api != Api::Chat => StreamOptions::Strange,
            Some(member) => read_stream_options(&text, member),
            None => StreamOptions::Absent,
        };
        if self.api == Api::Images {
            let text = text.into_contiguous();
            // The image job works on the decoded request; the text is not needed any more.
            let image =
                if self.predict { images::predict::decode(&text)? } else { images::request::decode(&text)? };
            return Ok(Body::of_images(model, image));
        }
        Ok(Body {
            image: None,
            model,
            stream,
            stream_options,
            text,
            api: self.api,
            is_invocation: self.inserter.is_some(),
            fields: self.fields,
            words_found,
            spelled,
            members,
            tails,
            needs_store: false,
        })
    }
}

/// Reads a multipart form for images.
fn read_form(body: Rope, boundary: &str) -> Result<Body, ApiError> {
    let parts = form::read(&body.into_contiguous(), boundary)?;
    let model = parts.iter().find(|part| part.name == "model").ok_or_else(|| ApiError::missing("model"))?;
    let model = check_model(model.text()?)?.to_owned();
    Ok(Body::of_images(Some(model), images::request::decode_form(&parts)?))
}

impl Body {
    fn of_images(model: Option<String>, image: ImageRequest) -> Body {
        Body {
            text: JsonRope::default(),
            model,
            stream: false,
            stream_options: StreamOptions::Strange,
            image: Some(Box::new(image)),
            api: Api::Images,
            is_invocation: false,
            fields: fields(Api::Images, false),
            members: BodyMembers::default(),
            tails: Vec::new(),
            words_found: 0,
            spelled: 0,
            needs_store: false,
        }
    }

    /// Returns the member with this index. `None` if it is absent.
    pub(super) fn member(&self, index: usize) -> Option<&Member> {
        self.members.find(index)
    }

    /// Returns the last elements of a member that is a list, as the scan noted them. `None` if it has no objects.
    pub(super) fn tail(&self, list: &Member) -> Option<&ArrayTail> {
        self.tails.iter().find(|tail| tail.start == list.value.start)
    }

    /// Returns the byte range of the model name, quotes included. `None` for APIs that name it in the path.
    fn model_at(&self) -> Option<Range<usize>> {
        if self.api == Api::Converse {
            return None;
        }
        let member = self.member(MODEL).filter(|member| member.kind == ValueKind::String)?;
        Some(member.value.clone())
    }

    /// Returns the member that holds further requests, each of which may name the model again. `None` if there is none.
    fn inner(&self) -> Option<&Member> {
        match self.api {
            Api::Generate => self.member(EXTRA).or_else(|| self.member(EXTRA_SNAKE)),
            Api::EmbedContent => self.member(CONTENT).filter(|member| member.kind == ValueKind::Array),
            _ => None,
        }
    }

    /// Returns the edits that replace the client's model name by another, in no order. Gemini's bodies name the model
    /// as a resource, `models/{model}`, and the provider refuses a name that differs from the one in the path.
    pub fn set_model(&self, model: &str) -> SmallVec<[Edit; 1]> {
        let quoted = |name: &str| {
            let mut text = Vec::with_capacity(name.len() + 2);
            json::Writer::new(&mut text).string(name);
            Bytes::from(text)
        };
        let names_resource = matches!(self.api, Api::Generate | Api::EmbedContent);
        let name = if names_resource { quoted(&format!("models/{model}")) } else { quoted(model) };
        let inner = self.inner().map(|member| inner_models(&self.text, member));
        // Requests inside the body name the model again; all names must be replaced.
        let places = self.model_at().into_iter().chain(inner.unwrap_or_default());
        places.map(|range| Edit { range, text: name.clone() }).collect()
    }

    /// Returns the first `most` bytes of the content member. `None` if the body has none.
    pub fn beginning(&self, most: usize) -> Option<Bytes> {
        let at = self.member(CONTENT)?.value.clone();
        let end = at.end.min(at.start.saturating_add(most));
        Some(self.text.slice(at.start..end))
    }

    /// Returns the client's name of the conversation as raw text: the key of its prompt cache, or its user id, which
    /// coding agents set per session. `None` if there is none.
    pub fn label(&self) -> Option<Bytes> {
        let label = self.members.find(self.fields.label?)?;
        name_in(label, b"\"user_id\"", &self.text)
    }

    /// Returns the edit that replaces the model member by another member, for providers that take the model in the URL.
    /// `None` if the body has no model.
    pub fn replace_model(&self, name: &str, value: &str) -> Option<Edit> {
        let member = self.member(MODEL).filter(|member| member.kind == ValueKind::String)?;
        // With the quote before the name.
        let range = member.name.start.saturating_sub(1)..member.value.end;
        let mut text = Vec::with_capacity(name.len() + value.len() + 8);
        json::Writer::new(&mut text).string(name);
        text.push(b':');
        json::Writer::new(&mut text).string(value);
        Some(Edit { range, text: Bytes::from(text) })
    }

    /// Returns the edit that replaces the model name and inserts another member behind it. `None` if the body has no
    /// model.
    pub fn set_model_beside(&self, model: &str, name: &str, value: &str) -> Option<Edit> {
        let range = self.model_at()?;
        let mut text = Vec::with_capacity(model.len() + name.len() + value.len() + 16);
        json::Writer::new(&mut text).string(model);
        text.push(b',');
        json::Writer::new(&mut text).string(name);
        text.push(b':');
        json::Writer::new(&mut text).string(value);
        Some(Edit { range, text: Bytes::from(text) })
    }

    /// Returns whether the client of a chat stream requested the usage chunk.
    pub fn requests_usage(&self) -> bool {
        self.stream_options == StreamOptions::Asked
    }

    /// Returns the edit that requests the usage chunk of a chat stream. `None` if it is requested already or cannot be.
    pub fn request_usage(&self) -> Option<Edit> {
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

/// Returns whether a request is valid without its content member: a stored prompt or conversation (responses), or a
/// request inside the body whose tokens are to be counted (generate).
fn content_is_elsewhere<'m>(api: Api, find: impl Fn(usize) -> Option<&'m Member>) -> bool {
    match api {
        Api::Responses => {
            let previous = find(responses::PREVIOUS_RESPONSE_ID);
            find(EXTRA).is_some() || previous.is_some_and(|member| member.kind == ValueKind::String)
        }
        Api::Generate => find(EXTRA).or_else(|| find(EXTRA_SNAKE)).is_some(),
        _ => false,
    }
}

/// Returns the byte ranges of `model` in a request inside the body, or in each of a list of requests.
fn inner_models(body: &JsonRope, member: &Member) -> Vec<Range<usize>> {
    let start = member.value.start;
    let text = body.text(member.value.clone());
    let mut found = Vec::new();
    let mut json = Cursor::new(&text);
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
    // Cannot fail: the scanner has validated the text.
    let _ = match member.kind {
        ValueKind::Array => super::watch::elements(&mut json, read_one).map(|_| ()),
        _ => read_one(&mut json),
    };
    found
}

/// Returns the error for a second model member in a different letter case. A provider that ignores case could use it
/// instead of the model that was authorized and priced.
fn ambiguous(body: &JsonRope, member: &Member) -> ApiError {
    let name: String = body.view(member.name.clone()).chars().take(64).collect();
    let message = format!("The member '{name}' is ambiguous: the model is named by 'model', in lower case.");
    ApiError::new(ErrorKind::InvalidField, message).param(name)
}

fn read_model(body: &JsonRope, member: &Member) -> Result<String, ApiError> {
    let escaped = body.view(member.value.start + 1..member.value.end - 1);
    let model = json::JsonStr::from_escaped(&escaped).decode();
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

fn read_stream_options(body: &JsonRope, member: &Member) -> StreamOptions {
    const ASK: &[u8] = br#"{"include_usage":true}"#;
    if member.kind == ValueKind::Null {
        return StreamOptions::AskBy(Edit { range: member.value.clone(), text: Bytes::from_static(ASK) });
    }
    if member.kind != ValueKind::Object {
        return StreamOptions::Strange;
    }
    let start = member.value.start;
    let text = body.view(member.value.clone());
    let mut json = Cursor::new(&text);
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
        // `include_usage` is absent: insert it as the first member, with a comma if others follow.
        let text: &'static [u8] =
            if members == 0 { br#""include_usage":true"# } else { br#""include_usage":true,"# };
        Ok::<_, json::JsonError>(StreamOptions::AskBy(Edit {
            range: start + 1..start + 1,
            text: Bytes::from_static(text),
        }))
    };
    read().unwrap_or(StreamOptions::Strange)
}

fn kind_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Object => "an object",
        ValueKind::Array => "an array",
        ValueKind::String => "a string",
        ValueKind::Number => "a number",
        ValueKind::Bool => "a boolean",
        ValueKind::Null => "null",
    }
}

/// Returns the error of a member whose value is of another kind.
pub(super) fn wrong_type(name: &'static str, kinds: &[ValueKind], found: ValueKind) -> ApiError {
    let expected: Vec<&str> = kinds.iter().copied().map(kind_name).collect();
    let message = format!(
        "Invalid type for '{name}': expected {}, but got {} instead.",
        expected.join(" or "),
        kind_name(found)
    );
    ApiError::new(ErrorKind::InvalidField, message).param(name)
}

/// Returns the error of a body that is not a valid JSON object.
pub(super) fn invalid_json(ScanError { at, kind }: &ScanError, body: &mut Rope) -> ApiError {
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
