//! JSON array in pieces: the stream format of Gemini without `alt=sse` (`[{…},\r\n{…}]`).

/// Array splitter: finds the ends of the array's elements by counting brackets outside of strings.
#[derive(Clone, Debug, Default)]
pub struct ArraySplitter {
    depth: u32,
    /// Whether the text is one object instead of an array. Servers that do not stream send that.
    bare: bool,
    in_string: bool,
    escaped: bool,
    closed: bool,
}

impl ArraySplitter {
    /// Returns the next boundary: see [`Splitter::next_boundary`](super::Splitter::next_boundary). There is a boundary
    /// behind each element, and behind the bracket that closes the array.
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(&byte) = piece.get(at) {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                let rest = piece.get(at..).unwrap_or_default();
                // Strings are most of the bytes: skip to the next quote or backslash at once.
                let run = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                at += run;
                match rest.get(run) {
                    Some(b'"') => self.in_string = false,
                    Some(_) => self.escaped = true,
                    None => return None,
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => {
                        if self.depth == 0 {
                            self.bare = byte == b'{';
                        }
                        self.depth += 1;
                    }
                    b'}' | b']' => {
                        // An unmatched bracket must not wrap the depth: the rest of the stream would be a single frame.
                        self.depth = self.depth.saturating_sub(1);
                        // An element of the array ends at depth 1, and the array or a bare object at depth 0.
                        if self.depth <= u32::from(!self.bare) {
                            self.closed |= self.depth == 0;
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
            }
            at += 1;
        }
        None
    }

    /// Returns true if the closing bracket of the array, or the end of the bare object, has arrived.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

/// Returns the element inside a frame, without array brackets, commas and white space before it. Returns `None` if the
/// frame only opens or closes the array.
pub fn element(frame: &[u8]) -> Option<&[u8]> {
    let start = frame.iter().position(|byte| !matches!(byte, b'[' | b',' | b' ' | b'\t' | b'\r' | b'\n'))?;
    let rest = frame.get(start..)?;
    (rest.first() != Some(&b']')).then_some(rest)
}

/// Replaces line breaks in an array element by spaces; with some, the result is in `scratch`. They occur only between
/// tokens of JSON; without this, values that are copied into a line of an event stream would break the line.
pub fn in_one_line<'a>(element: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr::memchr2(b'\n', b'\r', element).is_none() {
        return element;
    }
    scratch.clear();
    scratch.extend(element.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    scratch
}
