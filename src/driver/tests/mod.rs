//! The driver with a proxy that is not the gateway: it knows no format, and records the phases that are called.

mod client_stream;
mod phases;
mod recorder;
