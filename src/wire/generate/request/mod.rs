//! Requests of this format: [`decode`] what a client sends, [`encode`] what a provider gets.
//!
//! Here live contents, tools and generation settings, in both directions. Schemas have a room of their own beside this
//! one. Clients mix camelCase and snake_case at every depth, so names are compared in one spelling only.

mod calls;
mod config;
mod content;
mod decode;
mod encode;
mod model;
mod read;
mod settings;
mod tools;
mod turns;

pub use decode::{decode, unknown};
pub use encode::encode;
