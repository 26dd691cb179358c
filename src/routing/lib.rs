//! Who may ask, what it costs, and which target answers.
//!
//! Time and randomness are passed in, so that tests can simulate all of it. No socket and no file is opened here.
//!
//! * [`account`] is keys (stored as hashes only), their permissions, and the price of a request.
//! * [`limits`] is the rate limiter, the usage of the limits of keys and accounts, and leases of limits that several
//!   gateways share.
//! * [`route`] is the load balancer that selects a target for a request, and the table of models and their targets.
//! * [`snapshot`] combines the routing table and the keys of one reload, immutably; each request uses the one it
//!   started with.

pub mod account;
pub mod limits;
pub mod route;
pub mod snapshot;
