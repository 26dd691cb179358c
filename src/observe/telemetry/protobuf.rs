//! Protobuf writer and reader (protobuf.dev, "Encoding"), as far as the messages of OTLP need them: no reflection, no
//! generated types, one growing buffer.

/// Wire types.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Writer of protobuf fields to the end of a buffer. MessageFields may come in any order.
#[derive(Debug)]
pub struct ProtobufWriter<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> ProtobufWriter<'b> {
    /// Writes the fields of a message to the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        ProtobufWriter { out }
    }

    fn tag(&mut self, field: u32, wire: u8) {
        push_varint(u64::from(field) << 3 | u64::from(wire), self.out);
    }

    /// Writes a varint field: integers, booleans and enumerations.
    pub fn varint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        push_varint(value, self.out);
    }

    /// Writes a fixed64 field.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a double field.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// Writes a fixed32 field.
    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a field of bytes or a string.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, BYTES);
        push_varint(value.len() as u64, self.out);
        self.out.extend_from_slice(value);
    }

    /// Writes a string in several pieces.
    pub fn text_of(&mut self, field: u32, pieces: &[&str]) {
        self.tag(field, BYTES);
        push_varint(pieces.iter().map(|piece| piece.len() as u64).sum(), self.out);
        for piece in pieces {
            self.out.extend_from_slice(piece.as_bytes());
        }
    }

    /// Writes a packed field of eight-byte values.
    pub fn packed64(&mut self, field: u32, values: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, BYTES);
        push_varint(values.len() as u64 * 8, self.out);
        values.for_each(|value| self.out.extend_from_slice(&value.to_le_bytes()));
    }

    /// Writes a nested message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut ProtobufWriter<'_>)) {
        self.tag(field, BYTES);
        let start = self.out.len();
        // One byte of length is right for most messages; a longer one moves the message.
        self.out.push(0);
        write(&mut ProtobufWriter { out: self.out });
        let length = self.out.len() - start - 1;
        let size = varint_len(length as u64);
        if size > 1 {
            self.out.resize(self.out.len() + size - 1, 0);
            self.out.copy_within(start + 1..start + 1 + length, start + size);
        }
        let mut at = start;
        each_varint_byte(length as u64, |byte| {
            if let Some(place) = self.out.get_mut(at) {
                *place = byte;
            }
            at += 1;
        });
    }

    /// Begins a nested message of a known length, whose fields are written next.
    pub fn begin(&mut self, field: u32, length: usize) {
        self.tag(field, BYTES);
        push_varint(length as u64, self.out);
    }

    /// Writes fields that are encoded already.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }
}

/// Returns the encoded length of a field of bytes.
pub fn bytes_field_len(field: u32, length: usize) -> usize {
    varint_len(u64::from(field) << 3) + varint_len(length as u64) + length
}

/// Returns the encoded length of a varint field.
pub fn varint_field_len(field: u32, value: u64) -> usize {
    varint_len(u64::from(field) << 3) + varint_len(value)
}

fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn each_varint_byte(mut value: u64, mut push: impl FnMut(u8)) {
    loop {
        let byte = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            return push(byte);
        }
        push(byte | 0x80);
    }
}

fn push_varint(value: u64, out: &mut Vec<u8>) {
    // Tags and most lengths have one byte.
    if let Ok(byte @ ..0x80) = u8::try_from(value) {
        return out.push(byte);
    }
    each_varint_byte(value, |byte| out.push(byte));
}

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'m> {
    /// Varint.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// Bytes, a string or a nested message.
    Bytes(&'m [u8]),
    /// Four bytes, little-endian.
    Fixed32(u32),
}

/// Reader of the fields of a message. Ends at the first byte that is not protobuf.
#[derive(Clone, Copy, Debug)]
pub struct MessageFields<'m>(&'m [u8]);

impl<'m> MessageFields<'m> {
    /// Reads the fields of a message.
    pub fn new(message: &'m [u8]) -> Self {
        MessageFields(message)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'m> Iterator for MessageFields<'m> {
    /// Number and value of a field.
    type Item = (u32, WireValue<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).ok()?;
        let value = match u8::try_from(tag & 7).ok()? {
            VARINT => WireValue::Varint(self.varint()?),
            FIXED64 => WireValue::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            BYTES => {
                let length = usize::try_from(self.varint()?).ok()?;
                WireValue::Bytes(self.take(length)?)
            }
            FIXED32 => WireValue::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((field, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_are_read_as_they_were_written(
            number in 1u32..100_000,
            varint in any::<u64>(),
            fixed in any::<u64>(),
            small in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..20_000),
        ) {
            let mut out = Vec::new();
            let mut message = ProtobufWriter::new(&mut out);
            message.varint(number, varint);
            message.message(number, |nested| {
                nested.fixed64(1, fixed);
                nested.bytes(2, &bytes);
            });
            message.fixed32(number, small);
            let fields: Vec<_> = MessageFields::new(&out).collect();
            let (nested, rest) = match &fields[..] {
                [first, (_, WireValue::Bytes(nested)), last] => (*nested, [*first, *last]),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(rest, [(number, WireValue::Varint(varint)), (number, WireValue::Fixed32(small))]);
            let nested: Vec<_> = MessageFields::new(nested).collect();
            prop_assert_eq!(nested, [(1, WireValue::Fixed64(fixed)), (2, WireValue::Bytes(&bytes))]);
            let mut field = Vec::new();
            ProtobufWriter::new(&mut field).bytes(number, &bytes);
            prop_assert_eq!(field.len(), bytes_field_len(number, bytes.len()));
        }

        #[test]
        fn fields_of_arbitrary_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(MessageFields::new(&bytes).count() <= bytes.len());
        }
    }
}
