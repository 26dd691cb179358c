//! Which target answers a request for a model.
//!
//! Here live the table of models and their targets ([`Table`]) and the choice among them ([`select`]). Here must not
//! live: connections, bodies, or what a format means.

pub mod select;
mod table;

pub use table::{Model, Price, Table, Target};
