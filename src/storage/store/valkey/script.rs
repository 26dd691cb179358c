//! Lua scripts that run on the server.

use redis::Cmd;

/// Lua script, called by its SHA-1 hash (`EVALSHA`).
pub(crate) struct Script {
    pub(crate) code: &'static str,
    hash: std::sync::LazyLock<String>,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $($(#[$doc])* pub(crate) static $name: Script = Script {
            code: include_str!($file),
            hash: std::sync::LazyLock::new(|| hash(include_str!($file))),
        };)*
        /// All scripts, to be loaded on each new connection.
        pub(crate) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    /// Lease transaction of one account.
    VISIT = "scripts/visit.lua";
    /// Limit transaction of one key or account.
    LIMIT = "scripts/limit.lua";
    /// Creates an account.
    CREATE = "scripts/create.lua";
    /// Credits an account.
    CREDIT = "scripts/credit.lua";
    /// Enables or disables an account.
    SWITCH = "scripts/switch.lua";
    /// Stores entries and evicts the oldest beyond the size limit.
    KEEP = "scripts/keep.lua";
    /// Finds entries.
    FIND = "scripts/find.lua";
    /// Tells who has stored a response.
    HOLDER = "scripts/holder.lua";
    /// Removes an entry.
    REMOVE = "scripts/remove.lua";
    /// Removes expired entries.
    SWEEP = "scripts/sweep.lua";
    /// Stores a new task.
    TASK_SUBMIT = "scripts/task_submit.lua";
    /// Finds a task.
    TASK_FIND = "scripts/task_find.lua";
    /// Replaces the state of a task.
    TASK_CHANGE = "scripts/task_change.lua";
    /// Removes a task.
    TASK_FORGET = "scripts/task_forget.lua";
    /// Leases tasks that are due.
    TASK_DUE = "scripts/task_due.lua";
}

fn hash(code: &str) -> String {
    redis::Script::new(code).get_hash().to_owned()
}

impl Script {
    /// Returns a call of the script with these keys. Append the arguments to it.
    pub(crate) fn call<K: redis::ToRedisArgs>(&self, keys: &[K]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.hash.as_str()).arg(keys.len()).arg(keys);
        call
    }
}
