//! A little colour, where a terminal shows it.

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

/// https://no-color.org, and nothing that is piped into a file.
static COLOUR: LazyLock<bool> = LazyLock::new(|| {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
});

/// A heading.
pub(super) fn title<T: Display>(text: T) -> Styled<T> {
    Styled("1", text)
}

/// What is good.
pub(super) fn good<T: Display>(text: T) -> Styled<T> {
    Styled("1;32", text)
}

/// What is wrong.
pub(super) fn bad<T: Display>(text: T) -> Styled<T> {
    Styled("1;31", text)
}

/// What is to be copied.
pub(super) fn copy<T: Display>(text: T) -> Styled<T> {
    Styled("36", text)
}

/// What is beside the point.
pub(super) fn faint<T: Display>(text: T) -> Styled<T> {
    Styled("2", text)
}
