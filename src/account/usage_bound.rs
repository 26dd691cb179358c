//! What a provider's report of usage may say at most: what the request could have used, with room to spare. A figure
//! beyond it is a fault of the provider, and one such report must not empty an account.
//!
//! A byte is at least a token's share in every tokenizer, so a request whose input is all in its body has no more tokens
//! than bytes, but for what a provider puts around it. Input from elsewhere (addresses, files, kept conversations, tools
//! that the provider runs) has no bytes here: then the bound is what the largest models could read in many turns.

use crate::canonical::Usage;

/// Tokens that a provider may add to a request that is all in its body: templates, its own prompt, a search of its own.
const ADDED: u64 = 1 << 20;
/// Input tokens of a request that is not all in its body. The largest context windows have 10 million (2026-11), and
/// tools that the provider runs may read one of a million in each of some dozen turns.
const ELSEWHERE: u64 = 1 << 26;
/// Output tokens of each answer beyond the client's limit and what was delivered: reasoning that is not shown, and not
/// limited. The largest documented maximum of an answer is 128 Ki (2026-11).
const HIDDEN: u64 = 1 << 18;
/// A client's own limit beyond this one limits nothing.
const LARGEST_LIMIT: u64 = 1 << 24;
/// Searches of one request.
const SEARCHES: u64 = 1 << 12;

/// What is known of a request and its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageBound {
    /// Bytes of the request.
    pub request_bytes: u64,
    /// Bytes of the answer, as far as it was delivered.
    pub response_bytes: u64,
    /// The client's own limit of the output tokens of an answer; nothing where it sets none or nobody asked.
    pub limit: Option<u64>,
    /// Answers at once; nothing where nobody asked.
    pub answers: Option<u64>,
}

impl UsageBound {
    /// The report within its bounds, where it is beyond them. `is_whole` says whether all input is in the body, and is
    /// asked only where that makes a difference.
    pub fn bound(&self, usage: &Usage, is_whole: impl FnOnce() -> bool) -> Option<Usage> {
        let small = self.request_bytes.saturating_add(ADDED);
        let hidden = self.limit.unwrap_or(0).min(LARGEST_LIMIT) + HIDDEN;
        // Where it is not known how many answers were asked for, as many as any API takes at once (OpenAI: 128).
        let answers = self.answers.unwrap_or(128).clamp(1, 128);
        let output = hidden.saturating_mul(answers).saturating_add(self.response_bytes);
        let beyond = |value: Option<u64>, most: u64| value.is_some_and(|value| value > most);
        let large = inputs(usage).into_iter().any(|value| beyond(value, small));
        let input = if large && !is_whole() { self.request_bytes.saturating_add(ELSEWHERE) } else { small };
        let is_possible = !inputs(usage).into_iter().any(|value| beyond(value, input))
            && !outputs(usage).into_iter().any(|value| beyond(value, output))
            && !beyond(usage.searches, SEARCHES);
        if is_possible {
            return None;
        }
        let most = |value: Option<u64>, most: u64| value.map(|value| value.min(most));
        Some(Usage {
            input: most(usage.input, input),
            cached: most(usage.cached, input),
            cache_write: most(usage.cache_write, input),
            cache_write_1h: most(usage.cache_write_1h, input),
            output: most(usage.output, output),
            reasoning: most(usage.reasoning, output),
            audio_input: most(usage.audio_input, input),
            image_input: most(usage.image_input, input),
            audio_output: most(usage.audio_output, output),
            image_output: most(usage.image_output, output),
            searches: most(usage.searches, SEARCHES),
            uncached: most(usage.uncached, input),
            written: most(usage.written, input),
        })
    }
}

fn inputs(usage: &Usage) -> [Option<u64>; 8] {
    let Usage {
        input, cached, cache_write, cache_write_1h, audio_input, image_input, uncached, written, ..
    } = *usage;
    [input, cached, cache_write, cache_write_1h, audio_input, image_input, uncached, written]
}

fn outputs(usage: &Usage) -> [Option<u64>; 4] {
    [usage.output, usage.reasoning, usage.audio_output, usage.image_output]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input: Some(input), output: Some(output), ..Usage::default() }
    }

    #[test]
    fn report_that_is_plausible_stays() {
        let chat =
            UsageBound { request_bytes: 2_000, response_bytes: 500, limit: Some(16), answers: Some(1) };
        for report in [
            usage(500, 16),
            // Reasoning that no limit holds, and a search of the provider's own.
            Usage { reasoning: Some(128_000), ..usage(200_000, 131_072) },
            Usage { searches: Some(300), cached: Some(900_000), ..usage(1_000_000, 1) },
        ] {
            assert_eq!(chat.bound(&report, || true), None, "{report:?}");
        }
        // An hour of video by its address, and a conversation of tools.
        for input in [1_100_000, 30_000_000] {
            assert_eq!(chat.bound(&usage(input, 5_000), || false), None, "{input}");
        }
        let book = UsageBound { request_bytes: 40_000_000, ..UsageBound::default() };
        assert_eq!(book.bound(&usage(10_000_000, 65_536), || true), None);
        let many = UsageBound { answers: Some(128), ..chat };
        assert_eq!(many.bound(&usage(500, 128 * 128_000), || true), None);
    }

    #[test]
    fn report_that_is_absurd_is_bounded_and_never_nothing() {
        let chat = UsageBound { request_bytes: 100, response_bytes: 500, limit: Some(16), answers: Some(1) };
        let absurd = usage(9_000_000_000_000_000_000, 9_000_000_000_000_000_000);
        let bounded = chat.bound(&absurd, || true).unwrap();
        assert_eq!((bounded.input, bounded.output), (Some(100 + ADDED), Some(16 + HIDDEN + 500)));
        let bounded = chat.bound(&absurd, || false).unwrap();
        assert_eq!(bounded.input, Some(100 + ELSEWHERE));
        // One figure alone.
        let bounded = chat.bound(&Usage { searches: Some(u64::MAX), ..usage(5, 7) }, || true).unwrap();
        assert_eq!((bounded.input, bounded.output, bounded.searches), (Some(5), Some(7), Some(SEARCHES)));
        // A limit without an end limits nothing.
        let endless = UsageBound { limit: Some(u64::MAX), answers: Some(u64::MAX), ..chat };
        let most = (LARGEST_LIMIT + HIDDEN) * 128 + 500;
        assert_eq!(endless.bound(&absurd, || true).unwrap().output, Some(most));
    }
}
