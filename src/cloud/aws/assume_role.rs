//! Roles: credentials of another source are exchanged for those of a role (`AssumeRole`), also in another account.

use std::sync::Arc;

use super::sts::{self, SERVER, StsEndpoint, VERSION};
use crate::token::{Credential, CredentialSource, Grant, Step, StepResult, TokenError, TokenExchange};

/// Source that assumes a role.
#[derive(Clone, Debug)]
pub struct AssumeRole {
    /// Source of the credentials that the request is signed with.
    pub base: Arc<dyn CredentialSource>,
    /// Role to assume.
    pub role_arn: Box<str>,
    /// Name of the session in the logs of AWS.
    pub session_name: Box<str>,
    /// Identifier that the owner of the role requires; `None` if none.
    pub external_id: Option<Box<str>>,
    /// Requested life of the credentials, in seconds; `None` for the default of AWS, one hour.
    pub duration: Option<u32>,
    /// Region whose token service is used.
    pub region: Box<str>,
    /// URL of the token service; `None` for that of AWS.
    pub sts_url: Option<Box<str>>,
}

impl CredentialSource for AssumeRole {
    fn name(&self) -> &'static str {
        "assume role"
    }

    fn fingerprint(&self) -> [u8; 32] {
        let base: String = self.base.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
        let duration = self.duration.unwrap_or(0).to_string();
        let (id, url) = (self.external_id.as_deref(), self.sts_url.as_deref());
        let settings =
            [&*base, &self.role_arn, &self.session_name, id.unwrap_or_default(), &duration, &self.region];
        let mut all = settings.to_vec();
        all.push(url.unwrap_or_default());
        super::fingerprint("assume-role", &all)
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(AssumeRoleExchange { role: self.clone(), base: Some(self.base.begin()) })
    }
}

/// Exchange of two parts: that of the other source, and the request for the role.
struct AssumeRoleExchange {
    role: AssumeRole,
    /// Exchange of the other source; `None` once it has ended.
    base: Option<Box<dyn TokenExchange>>,
}

impl AssumeRoleExchange {
    fn request(&self, grant: Grant, now: i64) -> Result<Step, TokenError> {
        let Credential::Aws(credentials) = grant.credential else {
            let message = "a role can be assumed with AWS credentials only".to_owned();
            return Err(TokenError::Configuration(message));
        };
        let AssumeRole { role_arn, session_name, external_id, duration, region, sts_url, .. } = &self.role;
        let mut members = vec![
            ("Action", "AssumeRole"),
            ("Version", VERSION),
            ("RoleArn", &**role_arn),
            ("RoleSessionName", &**session_name),
        ];
        let duration = duration.map(|seconds| seconds.to_string());
        members.extend(duration.as_deref().map(|duration| ("DurationSeconds", duration)));
        members.extend(external_id.as_deref().map(|id| ("ExternalId", id)));
        Ok(Step::Send(StsEndpoint::new(region, sts_url.as_deref()).signed(&members, credentials, now)))
    }
}

impl TokenExchange for AssumeRoleExchange {
    fn advance(&mut self, result: StepResult<'_>, now: i64) -> Result<Step, TokenError> {
        if let Some(base) = &mut self.base {
            let step = base.advance(result, now)?;
            let Step::Done(grant) = step else { return Ok(step) };
            self.base = None;
            return self.request(grant, now);
        }
        match result {
            StepResult::Response { status, body } => sts::parse(status, body).map(Step::Done),
            StepResult::Unreachable(reason) => {
                Err(TokenError::Unreachable { server: SERVER, reason: reason.to_owned() })
            }
            StepResult::Begin
            | StepResult::Challenge(_)
            | StepResult::File(_)
            | StepResult::Unreadable(_) => {
                Err(TokenError::Configuration("the exchange of the role began twice".to_owned()))
            }
        }
    }
}
