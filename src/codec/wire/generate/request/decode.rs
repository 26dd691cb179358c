//! Decoder of a request from a client of the generate format.

use super::content::Reader;
use super::read::{ReadFault, boolean, list, object, string, wrong};
use super::{config, tools};
use crate::canonical::request::Extra;
use crate::canonical::{Request, Role, Turn};
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, RawJson};

/// Members of the request itself that only this format has.
pub(super) const OWN: [&str; 4] = ["safetySettings", "cachedContent", "labels", "modelArmorConfig"];

/// Name of the extra member with the `videoMetadata` of a video: one for each video, if any video has it.
pub(super) const VIDEO: &str = "contents.videoMetadata";

/// Decodes a request body. Whether the client wants a stream is in the path, not in the body.
///
/// # Errors
/// Returns [`ApiError`] if the body is not JSON, if a field is invalid, or if `contents` is missing or empty.
pub fn decode(body: &str) -> Result<Request<'_>, ApiError> {
    Ok(read(body)?)
}

fn read(body: &str) -> Result<Request<'_>, ReadFault> {
    let mut request = Request::default();
    let mut system = None;
    let mut reader = Reader::default();
    let mut given = false;
    let mut json = Cursor::new(body);
    object(
        &mut json,
        || "request".to_owned(),
        |key, name, json| {
            match key {
                "contents" => {
                    given = true;
                    reader.contents(json)?;
                }
                "systemInstruction" => system = Some(instructions(json)?),
                "tools" => tools::read(json, &mut request)?,
                "toolConfig" => tools::read_config(json, &mut request)?,
                // The documented API of the gateway (docs/specification.md) has it without its parent.
                "functionCallingConfig" => tools::read_calling(json, &mut request)?,
                "generationConfig" => config::read(json, &mut request)?,
                "serviceTier" => request.service_tier = Some(string(json, || "serviceTier".to_owned())?),
                "store" => request.store = Some(boolean(json, "store")?),
                // The model is in the path.
                "model" => json.skip()?,
                _ => {
                    let name = OWN.into_iter().find(|own| *own == key).unwrap_or(name.escaped());
                    request.extra.push(Extra { name, value: json.raw()? });
                }
            }
            Ok(())
        },
    )?;
    json.end()?;
    if !given {
        return Err(ReadFault::Field(Box::new(ApiError::missing("contents"))));
    }
    if reader.turns.is_empty() {
        return Err(wrong("contents", "must not be empty"));
    }
    if reader.videos.iter().any(Option::is_some) {
        let values = reader.videos.iter().map(|video| video.unwrap_or(RawJson::NULL));
        request.extra.extend(values.map(|value| Extra { name: VIDEO, value }));
    }
    request.turns.extend(system.filter(|turn| !turn.blocks.is_empty()));
    request.turns.append(&mut reader.turns);
    Ok(request)
}

/// Returns an error for the first member that this format does not have, as far as that is known: its provider
/// rejects such a request, so the gateway rejects it for every target. Returns `None` if all members are known.
pub fn unknown(request: &Request<'_>) -> Option<ApiError> {
    let top = |name: &str| !name.contains('.') && !OWN.contains(&name) && !tools::is_own(name);
    let named = request.extra.iter().find_map(|extra| match extra.name {
        config::ALL => config::unknown(extra.value),
        name if tools::is_whole(name) => tools::unknown(name, extra.value),
        name if top(name) => Some((name.to_owned(), name.to_owned())),
        _ => None,
    });
    let (name, path) = named?;
    let message = format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field.");
    Some(ApiError::new(ErrorKind::InvalidField, message).param(path))
}

/// Reads `systemInstruction`: a content, a part, or a list of these. Google's SDKs make a content of a text.
fn instructions<'a>(json: &mut Cursor<'a>) -> Result<Turn<'a>, ReadFault> {
    let mut blocks = Vec::new();
    list(
        json,
        || "systemInstruction".to_owned(),
        |_, json| {
            let mut reader = Reader::default();
            let mut whole = json.clone();
            let mut parts = false;
            object(
                json,
                || "systemInstruction".to_owned(),
                |key, _, json| match key {
                    "parts" => {
                        parts = true;
                        list(
                            json,
                            || "systemInstruction.parts".to_owned(),
                            |_, json| reader.part(json, &mut blocks),
                        )
                    }
                    _ => Ok(json.skip()?),
                },
            )?;
            if parts { Ok(()) } else { reader.part(&mut whole, &mut blocks) }
        },
    )?;
    Ok(Turn::new(Role::System, blocks))
}
