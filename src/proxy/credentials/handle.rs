//! Present credential of a provider, shared by all requests to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::gateway::fallback::random_point;
use cloud::renewal::{Renewal, RenewalPolicy, Standing};
use cloud::sigv4::{ClockSkew, CredentialScope, Signer};
use cloud::token::{Credential, Grant, TokenError};
use codec::provider::{CloudAccess, Provider};

/// Credential that was issued, in the form in which requests use it.
#[derive(Debug)]
pub(crate) struct IssuedCredential {
    pub(super) authorization: Authorization,
    /// Number of the credential, from 1 on: a request that is refused says which one it was sent with.
    pub(crate) number: u64,
    /// Time at which requests stop using it; `None` if they use it until the next one is issued.
    end: Option<Instant>,
}

/// Form in which requests carry a credential.
#[derive(Debug)]
pub(super) enum Authorization {
    /// Value of the header `authorization`.
    Bearer(HeaderValue),
    /// Each request is signed.
    Signature(Box<Signer>),
}

/// Progress of the renewal, for requests that wait for a credential.
#[derive(Clone, Debug)]
enum Progress {
    /// An exchange with the token server is under way, or about to begin.
    Requesting,
    /// The last exchange has issued a credential.
    Issued,
    /// The last two exchanges have failed.
    Failed(TokenError),
}

/// Present credential of a provider, and the state of its renewal.
pub(crate) struct CredentialHandle {
    pub(super) provider: Box<str>,
    access: CloudAccess,
    issued: ArcSwapOption<IssuedCredential>,
    progress: watch::Sender<Progress>,
    /// Wakes the renewer when a renewal falls due earlier than planned.
    pub(super) wake: Notify,
    /// Not locked while a request is sent: only by the renewer, and after a refusal.
    renewal: Mutex<Renewal>,
    /// Beginning of the time that `renewal` counts.
    epoch: Instant,
    /// Difference of the provider's clock, which signatures are dated by.
    pub(super) skew: ClockSkew,
}

impl CredentialHandle {
    /// Creates the handle of a provider; `None` for a provider without access to a cloud platform. A credential that is
    /// part of the configuration is there at once.
    pub(crate) fn new(provider: &Provider) -> Option<CredentialHandle> {
        let access = provider.cloud.clone()?;
        let renewal = Renewal::new(RenewalPolicy::default(), access.source.outlives_expiry(), Duration::ZERO);
        let handle = CredentialHandle {
            provider: provider.name.clone(),
            issued: ArcSwapOption::empty(),
            progress: watch::Sender::new(Progress::Requesting),
            wake: Notify::new(),
            renewal: Mutex::new(renewal),
            epoch: Instant::now(),
            skew: ClockSkew::default(),
            access,
        };
        if let Some(credential) = handle.access.source.fixed() {
            let grant = Grant { credential, lifetime: cloud::token::Lifetime::Unlimited };
            // A fixed credential that cannot be sent leaves the handle without one, and requests fail with a reason.
            let _ = handle.accept(grant, Duration::ZERO, 0);
        }
        Some(handle)
    }

    /// Returns whether the handle serves this provider, so that a reload may keep it.
    pub(super) fn serves(&self, provider: &Provider) -> bool {
        self.provider == provider.name
            && provider.cloud.as_ref().is_some_and(|access| access.is_same(&self.access))
    }

    /// Returns the way to the credential.
    pub(super) fn access(&self) -> &CloudAccess {
        &self.access
    }

    /// Returns the present credential; `None` if there is none, or if it has expired.
    pub(super) fn current(&self) -> Option<Arc<IssuedCredential>> {
        let issued = self.issued.load();
        let issued = issued.as_ref().filter(|issued| issued.end.is_none_or(|end| end > Instant::now()));
        issued.cloned()
    }

    /// Returns whether a request may be sent now.
    pub(crate) fn is_available(&self) -> bool {
        let issued = self.issued.load();
        issued.as_ref().is_some_and(|issued| issued.end.is_none_or(|end| end > Instant::now()))
    }

    /// Waits for a credential: for the exchange that is under way, and for the one after its failure.
    ///
    /// # Errors
    /// Returns the reason why there is none, for the log.
    pub(crate) async fn wait(&self, within: Duration) -> Result<(), String> {
        self.wait_for(within, || self.is_available()).await
    }

