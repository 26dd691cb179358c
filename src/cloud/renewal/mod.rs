//! Renewal of short-lived credentials: when the next one is requested, and how long the present one is used.
//!
//! [`Renewal`] is a state machine without a clock: the caller passes the time, and does what falls due. A credential is
//! renewed well before its end, so that a token server that is away for less than the rest of its life goes unnoticed;
//! failures are repeated with pauses that get shorter as the end approaches.

mod schedule;

#[cfg(test)]
mod tests;

pub use schedule::{AcceptedGrant, Renewal, RenewalPolicy, Standing};
