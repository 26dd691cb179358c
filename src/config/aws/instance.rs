//! Region of the instance, from its metadata service. The address of a provider depends on it, so that it is asked for
//! when the configuration is read, and not by the renewal of credentials.

use std::sync::OnceLock;
use std::time::Duration;

/// Time limit of each request. The service is on the same machine; elsewhere nothing answers at its address.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Largest session token and region, in bytes.
const LARGEST: u64 = 1_024;

/// Returns the region of the instance; `None` if the metadata service at `endpoint` does not state it. Asked for once in
/// the life of the process, because an instance stays where it is: a reload while the service is away must not fail.
pub(crate) fn region(endpoint: &str) -> Option<String> {
    static REGION: OnceLock<String> = OnceLock::new();
    if let Some(known) = REGION.get() {
        return Some(known.clone());
    }
    let region = request(endpoint.trim_end_matches('/'))?;
    Some(REGION.get_or_init(|| region).clone())
}

fn request(endpoint: &str) -> Option<String> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        // The address is on the link: a proxy would ask for the region of its own machine.
        .proxy(None)
        .max_redirects(0)
        .build()
        .new_agent();
    let text = |mut answer: http::Response<ureq::Body>| {
        let text = answer.body_mut().with_config().limit(LARGEST).read_to_string().ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let token = agent.put(format!("{endpoint}/latest/api/token"));
    let token = text(token.header("x-aws-ec2-metadata-token-ttl-seconds", "60").send_empty().ok()?)?;
    let region = agent.get(format!("{endpoint}/latest/meta-data/placement/region"));
    text(region.header("x-aws-ec2-metadata-token", token).call().ok()?)
}
