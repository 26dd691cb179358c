//! tour
pub mod canonical;
pub mod error;
pub mod framing;
pub mod json;
pub mod translate;
pub mod wire;

#[cfg(feature = "proxy")]
pub mod account;
#[cfg(feature = "proxy")]
pub mod cli;
#[cfg(feature = "proxy")]
pub mod config;
#[cfg(feature = "proxy")]
pub mod metrics;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "proxy")]
pub mod route;
#[cfg(feature = "proxy")]
pub mod snapshot;
#[cfg(feature = "proxy")]
pub mod vendor;
