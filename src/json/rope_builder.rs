//! Rope builder: writes a document that has much text in common with another one, its source. Long runs of the source
//! are shared, the rest is copied into blocks.

use bytes::{Bytes, BytesMut};

use super::document::JsonText;
use super::rope::Rope;
use super::sink::Sink;

/// Size in bytes from which a run of the source is shared. Each shared run is a write of its own to the provider, about
/// as dear as the copy of 16 KiB.
const SHARED: usize = 64 * 1024;

/// Capacity of a block in bytes, if the document needs several. A document that outgrew one buffer would be copied whole
/// each time, and be twice in memory.
const BLOCK: usize = 256 * 1024;

/// Rope under construction, to which [`Sink`] appends. By default it shares nothing.
///
/// ```
/// use model_gateway_json::{JsonText, RopeBuilder, Writer};
/// let source = JsonText::from(String::from(r#"{"data":"AAAA"}"#));
/// let mut out = RopeBuilder::new(&source, 64);
/// Writer::new(&mut out).string("AAAA");
/// assert_eq!(out.finish().into_contiguous(), "\"AAAA\"");
/// ```
#[derive(Debug, Default)]
pub struct RopeBuilder {
    source: Bytes,
    /// Further texts whose long runs are shared.
    sources: Vec<Bytes>,
    rope: Rope,
    block: BytesMut,
    /// Bytes of the source that the rope shares.
    shared: usize,
}

impl RopeBuilder {
    /// Creates a builder. `expected` is the length of the document in bytes if nothing is shared.
    pub fn new(source: &JsonText, expected: usize) -> Self {
        let (source, expected) = match source.len() {
            ..SHARED => (Bytes::new(), expected),
            // The most of it may be shared.
            _ => (source.as_bytes().clone(), expected.min(SHARED)),
        };
        let block = BytesMut::with_capacity(expected);
        RopeBuilder { source, sources: Vec::new(), rope: Rope::new(), block, shared: 0 }
    }

    /// Shares the long runs of a further text too. A short one is copied wherever it occurs.
    pub fn share(&mut self, text: &JsonText) {
        if text.len() >= SHARED {
            self.sources.push(text.as_bytes().clone());
        }
    }

    /// Returns the length of the document so far, in bytes.
    pub(super) fn len(&self) -> usize {
        self.rope.len() + self.block.len()
    }

    /// Returns the number of bytes that were copied, which the rope holds beside the source.
    pub fn copied(&self) -> usize {
        self.len() - self.shared
    }

    /// Returns the last byte. `None` if nothing was written, or if it belongs to a shared run.
    pub fn last(&self) -> Option<u8> {
        self.block.last().copied()
    }

    /// Removes the last byte, unless it belongs to a shared run.
    pub fn pop(&mut self) -> Option<u8> {
        let last = self.last()?;
        self.block.truncate(self.block.len() - 1);
        Some(last)
    }

    /// Returns the rope.
    pub fn finish(mut self) -> Rope {
        self.seal();
        self.rope
    }

    /// Ends the block: what follows goes to another one.
    fn seal(&mut self) {
        self.rope.push_exact(self.block.split().freeze());
    }

    /// Appends bytes that the block has no room for, or that may be a run of the source.
    #[cold]
    #[inline(never)]
    fn put_long(&mut self, bytes: &[u8]) {
        if bytes.len() >= SHARED
            && let Some(run) = self.run_of_source(bytes)
        {
            self.seal();
            self.shared += run.len();
            self.rope.push_exact(run);
            return;
        }
        // A short document grows in its block. Bytes that do not fit are one piece with what follows, so that no word of
        // them straddles two pieces.
        if self.block.len() + bytes.len() > BLOCK {
            self.seal();
            self.block = BytesMut::with_capacity(bytes.len().max(BLOCK));
        }
        self.block.extend_from_slice(bytes);
    }

    /// Returns the bytes as a slice of a source. `None` if they lie elsewhere.
    fn run_of_source(&self, bytes: &[u8]) -> Option<Bytes> {
        std::iter::once(&self.source).chain(&self.sources).find_map(|source| run_of(source, bytes))
    }
}

/// Returns the bytes as a slice of this source. `None` if they lie elsewhere.
fn run_of(source: &Bytes, bytes: &[u8]) -> Option<Bytes> {
    // Both are borrowed, and so exist at the same time: bytes between the addresses of the source are the source's.
    let start = bytes.as_ptr().addr().checked_sub(source.as_ptr().addr())?;
    let end = start.checked_add(bytes.len())?;
    (end <= source.len()).then(|| source.slice(start..end))
}

