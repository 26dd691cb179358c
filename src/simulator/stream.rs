//! From the frames of a whole answer to the steps of its stream: pauses and faults.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::body::Step;
use super::directive::{Directives, Fault, FaultKind, Shape};
use super::http::BEFORE_CUT;

/// How far an answer has come with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Leaves together with the head, before the model has begun.
    Lead,
    /// Carries a piece of text, of thinking or of arguments.
    Delta,
    /// Anything else.
    Other,
}

/// One frame of a stream, framing included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) bytes: Bytes,
}

impl Frame {
    pub(super) fn new(kind: Kind, bytes: impl Into<Bytes>) -> Frame {
        Frame { kind, bytes: bytes.into() }
    }

    /// `data: {...}`, without an event's name.
    pub(super) fn data(kind: Kind, data: &Value) -> Frame {
        Frame::new(kind, format!("data: {data}\n\n"))
    }

    /// `event: name` and `data: {...}`.
    pub(super) fn event(kind: Kind, name: &str, data: &Value) -> Frame {
        Frame::new(kind, format!("event: {name}\ndata: {data}\n\n"))
    }
}

/// The pauses of a stream; zero is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pacing {
    /// Before the first token.
    pub(super) first_token: Duration,
    /// Before each further token.
    pub(super) per_token: Duration,
}

impl Pacing {
    /// These pauses, but what the directives say goes first.
    fn directed(self, directives: &Directives) -> Pacing {
        Pacing {
            first_token: directives.first.unwrap_or(self.first_token),
            per_token: directives.pace.unwrap_or(self.per_token),
        }
    }
}

/// Plays frames at a pace, with the fault that the directives ask for. `error` writes the provider's error into a
/// stream of which so many frames have left already.
pub(super) fn schedule(
    mut frames: Vec<Frame>,
    pacing: Pacing,
    directives: &Directives,
    error: impl FnOnce(usize) -> Vec<Bytes>,
) -> Vec<Step> {
    let mut ending = Vec::new();
    if let Some(Fault { kind, after }) = directives.fault {
        frames.truncate(frames_until(&frames, after));
        ending = match kind {
            FaultKind::Error => error(frames.len()).into_iter().map(Step::Send).collect(),
            FaultKind::Cut => vec![Step::Wait(BEFORE_CUT), Step::Cut],
            FaultKind::End => Vec::new(),
            FaultKind::Stall => vec![Step::Stall],
        };
    }
    match directives.shape {
        Some(Shape::Garbage) => spoil(&mut frames),
        Some(Shape::Truncate) => {
            frames.truncate(frames_until(&frames, 2));
            if let Some(last) = frames.last_mut() {
                last.bytes.truncate(last.bytes.len() / 2);
            }
            ending = vec![Step::Wait(BEFORE_CUT), Step::Cut];
        }
        _ => {}
    }
    let mut steps = pace(frames, pacing.directed(directives));
    steps.append(&mut ending);
    steps
}

/// How many frames leave until so many deltas have left. If there are fewer deltas: up to and with the last one.
fn frames_until(frames: &[Frame], deltas: usize) -> usize {
    let ends = frames.iter().enumerate().filter(|(_, frame)| frame.kind == Kind::Delta).map(|(at, _)| at + 1);
    if deltas == 0 { 0 } else { ends.take(deltas).last().unwrap_or(frames.len() / 2) }
}

/// Makes the third frame (or the last, if there are fewer) something that is not JSON.
fn spoil(frames: &mut [Frame]) {
    let at = frames.len().min(3).saturating_sub(1);
    if let Some(frame) = frames.get_mut(at) {
        let text = String::from_utf8_lossy(&frame.bytes).replace('}', "]");
        frame.bytes = Bytes::from(text);
    }
}

fn pace(frames: Vec<Frame>, pacing: Pacing) -> Vec<Step> {
    let paced = pacing != Pacing::default();
    let mut steps = Vec::with_capacity(frames.len());
    let mut begun = false;
    let mut tokens = 0usize;
    for frame in frames {
        if frame.kind != Kind::Lead && !begun {
            begun = true;
            push_pause(&mut steps, pacing.first_token);
        }
        if frame.kind == Kind::Delta {
            if tokens > 0 {
                push_pause(&mut steps, pacing.per_token);
            }
            tokens += 1;
        }
        steps.push(Step::Send(frame.bytes));
        if paced {
            steps.push(Step::Flush);
        }
    }
    // The end of the body must be the step after its last frame.
    if steps.last() == Some(&Step::Flush) {
        steps.pop();
    }
    steps
}

fn push_pause(steps: &mut Vec<Step>, time: Duration) {
    if !time.is_zero() {
        steps.push(Step::Wait(time));
    }
}

#[cfg(test)]
mod tests {
    use super::super::directive;
    use super::*;

    fn frames() -> Vec<Frame> {
        [(Kind::Lead, "s"), (Kind::Delta, "1"), (Kind::Other, "o"), (Kind::Delta, "2"), (Kind::Other, "e")]
            .map(|(kind, text)| Frame::new(kind, text))
            .to_vec()
    }

    fn played(directives: &str, pacing: Pacing) -> String {
        let steps = schedule(frames(), pacing, &directive::take(directives).0, |at| {
            vec![Bytes::from(format!("error@{at}"))]
        });
        steps
            .into_iter()
            .map(|step| match step {
                Step::Send(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Step::Wait(time) => format!("({})", time.as_millis()),
                Step::Flush => "|".to_owned(),
                Step::Stall => "STALL".to_owned(),
                Step::Cut => "CUT".to_owned(),
            })
            .collect()
    }

    #[test]
    fn faults_count_deltas() {
        let none = Pacing::default();
        assert_eq!(played("", none), "s1o2e");
        assert_eq!(played("[[end 1]]", none), "s1");
        assert_eq!(played("[[end 0]]", none), "");
        assert_eq!(played("[[cut 2]]", none), "s1o2(20)CUT");
        assert_eq!(played("[[stall 9]]", none), "s1o2STALL");
        assert_eq!(played("[[error 0]]", none), "error@0");
        assert_eq!(played("[[error 1]]", none), "s1error@2");
    }

    #[test]
    fn pauses() {
        assert_eq!(played("[[first 5]]", Pacing::default()), "s|(5)1|o|2|e");
        assert_eq!(played("[[pace 7]]", Pacing::default()), "s|1|o|(7)2|e");
        let slow = Pacing { first_token: Duration::from_millis(3), per_token: Duration::from_millis(4) };
        assert_eq!(played("[[pace 0]]", slow), "s|(3)1|o|2|e");
    }
}
