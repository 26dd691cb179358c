//! One JSON array in pieces: what Gemini streams when `alt=sse` is not asked for (`[{…},\r\n{…}]`).

/// Finds the ends of the array's elements by counting brackets outside of strings.
#[derive(Clone, Debug, Default)]
pub struct ArraySplitter {
    depth: u32,
    /// No array, but one object: what some servers send that stream nothing.
    bare: bool,
    in_string: bool,
    escaped: bool,
    closed: bool,
}

impl ArraySplitter {
    /// See [`Splitter::next_boundary`](super::Splitter::next_boundary). A boundary stands behind each element, and
    /// behind the bracket that closes the array.
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(&byte) = piece.get(at) {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                let rest = piece.get(at..).unwrap_or_default();
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
                        self.depth = self.depth.saturating_sub(1);
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

    /// Whether the bracket that closes the array, or the bare object, has been seen.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

/// The element inside a frame: what is left without the brackets of the array, commas and white space around it.
/// Nothing when the frame only opens or closes the array.
pub fn element(frame: &[u8]) -> Option<&[u8]> {
    let start = frame.iter().position(|byte| !matches!(byte, b'[' | b',' | b' ' | b'\t' | b'\r' | b'\n'))?;
    let rest = frame.get(start..)?;
    (rest.first() != Some(&b']')).then_some(rest)
}
