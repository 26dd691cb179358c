//! Stream encoder, second half: ends of blocks, parts, items and the response, and items that begin and end at once.

use bytes::{BufMut, Bytes, BytesMut};

use super::super::shell::ResponseStatus;
use super::super::text::{SEAL_OF_TEXT, as_text, holds_json};
use super::encode::{BlockState, Encoder};
use super::item::{Kind, OutputItem, PartKind};
use crate::canonical::answer::{CitationOwned, FinishOwned};
use crate::canonical::seal::{SignedCallId, UNSIGNED};
use crate::canonical::{Finish, SealedSignature};
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

impl Encoder {
    pub(super) fn end_block(&mut self, index: u32, out: &mut BytesMut) {
        let Some(slot) = self.blocks.get_mut(index as usize) else { return };
        match std::mem::replace(slot, BlockState::Closed) {
            BlockState::Closed | BlockState::Pending => {}
            BlockState::Part { item, signature: seal, .. } => {
                if let Some(place) = item {
                    self.end_part(place, out);
                    // Another item has been added since, so the message gets no further part.
                    if self.message != Some(place) {
                        self.complete(place, "completed", out);
                    }
                }
                if !seal.is_empty() {
                    self.seal_of_text(seal, out);
                }
            }
            BlockState::Reasoning { item, signature: seal } => {
                let place = match item {
                    Some(place) => place,
                    None if seal.is_empty() => return,
                    None => self.add(Kind::Reasoning, out),
                };
                self.end_part(place, out);
                if let Some(item) = self.items.get_mut(place) {
                    // Providers of this format look up reasoning without encrypted content by its id, which none of
                    // them knows. The envelope says that it is not signed.
                    item.signature = if seal.is_empty() { UNSIGNED.into() } else { seal };
                }
                self.complete(place, "completed", out);
            }
            BlockState::Hidden { signature: seal } if seal.is_empty() => {}
            BlockState::Hidden { signature: seal } => {
                let place = self.add(Kind::Reasoning, out);
                if let Some(item) = self.items.get_mut(place) {
                    item.signature = seal;
                }
                self.complete(place, "completed", out);
            }
            BlockState::Call { item } => self.end_call(item, out),
            BlockState::Media { format, data, url, signature: seal } => {
                self.media(index, format, data, &url, seal, out)
            }
        }
    }

    /// Ends the open part of an item: writes its annotations, then its text and the part itself once more.
    fn end_part(&mut self, place: usize, out: &mut BytesMut) {
        let Some(item) = self.items.get_mut(place) else { return };
        let Some(part) = item.part.take() else { return };
        let kind = part.kind;
        let text = item.text_of(&part);
        let base = self.characters;
        let mut notes = Vec::new();
        if kind == PartKind::Text {
            let length = text.char_count();
            self.characters += length;
            for (number, citation) in part.citations.iter().enumerate() {
                let from = notes.len();
                put_annotation(citation, base, length, &mut notes);
                let note = notes.get(from..).unwrap_or_default();
                self.frames.write("response.output_text.annotation.added", out, |out| {
                    item.put_part_place(kind, out);
                    out.put_slice(b",\"annotation_index\":");
                    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
                    out.put_slice(b",\"annotation\":");
                    out.put_slice(note);
                });
                notes.push(b',');
            }
            notes.pop();
        }
        self.frames.write2(kind.event(), ".done", out, |out| {
            item.put_part_place(kind, out);
            out.put_slice(b",\"");
            out.put_slice(kind.member().as_bytes());
            out.put_slice(b"\":\"");
            out.put_slice(text.escaped().as_bytes());
            out.put_u8(b'"');
            if kind == PartKind::Text {
                out.put_slice(b",\"logprobs\":[");
                out.put_slice(&part.logprobs);
                out.put_u8(b']');
            }
        });
        // Complete the part in the body: all later events copy it from there.
        item.body.push(b'"');
        if kind == PartKind::Text {
            item.body.put_slice(b",\"annotations\":[");
            item.body.put_slice(&notes);
            item.body.put_slice(b"],\"logprobs\":[");
            item.body.put_slice(&part.logprobs);
            item.body.put_u8(b']');
        }
        item.body.push(b'}');
        self.frames.write2(kind.part_event(), ".done", out, |out| {
            item.put_part_place(kind, out);
            out.put_slice(b",\"part\":");
            out.put_slice(item.body.get(part.from..).unwrap_or_default());
        });
    }

