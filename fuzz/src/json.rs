//! Targets for the JSON readers, compared with serde_json.

use json::{Cursor, JsonError, JsonStr, MOST_MEMBERS, Member, ScanError, ScanErrorKind, Scanner, ValueKind};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{choose, pieces};

/// Maximum nesting of compared texts. Both readers limit nesting, above this value.
const DEEP: usize = 120;

fn scan(pieces: &[&[u8]]) -> Result<Vec<Member>, ScanError> {
    let mut scan = Scanner::new(&["model", "stream"]);
    for piece in pieces {
        scan.push(piece)?;
    }
    scan.finish().map(|members| members.into_vec())
}

/// Whether a text is one JSON value, of any depth.
fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
}

fn is_shallow(text: &[u8]) -> bool {
    text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() < DEEP
}

/// Push scanner: every split gives the same members, and the scanner accepts the objects that serde_json accepts.
pub fn json_scanner(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let whole = scan(&[data]);
    assert_eq!(scan(&pieces(data, seed)), whole, "split by {seed}");
    if !is_shallow(data) {
        return;
    }
    let is_object = data.trim_ascii_start().starts_with(b"{");
    match whole {
        Ok(members) => {
            assert!(is_json(data) && is_object);
            for member in &members {
                assert!(is_json(&data[member.value.clone()]));
                let name = std::str::from_utf8(&data[member.name.clone()]).unwrap();
                let meant = JsonStr::from_escaped(name).decode();
                let wanted = ["model", "stream"].iter().position(|wanted| *wanted == meant);
                assert_eq!(member.wanted.map(usize::from), wanted);
            }
        }
        Err(error) => {
            assert!(error.at <= data.len());
            match error.kind {
                ScanErrorKind::Duplicate(range) => assert!(is_json(data) && range.end <= data.len()),
                ScanErrorKind::TooManyMembers => assert!(data.len() > MOST_MEMBERS),
                _ => assert!(!(is_json(data) && is_object)),
            }
        }
    }
}

/// Reads a value with the cursor. Returns `None` where serde_json differs by design: lone surrogates, and numbers
/// beyond its range.
fn tree(json: &mut Cursor<'_>, depth: usize) -> Result<Option<Value>, JsonError> {
    if depth > DEEP {
        json.skip()?;
        return Ok(None);
    }
    let mut sound = true;
    let mut note = |value: Option<Value>| {
        sound &= value.is_some();
        value.unwrap_or_default()
    };
    let value = match json.kind()? {
        ValueKind::Object => {
            let mut members = serde_json::Map::new();
            json.begin_object()?;
            while let Some(key) = json.next_key()? {
                let value = note(tree(json, depth + 1)?);
                members.insert(key.decode().into_owned(), value);
            }
            Value::Object(members)
        }
        ValueKind::Array => {
            let mut elements = Vec::new();
            json.begin_array()?;
            while json.next_element()? {
                elements.push(note(tree(json, depth + 1)?));
            }
            Value::Array(elements)
        }
        ValueKind::String => Value::String(json.string()?.decode().into_owned()),
        ValueKind::Bool => Value::Bool(json.boolean()?),
        ValueKind::Null => {
            json.string_or_null()?.map_or(Value::Null, |_| unreachable!("a null that is a string"))
        }
        ValueKind::Number => {
            let raw = json.raw()?;
            let value: Option<Value> = serde_json::from_str(raw.text()).ok();
            if let Some(whole) = value.as_ref().and_then(Value::as_u64) {
                assert_eq!(raw.as_u64(), Some(whole));
            }
            note(value)
        }
    };
    Ok(sound.then_some(value))
}

/// Pull reader: it reads the values that serde_json reads.
pub fn json_cursor(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut json = Cursor::new(text);
    let read = tree(&mut json, 0).and_then(|value| json.end().map(|()| value));
    let mut json = Cursor::new(text);
    let skipped = json.raw().and_then(|raw| json.end().map(|()| raw));
    if !is_shallow(data) {
        return;
    }
    if is_json(data) {
        assert_eq!(skipped.unwrap().text(), text.trim_matches([' ', '\t', '\r', '\n']));
        let read = read.unwrap();
        if let (Some(read), Ok(expected)) = (read, serde_json::from_str::<Value>(text)) {
            assert_eq!(read, expected);
        }
    }
}
