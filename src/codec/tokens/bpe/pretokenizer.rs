//! Pretokenizer: splits a text into pieces, each of which is tokenized by itself.
//!
//! The patterns are regular expressions in tiktoken. Each alternative is a function here, in the order in which a
//! matcher tries them: that needs no automaton, which would take megabytes for each thread.

use super::classes::Class;

/// Rules by which a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitPattern {
    /// Words without regard to case; contractions are pieces of their own.
    Cl100k,
    /// Words end before an upper-case letter; contractions belong to their word.
    O200k,
}

/// TextPieces of a text, in order and without gaps.
#[derive(Clone, Debug)]
pub(super) struct TextPieces<'t> {
    pattern: SplitPattern,
    rest: &'t str,
}

impl<'t> TextPieces<'t> {
    pub(super) fn of(text: &'t str, pattern: SplitPattern) -> Self {
        TextPieces { pattern, rest: text }
    }
}

impl<'t> Iterator for TextPieces<'t> {
    type Item = &'t str;

    #[inline]
    fn next(&mut self) -> Option<&'t str> {
        let first = self.rest.chars().next()?;
        let length = match self.pattern {
            SplitPattern::Cl100k => cl100k(self.rest, first),
            SplitPattern::O200k => o200k(self.rest, first),
        };
        // Each alternative ends on a character boundary and takes at least one character.
        let (piece, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(piece)
    }
}

/// Returns the length of the first piece in bytes. Source: `cl100k_base` in tiktoken's `openai_public.py`.
fn cl100k(text: &str, first: char) -> usize {
    // (?i:'s|'t|'re|'ve|'m|'ll|'d)
    if first == '\''
        && let length @ 1.. = contraction(text)
    {
        return length;
    }
    let class = Class::of(first);
    // [^\r\n\p{L}\p{N}]?\p{L}+
    let prefix = prefix(first, class);
    if let length @ 1.. = run(text, prefix, Class::is_letter) {
        return prefix + length;
    }
    number(text, class)
        .or_else(|| symbols(text, first, class, |c| matches!(c, '\r' | '\n')))
        .unwrap_or_else(|| white_space(text, first))
}

/// Returns the length of the first piece in bytes. Source: `o200k_base` in tiktoken's `openai_public.py`.
fn o200k(text: &str, first: char) -> usize {
    let class = Class::of(first);
    let prefix = prefix(first, class);
    for word in [word_with_end, word_without_end] {
        // With the optional first character, then without it.
        let length = match word(text, prefix) {
            0 if prefix > 0 => word(text, 0),
            0 => 0,
            length => prefix + length,
        };
        if length > 0 {
            return length + contraction(text.get(length..).unwrap_or_default());
        }
    }
    number(text, class)
        .or_else(|| symbols(text, first, class, |c| matches!(c, '\r' | '\n' | '/')))
        .unwrap_or_else(|| white_space(text, first))
}

/// Returns the length of `[^\r\n\p{L}\p{N}]?` at the start: that of the first character, or 0.
#[inline]
fn prefix(first: char, class: Class) -> usize {
    let excluded = class.is_letter() || matches!(class, Class::Number | Class::Newline);
    if excluded { 0 } else { first.len_utf8() }
}

/// Returns the length in bytes of the longest run of characters from `at` whose class satisfies `belongs`.
#[inline]
fn run(text: &str, at: usize, belongs: impl Fn(Class) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.char_indices().find(|(_, c)| !belongs(Class::of(*c))).map_or(rest.len(), |(end, _)| end)
}

/// Returns the length of `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` from `at`; 0 if there is none.
fn word_with_end(text: &str, at: usize) -> usize {
    let begin = run(text, at, Class::begins_word);
    if let end @ 1.. = run(text, at + begin, Class::ends_word) {
        return begin + end;
    }
    // The first part gives back characters until one of them can be the second part.
    let taken = text.get(at..at + begin).unwrap_or_default();
    match taken.char_indices().rev().find(|(_, c)| Class::of(*c).ends_word()) {
        Some((last, c)) => last + c.len_utf8(),
        None => 0,
    }
}

/// Returns the length of `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` from `at`, where
/// [`word_with_end`] found nothing: so the second part is empty.
fn word_without_end(text: &str, at: usize) -> usize {
    run(text, at, Class::begins_word)
}

/// Returns the length of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at the start; 0 if there is none.
#[inline]
fn contraction(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('\'') else { return 0 };
    let mut letters = rest.bytes();
    let (first, second) = (letters.next().unwrap_or(0), letters.next().unwrap_or(0));
    match (first.to_ascii_lowercase(), second.to_ascii_lowercase()) {
        (b's' | b't' | b'm' | b'd', _) => 2,
        (b'r' | b'v', b'e') | (b'l', b'l') => 3,
        // The long s is an `s` without regard to case.
        _ if rest.starts_with('ſ') => 1 + 'ſ'.len_utf8(),
        _ => 0,
    }
}

/// Returns the length of `\p{N}{1,3}` at the start.
fn number(text: &str, class: Class) -> Option<usize> {
    (class == Class::Number).then(|| {
        text.chars().take(3).take_while(|c| Class::of(*c) == Class::Number).map(char::len_utf8).sum()
    })
}

/// Returns the length of ` ?[^\s\p{L}\p{N}]+` at the start, with the characters that follow it and satisfy `follows`.
fn symbols(text: &str, first: char, class: Class, follows: impl Fn(char) -> bool) -> Option<usize> {
    let space = match class {
        _ if class.is_symbol() => 0,
        _ if first == ' ' => 1,
        _ => return None,
    };
    let end = match run(text, space, Class::is_symbol) {
        0 => return None,
        length => space + length,
    };
    let rest = text.get(end..).unwrap_or_default();
    Some(end + rest.find(|c| !follows(c)).unwrap_or(rest.len()))
}

/// Returns the length of `\s*[\r\n]+|\s+(?!\S)|\s+` at the start.
fn white_space(text: &str, first: char) -> usize {
    let length = run(text, 0, Class::is_space);
    let space = text.get(..length).unwrap_or_default();
    // Up to the last line end. Without one, the last character is left to what follows.
    if let Some(last) = memchr::memrchr2(b'\r', b'\n', space.as_bytes()) {
        return last + 1;
    }
    match space.chars().next_back() {
        Some(last) if length < text.len() && length > last.len_utf8() => length - last.len_utf8(),
        _ => length.max(first.len_utf8()),
    }
}
