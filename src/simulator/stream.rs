//! Conversion of a response's frames to the steps of its stream, with pauses and faults.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::body::Step;
use super::directive::{Directives, Fault, FaultKind, Shape};
use super::http::BEFORE_CUT;

/// Kind of a frame, for pacing and faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sent together with the head, before the model's first token.
    Lead,
    /// Has a piece of text, of thinking or of tool arguments.
    Delta,
    Other,
}

/// Frame of a stream, framing included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) bytes: Bytes,
}

impl Frame {
    pub(super) fn new(kind: Kind, bytes: impl Into<Bytes>) -> Frame {
        Frame { kind, bytes: bytes.into() }
    }

    /// Returns a server-sent event without a name.
    pub(super) fn data(kind: Kind, data: &Value) -> Frame {
        Frame::new(kind, format!("data: {data}\n\n"))
    }

    /// Returns a named server-sent event.
    pub(super) fn event(kind: Kind, name: &str, data: &Value) -> Frame {
        Frame::new(kind, format!("event: {name}\ndata: {data}\n\n"))
    }
}

/// Pauses of a stream. Zero for no pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pacing {
    pub(super) first_token: Duration,
    pub(super) per_token: Duration,
}

impl Pacing {
    /// Returns these pauses, overridden by directives.
    fn directed(self, directives: &Directives) -> Pacing {
        Pacing {
            first_token: directives.first.unwrap_or(self.first_token),
            per_token: directives.pace.unwrap_or(self.per_token),
        }
    }
}

/// Converts frames to paced steps, with the fault of the directives. `error` returns the frames of the provider's
/// error, given the number of frames sent before it.
pub(super) fn schedule(
    mut frames: Vec<Frame>,
    pacing: Pacing,
    directives: &Directives,
    error: impl FnOnce(usize) -> Vec<Bytes>,
) -> Vec<Step> {
    let mut ending = Vec::new();
    if let Some(Fault { kind, after }) = directives.fault {
        let until = frames_until(&frames, after);
        match kind {
            FaultKind::Spoil => spoil(&mut frames, until),
            _ => frames.truncate(until),
        }
        ending = match kind {
            FaultKind::Error => error(frames.len()).into_iter().map(Step::Send).collect(),
            FaultKind::Cut => vec![Step::Wait(BEFORE_CUT), Step::Cut],
            FaultKind::End | FaultKind::Spoil => Vec::new(),
            FaultKind::Stall => vec![Step::Stall],
        };
    }
    match directives.shape {
        Some(Shape::Garbage) => spoil(&mut frames, 2),
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

/// Returns the number of frames up to and including the `deltas`-th delta, or the last delta if there are fewer.
fn frames_until(frames: &[Frame], deltas: usize) -> usize {
    let ends = frames.iter().enumerate().filter(|(_, frame)| frame.kind == Kind::Delta).map(|(at, _)| at + 1);
    if deltas == 0 { 0 } else { ends.take(deltas).last().unwrap_or(frames.len() / 2) }
}

/// Makes the frame with this index, or the last if there are fewer, invalid JSON.
fn spoil(frames: &mut [Frame], index: usize) {
    let at = index.min(frames.len().saturating_sub(1));
    if let Some(frame) = frames.get_mut(at) {
        // Byte by byte: the frames of some providers are binary.
        frame.bytes = frame.bytes.iter().map(|byte| if *byte == b'}' { b']' } else { *byte }).collect();
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
    // `Playback` completes a request at a `Send` without further steps. With a `Flush` behind it, a client that
    // disconnects after the last byte would count as aborted.
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
    fn stream_fault_happens_after_the_given_deltas() {
        let none = Pacing::default();
        assert_eq!(played("", none), "s1o2e");
        assert_eq!(played("[[end 1]]", none), "s1");
        assert_eq!(played("[[end 0]]", none), "");
        assert_eq!(played("[[cut 2]]", none), "s1o2(20)CUT");
        assert_eq!(played("[[stall 9]]", none), "s1o2STALL");
        assert_eq!(played("[[error 0]]", none), "error@0");
        assert_eq!(played("[[error 1]]", none), "s1error@2");
        let braces = vec![Frame::new(Kind::Delta, "{1}"), Frame::new(Kind::Delta, "{2}")];
        let steps = schedule(braces, none, &directive::take("[[spoil 1]]").0, |_| Vec::new());
        assert_eq!(steps, ["{1}", "{2]"].map(|text| Step::Send(Bytes::from(text))));
    }

    #[test]
    fn stream_pauses_before_the_first_and_between_deltas() {
        assert_eq!(played("[[first 5]]", Pacing::default()), "s|(5)1|o|2|e");
        assert_eq!(played("[[pace 7]]", Pacing::default()), "s|1|o|(7)2|e");
        let slow = Pacing { first_token: Duration::from_millis(3), per_token: Duration::from_millis(4) };
        assert_eq!(played("[[pace 0]]", slow), "s|(3)1|o|2|e");
    }
}
