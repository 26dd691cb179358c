//! ANSI colors, if the terminal supports them.

use std::fmt::{Display, Formatter, Result};
use std::io::IsTerminal;
use std::sync::LazyLock;

/// Text in a style.
pub(super) struct Styled<T>(&'static str, T);

impl<T: Display> Display for Styled<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if *COLOUR { write!(f, "\x1b[{}m{}\x1b[0m", self.0, self.1) } else { self.1.fmt(f) }
    }
}

/// Whether to print colors: not with `NO_COLOR` (<https://no-color.org>), on a dumb terminal, or if the output is
/// redirected.
static COLOUR: LazyLock<bool> = LazyLock::new(|| {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
});

/// Styles a heading.
pub(super) fn title<T: Display>(text: T) -> Styled<T> {
    Styled("1", text)
}

/// Styles a positive result.
pub(super) fn good<T: Display>(text: T) -> Styled<T> {
    Styled("1;32", text)
}

/// Styles an error.
pub(super) fn bad<T: Display>(text: T) -> Styled<T> {
    Styled("1;31", text)
}

/// Styles text to be copied.
pub(super) fn copy<T: Display>(text: T) -> Styled<T> {
    Styled("36", text)
}

/// Styles secondary text.
pub(super) fn faint<T: Display>(text: T) -> Styled<T> {
    Styled("2", text)
}
