//! Answers of scripted upstreams, as bytes.

/// A head with these headers and nothing else.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> String {
    let mut head = format!("HTTP/1.1 {status} Reason\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

/// A whole answer with its length.
pub(crate) fn whole(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    [head(status, &headers).as_bytes(), body].concat()
}

/// A JSON answer.
pub(crate) fn json(status: u16, body: impl AsRef<[u8]>) -> Vec<u8> {
    whole(status, &[("content-type", "application/json")], body)
}

/// The head of a stream in chunks.
pub(crate) fn stream_head() -> String {
    head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
}

/// A whole stream, each of its frames in a chunk of its own.
pub(crate) fn stream(frames: &[String]) -> Vec<u8> {
    let mut out = stream_head().into_bytes();
    for frame in frames {
        out.extend_from_slice(&chunk(frame));
    }
    out.extend_from_slice(LAST_CHUNK);
    out
}

/// One chunk.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The end of a body in chunks.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
