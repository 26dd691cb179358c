//! Credentials and request signatures of cloud platforms.
//!
//! [`sigv4`] signs requests for AWS and verifies the signatures of clients that use an AWS SDK.
//!
//! This module must not open sockets, read files or the clock: the caller passes the time and the bytes. It knows
//! neither formats nor providers.

pub mod sigv4;
