//! Sources of AWS credentials: metadata services, the security token service, and files.
//!
//! Each source is one file: what it requests, and how its response is read. Which of them a provider uses is decided by
//! the configuration, in the order of the AWS SDKs.
//!
//! Sources: "AWS SDKs and Tools Reference Guide" (<https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>),
//! "AWS Security Token Service API Reference", November 2026.

mod api_key;
mod assume_role;
mod container;
mod document;
mod fixed;
mod instance;
mod profile;
mod sts;
mod web_identity;

#[cfg(test)]
mod tests;

pub(crate) use document::parse as parse_credentials;

pub use api_key::api_key_end;
pub use assume_role::AssumeRole;
pub use container::{Container, ContainerToken};
pub use fixed::Fixed;
pub use instance::{ENDPOINT, ENDPOINT_IPV6, InstanceMetadata};
pub use profile::{ProfileFile, SharedProfile, profile_setting};
pub use web_identity::WebIdentity;

use sha2::{Digest as _, Sha256};

/// Returns a hash of settings, in which no two lists of settings are the same text.
fn fingerprint(name: &str, settings: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for text in std::iter::once(&name).chain(settings) {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().into()
}
