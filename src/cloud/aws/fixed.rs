//! Access keys that are part of the configuration.

use crate::sigv4::Credentials;
use crate::token::{
    Credential, CredentialSource, Grant, Lifetime, Step, StepResult, TokenError, TokenExchange,
};

/// Access keys of the configuration or the environment, which do not change while the process runs.
#[derive(Clone, Debug)]
pub struct Fixed(pub Credentials);

impl CredentialSource for Fixed {
    fn name(&self) -> &'static str {
        "static"
    }

    fn fingerprint(&self) -> [u8; 32] {
        let Credentials { access_key_id, secret_access_key, session_token } = &self.0;
        super::fingerprint(
            "static",
            &[access_key_id, secret_access_key, session_token.as_deref().unwrap_or_default()],
        )
    }

    fn fixed(&self) -> Option<Credential> {
        Some(Credential::Aws(self.0.clone()))
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(Granted(self.0.clone()))
    }
}

/// Exchange that has nothing to request.
struct Granted(Credentials);

impl TokenExchange for Granted {
    fn advance(&mut self, _result: StepResult<'_>, _now: i64) -> Result<Step, TokenError> {
        let credential = Credential::Aws(self.0.clone());
        Ok(Step::Done(Grant { credential, lifetime: Lifetime::Unlimited }))
    }
}
