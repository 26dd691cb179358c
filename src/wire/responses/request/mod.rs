//! Requests of the responses format.
