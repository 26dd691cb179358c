//! Credentials and request signatures of cloud platforms.
//!
//! [`sigv4`] signs requests for AWS and verifies the signatures of clients that use an AWS SDK. [`token`] is what is
//! requested of a token server and what it grants, and [`renewal`] when the next credential is requested.
//! [`google`] and [`azure`] issue access tokens (OAuth 2.0, [`oauth`]).
//!
//! This module must not open sockets, read files or the clock: the caller passes the time and the bytes. It knows
//! neither formats nor providers.

pub mod azure;
pub mod google;
pub mod oauth;
pub mod renewal;
pub mod sigv4;
pub mod token;
