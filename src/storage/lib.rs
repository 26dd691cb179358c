//! What outlives a request or the process, and the only crate that names a database.
//!
//! * [`ledger`] holds balances, and one usage record per request: reservations, a write-ahead journal, and a backend
//!   that it is flushed to.
//! * [`kv`] holds documents by key: stored conversations, provider signatures, tasks and owners.
//! * [`store`] is the access to the databases of both: the SQLite file and its schema, the connection to a server.

pub mod kv;
pub mod ledger;
pub mod store;
