//! Credentials and request signatures of cloud platforms.
//!
//! [`sigv4`] signs requests for AWS and verifies the signatures of clients that use an AWS SDK. [`token`] is what is
//! requested of a token server and what it grants, and [`renewal`] is when the next credential is requested. The token
//! servers are those of AWS ([`aws`]), Google ([`google`]) and Azure ([`azure`]); the last two have in common what
//! OAuth 2.0 prescribes ([`oauth`]).
//!
//! This module must not open sockets, read files or the clock: the caller passes the time and the bytes. It knows
//! neither formats nor providers.

pub mod aws;
pub mod azure;
pub mod google;
pub mod oauth;
pub mod renewal;
pub mod sigv4;
pub mod token;
