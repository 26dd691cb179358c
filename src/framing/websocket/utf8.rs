//! UTF-8 of a text message (RFC 6455, section 8.1), checked while its parts arrive.

/// State of the check: the bytes of a character that the parts so far have begun and not completed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utf8Check {
    begun: [u8; 4],
    count: usize,
}

impl Utf8Check {
    /// Checks the next part. Returns whether the text can still become valid; with `end`, whether it is.
    pub(super) fn push(&mut self, mut part: &[u8], end: bool) -> bool {
        while self.count > 0 {
            let Some((byte, rest)) = part.split_first() else { return !end };
            let Some(slot) = self.begun.get_mut(self.count) else { return false };
            *slot = *byte;
            self.count += 1;
            part = rest;
            match std::str::from_utf8(self.begun.get(..self.count).unwrap_or_default()) {
                Ok(_) => self.count = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match simdutf8::compat::from_utf8(part) {
            Ok(_) => true,
            Err(error) => {
                let rest = part.get(error.valid_up_to()..).unwrap_or_default();
                if end || error.error_len().is_some() || rest.len() >= self.begun.len() {
                    return false;
                }
                for (slot, byte) in self.begun.iter_mut().zip(rest) {
                    *slot = *byte;
                }
                self.count = rest.len();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: &[u8], size: usize) -> bool {
        let mut state = Utf8Check::default();
        let parts: Vec<&[u8]> = bytes.chunks(size).collect();
        parts.iter().all(|part| state.push(part, false)) && state.push(&[], true)
    }

    proptest! {
        #[test]
        fn utf8_check_agrees_with_the_standard_library_at_every_split(
            text in "[a-zé€😀]{0,12}",
            spoilt in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            size in 1usize..8,
        ) {
            let mut bytes = text.into_bytes();
            if let Some((at, byte)) = spoilt && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            prop_assert_eq!(check(&bytes, size), std::str::from_utf8(&bytes).is_ok());
            let whole = Utf8Check::default().push(&bytes, true);
            prop_assert_eq!(whole, std::str::from_utf8(&bytes).is_ok());
        }
    }
}
