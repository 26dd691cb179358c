//! Which target answers a request for a model.
//!
//! Here live the table of models and their targets ([`Table`]), what a client may call them ([`name`]) and the choice among them ([`select`]). Here must not
//! live: connections, bodies, or what a format means.

pub mod name;
pub mod select;
mod table;

pub use name::Named;
pub use table::{Model, Table, Target};
