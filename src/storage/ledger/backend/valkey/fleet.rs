//! The fleet: what each gateway says of itself, in two hashes that all gateways write to.

use crate::store::valkey::connection::{Connection, ConnectionError, number, pairs, text};
use crate::store::valkey::keys;

/// Age in seconds beyond which an announcement is removed.
const FORGOTTEN_AFTER: i64 = 3_600;

/// Stores what a gateway says of itself at `now`, and removes old announcements.
pub(super) async fn announce(
    connection: &Connection,
    gateway: &str,
    document: &str,
    now: i64,
) -> Result<(), ConnectionError> {
    let mut put = redis::cmd("HSET");
    put.arg(keys::fleet()).arg(gateway).arg(document);
    connection.run_one(put).await?;
    let mut seen = redis::cmd("HSET");
    seen.arg(keys::fleet_seen()).arg(gateway).arg(now);
    connection.run_one(seen).await?;
    let mut all = redis::cmd("HGETALL");
    all.arg(keys::fleet_seen());
    let all = connection.run_one(all).await?;
    for (other, seen) in pairs(&all) {
        if number(seen) < now.saturating_sub(FORGOTTEN_AFTER) {
            for key in [keys::fleet(), keys::fleet_seen()] {
                let mut remove = redis::cmd("HDEL");
                remove.arg(key).arg(text(other));
                connection.run_one(remove).await?;
            }
        }
    }
    Ok(())
}

/// Returns what all gateways say of themselves.
pub(super) async fn announced(connection: &Connection) -> Result<Vec<String>, ConnectionError> {
    let mut all = redis::cmd("HGETALL");
    all.arg(keys::fleet());
    let all = connection.run_one(all).await?;
    Ok(pairs(&all).into_iter().map(|(_, document)| text(document).to_owned()).collect())
}
