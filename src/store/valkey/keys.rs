//! How things are called at the server.

/// What all names begin with, so that others may use the server, too.
const OURS: &str = "mg";

/// What an account's names begin with. The braces are the hash tag.
fn of(account: &str) -> String {
    format!("{OURS}:{{a:{account}}}")
}

/// A hash: created, enabled, credited, charged, free.
pub(super) fn account(account: &str) -> String {
    of(account) + ":account"
}

/// A hash: what is set aside for each gateway.
pub(super) fn leases(account: &str) -> String {
    of(account) + ":leases"
}

/// A hash: until when, and the number of the gateway's last visit.
pub(super) fn ends(account: &str) -> String {
    of(account) + ":ends"
}

/// The number of the last frame of a journal that is charged to the account.
pub(super) fn journal(account: &str, journal: u64) -> String {
    format!("{}:journal:{journal:016x}", of(account))
}

/// A hash: sums of a day.
pub(super) fn sums(account: &str, day: i64) -> String {
    format!("{}:sums:{day}", of(account))
}

/// A hash: what was charged in a month (months since the year 0), by the fields of [`spent`].
pub(super) fn month(account: &str, month: i64) -> String {
    format!("{}:month:{month}", of(account))
}

/// The field that says what was charged to a key, or to the account, in the sums of a day or a month.
pub(super) fn spent(key: Option<&str>) -> String {
    key.map_or_else(|| "s".to_owned(), |key| format!("s:{key}"))
}

/// A hash: how much of the limits of a key, or of the account itself, is taken.
pub(super) fn gauge(account: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("{}:limits:key:{key}", of(account)),
        None => of(account) + ":limits",
    }
}

/// A list: blocks of the records of a day.
pub(super) fn records(account: &str, day: i64) -> String {
    format!("{}:records:{day}", of(account))
}

/// A list: credits.
pub(super) fn credits(account: &str) -> String {
    of(account) + ":credits"
}

/// A hash: the amounts of credits with a reference.
pub(super) fn references(account: &str) -> String {
    of(account) + ":references"
}

/// A set: the names of all accounts.
pub(super) fn accounts() -> String {
    format!("{OURS}:accounts")
}

/// A set: the days on which something was used.
pub(super) fn days() -> String {
    format!("{OURS}:days")
}

/// A set: the accounts that used something on a day.
pub(super) fn active(day: i64) -> String {
    format!("{OURS}:active:{day}")
}

/// Names of what is kept of one kind; all of it lies on one server, because it has one limit together.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValkeyKey(pub(super) &'static str);

impl ValkeyKey {
    /// One of them.
    pub(super) fn item(self, account: &str, id: &[u8]) -> Vec<u8> {
        let mut name = format!("{OURS}:{{{}}}:{}:{account}:", self.0, account.len()).into_bytes();
        name.extend_from_slice(id);
        name
    }

    /// A sorted set: their names, in the order in which they came.
    pub(super) fn order(self) -> String {
        format!("{OURS}:{{{}}}-order", self.0)
    }

    /// A number: what they count for together.
    pub(super) fn size(self) -> String {
        format!("{OURS}:{{{}}}-size", self.0)
    }

    /// A number: how many there have been.
    pub(super) fn count(self) -> String {
        format!("{OURS}:{{{}}}-count", self.0)
    }
}
