//! States of the push scanner ([`Scanner`](super::Scanner)).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Before a value.
    Value,
    /// After `{`: a name or `}`.
    ObjectStart,
    /// After `,` in an object: a name.
    Name,
    Colon,
    /// After `[`: a value or `]`.
    ArrayStart,
    /// After a value: `,`, the end of the container, or the end of the document.
    After,
    String,
    Escape,
    /// Inside `\u`, with this number of hexadecimal digits left.
    Hex(u8),
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// Inside `true`, `false` or `null`, with the number of letters read so far.
    Word(Word, u8),
}

/// Literal name of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    True,
    False,
    Null,
}

impl Word {
    pub(super) fn text(self) -> &'static [u8] {
        match self {
            Word::True => b"true",
            Word::False => b"false",
            Word::Null => b"null",
        }
    }
}
