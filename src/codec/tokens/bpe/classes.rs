//! Character classes of the pretokenizer.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// Class of a character: the general categories that the patterns distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `\p{Lu}`, `\p{Lt}`.
    Upper,
    /// `\p{Ll}`.
    Lower,
    /// `\p{Lm}`, `\p{Lo}`: letters without case.
    Caseless,
    /// `\p{M}`: combining marks.
    Mark,
    /// `\p{N}`.
    Number,
    /// Carriage return and line feed.
    Newline,
    /// `\s` without carriage return and line feed.
    Space,
    /// Any other: punctuation, symbols, controls.
    Other,
}

impl Class {
    #[inline]
    pub(super) fn of(c: char) -> Class {
        match ASCII.get(c as usize) {
            Some(class) => *class,
            None => of_unicode(c),
        }
    }

    /// Returns whether the class is part of `\p{L}`.
    #[inline]
    pub(super) fn is_letter(self) -> bool {
        matches!(self, Class::Upper | Class::Lower | Class::Caseless)
    }

    /// Returns whether the class is part of `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`.
    #[inline]
    pub(super) fn begins_word(self) -> bool {
        matches!(self, Class::Upper | Class::Caseless | Class::Mark)
    }

    /// Returns whether the class is part of `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
    #[inline]
    pub(super) fn ends_word(self) -> bool {
        matches!(self, Class::Lower | Class::Caseless | Class::Mark)
    }

    /// Returns whether the class is part of `\s`.
    #[inline]
    pub(super) fn is_space(self) -> bool {
        matches!(self, Class::Space | Class::Newline)
    }

    /// Returns whether the class is part of `[^\s\p{L}\p{N}]`.
    #[inline]
    pub(super) fn is_symbol(self) -> bool {
        matches!(self, Class::Other | Class::Mark)
    }
}

/// The classes of the ASCII characters, because nearly all text is made of them.
const ASCII: [Class; 128] = {
    let mut classes = [Class::Other; 128];
    let mut at = 0;
    while at < classes.len() {
        #[allow(
            clippy::indexing_slicing,
            clippy::cast_possible_truncation,
            reason = "evaluated by the compiler"
        )]
        {
            classes[at] = match at as u8 {
                b'A'..=b'Z' => Class::Upper,
                b'a'..=b'z' => Class::Lower,
                b'0'..=b'9' => Class::Number,
                b'\r' | b'\n' => Class::Newline,
                b' ' | b'\t' | 0x0b | 0x0c => Class::Space,
                _ => Class::Other,
            };
        }
        at += 1;
    }
    classes
};

fn of_unicode(c: char) -> Class {
    // The ideographs, syllables and kana of East Asia, whose text has hardly anything else: without a search.
    if matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{3041}'..='\u{3096}') {
        return Class::Caseless;
    }
    if c.is_whitespace() {
        return Class::Space;
    }
    match c.general_category() {
        GeneralCategory::UppercaseLetter | GeneralCategory::TitlecaseLetter => Class::Upper,
        GeneralCategory::LowercaseLetter => Class::Lower,
        GeneralCategory::ModifierLetter | GeneralCategory::OtherLetter => Class::Caseless,
        GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark | GeneralCategory::EnclosingMark => {
            Class::Mark
        }
        GeneralCategory::DecimalNumber | GeneralCategory::LetterNumber | GeneralCategory::OtherNumber => {
            Class::Number
        }
        _ => Class::Other,
    }
}
