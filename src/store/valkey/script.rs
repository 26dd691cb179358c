//! The scripts.

use redis::Cmd;

/// A script that the server knows by its hash.
pub(super) struct Script {
    pub(super) code: &'static str,
    hash: std::sync::LazyLock<String>,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $($(#[$doc])* pub(super) static $name: Script = Script {
            code: include_str!($file),
            hash: std::sync::LazyLock::new(|| hash(include_str!($file))),
        };)*
        /// All of them.
        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    /// A gateway's visit to an account.
    VISIT = "scripts/visit.lua";
    /// A gateway's visit to limits.
    LIMIT = "scripts/limit.lua";
    /// Makes an account.
    CREATE = "scripts/create.lua";
    /// Credits an account.
    CREDIT = "scripts/credit.lua";
    /// Switches an account.
    SWITCH = "scripts/switch.lua";
    /// Keeps something.
    KEEP = "scripts/keep.lua";
    /// Finds something.
    FIND = "scripts/find.lua";
    /// Removes something.
    REMOVE = "scripts/remove.lua";
    /// Removes what has expired.
    SWEEP = "scripts/sweep.lua";
    /// Keeps a new task.
    TASK_SUBMIT = "scripts/task_submit.lua";
    /// Finds a task.
    TASK_FIND = "scripts/task_find.lua";
    /// Changes a task.
    TASK_CHANGE = "scripts/task_change.lua";
    /// Removes a task.
    TASK_FORGET = "scripts/task_forget.lua";
    /// Gives out tasks that are due.
    TASK_DUE = "scripts/task_due.lua";
}

fn hash(code: &str) -> String {
    redis::Script::new(code).get_hash().to_owned()
}

impl Script {
    /// A call of it with these keys; arguments follow.
    pub(super) fn call<K: redis::ToRedisArgs>(&self, keys: &[K]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.hash.as_str()).arg(keys.len()).arg(keys);
        call
    }
}
