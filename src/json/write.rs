//! JSON writer that appends to a byte buffer or a rope. Its only state is whether a comma is due.

use super::run::plain_run;
use super::{JsonStr, RawJson, RopeBuilder, Sink};

/// JSON writer. The caller opens and closes containers; the writer inserts the commas.
///
/// ```
/// use model_gateway::json::Writer;
/// let mut out = Vec::new();
/// let mut json = Writer::new(&mut out);
/// json.begin_object();
/// json.key("id").string("chatcmpl-1");
/// json.key("n").number(3u64);
/// json.end_object();
/// assert_eq!(out, br#"{"id":"chatcmpl-1","n":3}"#);
/// ```
pub struct Writer<'o, B: Sink> {
    out: &'o mut B,
    comma: bool,
}

impl Writer<'_, RopeBuilder> {
    /// Returns the length of the document so far, in bytes.
    pub fn written(&self) -> usize {
        self.out.len()
    }
}

impl<'o, B: Sink> Writer<'o, B> {
    /// Creates a writer that appends one value to `out`.
    pub fn new(out: &'o mut B) -> Self {
        Writer { out, comma: false }
    }

    #[inline]
    fn separate(&mut self) {
        if self.comma {
            self.out.put_u8(b',');
        }
        self.comma = true;
    }

    /// Writes `{`.
    pub fn begin_object(&mut self) -> &mut Self {
        self.separate();
        self.out.put_u8(b'{');
        self.comma = false;
        self
    }

    /// Writes `}`.
    pub fn end_object(&mut self) -> &mut Self {
        self.out.put_u8(b'}');
        self.comma = true;
        self
    }

    /// Writes `[`.
    pub fn begin_array(&mut self) -> &mut Self {
        self.separate();
        self.out.put_u8(b'[');
        self.comma = false;
        self
    }

    /// Writes `]`.
    pub fn end_array(&mut self) -> &mut Self {
        self.out.put_u8(b']');
        self.comma = true;
        self
    }

    /// Writes a member name. It must be plain ASCII that needs no escapes; names are constants of a format.
    #[inline]
    pub fn key(&mut self, name: &str) -> &mut Self {
        debug_assert_eq!(plain_run(name.as_bytes()), name.len(), "a member name that needs escapes");
        self.separate();
        self.out.put_u8(b'"');
        self.out.put_slice(name.as_bytes());
        self.out.put_slice(b"\":");
        self.comma = false;
        self
    }

    /// Writes a member name that is already escaped.
    #[inline]
    pub fn paste_key(&mut self, name: JsonStr<'_>) -> &mut Self {
        self.separate();
        self.out.put_u8(b'"');
        self.out.put_slice(name.escaped().as_bytes());
        self.out.put_slice(b"\":");
        self.comma = false;
        self
    }

    /// Writes a string and escapes it.
    pub fn string(&mut self, plain: &str) -> &mut Self {
        self.separate();
        self.out.put_u8(b'"');
        push_escaped(self.out, plain);
        self.out.put_u8(b'"');
        self
    }

    /// Writes a string that is already escaped.
    #[inline]
    pub fn paste(&mut self, text: JsonStr<'_>) -> &mut Self {
        self.separate();
        self.out.put_u8(b'"');
        self.out.put_slice(text.escaped().as_bytes());
        self.out.put_u8(b'"');
        self
    }

    /// Writes a string from parts that are already escaped.
    #[inline]
    pub fn pasted(&mut self, write: impl FnOnce(&mut B)) {
        self.separate();
        self.out.put_u8(b'"');
        write(self.out);
        self.out.put_u8(b'"');
    }

    /// Writes a value that is already JSON.
    #[inline]
    pub fn raw(&mut self, value: RawJson<'_>) -> &mut Self {
        self.separate();
        self.out.put_slice(value.text().as_bytes());
        self
    }

    /// Writes an integer.
    #[inline]
    pub fn number(&mut self, n: impl itoa::Integer) -> &mut Self {
        self.separate();
        self.out.put_slice(itoa::Buffer::new().format(n).as_bytes());
        self
    }

    /// Writes a decimal number with a fixed number of decimals, for log lines.
    pub fn fixed(&mut self, n: f64, decimals: usize) -> &mut Self {
        self.separate();
        self.out.put_slice(format!("{n:.decimals$}").as_bytes());
        self
    }

    /// Writes `true` or `false`.
    #[inline]
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.separate();
        self.out.put_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Writes `null`.
    #[inline]
    pub fn null(&mut self) -> &mut Self {
        self.separate();
        self.out.put_slice(b"null");
        self
    }
}

/// Appends plain text to `out`, escaped as the inside of a JSON string.
pub fn push_escaped(out: &mut impl Sink, plain: &str) {
    let mut rest = plain.as_bytes();
    loop {
        let run = plain_run(rest);
        let (clean, tail) = rest.split_at(run);
        out.put_slice(clean);
        let Some((&special, after)) = tail.split_first() else {
            return;
        };
        match special {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            other => {
                out.put_slice(b"\\u00");
                out.put_u8(b'0' + (other >> 4));
                let low = other & 15;
                out.put_u8(if low < 10 { b'0' + low } else { b'a' + low - 10 });
            }
        }
        rest = after;
    }
}
