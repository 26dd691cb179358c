//! Responses of scripted upstreams, as bytes.

/// Returns a response head with these headers and no others.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> String {
    let mut head = format!("HTTP/1.1 {status} Reason\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

/// Returns a complete response with its content length.
pub(crate) fn whole(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    [head(status, &headers).as_bytes(), body].concat()
}

/// Returns a complete JSON response.
pub(crate) fn json(status: u16, body: impl AsRef<[u8]>) -> Vec<u8> {
    whole(status, &[("content-type", "application/json")], body)
}

/// Returns the head of a chunked event stream.
pub(crate) fn stream_head() -> String {
    head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
}

/// Returns a complete event stream, each frame in its own chunk.
pub(crate) fn stream(frames: &[String]) -> Vec<u8> {
    let mut out = stream_head().into_bytes();
    for frame in frames {
        out.extend_from_slice(&chunk(frame));
    }
    out.extend_from_slice(LAST_CHUNK);
    out
}

/// Returns one chunk.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// End of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
