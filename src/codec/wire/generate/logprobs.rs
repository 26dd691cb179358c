//! Log probabilities: two parallel lists in this format; in the canonical form each token contains its alternatives.

use bytes::BytesMut;

use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Token and its log probability.
struct Token<'a> {
    token: JsonStr<'a>,
    logprob: RawJson<'a>,
}

/// Converts `logprobsResult` to an array of `{token, logprob, bytes, top_logprobs}`. Returns `None` if it has no
/// tokens.
pub(super) fn read(result: RawJson<'_>) -> Result<Option<String>, JsonError> {
    let (mut chosen, mut top) = (Vec::new(), Vec::new());
    members(&mut Cursor::new(result.text()), |key, json| {
        match key.escaped() {
            "chosenCandidates" | "chosen_candidates" => {
                elements(json, |json| {
                    chosen.push(token(json)?);
                    Ok(())
                })?;
            }
            "topCandidates" | "top_candidates" => {
                elements(json, |json| {
                    let mut alternatives = Vec::new();
                    members(json, |key, json| match key.escaped() {
                        "candidates" => elements(json, |json| {
                            alternatives.push(token(json)?);
                            Ok(())
                        })
                        .map(|_| ()),
                        _ => json.skip(),
                    })?;
                    top.push(alternatives);
                    Ok(())
                })?;
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    if chosen.is_empty() {
        return Ok(None);
    }
    let mut out = Vec::new();
    let mut json = Writer::new(&mut out);
    json.begin_array();
    for (number, token) in chosen.iter().enumerate() {
        begin_token(&mut json, token);
        json.key("top_logprobs").begin_array();
        for alternative in top.get(number).into_iter().flatten() {
            begin_token(&mut json, alternative);
            json.end_object();
        }
        json.end_array().end_object();
    }
    json.end_array();
    Ok(String::from_utf8(out).ok())
}

fn token<'a>(json: &mut Cursor<'a>) -> Result<Token<'a>, JsonError> {
    let mut read = Token { token: JsonStr::default(), logprob: RawJson::from_text("0") };
    members(json, |key, json| {
        match key.escaped() {
            "token" => read.token = json.raw()?.as_str().unwrap_or_default(),
            "logProbability" | "log_probability" | "logprob" => {
                let value = json.raw()?;
                if value.text().parse::<f64>().is_ok() {
                    read.logprob = value;
                }
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(read)
}

fn begin_token(json: &mut Writer<'_, Vec<u8>>, token: &Token<'_>) {
    json.begin_object();
    json.key("token").paste(token.token);
    json.key("logprob").raw(token.logprob);
    json.key("bytes").begin_array();
    for byte in token.token.decode().bytes() {
        json.number(byte);
    }
    json.end_array();
}

/// Appends the elements of an array to `tokens`, separated with commas.
pub(super) fn join(list: RawJson<'_>, tokens: &mut String) {
    let text = list.text().trim();
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_default().trim();
    if !tokens.is_empty() && !inside.is_empty() {
        tokens.push(',');
    }
    tokens.push_str(inside);
}

/// Writes `"logprobsResult":{...}` as a member, from array elements joined with commas. Writes nothing if there are
/// none.
pub(super) fn write(tokens: &str, json: &mut Writer<'_, BytesMut>) {
    if tokens.is_empty() {
        return;
    }
    let array = format!("[{tokens}]");
    let (mut chosen, mut top) = (BytesMut::new(), BytesMut::new());
    // A malformed array does not come from a decoder; the tokens before the fault are still written.
    let _ = split(&array, &mut Writer::new(&mut chosen), &mut Writer::new(&mut top));
    json.key("logprobsResult").begin_object();
    for (name, list) in [("chosenCandidates", chosen), ("topCandidates", top)] {
        let list = std::str::from_utf8(&list).unwrap_or_default();
        json.key(name).begin_array();
        if !list.is_empty() {
            json.raw(RawJson::from_text(list));
        }
        json.end_array();
    }
    json.end_object();
}

fn split(
    array: &str,
    chosen: &mut Writer<'_, BytesMut>,
    top: &mut Writer<'_, BytesMut>,
) -> Result<(), JsonError> {
    elements(&mut Cursor::new(array), |json| {
        let mut whole = json.clone();
        put(&token(&mut whole)?, chosen);
        top.begin_object().key("candidates").begin_array();
        members(json, |key, json| match key.escaped() {
            "top_logprobs" => elements(json, |json| {
                put(&token(json)?, top);
                Ok(())
            })
            .map(|_| ()),
            _ => json.skip(),
        })?;
        top.end_array().end_object();
        Ok(())
    })
    .map(|_| ())
}

fn put(token: &Token<'_>, json: &mut Writer<'_, BytesMut>) {
    json.begin_object();
    json.key("token").paste(token.token);
    json.key("logProbability").raw(token.logprob);
    json.end_object();
}
