//! Vocabularies: compressed in the binary, loaded when they are needed, released when they are not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::encoder::BpeEncoder;
use super::pretokenizer::SplitPattern;

/// Tokenizer vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tokens) enum Vocabulary {
    /// GPT-4o and later.
    O200k,
    /// GPT-4, GPT-3.5 and the third-generation embedding models.
    Cl100k,
}

/// Runs work that blocks its thread for some 20 ms. See [`set_blocking`].
pub type RunBlocking = fn(work: &mut dyn FnMut());

static RUN_BLOCKING: OnceLock<RunBlocking> = OnceLock::new();

/// Sets the function in which vocabularies are loaded and waited for, once for the process. A program with an asynchronous
/// runtime moves the other tasks of the calling worker to another thread in it, so that the thread is the load's own.
/// Without one, the caller just waits.
pub fn set_blocking(run: RunBlocking) {
    // A second server in the process sets the same function.
    let _ = RUN_BLOCKING.set(run);
}

/// A vocabulary's place in memory.
struct Slot {
    loaded: RwLock<Option<Arc<BpeEncoder>>>,
    /// Set by each use, cleared by [`release_unused`].
    used: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Slot { loaded: RwLock::new(None), used: AtomicBool::new(false) }
    }
}

static O200K: Slot = Slot::new();
static CL100K: Slot = Slot::new();

impl Vocabulary {
    /// All vocabularies.
    pub(in crate::tokens) const ALL: [Vocabulary; 2] = [Vocabulary::O200k, Vocabulary::Cl100k];

    fn slot(self) -> &'static Slot {
        match self {
            Vocabulary::O200k => &O200K,
            Vocabulary::Cl100k => &CL100K,
        }
    }

    /// Returns the tokens: the number of them (4 bytes, big-endian), a byte with the length of each, and their bytes,
    /// compressed with brotli. `UPDATE_GOLDEN=1 cargo test --test tokens vocabularies` writes the files.
    pub(super) fn data(self) -> &'static [u8] {
        match self {
            Vocabulary::O200k => include_bytes!("data/o200k.br"),
            Vocabulary::Cl100k => include_bytes!("data/cl100k.br"),
        }
    }

    fn pattern(self) -> SplitPattern {
        match self {
            Vocabulary::O200k => SplitPattern::O200k,
            Vocabulary::Cl100k => SplitPattern::Cl100k,
        }
    }

    /// Returns the vocabulary, and loads it first if it is not loaded.
    pub(in crate::tokens) fn encoder(self) -> Arc<BpeEncoder> {
        let slot = self.slot();
        slot.used.store(true, Ordering::Relaxed);
        // Never waits for the lock here: its holder may be loading, and a worker's other tasks would wait with it.
        if let Some(encoder) = slot.loaded.try_read().ok().and_then(|loaded| loaded.clone()) {
            return encoder;
        }
        let mut encoder = None;
        let mut wait = || encoder = Some(self.wait_for_encoder());
        match RUN_BLOCKING.get() {
            Some(run) => run(&mut wait),
            None => wait(),
        }
        // `None` only if the function above did not run the work.
        encoder.unwrap_or_else(|| self.wait_for_encoder())
    }

    fn wait_for_encoder(self) -> Arc<BpeEncoder> {
        // Others that need it wait here: they would do the same work.
        let mut loaded = self.slot().loaded.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loaded.get_or_insert_with(|| Arc::new(self.load())))
    }

    /// Returns whether the vocabulary is loaded.
    pub(in crate::tokens) fn is_loaded(self) -> bool {
        // A writer is about to load it, or to release it.
        self.slot().loaded.try_read().is_ok_and(|loaded| loaded.is_some())
    }

    #[expect(clippy::expect_used, reason = "the data is part of the binary, and tests read it")]
    fn load(self) -> BpeEncoder {
        decompress(self.data())
            .and_then(|data| parse(self.pattern(), &data))
            .expect("vocabulary in the binary")
    }
}

fn decompress(data: &[u8]) -> Option<Vec<u8>> {
    let mut tokens = Vec::with_capacity(2 << 20);
    brotli::BrotliDecompress(&mut &data[..], &mut tokens).ok()?;
    Some(tokens)
}

fn parse(pattern: SplitPattern, data: &[u8]) -> Option<BpeEncoder> {
    let (count, rest) = data.split_first_chunk()?;
    let (lengths, bytes) = rest.split_at_checked(u32::from_be_bytes(*count) as usize)?;
    BpeEncoder::new(pattern, lengths, bytes.to_vec())
}

/// Releases the vocabularies that were not used since the last call. Returns how many.
pub(in crate::tokens) fn release_unused() -> usize {
    let unused = Vocabulary::ALL.into_iter().filter(|vocabulary| {
        let slot = vocabulary.slot();
        let is_unused = vocabulary.is_loaded() && !slot.used.swap(false, Ordering::Relaxed);
        is_unused && slot.loaded.write().unwrap_or_else(PoisonError::into_inner).take().is_some()
    });
    unused.count()
}
