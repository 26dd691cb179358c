//! Frames of HTTP/2 on their way to h2, which answers every malformed frame with PROTOCOL_ERROR. RFC 9113 demands other codes
//! for some, which h2 knows for other faults: such a frame is changed to one that has the fault with the right code
//! (docs/decisions/002). The connection ends with it either way. A frame whose head arrives in two reads passes unchanged.

/// Length of the connection preface (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// Length of the head of a frame (section 4.1).
const HEAD: usize = 9;
/// Largest flow-control window (section 6.9.1).
const LARGEST_WINDOW: u32 = 0x7fff_ffff;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: [u8; 2] = [0, 4];

const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

/// Position in the frames of one connection, which arrive in pieces.
#[derive(Debug)]
pub(super) struct FrameWatch {
    /// Bytes until the next head: of the preface, or of the payload of a frame.
    left: usize,
    /// First bytes of a head that did not arrive whole.
    head: [u8; HEAD],
    /// Number of them.
    begun: usize,
}

impl Default for FrameWatch {
    fn default() -> Self {
        FrameWatch { left: PREFACE, head: [0; HEAD], begun: 0 }
    }
}

impl FrameWatch {
    /// Follows the next bytes, and changes a frame of a fault that h2 would name wrongly.
    pub(super) fn pass(&mut self, mut bytes: &mut [u8]) {
        loop {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = bytes.get_mut(skipped..).unwrap_or_default();
            if bytes.is_empty() {
                return;
            }
            if self.begun == 0 && bytes.len() >= HEAD {
                let Some((head, payload)) = bytes.split_first_chunk_mut::<HEAD>() else { return };
                correct(head, payload);
                self.left = length_of(head);
                bytes = payload;
                continue;
            }
            let missing = (HEAD - self.begun).min(bytes.len());
            let (begun, rest) = bytes.split_at_mut(missing);
            if let Some(slot) = self.head.get_mut(self.begun..self.begun + missing) {
                slot.copy_from_slice(begun);
            }
            self.begun += missing;
            bytes = rest;
            if self.begun == HEAD {
                self.begun = 0;
                self.left = length_of(&self.head);
            }
        }
    }
}

fn length_of(head: &[u8; HEAD]) -> usize {
    let [high, middle, low, ..] = *head;
    usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
}

/// Changes a frame with a length that its type cannot have, or with a window that is too large.
fn correct(head: &mut [u8; HEAD], payload: &mut [u8]) {
    let length = length_of(head);
    let [.., kind, flags, _, _, _, _] = *head;
    let is_wrong = match kind {
        PRIORITY => length != 5,
        RST_STREAM | WINDOW_UPDATE => length != 4,
        SETTINGS if flags & ACK != 0 => length != 0,
        SETTINGS => !length.is_multiple_of(6),
        PING => length != 8,
        GOAWAY => length < 8,
        _ => false,
    };
    if is_wrong {
        // Beyond every maximum: FRAME_SIZE_ERROR.
        let [length @ .., _, _, _, _, _, _] = head;
        *length = [0xff; 3];
    } else if kind == SETTINGS && has_too_large_window(payload.get(..length).unwrap_or_default()) {
        // An increment that overflows the window of the connection: FLOW_CONTROL_ERROR.
        *head = [0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0];
        if let Some(increment) = payload.first_chunk_mut() {
            *increment = LARGEST_WINDOW.to_be_bytes();
        }
    }
}

fn has_too_large_window(settings: &[u8]) -> bool {
    settings.as_chunks::<6>().0.iter().any(|[high, low, value @ ..]| {
        [*high, *low] == INITIAL_WINDOW && u32::from_be_bytes(*value) > LARGEST_WINDOW
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// Passes the preface and these frames in pieces of this size. Returns what becomes of the frames.
    fn passed(frames: &[u8], size: usize) -> Vec<u8> {
        let mut watch = FrameWatch::default();
        let mut all = [&[0; PREFACE][..], frames].concat();
        all.chunks_mut(size).for_each(|piece| watch.pass(piece));
        all.split_off(PREFACE)
    }

    #[test]
    fn http2_frames_that_are_valid_pass_unchanged() {
        let frames = [
            frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff, 0, 3, 0xff, 0xff, 0xff, 0xff]),
            frame(4, 1, 0, &[]),
            frame(0, 0, 1, b"\0\0\x09\x06"),
            frame(1, 4, 1, &[0x82; 100]),
            frame(2, 0, 1, &[0; 5]),
            frame(3, 0, 1, &[0; 4]),
            frame(6, 0, 0, &[0; 8]),
            frame(7, 0, 0, &[0; 20]),
            frame(8, 0, 0, &[0; 4]),
            frame(99, 255, 0, &[0; 3]),
        ]
        .concat();
        for size in 1..=frames.len() + PREFACE {
            assert_eq!(passed(&frames, size), frames, "{size}");
        }
    }

    #[test]
    fn http2_frames_of_a_wrong_length_become_too_long() {
        for wrong in [
            frame(2, 0, 1, &[0; 4]),
            frame(3, 0, 1, &[0; 5]),
            frame(4, 0, 0, &[0; 5]),
            frame(4, 1, 0, &[0; 6]),
            frame(6, 0, 0, &[0; 7]),
            frame(7, 0, 0, &[0; 7]),
            frame(8, 0, 0, &[0; 3]),
        ] {
            let all = [frame(4, 0, 0, &[]), wrong.clone()].concat();
            let seen = passed(&all, all.len() + PREFACE);
            assert_eq!(seen[9..12], [0xff; 3], "{wrong:?}");
            assert_eq!(seen[12..], all[12..], "{wrong:?}");
        }
    }

    #[test]
    fn http2_window_that_is_too_large_becomes_an_overflow() {
        let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 9, 0, 4, 0x80, 0, 0, 0]);
        let seen = passed(&settings, settings.len() + PREFACE);
        assert_eq!(seen[..13], [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    }
}
