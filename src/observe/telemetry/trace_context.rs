//! W3C Trace Context (Recommendation, level 1; draft of level 2): `traceparent` and `tracestate`.

use std::fmt;

/// Longest `tracestate` that is kept, in bytes: the length that section 3.3.1.5 requires to be propagated.
const MAX_STATE: usize = 512;
/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// Trace id: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

/// Span id: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Makes an id of random numbers.
    pub fn from_random(first: u64, second: u64) -> Self {
        let mut id = [0; 16];
        let (left, right) = id.split_at_mut(8);
        left.copy_from_slice(&first.to_be_bytes());
        // An id of zeros is invalid.
        right.copy_from_slice(&second.max(1).to_be_bytes());
        TraceId(id)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the last seven bytes as a number, which level 2 requires to be random.
    pub fn randomness(&self) -> u64 {
        self.0.iter().skip(9).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl SpanId {
    /// Makes an id of a random number.
    pub fn from_random(number: u64) -> Self {
        SpanId(number.max(1).to_be_bytes())
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Value of a `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Trace id.
    pub trace: TraceId,
    /// Id of the caller's span.
    pub span: SpanId,
    /// Whether the caller samples the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses a header. A version above 00 is read as version 00 (section 4.3). `None` for a header that is invalid,
    /// which starts a new trace.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let (known, rest) = header.split_at_checked(LENGTH)?;
        let version = hex::<1>(known.get(..2)?)?;
        let well_formed = match version {
            [0] => rest.is_empty(),
            [0xff] => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        let trace = hex::<16>(known.get(3..35)?)?;
        let span = hex::<8>(known.get(36..52)?)?;
        let [flags] = hex::<1>(known.get(53..55)?)?;
        let valid = well_formed && dashes && trace != [0; 16] && span != [0; 8];
        valid.then_some(TraceParent { trace: TraceId(trace), span: SpanId(span), sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Parses lower-case hexadecimal digits. `None` for any others.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Joins the lines of `tracestate`, which is a list. `None` if there is none, or if it is longer than 512 bytes or not
/// printable ASCII: then it is dropped as a whole (section 3.3.1.5).
pub fn trace_state<'h>(lines: impl Iterator<Item = &'h [u8]>) -> Option<Box<str>> {
    let mut state = String::new();
    for line in lines {
        let line = std::str::from_utf8(line).ok()?.trim();
        if state.len() + line.len() >= MAX_STATE || !line.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return None;
        }
        if !state.is_empty() {
            state.push(',');
        }
        state.push_str(line);
    }
    (!state.is_empty()).then(|| state.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_is_read_and_written() {
        let parent = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(parent.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span.to_string(), "b7ad6b7169203331");
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), VALID);
        let more = format!("01{}-more", &VALID[2..]);
        assert_eq!(TraceParent::parse(more.as_bytes()), Some(parent));
        assert_eq!(parent.trace.randomness(), 0xeb211c80319c | 0x48 << 48);
    }

    #[test]
    fn traceparent_that_is_invalid_is_refused() {
        for wrong in [
            String::new(),
            VALID.to_uppercase(),
            format!("{VALID}-"),
            format!("{VALID}0"),
            format!("ff{}", &VALID[2..]),
            format!("01{}0", &VALID[2..]),
            VALID.replace("b7ad6b7169203331", "0000000000000000"),
            VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            VALID.replace('-', "_"),
            VALID[..54].to_owned(),
        ] {
            assert_eq!(TraceParent::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn tracestate_is_one_list_of_at_most_512_bytes() {
        let state = |lines: &[&str]| trace_state(lines.iter().map(|line| line.as_bytes()));
        assert_eq!(state(&["one=1", "two=2"]).as_deref(), Some("one=1,two=2"));
        assert_eq!(state(&[]), None);
        assert_eq!(state(&["a=\u{7}"]), None);
        assert_eq!(state(&["a=é"]), None);
        assert_eq!(state(&[&"x".repeat(513)]), None);
        assert_eq!(state(&[&"x".repeat(300), &"y".repeat(300)]), None);
    }

    proptest! {
        #[test]
        fn traceparent_survives_a_round(first in any::<u64>(), second in any::<u64>(), span in any::<u64>(), sampled: bool) {
            let made = TraceParent {
                trace: TraceId::from_random(first, second),
                span: SpanId::from_random(span),
                sampled,
            };
            prop_assert_eq!(TraceParent::parse(made.to_string().as_bytes()), Some(made));
        }

        #[test]
        fn traceparent_of_arbitrary_bytes_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&bytes);
        }
    }
}