    /// Adds a reasoning item without text that carries the provider signature of the text before it: the format has
    /// no field for the signature of a text. The prefix of its id identifies it to the request decoder.
    fn seal_of_text(&mut self, seal: Vec<u8>, out: &mut BytesMut) {
        let id = self.next_id(SEAL_OF_TEXT);
        let place = self.add_item(OutputItem::new(Kind::Reasoning, id, 0), out);
        if let Some(item) = self.items.get_mut(place) {
            item.signature = seal;
        }
        self.complete(place, "completed", out);
    }

    fn end_call(&mut self, place: usize, out: &mut BytesMut) {
        let empty = |item: &OutputItem| item.kind == Kind::Function && item.body.is_empty();
        if self.items.get(place).is_some_and(empty) {
            // Empty arguments are not valid JSON; write an empty object.
            self.input(place, JsonStr::from_escaped("{}"), out);
        }
        let Some(item) = self.items.get_mut(place) else { return };
        let input = as_text(&item.body);
        let (event, member) = match item.kind {
            Kind::Custom => ("response.custom_tool_call_input", "input"),
            _ => ("response.function_call_arguments", "arguments"),
        };
        self.frames.write2(event, ".done", out, |out| {
            item.put_place(out);
            if item.kind == Kind::Function {
                out.put_slice(b",\"name\":\"");
                out.put_slice(item.name.as_bytes());
                out.put_u8(b'"');
            }
            out.put_slice(b",\"");
            out.put_slice(member.as_bytes());
            out.put_slice(b"\":\"");
            out.put_slice(input.escaped().as_bytes());
            out.put_u8(b'"');
        });
        // Arguments that are not valid JSON were truncated: mark the call so that clients do not execute it.
        let cut = item.kind == Kind::Function && !holds_json(input);
        self.complete(place, if cut { "incomplete" } else { "completed" }, out);
    }

    fn media(
        &mut self,
        index: u32,
        format: Option<&'static str>,
        data: Vec<u8>,
        url: &[u8],
        seal: Vec<u8>,
        out: &mut BytesMut,
    ) {
        let Some(format) = format else { return };
        if data.is_empty() {
            self.linked_image(index, url, seal, out);
            return;
        }
        let mut id = self.next_id(Kind::Image.prefix());
        if !seal.is_empty() {
            // An image item has no field for a signature, so its id carries it.
            let mut carrier = Vec::new();
            SignedCallId::write(
                SealedSignature { issuer: &self.reply.issuer, text: as_text(&seal) },
                &mut carrier,
            );
            id.push_str(std::str::from_utf8(&carrier).unwrap_or_default());
        }
        let place = self.add_item(OutputItem::new(Kind::Image, id, 0), out);
        let Some(item) = self.items.get_mut(place) else { return };
        self.frames.write("response.image_generation_call.in_progress", out, |out| item.put_place(out));
        self.frames.write("response.image_generation_call.generating", out, |out| item.put_place(out));
        self.frames.write("response.image_generation_call.completed", out, |out| item.put_place(out));
        item.body = data;
        Writer::new(&mut item.members).key("output_format").string(format);
        item.members.insert(0, b',');
        self.complete(place, "completed", out);
    }

    /// Writes an image that is given by URL as a Markdown image in a text part: the format has only base64 images.
    /// Its provider signature becomes that of the text.
    fn linked_image(&mut self, index: u32, url: &[u8], seal: Vec<u8>, out: &mut BytesMut) {
        let Some(slot) = self.blocks.get_mut(index as usize).filter(|_| !url.is_empty()) else { return };
        let mut envelope = Vec::new();
        if !seal.is_empty() {
            SealedSignature { issuer: &self.reply.issuer, text: as_text(&seal) }.write(&mut envelope);
        }
        *slot = BlockState::Part { kind: PartKind::Text, item: None, signature: envelope };
        let text = [b"![image](", url, b")"].concat();
        self.text(index, as_text(&text), out);
        self.end_block(index, out);
    }

    /// Writes the result of a provider-hosted tool. Items of this format are copied, and a web search of another
    /// format is converted. Any other result is left out, because a client of this format cannot read it.
    pub(super) fn whole(&mut self, name: JsonStr<'_>, raw: RawJson<'_>, out: &mut BytesMut) {
        let Ok(seen) = Hosted::read(raw) else { return };
        let mut item = OutputItem::new(Kind::Whole, String::new(), 0);
        if is_own(name.escaped()) && !seen.id.is_empty() {
            item.id = seen.id.escaped().to_owned();
            item.body.extend_from_slice(raw.text().as_bytes());
        } else if seen.name.is("web_search") {
            item.id = self.next_id("ws_");
            let mut json = Writer::new(&mut item.body);
            json.begin_object().key("id").string(&item.id).key("type").string("web_search_call");
            json.key("status").string("completed").key("action").begin_object();
            json.key("type").string("search").key("query").paste(seen.query).end_object().end_object();
        } else {
            return;
        }
        let is_search = name.is("web_search_call") || seen.name.is("web_search");
        let place = self.add_item(item, out);
        if let Some(item) = self.items.get(place).filter(|_| is_search) {
            for step in ["in_progress", "searching", "completed"] {
                self.frames.write2("response.web_search_call.", step, out, |out| item.put_place(out));
            }
        }
        self.complete(place, "completed", out);
    }

