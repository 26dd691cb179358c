//! Administration of the ledger of a fleet.

use std::future::Future;
use std::io;
use std::path::Path;

use redis::{Cmd, Value};
use tokio::runtime::Runtime;

use super::fleet;
use super::report::{self, RecordPlace, ValkeyReportError};
use crate::ledger::admin::{AccountState, AdminError, Credit, Credited, LedgerAdmin, fault};
use crate::ledger::breakdown::{BreakdownRow, UsageQuery};
use crate::ledger::report::{RecordQuery, UsageFilter, UsageGrouping, UsageRow, clamped};
use crate::ledger::{AccountId, UsageRecord};
use crate::store::now;
use crate::store::valkey::connection::{Connection, ConnectionError, number, parts, text};
use crate::store::valkey::{ServerAddress, keys, script};
use routing::account::amount::LARGEST;

/// Administration of the ledger of a fleet.
pub struct ValkeyAdmin {
    connection: Connection,
    runtime: Runtime,
}

impl From<ConnectionError> for AdminError {
    fn from(error: ConnectionError) -> Self {
        AdminError::Server(error.to_string())
    }
}

fn failed(error: ValkeyReportError) -> AdminError {
    match error {
        ValkeyReportError::Connection(error) => error.into(),
        ValkeyReportError::Io(error) => AdminError::Records(error),
    }
}

/// Largest number of days whose single records are summed for one report.
const MAX_RECORD_DAYS: i64 = 31;
/// Maximum number of blocks that are read for one page of records.
const MAX_BLOCKS: usize = 1_000;

/// Fields of an account, in the order in which they are read.
const FIELDS: [&str; 4] = ["created", "enabled", "credited", "charged"];

fn state_command(account: &str) -> Cmd {
    let mut command = redis::cmd("HMGET");
    command.arg(keys::account(account)).arg(&FIELDS);
    command
}

fn state(name: &str, answer: &Value) -> Option<AccountState> {
    let [created, enabled, credited, charged] = parts(answer) else { return None };
    (*created != Value::Nil).then(|| AccountState {
        name: name.to_owned(),
        created: number(created),
        enabled: number(enabled) == 1,
        credited: number(credited),
        charged: number(charged),
    })
}

/// JSON form of a credit: time, amount, note, reference.
type Entry = (i64, i64, String, Option<String>);

fn credit(number: i64, entry: &Value) -> Option<Credit> {
    let (time, amount, note, reference) = serde_json::from_str::<Entry>(text(entry)).ok()?;
    Some(Credit { number, time, amount, note, reference })
}

impl ValkeyAdmin {
    /// Connects to the server.
    ///
    /// # Errors
    /// Returns [`AdminError::Server`] if the server is unreachable.
    pub fn open(address: &ServerAddress) -> Result<Self, AdminError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| AdminError::Server(error.to_string()))?;
        let connection = runtime.block_on(Connection::connect(address))?;
        Ok(ValkeyAdmin { connection, runtime })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn run(&self, command: Cmd) -> Result<Value, AdminError> {
        Ok(self.wait(self.connection.run_one(command))?)
    }

    fn names(&self) -> Result<Vec<String>, AdminError> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(keys::accounts());
        let names = self.run(command)?;
        let mut names: Vec<String> = parts(&names).iter().map(|name| text(name).to_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the credits of an account from index `from` to before `to`.
    fn entries(&self, account: &str, from: i64, to: i64) -> Result<Vec<Credit>, AdminError> {
        let mut range = redis::cmd("LRANGE");
        range.arg(keys::credits(account)).arg(from).arg(to.saturating_sub(1));
        let found = self.run(range)?;
        let numbered = parts(&found).iter().zip(from..);
        Ok(numbered.filter_map(|(entry, number)| credit(number, entry)).collect())
    }

    /// Returns the sum of an account's charges over all days, in nano-units.
    fn charges(&self, account: &str) -> Result<i64, AdminError> {
        let filter = UsageFilter {
            account: Some(account.to_owned()),
            from: i64::MIN,
            to: i64::MAX,
            ..UsageFilter::default()
        };
        Ok(LedgerAdmin::usage(self, &filter, UsageGrouping::Account)?
            .iter()
            .map(|line| line.sums.cost)
            .fold(0, i64::saturating_add))
    }
}

