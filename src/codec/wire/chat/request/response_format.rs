//! Decoder of `response_format` and of web search options.

use super::read::{Result, broken, flag, invalid, missing, object, raw, raw_object, text};
use crate::canonical::OutputFormat;
use crate::canonical::request::Search;
use crate::wire::ranges::SEARCH_SIZES;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Decodes `response_format`.
pub(super) fn output<'a>(json: &mut Cursor<'a>) -> Result<OutputFormat<'a>> {
    const NAME: &str = "response_format";
    let mut kind = JsonStr::default();
    let mut named = Named::default();
    object(json, NAME, |key, json| {
        match key.escaped() {
            "type" => kind = text(json, "response_format.type")?,
            "json_schema" => {
                object(json, "response_format.json_schema", |key, json| named.member(key, json))?
            }
            // Some clients put the members of the schema here.
            _ => named.member(key, json)?,
        }
        Ok(())
    })?;
    match kind.escaped() {
        "text" | "" => Ok(OutputFormat::Text),
        "json_object" if named.schema.is_none() => Ok(OutputFormat::Json),
        "json_object" | "json_schema" => {
            let Some(schema) = named.schema else {
                return Err(missing("response_format.json_schema.schema"));
            };
            let Named { name, description, strict, .. } = named;
            Ok(OutputFormat::Schema { name, description, schema, openapi: false, strict })
        }
        _ => Err(invalid("response_format.type", "'text', 'json_object' or 'json_schema'")),
    }
}

#[derive(Default)]
struct Named<'a> {
    name: JsonStr<'a>,
    description: JsonStr<'a>,
    schema: Option<RawJson<'a>>,
    strict: Option<bool>,
}

impl<'a> Named<'a> {
    fn member(&mut self, key: JsonStr<'a>, json: &mut Cursor<'a>) -> Result<()> {
        match key.escaped() {
            "name" => self.name = text(json, "response_format.json_schema.name")?,
            "description" => self.description = text(json, "response_format.json_schema.description")?,
            "schema" => self.schema = Some(raw_object(json, "response_format.json_schema.schema")?),
            "strict" => self.strict = Some(flag(json, "response_format.json_schema.strict")?),
            _ => drop(raw(json)?),
        }
        Ok(())
    }
}

/// Decodes `web_search_options`, or a web search tool, which has the same members.
pub(super) fn search<'a>(json: &mut Cursor<'a>) -> Result<Search<'a>> {
    let mut search = Search::default();
    object(json, "web_search_options", |key, json| {
        match key.escaped() {
            "search_context_size" => {
                const PATH: &str = "web_search_options.search_context_size";
                search.context = text(json, PATH)?;
                if !SEARCH_SIZES.contains(&search.context.escaped()) {
                    return Err(invalid(PATH, "'low', 'medium' or 'high'"));
                }
            }
            "max_uses" => search.max_uses = raw(json)?.as_u64(),
            "user_location" => search.location = location(json)?,
            "allowed_domains" => search.allowed_domains = list(json)?,
            "blocked_domains" => search.blocked_domains = list(json)?,
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    Ok(search)
}

/// Decodes the user's location, nested in `approximate` or flat.
fn location<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>> {
    let whole = raw_object(json, "web_search_options.user_location")?;
    let (mut inner, mut flat) = (None, false);
    object(&mut Cursor::new(whole.text()), "web_search_options.user_location", |key, json| {
        match key.escaped() {
            "approximate" => inner = Some(raw_object(json, "web_search_options.user_location.approximate")?),
            "country" | "region" | "city" | "timezone" => {
                flat = true;
                raw(json)?;
            }
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    Ok(inner.or(flat.then_some(whole)))
}

fn list<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>> {
    let is_list = json.kind().map_err(broken)? == ValueKind::Array;
    let value = raw(json)?;
    Ok(is_list.then_some(value))
}
