//! HTTP/1 for clients and upstreams under test: heads, and bodies framed by length, by chunks or by the end of the
//! connection.

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Any connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Head of a request or response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Request line or status line.
    pub(crate) line: String,
    /// Header names as they were written, with their values.
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str) -> Head {
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let fields = lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no header: {line:?}"));
                (name.to_owned(), value.trim().to_owned())
            })
            .collect();
        Head { line, fields }
    }

    /// Returns the first header with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Returns all headers with this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fits = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        fits.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the status of a response.
    pub(crate) fn status(&self) -> u16 {
        let status = self.line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status line: {:?}", self.line))
    }

    /// Returns path and query of a request.
    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    fn framing(&self, of_request: bool) -> Framing {
        if self.get("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return Framing::Chunks { left: 0, ended: false };
        }
        match self.get("content-length") {
            Some(length) => Framing::Length(length.parse().unwrap()),
            None if of_request || matches!(self.status(), 100..200 | 204 | 304) => Framing::Length(0),
            None => Framing::UntilClose,
        }
    }
}

/// Framing of a body.
#[derive(Clone, Debug)]
enum Framing {
    Length(usize),
    Chunks { left: usize, ended: bool },
    UntilClose,
}

/// One read of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes as they were received.
    Data(Vec<u8>),
    /// The body is complete.
    End,
    /// The connection ended before the body did.
    Cut,
}

/// Complete or truncated body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// Whether the body ended as its framing demands.
    pub(crate) complete: bool,
    /// Trailer fields after the last chunk.
    pub(crate) trailers: Vec<String>,
}

/// Connection with a buffer of bytes that were read but not consumed.
pub(crate) struct Wire {
    io: Box<dyn Io>,
    buffer: BytesMut,
    framing: Framing,
    trailers: Vec<String>,
}

impl Wire {
    pub(crate) fn new(io: Box<dyn Io>) -> Self {
        Wire { io, buffer: BytesMut::new(), framing: Framing::Length(0), trailers: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.io.write_all(bytes.as_ref()).await?;
        self.io.flush().await
    }

    /// Shuts down the write side.
    pub(crate) async fn finish_sending(&mut self) {
        let _ = self.io.shutdown().await;
    }

    /// Reads more bytes. Returns false at the end of the connection, orderly or not.
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(64 * 1024);
        matches!(self.io.read_buf(&mut self.buffer).await, Ok(read) if read > 0)
    }

    /// Returns bytes that were read but not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
                self.buffer.advance(at + 2);
                return Some(line);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads a head, or returns `None` if the connection ends before it is complete.
    pub(crate) async fn head(&mut self, of_request: bool) -> Option<Head> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = Head::parse(&String::from_utf8_lossy(&self.buffer[..at]));
                self.buffer.advance(at + 4);
                self.framing = head.framing(of_request);
                self.trailers.clear();
                return Some(head);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Expects no body whatever the head declares: for the response to HEAD.
    pub(crate) fn expect_no_body(&mut self) {
        self.framing = Framing::Length(0);
    }

    /// Reads the next piece of a body.
    pub(crate) async fn piece(&mut self) -> Piece {
        loop {
            let most = match &mut self.framing {
                Framing::Length(0) | Framing::Chunks { ended: true, .. } => return Piece::End,
                Framing::Length(left) | Framing::Chunks { left, .. } => *left,
                Framing::UntilClose => usize::MAX,
            };
            if most == 0 {
                match self.chunk_size().await {
                    None => return Piece::Cut,
                    Some(size) => self.framing = Framing::Chunks { left: size, ended: size == 0 },
                }
                continue;
            }
            if self.buffer.is_empty() && !self.fill().await {
                return if matches!(self.framing, Framing::UntilClose) { Piece::End } else { Piece::Cut };
            }
            let taken = self.buffer.split_to(most.min(self.buffer.len()));
            match &mut self.framing {
                Framing::Length(left) => *left -= taken.len(),
                Framing::Chunks { left, .. } => {
                    *left -= taken.len();
                    if *left == 0 && self.line().await.is_none_or(|line| !line.is_empty()) {
                        return Piece::Cut;
                    }
                }
                Framing::UntilClose => {}
            }
            return Piece::Data(taken.to_vec());
        }
    }

    /// Reads the size of the next chunk, and the trailers after the last one.
    async fn chunk_size(&mut self) -> Option<usize> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        if size > 0 {
            return Some(size);
        }
        loop {
            let trailer = self.line().await?;
            if trailer.is_empty() {
                return Some(0);
            }
            self.trailers.push(trailer);
        }
    }

    /// Reads a body to its end.
    pub(crate) async fn body(&mut self) -> Body {
        let mut bytes = Vec::new();
        loop {
            match self.piece().await {
                Piece::Data(piece) => bytes.extend_from_slice(&piece),
                end => {
                    let trailers = std::mem::take(&mut self.trailers);
                    return Body { bytes, complete: end == Piece::End, trailers };
                }
            }
        }
    }

    /// Waits until the peer ends the connection and discards what it sends.
    pub(crate) async fn closed(&mut self) {
        while self.fill().await {
            self.buffer.clear();
        }
    }

    /// Reads everything until the connection ends.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        self.buffer.split().to_vec()
    }
}