impl Sink for RopeBuilder {
    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        if bytes.len() < SHARED && bytes.len() <= self.block.capacity() - self.block.len() {
            self.block.extend_from_slice(bytes);
        } else {
            self.put_long(bytes);
        }
    }

    #[inline]
    fn put_u8(&mut self, byte: u8) {
        self.put_slice(&[byte]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is appended: a run of the source, bytes that are equal to a run but lie elsewhere, or one byte.
    #[derive(Clone, Debug)]
    enum Part {
        Run(usize, usize),
        Copy(usize, usize),
        Byte(u8),
    }

    fn part() -> impl Strategy<Value = Part> {
        let length = prop_oneof![0..100_usize, SHARED - 2..SHARED + 2, 0..3 * BLOCK];
        prop_oneof![
            (0..2 * BLOCK, length.clone()).prop_map(|(at, length)| Part::Run(at, length)),
            (0..2 * BLOCK, length).prop_map(|(at, length)| Part::Copy(at, length)),
            any::<u8>().prop_map(Part::Byte),
        ]
    }

    fn source() -> JsonText {
        JsonText::from((0..3 * BLOCK).map(|n| char::from(b' ' + (n * 7 % 90) as u8)).collect::<String>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn rope_is_what_was_appended(parts in prop::collection::vec(part(), 0..40), expected in 0..2 * BLOCK) {
            let source = source();
            let (mut built, mut plain) = (RopeBuilder::new(&source, expected), Vec::new());
            let mut long = 0;
            for part in &parts {
                let piece = |at: usize, length: usize| {
                    source.as_bytes().slice(at..(at + length).min(source.len()))
                };
                match *part {
                    Part::Run(at, length) => {
                        let run = piece(at, length);
                        long += if run.len() >= SHARED { run.len() } else { 0 };
                        Sink::put_slice(&mut built, &run);
                        plain.extend_from_slice(&run);
                    }
                    Part::Copy(at, length) => {
                        let copy = piece(at, length).to_vec();
                        Sink::put_slice(&mut built, &copy);
                        plain.extend_from_slice(&copy);
                    }
                    Part::Byte(byte) => {
                        Sink::put_u8(&mut built, byte);
                        plain.push(byte);
                    }
                }
            }
            prop_assert_eq!(built.copied(), plain.len() - long);
            prop_assert_eq!(built.last().is_some(), !built.block.is_empty());
            let rope = built.finish();
            prop_assert_eq!(rope.len(), plain.len());
            prop_assert_eq!(rope.into_contiguous(), plain);
        }
    }

    #[test]
    fn long_run_of_the_source_is_shared() {
        let source = source();
        let mut built = RopeBuilder::new(&source, source.len());
        built.put_slice(b"{");
        built.put_slice(&source.as_bytes()[1..SHARED + 1]);
        built.put_slice(b"}");
        assert_eq!(built.pop(), Some(b'}'));
        assert_eq!((built.last(), built.pop()), (None, None), "the run belongs to the source");
        assert_eq!(built.copied(), 1);
        let pieces = built.finish().into_pieces();
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1].as_ptr(), source.as_bytes()[1..].as_ptr());
    }

    #[test]
    fn long_runs_of_further_texts_are_shared_each_time() {
        let (source, long, short) = (source(), source(), JsonText::from("a".repeat(SHARED - 1)));
        let mut built = RopeBuilder::new(&source, 10);
        built.share(&long);
        built.share(&short);
        for _ in 0..3 {
            built.put_slice(b",");
            built.put_slice(long.as_str().as_bytes());
            built.put_slice(short.as_str().as_bytes());
        }
        assert_eq!(built.copied(), 3 * (1 + short.len()));
        let pieces = built.finish().into_pieces();
        assert_eq!(pieces.iter().filter(|piece| piece.as_ptr() == long.as_bytes().as_ptr()).count(), 3);
    }

    #[test]
    fn small_source_is_not_held() {
        let source = JsonText::from("a".repeat(SHARED - 1));
        assert!(RopeBuilder::new(&source, 10).source.is_empty());
    }

    #[test]
    fn short_document_that_was_underestimated_is_one_piece() {
        let source = JsonText::default();
        let mut built = RopeBuilder::new(&source, 10);
        (0..BLOCK / 16).for_each(|_| built.put_slice(b"sixteen bytes..."));
        assert_eq!(built.finish().into_pieces().len(), 1);
    }
}