impl LedgerAdmin for ValkeyAdmin {
    fn create(&self, account: &AccountId) -> Result<(), AdminError> {
        let mut list = redis::cmd("SADD");
        list.arg(keys::accounts()).arg(account.as_str());
        let mut make = script::CREATE.call(&[keys::account(account.as_str())]);
        make.arg(now());
        // Add the name first: if the second command fails, an account with money would otherwise be missing from the
        // list.
        self.run(list)?;
        match number(&self.run(make)?) {
            1 => Ok(()),
            _ => Err(AdminError::Exists(account.to_string())),
        }
    }

    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError> {
        if !(-LARGEST..=LARGEST).contains(&amount) {
            return Err(AdminError::TooLarge);
        }
        let entry: Entry = (now(), amount, note.to_owned(), reference.map(str::to_owned));
        let entry = serde_json::to_string(&entry).map_err(|error| AdminError::Server(error.to_string()))?;
        let mut call =
            script::CREDIT.call(&[keys::account(account), keys::credits(account), keys::references(account)]);
        call.arg(amount)
            .arg(amount.saturating_neg())
            .arg(entry)
            .arg(reference.unwrap_or_default())
            .arg(LARGEST);
        let answer = self.run(call)?;
        let repeated = match parts(&answer) {
            [done] if text(done) == "done" => false,
            [tag, before] if text(tag) == "given" => match (reference, number(before)) {
                (Some(reference), before) if before != amount => {
                    return Err(AdminError::Reference { reference: reference.to_owned(), amount: before });
                }
                _ => true,
            },
            [large] if text(large) == "large" => return Err(AdminError::TooLarge),
            _ => return Err(AdminError::Unknown(account.to_owned())),
        };
        Ok(Credited { balance: self.account(account)?.balance(), repeated })
    }

    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError> {
        let mut call = script::SWITCH.call(&[keys::account(account)]);
        call.arg(i64::from(enabled));
        match text(&self.run(call)?) {
            "" => Err(AdminError::Unknown(account.to_owned())),
            before => Ok((before == "1") != enabled),
        }
    }

    fn account(&self, account: &str) -> Result<AccountState, AdminError> {
        state(account, &self.run(state_command(account))?)
            .ok_or_else(|| AdminError::Unknown(account.to_owned()))
    }

    fn accounts(&self) -> Result<Vec<AccountState>, AdminError> {
        let names = self.names()?;
        let answers =
            self.wait(self.connection.run_all(names.iter().map(|name| state_command(name)).collect()))?;
        Ok(names.iter().zip(&answers).filter_map(|(name, answer)| state(name, answer)).collect())
    }

    fn credits(&self, account: &str, before: Option<i64>, most: u32) -> Result<Vec<Credit>, AdminError> {
        self.account(account)?;
        let mut length = redis::cmd("LLEN");
        length.arg(keys::credits(account));
        let end = number(&self.run(length)?).min(before.unwrap_or(i64::MAX));
        let begin = end.saturating_sub(i64::from(most)).max(0);
        let mut credits = if begin < end { self.entries(account, begin, end)? } else { Vec::new() };
        credits.reverse();
        Ok(credits)
    }

    fn credit_of(&self, account: &str, reference: &str) -> Result<Option<i64>, AdminError> {
        self.account(account)?;
        let mut get = redis::cmd("HGET");
        get.arg(keys::references(account)).arg(reference);
        let found = self.run(get)?;
        Ok((found != Value::Nil).then(|| number(&found)))
    }

    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError> {
        Ok(self.wait(report::sums(&self.connection, filter, by))?)
    }

    fn breakdown(&self, query: &UsageQuery) -> Result<Vec<BreakdownRow>, AdminError> {
        let days = query.filter.to.saturating_sub(query.filter.from);
        if (query.by_hour() || query.has_outcome()) && days > MAX_RECORD_DAYS {
            return Err(AdminError::Period(MAX_RECORD_DAYS));
        }
        self.wait(report::breakdown(&self.connection, query)).map_err(failed)
    }

    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError> {
        self.wait(report::records(&self.connection, filter, show)).map_err(failed)
    }

    fn records_page(
        &self,
        query: &RecordQuery,
        after: Option<&str>,
        most: usize,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<Option<String>, AdminError> {
        let position = |after| query.position(after).and_then(RecordPlace::parse);
        let start = after.map(|after| position(after).ok_or(AdminError::Cursor)).transpose()?;
        let page = report::page(&self.connection, query, start.as_ref(), (most, MAX_BLOCKS), show);
        Ok(self.wait(page).map_err(failed)?.map(|next| query.cursor(next)))
    }

    fn announce(&self, gateway: &str, text: &str, now: i64) -> Result<(), AdminError> {
        Ok(self.wait(fleet::announce(&self.connection, gateway, text, now))?)
    }

    fn announced(&self) -> Result<Option<Vec<String>>, AdminError> {
        Ok(Some(self.wait(fleet::announced(&self.connection))?))
    }

    /// Audits the ledger. A charge between two reads looks like a difference, so each difference is checked up to three
    /// more times.
    fn audit(&self) -> Result<Vec<String>, AdminError> {
        let mut faults = Vec::new();
        for account in LedgerAdmin::accounts(self)? {
            let mut fault = self.fault(&account)?;
            for _ in 0..3 {
                if fault.is_some() {
                    fault = self.fault(&self.account(&account.name)?)?;
                }
            }
            faults.extend(fault);
        }
        Ok(faults)
    }

    fn backup(&self, _: &Path) -> Result<(), AdminError> {
        Err(AdminError::Server("use the server's own backup (BGSAVE, or its append-only file)".to_owned()))
    }
}

impl ValkeyAdmin {
    fn fault(&self, account: &AccountState) -> Result<Option<String>, AdminError> {
        let credits: i128 =
            self.entries(&account.name, 0, 0)?.iter().map(|credit| i128::from(credit.amount)).sum();
        let sums = [account.credited, clamped(credits), account.charged, self.charges(&account.name)?];
        Ok(fault(&account.name, sums))
    }
}
