//! Bounds of what runs at a time on the admin port, and the threads for it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{AdminApiError, ErrorCode};

/// Concurrent operations, most of which wait for a thread; further ones get a 503.
const OPERATIONS: usize = 32;
/// Threads for operations: files and databases.
const THREADS: usize = 4;
/// Concurrent checks of whole configurations, which wait for [`CHECK_THREADS`]; further ones get a 503. Each has up to 32 MiB of
/// text in memory.
const CHECKS: usize = 4;
/// Threads for checks, which take seconds with large texts. They leave those of other operations free.
const CHECK_THREADS: usize = 1;
/// Concurrent sign-ins at an issuer of identities, which may take its time. They have threads of their own: two are at the
/// issuer, and the others are told so by a page.
const SIGN_INS: usize = 4;
/// Concurrent exports of usage, each as slow as its client. They have threads of their own.
const EXPORTS: usize = 2;
/// Concurrent streams of events.
const STREAMS: usize = 32;
/// Concurrent requests of the playground.
const PLAYGROUND: usize = 4;
/// Threads for the work that no caller waits for: what a gateway says of itself to its fleet, the end of drainings, lines about
/// refused requests.
const BACKGROUND: usize = 2;

/// Threads that the work of the admin port may block.
pub const BLOCKING_THREADS: usize = THREADS + CHECK_THREADS + SIGN_INS + EXPORTS + BACKGROUND;

/// Places for what runs at a time. A place belongs to the work, not to the caller, who may leave before the work ends.
#[derive(Debug)]
pub(super) struct Capacity {
    operations: Arc<Semaphore>,
    threads: Arc<Semaphore>,
    checks: Arc<Semaphore>,
    check_threads: Arc<Semaphore>,
    sign_ins: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    playground: Arc<Semaphore>,
}

/// Place of an operation, with its thread.
#[derive(Debug)]
pub(super) struct OperationPlace {
    _place: OwnedSemaphorePermit,
    /// `None` for a sign-in, whose place is its thread.
    _thread: Option<OwnedSemaphorePermit>,
}

/// Place of a check of a whole configuration.
#[derive(Debug)]
pub(super) struct CheckPlace {
    place: OwnedSemaphorePermit,
    threads: Arc<Semaphore>,
}

impl CheckPlace {
    /// Waits for a thread.
    ///
    /// # Errors
    /// Returns the error of an admin port that ends.
    pub(super) async fn thread(self) -> Result<OperationPlace, AdminApiError> {
        let thread = self.threads.acquire_owned().await.map_err(|_| busy())?;
        Ok(OperationPlace { _place: self.place, _thread: Some(thread) })
    }
}

fn busy() -> AdminApiError {
    AdminApiError::new(ErrorCode::Unavailable, "too many requests at a time").retry_after(1)
}

fn take(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, AdminApiError> {
    places.clone().try_acquire_owned().map_err(|_| busy())
}

impl Capacity {
    pub(super) fn new() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Capacity {
            operations: places(OPERATIONS),
            threads: places(THREADS),
            checks: places(CHECKS),
            check_threads: places(CHECK_THREADS),
            sign_ins: places(SIGN_INS),
            exports: places(EXPORTS),
            streams: places(STREAMS),
            playground: places(PLAYGROUND),
        }
    }

    /// Takes a place for an operation, and waits for a thread.
    ///
    /// # Errors
    /// Returns the error of too many operations at a time.
    pub(super) async fn operation(&self) -> Result<OperationPlace, AdminApiError> {
        let place = take(&self.operations)?;
        let thread = self.threads.clone().acquire_owned().await.map_err(|_| busy())?;
        Ok(OperationPlace { _place: place, _thread: Some(thread) })
    }

    /// Takes a place for a check of a whole configuration, before its texts arrive.
    ///
    /// # Errors
    /// Returns the error of too many checks at a time.
    pub(super) fn check(&self) -> Result<CheckPlace, AdminApiError> {
        Ok(CheckPlace { place: take(&self.checks)?, threads: self.check_threads.clone() })
    }

    /// Takes a place for a sign-in at an issuer of identities.
    ///
    /// # Errors
    /// Returns the error of too many sign-ins at a time.
    pub(super) fn sign_in(&self) -> Result<OperationPlace, AdminApiError> {
        Ok(OperationPlace { _place: take(&self.sign_ins)?, _thread: None })
    }

    /// Takes a place for an export.
    ///
    /// # Errors
    /// Returns the error of too many exports at a time.
    pub(super) fn export(&self) -> Result<OwnedSemaphorePermit, AdminApiError> {
        take(&self.exports)
    }

    /// Takes a place for a stream of events.
    ///
    /// # Errors
    /// Returns the error of too many streams at a time.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, AdminApiError> {
        take(&self.streams)
    }

    /// Takes a place for a request of the playground.
    ///
    /// # Errors
    /// Returns the error of too many requests at a time.
    pub(super) fn playground(&self) -> Result<OwnedSemaphorePermit, AdminApiError> {
        take(&self.playground)
    }
}
