//! Requests and answers for vectors.
