//! The client's own text of a request that is encoded again in the format that it came in: what the canonical model does
//! not know is copied from here.

use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Text of a request, with the places of its elements: the objects that are elements of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientText<'a> {
    body: &'a str,
    members: Vec<(&'a str, RawJson<'a>)>,
    elements: Vec<SourceElement<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct SourceElement<'a> {
    start: usize,
    end: usize,
    /// Its member `type`: looked up here, because many parts of a request may be in one element. Empty if it has none.
    kind: &'a str,
    /// Element around this one: its index, plus 1; 0 if there is none.
    parent: usize,
}

impl<'a> ClientText<'a> {
    /// Finds the elements of a request.
    ///
    /// # Errors
    /// Returns an error if the text is not a JSON object.
    pub fn read(body: &'a str) -> Result<Self, JsonError> {
        let mut source = ClientText { body, ..ClientText::default() };
        let mut json = Cursor::new(body);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            json.kind()?;
            let from = json.offset();
            source.walk(&mut json, 0)?;
            source.members.push((key.escaped(), json.since(from)));
        }
        Ok(source)
    }

    fn walk(&mut self, json: &mut Cursor<'a>, parent: usize) -> Result<(), JsonError> {
        match json.kind()? {
            ValueKind::Object => {
                json.begin_object()?;
                while json.next_key()?.is_some() {
                    self.walk(json, parent)?;
                }
            }
            ValueKind::Array => {
                json.begin_array()?;
                while json.next_element()? {
                    if json.kind()? != ValueKind::Object {
                        self.walk(json, parent)?;
                        continue;
                    }
                    let start = json.offset();
                    self.elements.push(SourceElement { start, end: start, kind: "", parent });
                    let number = self.elements.len();
                    let kind = self.walk_element(json, number)?;
                    if let Some(element) = self.elements.get_mut(number - 1) {
                        (element.end, element.kind) = (json.offset(), kind);
                    }
                }
            }
            _ => json.skip()?,
        }
        Ok(())
    }

    /// Walks through an element. Returns its type.
    fn walk_element(&mut self, json: &mut Cursor<'a>, number: usize) -> Result<&'a str, JsonError> {
        let mut kind = "";
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            if key.is("type") && json.kind()? == ValueKind::String {
                kind = json.raw()?.as_str().map_or("", JsonStr::escaped);
            } else {
                self.walk(json, number)?;
            }
        }
        Ok(kind)
    }

    /// Returns a member of the request; `None` if it is absent.
    pub fn member(&self, name: &str) -> Option<RawJson<'a>> {
        self.members.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns the elements around a part of the text with their types, from the innermost to the outermost. None for any
    /// other text.
    pub fn around(&self, part: &str) -> impl Iterator<Item = (&'a str, RawJson<'a>)> {
        let offset = (part.as_ptr() as usize).wrapping_sub(self.body.as_ptr() as usize);
        let is_part = offset < self.body.len();
        let before =
            if is_part { self.elements.partition_point(|element| element.start <= offset) } else { 0 };
        let mut next = before;
        std::iter::from_fn(move || {
            while let Some(element) = next.checked_sub(1).and_then(|index| self.elements.get(index)) {
                next = element.parent;
                if offset < element.end {
                    let text = self.body.get(element.start..element.end)?;
                    return Some((element.kind, RawJson::from_text(text)));
                }
            }
            None
        })
    }

    /// Returns the elements of a list that is a member of the request, in order.
    pub fn list(&self, name: &str) -> impl Iterator<Item = RawJson<'a>> {
        let list = self.member(name).map_or("", RawJson::text);
        let start = (list.as_ptr() as usize).wrapping_sub(self.body.as_ptr() as usize);
        let inside = start..start.wrapping_add(list.len());
        let outermost = self
            .elements
            .iter()
            .filter(move |element| element.parent == 0 && inside.contains(&element.start));
        outermost.filter_map(|element| self.body.get(element.start..element.end).map(RawJson::from_text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_element_is_found_by_any_part_of_its_text() {
        let text = r#"{"a":[{"b":"one","c":[ {"d":"two"} ,3,[{"e":"six"}]],"f":"end"}],"g":{"h":"no"},"i":[{"j":1}]}"#;
        let source = ClientText::read(text).unwrap();
        let around = |part: &str| {
            let at = text.find(part).unwrap();
            source.around(&text[at..at + part.len()]).map(|(_, raw)| raw.text().len()).collect::<Vec<_>>()
        };
        let whole = r#"{"b":"one","c":[ {"d":"two"} ,3,[{"e":"six"}]],"f":"end"}"#.len();
        assert_eq!(around("one"), [whole]);
        assert_eq!(around("two"), [11, whole]);
        assert_eq!(around("six"), [11, whole]);
        assert_eq!(around("end"), [whole]);
        assert_eq!(around("no"), [0; 0]);
        assert_eq!(source.around("elsewhere").count(), 0);
        let typed = r#"{"a":[{"b":["x"],"type":"t","c":{"type":"u"}}]}"#;
        let source_of_types = ClientText::read(typed).unwrap();
        let at = typed.find('x').unwrap();
        assert_eq!(source_of_types.around(&typed[at..=at]).map(|(kind, _)| kind).collect::<Vec<_>>(), ["t"]);
        assert_eq!(source.member("g").map(RawJson::text), Some(r#"{"h":"no"}"#));
        assert_eq!(source.list("i").map(|raw| raw.text()).collect::<Vec<_>>(), [r#"{"j":1}"#]);
        assert_eq!(source.list("g").count(), 0);
    }
}
