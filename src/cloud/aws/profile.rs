//! Shared files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`
//! (<https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>).

use std::path::PathBuf;

use super::document;
use crate::token::{CredentialSource, Lifetime, Step, StepResult, TokenError, TokenExchange};

/// Kind of a shared file: they name profiles differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileFile {
    /// `~/.aws/credentials`: `[name]`.
    Credentials,
    /// `~/.aws/config`: `[profile name]`, and `[default]`.
    Config,
}

/// Returns a setting of a profile in the text of a shared file; `None` if there is none. If a profile or a setting
/// occurs several times, the last one counts, as in the AWS tools.
pub fn profile_setting<'t>(text: &'t str, kind: ProfileFile, profile: &str, name: &str) -> Option<&'t str> {
    let mut is_inside = false;
    let mut found = None;
    for line in text.lines() {
        // Nested settings are indented; comments fill a line, or follow white space.
        if line.starts_with([' ', '\t', '#', ';']) || line.trim().is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let section = rest.split(']').next().unwrap_or_default().trim();
            is_inside = match kind {
                ProfileFile::Credentials => section == profile,
                ProfileFile::Config => {
                    let named = section.strip_prefix("profile").filter(|rest| rest.starts_with([' ', '\t']));
                    named.is_some_and(|named| named.trim() == profile)
                        || (section == "default" && profile == "default")
                }
            };
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_inside) else { continue };
        if key.trim().eq_ignore_ascii_case(name) {
            let end = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
            let value = end.map_or(value, |end| value.get(..end).unwrap_or(value)).trim();
            found = (!value.is_empty()).then_some(value);
        }
    }
    found
}

/// Access keys of a profile. The files are read anew at each renewal, so that other programs may replace the keys.
#[derive(Clone, Debug)]
pub struct SharedProfile {
    /// Name of the profile.
    pub profile: Box<str>,
    /// Files with their kinds, in the order in which they are searched.
    pub files: Vec<(ProfileFile, PathBuf)>,
}

impl CredentialSource for SharedProfile {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn fingerprint(&self) -> [u8; 32] {
        let files = self.files.iter().map(|(kind, path)| format!("{kind:?} {}", path.display()));
        let files: Vec<String> = files.collect();
        let mut settings = vec![&*self.profile];
        settings.extend(files.iter().map(String::as_str));
        super::fingerprint("profile", &settings)
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(ProfileExchange { source: self.clone(), next: 0 })
    }
}

struct ProfileExchange {
    source: SharedProfile,
    /// Index of the file after the one that was requested last.
    next: usize,
}

impl TokenExchange for ProfileExchange {
    fn advance(&mut self, result: StepResult<'_>, _now: i64) -> Result<Step, TokenError> {
        let profile = &*self.source.profile;
        let current = self.next.checked_sub(1).and_then(|index| self.source.files.get(index));
        if let (StepResult::File(text), Some((kind, path))) = (result, current) {
            let value = |name| profile_setting(text, *kind, profile, name).map(str::to_owned);
            if let Some(id) = value("aws_access_key_id") {
                let secret = value("aws_secret_access_key");
                let token = value("aws_session_token");
                let grant = document::grant(Some(id), secret, token, None).map_err(|reason| {
                    let what = format!("the profile {profile} in {}", path.display());
                    TokenError::Invalid { what, reason }
                })?;
                debug_assert_eq!(grant.lifetime, Lifetime::Unknown);
                return Ok(Step::Done(grant));
            }
        }
        let Some((_, path)) = self.source.files.get(self.next) else {
            return Err(TokenError::Configuration(format!(
                "no shared file has access keys of the profile {profile}"
            )));
        };
        self.next += 1;
        Ok(Step::Read(path.clone()))
    }
}
