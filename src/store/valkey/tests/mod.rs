//! What a fleet may rely on, against a real server.
