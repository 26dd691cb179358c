//! AWS Signature Version 4 (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>), in the form with
//! headers.
//!
//! A signature is an HMAC over a canonical form of the request ([`CanonicalRequest`]): method, path, query, some headers
//! and the hash of the body. [`Signer`] signs requests for a provider, [`Presented`] is the signature that a client
//! sent, and [`ClockSkew`] corrects the time of signatures by the time of the provider.

mod canonical;
mod credentials;
mod date;
mod sign;
mod skew;
mod verify;

#[cfg(test)]
mod tests;

pub use canonical::{CanonicalRequest, PathEncoding, PayloadHash, PayloadHasher, is_normalized};
pub use credentials::{CredentialScope, Credentials};
pub use date::SigningDate;
pub use sign::{SignedHeaders, Signer, SigningKey};
pub use skew::{ClockSkew, is_clock_error};
pub use verify::{MAX_SKEW_SECONDS, Presented, SignatureError};

/// Name of the algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Last part of a credential scope.
const TERMINATOR: &str = "aws4_request";

/// Appends bytes as lower-case hexadecimal digits.
fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.extend(DIGITS.get(usize::from(nibble)));
        }
    }
}

/// Returns bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    push_hex(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}
