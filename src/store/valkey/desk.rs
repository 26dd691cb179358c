//! What people do with accounts on the server.

use redis::{RedisResult, Script};

use super::link::{Link, Mode};
use super::names::{self, Keys};
use crate::store::book::{AccountState, Credited, DeskError};
use crate::store::ledger::AccountId;
use crate::store::money::LARGEST;
use crate::store::now;

/// The ledger on a server, for people.
pub struct ValkeyDesk {
    link: Link,
    runtime: tokio::runtime::Runtime,
}

impl From<redis::RedisError> for DeskError {
    fn from(error: redis::RedisError) -> Self {
        DeskError::Server(error.to_string())
    }
}

impl ValkeyDesk {
    /// Prepares the way to the server.
    ///
    /// # Errors
    /// An address is none.
    pub fn open(addresses: &str, mode: Mode) -> Result<Self, DeskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DeskError::Server(error.to_string()))?;
        Ok(ValkeyDesk { link: Link::new(addresses, mode)?, runtime })
    }

    fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> RedisResult<T> {
        self.runtime.block_on(self.link.run(async |connection| command.query_async(connection).await))
    }

    /// Makes an account with nothing on it.
    ///
    /// # Errors
    /// There is one of this name, or the server failed.
    pub fn create(&self, account: &AccountId) -> Result<(), DeskError> {
        let script = Script::new(include_str!("create.lua"));
        let mut call = script.prepare_invoke();
        call.key(Keys::of(account.as_str()).account).arg(now());
        // In the list first: an account that is not listed could be lost sight of.
        self.run::<i64>(redis::cmd("SADD").arg(names::ACCOUNTS).arg(account.as_str()))?;
        let made: i64 =
            self.runtime.block_on(self.link.run(async |connection| call.invoke_async(connection).await))?;
        if made == 1 { Ok(()) } else { Err(DeskError::Exists(account.to_string())) }
    }

    /// Credits an account. A reference that was used for the same amount before changes nothing.
    ///
    /// # Errors
    /// There is no such account, the reference stands for another amount, or the server failed.
    pub fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, DeskError> {
        let before = self.account(account)?;
        if before.credited.checked_add(amount).is_none_or(|sum| sum.abs() > LARGEST) {
            return Err(DeskError::TooLarge);
        }
        let keys = Keys::of(account);
        let script = Script::new(include_str!("credit.lua"));
        let mut call = script.prepare_invoke();
        call.key(&keys.account).key(&keys.credits).key(&keys.references);
        call.arg(amount).arg(note).arg(reference.unwrap_or_default()).arg(i32::from(reference.is_some()));
        let (word, given): (String, i64) =
            self.runtime.block_on(self.link.run(async |connection| call.invoke_async(connection).await))?;
        match word.as_str() {
            "unknown" => Err(DeskError::Unknown(account.to_owned())),
            "reference" => Err(DeskError::Reference {
                reference: reference.unwrap_or_default().to_owned(),
                amount: given,
            }),
            word => Ok(Credited { balance: self.account(account)?.balance(), repeated: word == "repeated" }),
        }
    }

    /// Switches an account on or off; tells whether that is news.
    ///
    /// # Errors
    /// There is no such account, or the server failed.
    pub fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, DeskError> {
        let before = self.account(account)?;
        let key = Keys::of(account).account;
        self.run::<i64>(redis::cmd("HSET").arg(key).arg("enabled").arg(i32::from(enabled)))?;
        Ok(before.enabled != enabled)
    }

    /// An account.
    ///
    /// # Errors
    /// There is no such account, or the server failed.
    pub fn account(&self, account: &str) -> Result<AccountState, DeskError> {
        let key = Keys::of(account).account;
        let fields = ["created", "enabled", "credited", "charged"];
        let [created, enabled, credited, charged]: [Option<i64>; 4] =
            self.run(redis::cmd("HMGET").arg(key).arg(&fields))?;
        let (Some(created), Some(enabled)) = (created, enabled) else {
            return Err(DeskError::Unknown(account.to_owned()));
        };
        Ok(AccountState {
            name: account.to_owned(),
            created,
            enabled: enabled != 0,
            credited: credited.unwrap_or(0),
            charged: charged.unwrap_or(0),
        })
    }

    /// All accounts, by name.
    ///
    /// # Errors
    /// The server failed.
    pub fn accounts(&self) -> Result<Vec<AccountState>, DeskError> {
        let mut names: Vec<String> = self.run(redis::cmd("SMEMBERS").arg(names::ACCOUNTS))?;
        names.sort_unstable();
        let found = names.iter().map(|name| self.account(name));
        // One that is only listed was not made to its end.
        found.filter(|account| !matches!(account, Err(DeskError::Unknown(_)))).collect()
    }
}