    async fn wait_for(&self, within: Duration, is_there: impl Fn() -> bool) -> Result<(), String> {
        let mut progress = self.progress.subscribe();
        let waiting = async {
            loop {
                // Marked as seen before the look: a change in between is not lost.
                let failed = match &*progress.borrow_and_update() {
                    Progress::Failed(error) => Some(error.to_string()),
                    Progress::Requesting | Progress::Issued => None,
                };
                if is_there() {
                    return Ok(());
                }
                if let Some(reason) = failed {
                    return Err(reason);
                }
                if progress.changed().await.is_err() {
                    return Err("the renewal has ended".to_owned());
                }
            }
        };
        let waited = tokio::time::timeout(within, waiting).await;
        waited.unwrap_or_else(|_| Err("the token server has not answered yet".to_owned()))
    }

    /// Takes a provider's refusal of the credential with this number: waits for the next one. Returns whether there is
    /// one, so that the request is worth another attempt.
    pub(crate) async fn replace(&self, number: u64, within: Duration) -> bool {
        let is_newer = || self.issued.load().as_ref().is_some_and(|issued| issued.number > number);
        if is_newer() {
            return true;
        }
        if self.renewal.lock().refuse(self.elapsed()) {
            self.progress.send_replace(Progress::Requesting);
            self.wake.notify_one();
        }
        let under_way = matches!(&*self.progress.borrow(), Progress::Requesting);
        if !under_way {
            // The last outcome is final for this request. An assertion that is signed here may have been issued already.
            return is_newer();
        }
        self.wait_for(within, is_newer).await.is_ok()
    }

    /// Returns the time that `renewal` counts.
    fn elapsed(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns how long it is until the next renewal; `None` if the credential does not end.
    pub(super) fn until_due(&self) -> Option<Duration> {
        Some(self.renewal.lock().due()?.saturating_sub(self.elapsed()))
    }

    /// Marks the beginning of an exchange, and returns its time.
    pub(super) fn begin(&self) -> Duration {
        self.progress.send_replace(Progress::Requesting);
        self.elapsed()
    }

    /// Takes a grant: publishes the credential. `requested` is what [`CredentialHandle::begin`] returned, `server` the
    /// Unix time of the token server in seconds. Returns the remaining life, `None` if it does not end.
    ///
    /// # Errors
    /// Returns [`TokenError`] if the credential has expired or cannot be used. The present one stays.
    pub(super) fn accept(
        &self,
        grant: Grant,
        requested: Duration,
        server: i64,
    ) -> Result<Option<Duration>, TokenError> {
        let authorization = self.authorization(grant.credential)?;
        let accepted = {
            let mut renewal = self.renewal.lock();
            renewal.grant(grant.lifetime, requested, self.elapsed(), server, random_point())?
        };
        let number = self.issued.load().as_ref().map_or(0, |issued| issued.number) + 1;
        // A provider that may accept an expired credential judges it itself: without a token server there is no other.
        let life = accepted.life.filter(|_| !self.access.source.outlives_expiry());
        let end = life.map(|life| Instant::now() + life);
        self.issued.store(Some(Arc::new(IssuedCredential { authorization, number, end })));
        self.progress.send_replace(Progress::Issued);
        Ok(accepted.life)
    }

    fn authorization(&self, credential: Credential) -> Result<Authorization, TokenError> {
        let unusable = |reason: &str| TokenError::Invalid {
            what: "the credential that was issued".to_owned(),
            reason: reason.to_owned(),
        };
        match (credential, &self.access.signing) {
            (Credential::Bearer(token), _) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| unusable("it has characters that no header may have"))?;
                value.set_sensitive(true);
                Ok(Authorization::Bearer(value))
            }
            (Credential::Aws(credentials), Some(scope)) => {
                let scope = CredentialScope { region: &scope.region, service: &scope.service };
                Ok(Authorization::Signature(Box::new(Signer::new(credentials, scope))))
            }
            (Credential::Aws(_), None) => Err(unusable("there is no region to sign for")),
        }
    }

    /// Takes the failure of an exchange. Returns the standing of the present credential.
    pub(super) fn fail(&self, error: &TokenError) -> Standing {
        let (standing, failures) = {
            let mut renewal = self.renewal.lock();
            renewal.fail(self.elapsed(), random_point());
            (renewal.standing(self.elapsed()), renewal.failures())
        };
        // The next attempt follows the first failure within a second: requests wait for it too. After that they fail at
        // once, so that another target can serve them.
        if failures > 1 {
            self.progress.send_replace(Progress::Failed(error.clone()));
        }
        standing
    }
}

impl std::fmt::Debug for CredentialHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CredentialHandle({})", self.provider)
    }
}
