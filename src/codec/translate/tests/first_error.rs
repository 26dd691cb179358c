//! Responses whose first frame is an error: nothing has been forwarded, so the client can still get an error status.

use super::{pass, pieces};
use crate::translate::verbatim::{Arrival, StreamError};
use crate::wire::Api;

#[test]
fn first_frame_error_is_detected_in_each_format() {
    for (api, arrival, stream, error) in [
        (
            Api::Chat,
            Arrival::Events,
            ": waiting\n\ndata: {\"error\":{\"message\":\"é\",\"code\":429}}\n\ndata: [DONE]\n\n",
            "{\"error\":{\"message\":\"é\",\"code\":429}}",
        ),
        (
            Api::Messages,
            Arrival::Events,
            "event: error\r\ndata:{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\r\n\r\n",
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}",
        ),
        (
            Api::Responses,
            Arrival::Events,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n",
            "{\"type\":\"error\",\"error\":{\"code\":\"rate_limit_exceeded\"}}",
        ),
        (
            Api::Generate,
            Arrival::Events,
            "data: {\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
            "{\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\"}}",
        ),
        (
            Api::Generate,
            Arrival::Array,
            "[{\"error\":{\"code\":503,\"message\":\"m\"}}\n]\n",
            "{\"error\":{\"code\":503,\"message\":\"m\"}}",
        ),
        (Api::Chat, Arrival::Events, "{\"error\":{\"message\":\"m\"}}", "{\"error\":{\"message\":\"m\"}}"),
        (
            Api::Messages,
            Arrival::Events,
            "{\"error\":\n{\"message\":\"m\"}}\n\n",
            "{\"error\":\n{\"message\":\"m\"}}",
        ),
        (Api::Generate, Arrival::Array, "{\"error\":{\"message\":\"m\"}}", "{\"error\":{\"message\":\"m\"}}"),
    ] {
        let mut left = stream.len();
        for size in 1..=stream.len() {
            let passed = pass(api, arrival, pieces(stream.as_bytes(), &[size]));
            assert_eq!(
                passed.result,
                Err(StreamError::FirstFrame(error.into())),
                "pieces of {size}: {stream}"
            );
            // Comments may have been forwarded; a frame with data must not.
            assert!(!passed.text().contains("data"), "{:?}", passed.text());
            left = left.min(passed.out.len());
        }
        assert_eq!(left, 0);
    }
}

#[test]
fn first_frame_error_excludes_later_errors() {
    let stream = "data: {\"choices\":[]}\n\ndata: {\"error\":{\"message\":\"m\"}}\n\n";
    let passed = pass(Api::Chat, Arrival::Events, [stream.as_bytes()]);
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), stream));
}
