//! What is made besides text, and billed by the piece or by the second.

/// What was made, as it is priced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Product {
    /// Images of one size and quality.
    Images {
        /// How many.
        count: u64,
        /// Their size, as the request or the vendor names it; empty when neither does.
        size: Box<str>,
        /// Their quality, likewise.
        quality: Box<str>,
    },
    /// A video.
    Video {
        /// Its length.
        millis: u64,
        /// Its resolution; empty when it is not known.
        resolution: Box<str>,
    },
}
