//! Short-lived credentials of providers at cloud platforms.
//!
//! [`handle::CredentialHandle`] publishes the present credential of one provider: requests load a pointer, and wait only
//! if there is none. [`renewer`] renews each credential ahead of its end, one exchange with the token server at a time.
//! [`authorize`] puts the credential into a request head, as a token or as a signature over the request.
//!
//! Must not live here: what token servers expect and answer (`cloud`), and static keys, which are part of the prepared
//! request head (`provider`).

pub(crate) mod authorize;
pub(crate) mod handle;
pub(crate) mod probe;
pub(crate) mod registry;
pub(crate) mod renewer;

pub(crate) use handle::CredentialHandle;
