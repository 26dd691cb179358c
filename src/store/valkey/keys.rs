//! Names of keys at the server.

/// Prefix of all keys, so that other applications can share the server.
const OURS: &str = "mg";

/// Returns the prefix of an account's keys. The braces mark the hash tag, which puts all of them into one cluster slot.
fn of(account: &str) -> String {
    format!("{OURS}:{{a:{account}}}")
}

/// Hash with the fields created, enabled, credited, charged, free.
pub(super) fn account(account: &str) -> String {
    of(account) + ":account"
}

/// Hash of the leased amount by gateway.
pub(super) fn leases(account: &str) -> String {
    of(account) + ":leases"
}

/// Hash by gateway: expiry of its lease and number of its last transaction.
pub(super) fn ends(account: &str) -> String {
    of(account) + ":ends"
}

/// Number of the last frame of a journal that was charged to the account.
pub(super) fn journal(account: &str, journal: u64) -> String {
    format!("{}:journal:{journal:016x}", of(account))
}

/// Hash of the daily sums.
pub(super) fn sums(account: &str, day: i64) -> String {
    format!("{}:sums:{day}", of(account))
}

/// Hash of the spend counters of a month (months since the year 0), with the fields of [`spent`].
pub(super) fn month(account: &str, month: i64) -> String {
    format!("{}:month:{month}", of(account))
}

/// Field of the spend counter of a key, or of the account itself, in the hash of a day or month.
pub(super) fn spent(key: Option<&str>) -> String {
    key.map_or_else(|| "s".to_owned(), |key| format!("s:{key}"))
}

/// Hash of the used part of the shared limits of a key, or of the account itself.
pub(super) fn shared_limits(account: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("{}:limits:key:{key}", of(account)),
        None => of(account) + ":limits",
    }
}

/// List of the record blocks of a day.
pub(super) fn records(account: &str, day: i64) -> String {
    format!("{}:records:{day}", of(account))
}

/// List of credits.
pub(super) fn credits(account: &str) -> String {
    of(account) + ":credits"
}

/// Hash of the amounts of credits that have a reference.
pub(super) fn references(account: &str) -> String {
    of(account) + ":references"
}

/// Set of the names of all accounts.
pub(super) fn accounts() -> String {
    format!("{OURS}:accounts")
}

/// Set of the days that have usage.
pub(super) fn days() -> String {
    format!("{OURS}:days")
}

/// Set of the accounts that have usage on a day.
pub(super) fn active(day: i64) -> String {
    format!("{OURS}:active:{day}")
}

/// Kind of stored entries. All entries of a kind are in one cluster slot, because they share one size limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValkeyKey(pub(super) &'static str);

impl ValkeyKey {
    /// Returns the key of one entry.
    pub(super) fn item(self, account: &str, id: &[u8]) -> Vec<u8> {
        let mut name = format!("{OURS}:{{{}}}:{}:{account}:", self.0, account.len()).into_bytes();
        name.extend_from_slice(id);
        name
    }

    /// Sorted set of the keys of all entries in insertion order.
    pub(super) fn order(self) -> String {
        format!("{OURS}:{{{}}}-order", self.0)
    }

    /// Accounted size of all entries, in bytes.
    pub(super) fn size(self) -> String {
        format!("{OURS}:{{{}}}-size", self.0)
    }

    /// Insertion counter.
    pub(super) fn count(self) -> String {
        format!("{OURS}:{{{}}}-count", self.0)
    }
}
