//! Upper bounds of reported usage: what the request could have used, with a wide margin. A figure beyond its bound is a
//! fault of the provider and says nothing: the gateway's own count takes its place, so that one such report does not drain
//! an account.
//!
//! In every tokenizer a token covers at least one byte. So a request whose input is all in its body has no more tokens
//! than bytes, plus what the provider adds. Input from elsewhere (URLs, files, stored conversations, tools that the
//! provider runs) has no bytes here; its bound is what the largest models could read in many turns.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use codec::canonical::Usage;

/// Tokens that a provider may add to a request whose input is all in its body: templates, its own prompt, a search.
const MAX_ADDED_INPUT: u64 = 1 << 20;
/// Maximum input tokens of a request whose input is not all in its body. The largest context windows have 10 million
/// tokens (2026-11), and tools that the provider runs may read a window of one million in each of some dozen turns.
const MAX_REMOTE_INPUT: u64 = 1 << 26;
/// Output tokens of each response beyond the client's limit and the delivered text: hidden reasoning without a limit.
/// The largest documented maximum of a response is 128 Ki tokens (2026-11).
const MAX_HIDDEN_OUTPUT: u64 = 1 << 18;
/// A client's output limit counts up to this many tokens.
const LARGEST_LIMIT: u64 = 1 << 24;
/// Maximum searches of one request.
const SEARCHES: u64 = 1 << 12;

/// Known facts of a request and its response that bound its usage.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageBound {
    /// Size of the request, in bytes.
    pub request_bytes: u64,
    /// Size of the delivered part of the response, in bytes.
    pub response_bytes: u64,
    /// The client's limit of output tokens for one response. `None` if it sets none or the request was not inspected.
    pub limit: Option<u64>,
    /// Number of responses requested. `None` if the request was not inspected.
    pub responses: Option<u64>,
}

impl UsageBound {
    /// Returns what is charged in place of an implausible report; `None` if all figures are within their bounds.
    /// `is_whole` returns true if all input is in the body, `counted` the gateway's own count of input and output tokens, if
    /// it can count them. Both are called only if that makes a difference.
    pub fn bound(
        &self,
        usage: &Usage,
        is_whole: impl FnOnce() -> bool,
        counted: impl FnOnce() -> [Option<u64>; 2],
    ) -> Option<Usage> {
        let small = self.request_bytes.saturating_add(MAX_ADDED_INPUT);
        let hidden = self.limit.unwrap_or(0).min(LARGEST_LIMIT).saturating_add(MAX_HIDDEN_OUTPUT);
        // If the number of responses is unknown, assume the largest number that an API accepts (OpenAI: 128).
        let answers = self.responses.unwrap_or(128).clamp(1, 128);
        let output = hidden.saturating_mul(answers).saturating_add(self.response_bytes);
        let beyond = |value: Option<u64>, most: u64| value.is_some_and(|value| value > most);
        let large = inputs(usage).into_iter().any(|value| beyond(value, small));
        let input =
            if large && !is_whole() { self.request_bytes.saturating_add(MAX_REMOTE_INPUT) } else { small };
        let wrong_input = inputs(usage).into_iter().any(|value| beyond(value, input));
        let wrong_output = outputs(usage).into_iter().any(|value| beyond(value, output));
        if !wrong_input && !wrong_output && !beyond(usage.searches, SEARCHES) {
            return None;
        }
        let most = |value: Option<u64>, most: u64| value.map(|value| value.min(most));
        let mut charged = Usage { searches: most(usage.searches, SEARCHES), ..*usage };
        let [counted_input, counted_output] = counted();
        if wrong_input {
            // Figures of one kind belong together: the parts of a wrong sum are no better than the sum.
            charged = Usage {
                input: most(counted_input.or(usage.input), input),
                cached: None,
                cache_write: None,
                cache_write_1h: None,
                audio_input: None,
                image_input: None,
                uncached: None,
                written: None,
                ..charged
            };
        }
        if wrong_output {
            charged = Usage {
                output: most(counted_output.or(usage.output), output),
                reasoning: None,
                audio_output: None,
                image_output: None,
                ..charged
            };
        }
        Some(charged)
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

    fn uncounted() -> [Option<u64>; 2] {
        [None, None]
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input: Some(input), output: Some(output), ..Usage::default() }
    }

    #[test]
    fn report_plausible_is_left_unchanged() {
        let chat =
            UsageBound { request_bytes: 2_000, response_bytes: 500, limit: Some(16), responses: Some(1) };
        for report in [
            usage(500, 16),
            // Reasoning beyond the client's limit, and a search that the provider ran.
            Usage { reasoning: Some(128_000), ..usage(200_000, 131_072) },
            Usage { searches: Some(300), cached: Some(900_000), ..usage(1_000_000, 1) },
        ] {
            assert_eq!(chat.bound(&report, || true, uncounted), None, "{report:?}");
        }
        // An hour of video by URL, and a conversation with tools.
        for input in [1_100_000, 30_000_000] {
            assert_eq!(chat.bound(&usage(input, 5_000), || false, uncounted), None, "{input}");
        }
        let book = UsageBound { request_bytes: 40_000_000, ..UsageBound::default() };
        assert_eq!(book.bound(&usage(10_000_000, 65_536), || true, uncounted), None);
        let many = UsageBound { responses: Some(128), ..chat };
        assert_eq!(many.bound(&usage(500, 128 * 128_000), || true, uncounted), None);
    }

    #[test]
    fn report_absurd_is_bounded_and_not_zero() {
        let chat =
            UsageBound { request_bytes: 100, response_bytes: 500, limit: Some(16), responses: Some(1) };
        let absurd = usage(9_000_000_000_000_000_000, 9_000_000_000_000_000_000);
        // The gateway's own count takes the place of a wrong figure, with its parts.
        let report = Usage { cached: Some(7), reasoning: Some(9), ..absurd };
        let charged = chat.bound(&report, || true, || [Some(25), Some(3)]).unwrap();
        assert_eq!(charged, usage(25, 3));
        let charged =
            chat.bound(&Usage { cached: Some(4), ..usage(5, u64::MAX) }, || true, || [Some(25), Some(3)]);
        assert_eq!(charged, Some(Usage { cached: Some(4), ..usage(5, 3) }));
        // Without a count, or with one that is wrong itself, the bound.
        let wrong = chat.bound(&absurd, || true, || [Some(u64::MAX); 2]);
        assert_eq!(wrong, chat.bound(&absurd, || true, uncounted));
        let bounded = chat.bound(&absurd, || true, uncounted).unwrap();
        assert_eq!(
            (bounded.input, bounded.output),
            (Some(100 + MAX_ADDED_INPUT), Some(16 + MAX_HIDDEN_OUTPUT + 500))
        );
        let bounded = chat.bound(&absurd, || false, uncounted).unwrap();
        assert_eq!(bounded.input, Some(100 + MAX_REMOTE_INPUT));
        // Only one figure is implausible.
        let bounded =
            chat.bound(&Usage { searches: Some(u64::MAX), ..usage(5, 7) }, || true, uncounted).unwrap();
        assert_eq!((bounded.input, bounded.output, bounded.searches), (Some(5), Some(7), Some(SEARCHES)));
        // An unlimited client limit is bounded, too.
        let endless = UsageBound { limit: Some(u64::MAX), responses: Some(u64::MAX), ..chat };
        let most = (LARGEST_LIMIT + MAX_HIDDEN_OUTPUT) * 128 + 500;
        assert_eq!(endless.bound(&absurd, || true, uncounted).unwrap().output, Some(most));
    }
}