    /// Handles the finish reason. The open message ends with it.
    pub(super) fn finish(&mut self, finish: Finish<'_>, out: &mut BytesMut) {
        let finish = FinishOwned::own(finish);
        let cut = matches!(self.status(&finish), ResponseStatus::Incomplete(_));
        if let Some(message) = self.message.take() {
            self.complete(message, if cut { "incomplete" } else { "completed" }, out);
        }
        self.finish = Some(finish);
    }

    fn status(&self, finish: &FinishOwned) -> ResponseStatus<'static> {
        match finish {
            FinishOwned::Length | FinishOwned::ContextFull => ResponseStatus::Incomplete("max_output_tokens"),
            // A refusal by the model itself is a complete response.
            FinishOwned::ContentFilter if !self.refused => ResponseStatus::Incomplete("content_filter"),
            FinishOwned::Other(_) if self.items.is_empty() => {
                ResponseStatus::Failed("server_error", "The model ended its response without content.")
            }
            _ => ResponseStatus::Completed,
        }
    }

    pub(super) fn end(&mut self, out: &mut BytesMut) {
        let unsaid = FinishOwned::Other(String::new());
        let finish = self.finish.take().unwrap_or(unsaid);
        self.terminal(self.status(&finish), out);
    }

    /// Writes the terminal event with all completed items, and keeps a copy of the response if it is to be stored.
    pub(super) fn terminal(&mut self, status: ResponseStatus<'_>, out: &mut BytesMut) {
        self.over = true;
        let failed = matches!(status, ResponseStatus::Failed(..));
        let usage = Some(&self.usage).filter(|usage| !failed || usage.is_known());
        let (shell, items) = (&self.shell, &self.items);
        let keep = !failed && !self.reply.store_as.is_empty();
        let kept = &mut self.document;
        let mut response = |out: &mut BytesMut| {
            let from = out.len();
            shell.write(status, usage, out, |out| {
                // Items that are not complete are left out: their JSON text may be unterminated.
                for (number, item) in items.iter().filter(|item| item.done).enumerate() {
                    if number > 0 {
                        out.put_u8(b',');
                    }
                    item.write(out);
                }
            });
            *kept = out.get(from..).filter(|_| keep).map(Bytes::copy_from_slice);
        };
        if self.frames.is_silent() {
            response(out);
            return;
        }
        self.frames.write2("response.", status.name(), out, |out| {
            out.put_slice(b",\"response\":");
            response(out);
        });
    }
}

/// Members of the result of a provider-hosted tool.
#[derive(Default)]
struct Hosted<'a> {
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    query: JsonStr<'a>,
}

impl<'a> Hosted<'a> {
    fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut hosted = Hosted::default();
        members(&mut Cursor::new(raw.text()), |key, json| {
            match key.escaped() {
                "id" => hosted.id = json.raw()?.as_str().unwrap_or_default(),
                "name" => hosted.name = json.raw()?.as_str().unwrap_or_default(),
                "input" => members(json, |key, json| {
                    match key.escaped() {
                        "query" => hosted.query = json.raw()?.as_str().unwrap_or_default(),
                        _ => json.skip()?,
                    }
                    Ok(())
                })?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(hosted)
    }
}

/// Returns whether this format has items of this type, besides those with a canonical form.
fn is_own(name: &str) -> bool {
    name.ends_with("_call")
        || name.ends_with("_call_output")
        || matches!(
            name,
            "compaction"
                | "mcp_approval_request"
                | "mcp_list_tools"
                | "program"
                | "program_output"
                | "tool_search_output"
        )
}

/// Writes an annotation. The `span` of a citation counts characters over all texts of the response, the indexes of
/// this format over one part: `base` is the offset of the part, `length` its length.
fn put_annotation(citation: &CitationOwned, base: u64, length: u64, out: &mut Vec<u8>) {
    let here = |at: u64| at.saturating_sub(base).min(length);
    let (start, end) = citation.span.map_or((0, length), |(start, end)| (here(start), here(end)));
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("url_citation");
    json.key("url").paste(JsonStr::from_escaped(&citation.url));
    json.key("title").paste(JsonStr::from_escaped(&citation.title));
    json.key("start_index").number(start).key("end_index").number(end).end_object();
}
