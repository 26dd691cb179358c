//! The fleet: what each gateway says of itself in the store that they share.

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::api::AdminApi;
use super::session::random_text;
use codec::canonical::time::rfc3339;

/// Time between two announcements.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// Age in seconds beyond which an announcement is not shown: the gateway has ended, or does not reach the store.
pub(super) const SHOWN_FOR: i64 = 60;
/// Name of the file with the gateway's id.
const ID_FILE: &str = "gateway-id";
/// Longest id that is read, in bytes.
const LONGEST_ID: usize = 64;

/// Identity of this gateway and the time of its start.
#[derive(Debug)]
pub(super) struct GatewayIdentity {
    /// Id, which outlives restarts where the state folder can be written.
    pub(super) id: String,
    started: i64,
}

/// Returns the present time in Unix seconds.
pub(super) fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

impl GatewayIdentity {
    /// Returns an identity whose id is read when it is needed: a gateway without a shared store stores none.
    pub(super) fn of(folder: &Path, is_shared: bool) -> Self {
        let id = if is_shared { stored_id(folder) } else { "this".to_owned() };
        GatewayIdentity { id, started: unix_now() }
    }

    /// Returns what the gateway says of itself.
    pub(super) fn describe(&self, api: &AdminApi) -> Value {
        let last = api.writer().reloader().last();
        let drained: Vec<String> =
            api.drained().all().into_iter().map(|(provider, model)| format!("{provider}/{model}")).collect();
        json!({
            "id": self.id,
            "version": observe::VERSION,
            "pid": std::process::id(),
            "address": api.settings().admin.to_string(),
            "started": rfc3339(self.started),
            "seen": rfc3339(unix_now()),
            "generation": last.generation,
            "config_hash": config_hash(api),
            "ready": api.control().ready().is_ok(),
            "draining": api.control().is_draining(),
            "drained": drained,
        })
    }
}

/// Returns the hash of the configuration in effect: of the files of routes and keys.
fn config_hash(api: &AdminApi) -> String {
    let mut hash = String::new();
    api.control().with_snapshot(&mut |snapshot, _| hash = snapshot.hash.to_string());
    hash
}

fn stored_id(folder: &Path) -> String {
    let path = folder.join(ID_FILE);
    let sound = |id: &str| {
        (8..=LONGEST_ID).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if let Ok(text) = std::fs::read_to_string(&path)
        && sound(text.trim())
    {
        return text.trim().to_owned();
    }
    let id: String = random_text()
        .map_or_else(|_| format!("process-{}", std::process::id()), |text| text.chars().take(16).collect());
    let store = || {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        std::io::Write::write_all(&mut file, format!("{id}\n").as_bytes())
    };
    if let Err(error) = store() {
        tracing::warn!(path = %path.display(), %error, "the id of this gateway cannot be stored; it has another one after a restart");
    }
    id
}

/// Announces this gateway in the shared store, again and again, until the future is dropped.
pub(super) async fn announce(api: Arc<AdminApi>) {
    let mut tick = tokio::time::interval(ANNOUNCE_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let api = api.clone();
        let announced = tokio::task::spawn_blocking(move || {
            let text = api.identity().describe(&api).to_string();
            api.ledger().with(|ledger| ledger.announce(&api.identity().id, &text, unix_now()))
        });
        if let Ok(Err(error)) = announced.await {
            tracing::debug!(%error, "this gateway cannot be announced to the fleet");
        }
    }
}
