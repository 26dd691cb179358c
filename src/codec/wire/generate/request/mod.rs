//! Requests of the generate format: [`decode`] for those of clients, [`encode`] for those to providers.
//!
//! This module has contents, tools and generation settings, in both directions. The reduction of schemas is a module
//! of its own. Clients mix camelCase and snake_case at every depth, so names are converted to camelCase before they
//! are compared.

mod calls;
mod config;
mod content;
mod decode;
mod encode;
mod read;
mod settings;
mod tools;
mod turns;

pub use decode::{decode, unknown};
pub use encode::encode;
