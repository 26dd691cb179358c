//! Credentials and request signatures of cloud platforms.
//!
//! [`sigv4`] signs requests for AWS and verifies the signatures of clients that use an AWS SDK. [`token`] is what is
//! requested of a token server and what it grants, [`aws`] are the token servers of AWS, and [`renewal`] is when the next
//! credential is requested.
//!
//! This module must not open sockets, read files or the clock: the caller passes the time and the bytes. It knows
//! neither formats nor providers.

pub mod aws;
pub mod renewal;
pub mod sigv4;
pub mod token;
