//! Directives in double brackets, by which a person or a test controls the simulator.

use std::time::Duration;

/// Maximum text length of `big`, in bytes.
const MAX_BIG: usize = 100_000_000;
/// Maximum number of words of `words`.
const MAX_WORDS: usize = 200_000;
/// Maximum length of the word of `finish`, in bytes.
const MAX_WORD: usize = 64;
/// Maximum pause in milliseconds: one hour.
const MAX_PAUSE: u64 = 3_600_000;

/// Fault of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// Error in the provider's format, after which the stream ends.
    Error,
    /// The connection is reset.
    Cut,
    /// The body ends cleanly.
    End,
    /// No further data.
    Stall,
    /// The next frame is invalid, and the stream goes on.
    Spoil,
}

/// Fault, and the number of deltas before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) after: usize,
}

/// Fault of the response as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Hang,
    Html,
    Empty,
    Void,
    Truncate,
    Garbage,
}

/// Form of the arguments of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ArgumentsForm {
    #[default]
    Once,
    /// The JSON text is the content of a JSON string.
    Twice,
    /// An empty object stands in front of them.
    Led,
}

/// All directives of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) status: Option<u16>,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) delay: Option<Duration>,
    pub(super) first: Option<Duration>,
    pub(super) pace: Option<Duration>,
    pub(super) words: Option<usize>,
    pub(super) big: Option<usize>,
    /// In tokens.
    pub(super) cached: Option<u64>,
    pub(super) fault: Option<Fault>,
    /// HTTP status of the error in a stream. `None` for that of an overloaded provider.
    pub(super) error_status: Option<u16>,
    pub(super) shape: Option<Shape>,
    pub(super) refuse: bool,
    /// Finish reason, as the provider writes it.
    pub(super) finish: Option<String>,
    /// The error of `error` has no member `error`, and of a document has status 200.
    pub(super) bare: bool,
    pub(super) arguments: ArgumentsForm,
    /// Usage has the names of OpenAI's responses format.
    pub(super) other_usage: bool,
}

/// Extracts the directives from a text. Returns them and the text without them. Brackets with other content stay in the
/// text.
pub(super) fn take(text: &str) -> (Directives, String) {
    let mut directives = Directives::default();
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once("[[") {
        kept.push_str(before);
        match opened.split_once("]]").and_then(|(inside, after)| Some((directives.with(inside)?, after))) {
            Some((more, after)) => {
                directives = more;
                // Remove one of the two spaces around a directive with it.
                rest = if kept.is_empty() || kept.ends_with(char::is_whitespace) {
                    after.strip_prefix(' ').unwrap_or(after)
                } else {
                    after
                };
            }
            None => {
                kept.push_str("[[");
                rest = opened;
            }
        }
    }
    kept.push_str(rest);
    let kept = if directives == Directives::default() { kept } else { kept.trim().to_owned() };
    (directives, kept)
}

impl Directives {
    /// Adds the directives within one pair of brackets. Returns `None` if any word is not a directive.
    fn with(&self, inside: &str) -> Option<Directives> {
        let mut all = self.clone();
        let mut words = inside.split_whitespace().peekable();
        words.peek()?;
        while let Some(name) = words.next() {
            all.add(name, &mut words)?;
        }
        Some(all)
    }

    fn add<'a>(&mut self, name: &str, arguments: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        if name == "finish" {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            let word =
                arguments.next().filter(|word| word.len() <= MAX_WORD && word.bytes().all(is_letter))?;
            self.finish = Some(word.to_owned());
            return Some(());
        }
        let mut number = || arguments.next()?.parse::<u64>().ok();
        let pause = |ms: u64| Some(Duration::from_millis(ms.min(MAX_PAUSE)));
        match name {
            "status" => {
                self.status = Some(u16::try_from(number()?).ok().filter(|s| (200..=599).contains(s))?);
            }
            "error-status" => {
                self.error_status = Some(u16::try_from(number()?).ok().filter(|s| (400..=599).contains(s))?);
            }
            "retry-after" => self.retry_after = Some(number()?),
            "delay" => self.delay = pause(number()?),
            "first" => self.first = pause(number()?),
            "pace" => self.pace = pause(number()?),
            "words" => self.words = Some(usize::try_from(number()?).ok()?.min(MAX_WORDS)),
            "big" => self.big = Some(usize::try_from(number()?).ok()?.min(MAX_BIG)),
            "cached" => self.cached = Some(number()?),
            "error" | "cut" | "end" | "stall" | "spoil" => {
                let kind = match name {
                    "error" => FaultKind::Error,
                    "cut" => FaultKind::Cut,
                    "end" => FaultKind::End,
                    "spoil" => FaultKind::Spoil,
                    _ => FaultKind::Stall,
                };
                self.fault = Some(Fault { kind, after: usize::try_from(number()?).ok()? });
            }
            "hang" => self.shape = Some(Shape::Hang),
            "html" => self.shape = Some(Shape::Html),
            "empty" => self.shape = Some(Shape::Empty),
            "void" => self.shape = Some(Shape::Void),
            "bare" => self.bare = true,
            "twice" => self.arguments = ArgumentsForm::Twice,
            "led" => self.arguments = ArgumentsForm::Led,
            "other-usage" => self.other_usage = true,
            "truncate" => self.shape = Some(Shape::Truncate),
            "garbage" => self.shape = Some(Shape::Garbage),
            "refuse" => self.refuse = true,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_from_one_or_many_brackets() {
        let (d, text) = take("Hello [[status 429 retry-after 3]] dear [[pace 50]] world [[words 9]]");
        assert_eq!(text, "Hello dear world");
        assert_eq!((d.status, d.retry_after, d.words), (Some(429), Some(3), Some(9)));
        assert_eq!(d.pace, Some(Duration::from_millis(50)));
    }

    #[test]
    fn directive_finish_has_a_word() {
        let (directives, text) = take("Hello [[finish network_error pace 50]]");
        assert_eq!((directives.finish.as_deref(), text.as_str()), (Some("network_error"), "Hello"));
        assert_eq!(directives.pace, Some(Duration::from_millis(50)));
    }

    #[test]
    fn directive_fault_is_read_with_its_position() {
        assert_eq!(take("[[cut 3]]").0.fault, Some(Fault { kind: FaultKind::Cut, after: 3 }));
        assert_eq!(take("[[error 0]]").0.fault, Some(Fault { kind: FaultKind::Error, after: 0 }));
        assert_eq!(
            take("x[[hang]]y"),
            (Directives { shape: Some(Shape::Hang), ..Default::default() }, "xy".into())
        );
    }

    #[test]
    fn directive_unknown_or_malformed_text_stays() {
        for text in [
            "a [[b]] c",
            "[[status]]",
            "[[status 99]]",
            "[[status x]]",
            "[[finish]]",
            "[[finish no/word]]",
            "[[",
            "[[]]",
            "]] [[ cut 3",
            "[[status 429 foo]]",
            " [[x]] ",
        ] {
            assert_eq!(take(text), (Directives::default(), text.to_owned()), "{text}");
        }
        assert_eq!(take("[[a]] [[refuse]] [[b").1, "[[a]] [[b");
        assert_eq!(take("[[x [[cut 1]] é").1, "[[x é");
    }
}
