//! Credential files: JSON with a `type`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::external::ExternalAccount;
use super::impersonation::Impersonation;
use super::{AuthorizedUser, BaseCredential, GoogleCredential, ServiceAccount};
use crate::oauth::{
    AssertionSigner, CredentialFileError, MAX_DOCUMENT, SecretText, SharedSigner, TokenEndpoint,
};

/// Token server of service accounts and users, if the file names none.
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// Domain of Google's own services.
const UNIVERSE: &str = "googleapis.com";

/// Makes the signer of a private key in PEM. The error is the end of a sentence about the key.
pub type MakeSigner<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn AssertionSigner>, String>;

/// Environment variables by their name. A credential of AWS may be there.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Object of a credential file, with the path that error messages name.
#[derive(Clone, Copy)]
pub(super) struct FileFields<'a> {
    object: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> FileFields<'a> {
    fn name(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Returns an error about a field; `reason` is the end of a sentence.
    pub(super) fn wrong(&self, field: &str, reason: impl Into<Box<str>>) -> CredentialFileError {
        CredentialFileError::field(self.name(field), reason)
    }

    /// Returns a field; `None` if it is absent or null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Returns a text; `None` if it is absent.
    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, CredentialFileError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Err(self.wrong(field, "is empty")),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "must be a text")),
        }
    }

    /// Returns a text that must be present.
    pub(super) fn required(&self, field: &str) -> Result<&'a str, CredentialFileError> {
        self.text(field)?.ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// Returns an object; `None` if it is absent. `path` is its path in error messages.
    pub(super) fn object(
        &self,
        field: &str,
        path: &'a str,
    ) -> Result<Option<FileFields<'a>>, CredentialFileError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(FileFields { object, path })),
            Some(_) => Err(self.wrong(field, "must be an object")),
        }
    }

    /// Returns an address; `None` if it is absent.
    pub(super) fn endpoint(&self, field: &str) -> Result<Option<TokenEndpoint>, CredentialFileError> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        TokenEndpoint::parse(text).map(Some).map_err(|error| self.wrong(field, error.to_string()))
    }

    /// Returns an address that must be present.
    pub(super) fn required_endpoint(&self, field: &str) -> Result<TokenEndpoint, CredentialFileError> {
        self.endpoint(field)?.ok_or_else(|| self.wrong(field, "is missing"))
    }
}

impl GoogleCredential {
    /// Reads a credential file. `signer` makes the signer of a private key; `env` are the variables of the environment.
    ///
    /// # Errors
    /// Returns the field that is missing or wrong, without its value.
    pub fn parse(
        text: &str,
        signer: MakeSigner<'_>,
        env: Variables<'_>,
    ) -> Result<Self, CredentialFileError> {
        if text.len() > MAX_DOCUMENT {
            return Err(CredentialFileError::TooLarge);
        }
        let value: Value = serde_json::from_str(text).map_err(|_| CredentialFileError::NotJson)?;
        let object = value.as_object().ok_or(CredentialFileError::NotJson)?;
        let fields = FileFields { object, path: "" };
        let quota_project = fields.text("quota_project_id")?.map(Into::into);
        let is_impersonated = fields.text("type")? == Some("impersonated_service_account");
        let (base, impersonation) = if is_impersonated {
            let path = "source_credentials";
            let source = fields.object(path, path)?.ok_or_else(|| fields.wrong(path, "is missing"))?;
            let (base, further) = parse_base(source, signer, env)?;
            if further.is_some() {
                return Err(fields.wrong(path, "must not impersonate a service account itself"));
            }
            let missing = || fields.wrong("service_account_impersonation_url", "is missing");
            (base, Some(Impersonation::parse(fields)?.ok_or_else(missing)?))
        } else {
            parse_base(fields, signer, env)?
        };
        Ok(GoogleCredential { base, impersonation, quota_project })
    }
}

/// Reads a credential of one of the kinds that can also be the source of an impersonation.
fn parse_base(
    fields: FileFields<'_>,
    signer: MakeSigner<'_>,
    env: Variables<'_>,
) -> Result<(BaseCredential, Option<Impersonation>), CredentialFileError> {
    // The file of an OAuth client, which lies beside that of the key in the console, has one member and no type.
    if fields.get("type").is_none() && ["installed", "web"].iter().any(|kind| fields.get(kind).is_some()) {
        let reason = "is missing: the file is that of an OAuth client, not of a credential; create a key of a service \
                      account";
        return Err(fields.wrong("type", reason));
    }
    match fields.required("type")? {
        "service_account" => Ok((BaseCredential::ServiceAccount(service_account(fields, signer)?), None)),
        "authorized_user" => Ok((BaseCredential::AuthorizedUser(authorized_user(fields)?), None)),
        "external_account_authorized_user" => {
            Ok((BaseCredential::AuthorizedUser(workforce_user(fields)?), None))
        }
        "external_account" => {
            let account = ExternalAccount::parse(fields, env)?;
            Ok((BaseCredential::ExternalAccount(account), Impersonation::parse(fields)?))
        }
        kind @ ("gdch_service_account" | "impersonated_service_account") => {
            Err(fields.wrong("type", format!("is {kind}, which is not supported here")))
        }
        _ => Err(fields.wrong(
            "type",
            "must be service_account, authorized_user, external_account, external_account_authorized_user or \
             impersonated_service_account",
        )),
    }
}

fn service_account(
    fields: FileFields<'_>,
    signer: MakeSigner<'_>,
) -> Result<ServiceAccount, CredentialFileError> {
    let private_key = fields.required("private_key")?;
    let signer = signer(private_key).map_err(|reason| fields.wrong("private_key", reason))?;
    let universe = fields.text("universe_domain")?.unwrap_or(UNIVERSE);
    let token_url = token_url(fields)?;
    let email = fields.required("client_email")?;
    if !email.contains('@') {
        return Err(fields.wrong("client_email", "must be the email address of the service account"));
    }
    Ok(ServiceAccount {
        // Another address is one of a proxy or of another universe: there the tokens of that server are expected.
        self_signs: token_url.to_string() == TOKEN_URL && universe == UNIVERSE,
        email: email.into(),
        key_id: fields.text("private_key_id")?.map(Into::into),
        signer: SharedSigner(signer),
        token_url,
    })
}

fn authorized_user(fields: FileFields<'_>) -> Result<AuthorizedUser, CredentialFileError> {
    Ok(AuthorizedUser {
        client_id: fields.required("client_id")?.into(),
        client_secret: SecretText::new(fields.required("client_secret")?),
        refresh_token: SecretText::new(fields.required("refresh_token")?),
        is_basic: false,
        token_url: token_url(fields)?,
    })
}

/// Reads the refresh token of a user of a workforce pool (`gcloud auth application-default login` with a login
/// configuration).
fn workforce_user(fields: FileFields<'_>) -> Result<AuthorizedUser, CredentialFileError> {
    Ok(AuthorizedUser {
        client_id: fields.required("client_id")?.into(),
        client_secret: SecretText::new(fields.required("client_secret")?),
        refresh_token: SecretText::new(fields.required("refresh_token")?),
        is_basic: true,
        token_url: fields.required_endpoint("token_url")?,
    })
}

fn token_url(fields: FileFields<'_>) -> Result<TokenEndpoint, CredentialFileError> {
    if let Some(url) = fields.endpoint("token_uri")? {
        return Ok(url);
    }
    TokenEndpoint::parse(TOKEN_URL).map_err(|error| fields.wrong("token_uri", error.to_string()))
}
