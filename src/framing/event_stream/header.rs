//! Headers of a message: a name and a value of one of ten types.

use super::message::MessageError;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Name, 1 to 255 bytes. Names of the protocol begin with a colon.
    pub name: &'a str,
    /// Value.
    pub value: HeaderValue<'a>,
}

/// Value of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderValue<'a> {
    /// Types 0 and 1.
    Bool(bool),
    /// Type 2.
    Byte(i8),
    /// Type 3.
    Int16(i16),
    /// Type 4.
    Int32(i32),
    /// Type 5.
    Int64(i64),
    /// Type 6: at most 65,535 bytes.
    Bytes(&'a [u8]),
    /// Type 7: at most 65,535 bytes.
    Text(&'a str),
    /// Type 8: milliseconds since 1970.
    Timestamp(i64),
    /// Type 9.
    Uuid([u8; 16]),
}

impl<'a> HeaderValue<'a> {
    /// Returns the text of a string; `None` for a value of another type.
    pub fn as_text(&self) -> Option<&'a str> {
        match self {
            HeaderValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Iterator over the headers of a message, in their order. It ends behind the first fault.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Creates an iterator over the bytes between prelude and payload.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Headers { rest: bytes }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(MessageError::HeaderLength)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(MessageError::HeaderLength)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn counted(&mut self) -> Result<&'a [u8], MessageError> {
        let length = u16::from_be_bytes(self.array()?);
        self.take(usize::from(length))
    }

    fn header(&mut self) -> Result<Header<'a>, MessageError> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| MessageError::HeaderText);
        let [length] = self.array()?;
        if length == 0 {
            return Err(MessageError::HeaderLength);
        }
        let name = text(self.take(usize::from(length))?)?;
        let [kind] = self.array()?;
        let value = match kind {
            0 => HeaderValue::Bool(true),
            1 => HeaderValue::Bool(false),
            2 => HeaderValue::Byte(i8::from_be_bytes(self.array()?)),
            3 => HeaderValue::Int16(i16::from_be_bytes(self.array()?)),
            4 => HeaderValue::Int32(i32::from_be_bytes(self.array()?)),
            5 => HeaderValue::Int64(i64::from_be_bytes(self.array()?)),
            6 => HeaderValue::Bytes(self.counted()?),
            7 => HeaderValue::Text(text(self.counted()?)?),
            8 => HeaderValue::Timestamp(i64::from_be_bytes(self.array()?)),
            9 => HeaderValue::Uuid(self.array()?),
            other => return Err(MessageError::HeaderType(other)),
        };
        Ok(Header { name, value })
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Result<Header<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let header = self.header();
        if header.is_err() {
            self.rest = &[];
        }
        Some(header)
    }
}
