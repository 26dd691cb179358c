//! Names of keys at the server.

/// Prefix of all keys, so that other applications can share the server.
const OURS: &str = "mg";

/// Returns the prefix of an account's keys. The braces mark the hash tag, which puts all of them into one cluster slot.
fn of(account: &str) -> String {
    format!("{OURS}:{{a:{account}}}")
}

/// Hash with the fields created, enabled, credited, charged, free.
pub(crate) fn account(account: &str) -> String {
    of(account) + ":account"
}

/// Hash of the leased amount by gateway.
pub(crate) fn leases(account: &str) -> String {
    of(account) + ":leases"
}

/// Hash by gateway: expiry of its lease and number of its last transaction.
pub(crate) fn ends(account: &str) -> String {
    of(account) + ":ends"
}

/// Number of the last frame of a journal that was charged to the account.
pub(crate) fn journal(account: &str, journal: u64) -> String {
    format!("{}:journal:{journal:016x}", of(account))
}

/// Hash of the daily sums.
pub(crate) fn sums(account: &str, day: i64) -> String {
    format!("{}:sums:{day}", of(account))
}

/// Hash of the spend counters of a month (months since the year 0), with the fields of [`spent`].
pub(crate) fn month(account: &str, month: i64) -> String {
    format!("{}:month:{month}", of(account))
}

/// Field of the spend counter of a key, or of the account itself, in the hash of a day or month.
pub(crate) fn spent(key: Option<&str>) -> String {
    key.map_or_else(|| "s".to_owned(), |key| format!("s:{key}"))
}

/// Hash of the used part of the shared limits of a key, or of the account itself.
pub(crate) fn shared_limits(account: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("{}:limits:key:{key}", of(account)),
        None => of(account) + ":limits",
    }
}

/// List of the record blocks of a day.
pub(crate) fn records(account: &str, day: i64) -> String {
    format!("{}:records:{day}", of(account))
}

/// Mark of the idempotency key of a charge.
pub(crate) fn charge(account: &str, id: &str) -> String {
    format!("{}:charge:{id}", of(account))
}

/// List of credits.
pub(crate) fn credits(account: &str) -> String {
    of(account) + ":credits"
}

/// Hash of the amounts of credits that have a reference.
pub(crate) fn references(account: &str) -> String {
    of(account) + ":references"
}

/// Hash of what each gateway of the fleet says of itself, by its id.
pub(crate) fn fleet() -> String {
    format!("{OURS}:fleet")
}

/// Hash of the time in Unix seconds at which each gateway has said so, by its id.
pub(crate) fn fleet_seen() -> String {
    format!("{OURS}:fleet:seen")
}

/// Set of the names of all accounts.
pub(crate) fn accounts() -> String {
    format!("{OURS}:accounts")
}

/// Set of the days that have usage.
pub(crate) fn days() -> String {
    format!("{OURS}:days")
}

/// Set of the accounts that have usage on a day.
pub(crate) fn active(day: i64) -> String {
    format!("{OURS}:active:{day}")
}

/// Kind of stored entries. All entries of a kind are in one cluster slot, because they share one size limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValkeyKey(pub(crate) &'static str);

impl ValkeyKey {
    /// Returns the key of one entry.
    pub(crate) fn item(self, account: &str, id: &[u8]) -> Vec<u8> {
        let mut name = format!("{OURS}:{{{}}}:{}:{account}:", self.0, account.len()).into_bytes();
        name.extend_from_slice(id);
        name
    }

    /// Returns the key of the entry that names the account of the entry with this id.
    pub(crate) fn holder(self, id: &[u8]) -> Vec<u8> {
        let mut name = format!("{OURS}:{{{}}}:holder:", self.0).into_bytes();
        name.extend_from_slice(id);
        name
    }

    /// Sorted set of the keys of all entries in insertion order.
    pub(crate) fn order(self) -> String {
        format!("{OURS}:{{{}}}-order", self.0)
    }

    /// Accounted size of all entries, in bytes.
    pub(crate) fn size(self) -> String {
        format!("{OURS}:{{{}}}-size", self.0)
    }

    /// Insertion counter.
    pub(crate) fn count(self) -> String {
        format!("{OURS}:{{{}}}-count", self.0)
    }
}
