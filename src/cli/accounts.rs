//! `model-gateway accounts`: administration of accounts and their balances.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::out::say;
use super::record::{CommandChange, recorded};
use super::table::{TextTable, align};
use super::{Conf, fail, style};
use codec::canonical::time::rfc3339;
use config::{self, StoreSettings};
use routing::account::Amount;
use storage::ledger::AccountId;
use storage::ledger::admin::{AccountState, AdminError, LedgerAdmin};
use storage::ledger::backend::sqlite::SqliteAdmin;
use storage::ledger::backend::valkey::ValkeyAdmin;
use storage::store::OpenError;
use storage::store::valkey::{ServerAddress, ServerAddressError};

/// Maximum number of credits that `show` lists.
const SHOWN: u32 = 20;

#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create an account. Keys name their account in keys.toml: account = "NAME".
    Create {
        /// Unique name, 1 to 128 bytes.
        name: String,
        /// Initial credit.
        #[arg(long, value_name = "AMOUNT", value_parser = Amount::parse)]
        credit: Option<Amount>,
        #[command(flatten)]
        file: File,
    },
    /// Credit an account. Credits and their notes are never deleted.
    Credit {
        /// Name of the account.
        name: String,
        /// Amount, such as 25 or 12.50; a negative amount reduces the balance.
        #[arg(allow_negative_numbers = true, value_parser = Amount::parse)]
        amount: Amount,
        /// Purpose of the credit.
        #[arg(long, default_value = "")]
        note: String,
        /// Idempotency key of the credit, such as an invoice number: a second credit with the same reference has no
        /// effect.
        #[arg(long)]
        reference: Option<String>,
        #[command(flatten)]
        file: File,
    },
    /// Show an account and its latest credits.
    Show {
        /// Name of the account.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: File,
    },
    /// List the accounts.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: File,
    },
    /// Enable an account.
    Enable {
        /// Name of the account.
        name: String,
        #[command(flatten)]
        file: File,
    },
    /// Disable an account: requests of its keys are rejected.
    Disable {
        /// Name of the account.
        name: String,
        #[command(flatten)]
        file: File,
    },
    /// Check that every balance is the sum of its credits and charges. Exit status 1 if one is not.
    Audit {
        #[command(flatten)]
        file: File,
    },
    /// Write a consistent copy of the database while the gateway runs.
    Backup {
        /// Target file, which must not exist.
        to: PathBuf,
        #[command(flatten)]
        file: File,
    },
}

/// Store arguments.
#[derive(Debug, Args)]
pub(super) struct File {
    #[command(flatten)]
    conf: Conf,
    /// Database file, instead of the one that the configuration names.
    #[arg(long, value_name = "FILE", conflicts_with = "conf")]
    store: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AccountsError {
    #[error("{0}")]
    Conf(#[from] config::Report),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("store.valkey: {0}")]
    Address(#[from] ServerAddressError),
    #[error("a name must have 1 to 128 bytes and no control characters")]
    Name,
    #[error("{0} accounts have an inconsistent balance")]
    Audit(usize),
}

impl File {
    fn store(&self) -> Result<StoreSettings, AccountsError> {
        match &self.store {
            Some(path) => Ok(StoreSettings::Sqlite(path.clone())),
            None => Ok(config::store(&self.conf.conf)?),
        }
    }

    /// Makes a change of an account, and records it before.
    fn recorded<T>(
        &self,
        action: &'static str,
        name: &str,
        details: Value,
        work: impl FnOnce() -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let change = CommandChange { action, object: format!("account/{name}"), details, text_before: None };
        recorded(self.store.is_none().then_some(&*self.conf.conf), change, work)
    }

    /// Opens the store for administration. A missing database file is created if `make` is true, and an error
    /// otherwise.
    fn open_or(&self, make: bool) -> Result<Box<dyn LedgerAdmin>, AccountsError> {
        Ok(match self.store()? {
            StoreSettings::Sqlite(path) if make => {
                let is_new = !path.exists();
                let admin = SqliteAdmin::open(&path)?;
                if is_new {
                    // The gateway, which may be another user, opens it next.
                    config::give_to_folder_owner(&path, &["-wal", "-shm"]);
                }
                Box::new(admin)
            }
            StoreSettings::Sqlite(path) => Box::new(SqliteAdmin::open_existing(&path)?),
            StoreSettings::Valkey(fleet) => {
                let urls = fleet.urls.iter().map(|url| url.expose());
                Box::new(ValkeyAdmin::open(&ServerAddress::new(urls, fleet.sentinel.as_deref())?)?)
            }
        })
    }

    pub(super) fn open(&self) -> Result<Box<dyn LedgerAdmin>, AccountsError> {
        self.open_or(false)
    }
}

/// Formats nano-units as a decimal amount.
fn money(nanos: i64) -> String {
    format!("{:.2}", Amount(nanos))
}

pub(super) fn run(options: &AccountsArgs) -> ExitCode {
    let done = match &options.action {
        Action::Create { name, credit, file } => create(file, name, *credit),
        Action::Credit { name, amount, note, reference, file } => {
            credit(file, name, *amount, note, reference.as_deref())
        }
        Action::Show { name, json, file } => show(file, name, *json),
        Action::List { json, file } => list(file, *json),
        Action::Enable { name, file } => switch(file, name, true),
        Action::Disable { name, file } => switch(file, name, false),
        Action::Audit { file } => audit(file),
        Action::Backup { to, file } => file.open().and_then(|admin| Ok(admin.backup(to)?)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn create(file: &File, name: &str, credit: Option<Amount>) -> Result<(), AccountsError> {
    let account = AccountId::new(name).ok_or(AccountsError::Name)?;
    let admin = file.open_or(true)?;
    let after = json!({ "credit": credit.map(|amount| amount.to_string()) });
    let details = json!({ "before": null, "after": after });
    let balance = file.recorded("account.create", name, details, || {
        admin.create(&account)?;
        match credit {
            Some(amount) => Ok(admin.credit(name, amount.0, "first credit", None)?.balance),
            None => Ok(0),
        }
    })?;
    say!("{name} is created, with a balance of {}.", money(balance));
    Ok(())
}

fn credit(
    file: &File,
    name: &str,
    amount: Amount,
    note: &str,
    reference: Option<&str>,
) -> Result<(), AccountsError> {
    let admin = file.open()?;
    let details = json!({ "amount": amount.to_string(), "note": note, "reference": reference });
    let credited =
        file.recorded("account.credit", name, details, || admin.credit(name, amount.0, note, reference))?;
    let balance = money(credited.balance);
    if credited.repeated {
        say!("{name} already has this credit; its balance is {balance}.");
    } else {
        say!("{name} now has a balance of {balance}.");
    }
    Ok(())
}

fn switch(file: &File, name: &str, enabled: bool) -> Result<(), AccountsError> {
    let state = if enabled { "enabled" } else { "disabled" };
    let admin = file.open()?;
    let before = admin.account(name)?.enabled;
    let details = json!({ "before": { "enabled": before }, "after": { "enabled": enabled } });
    let changed = file.recorded("account.update", name, details, || admin.set_enabled(name, enabled))?;
    let news = if changed { "now" } else { "already" };
    say!("{name} is {news} {state}.");
    Ok(())
}

fn word(account: &AccountState) -> &'static str {
    if account.enabled { "enabled" } else { "disabled" }
}

fn time(millis: i64) -> String {
    rfc3339(millis.div_euclid(1000))
}

fn value(account: &AccountState) -> Value {
    json!({
        "name": account.name,
        "enabled": account.enabled,
        "created": time(account.created),
        "balance": money(account.balance()),
        "credited": money(account.credited),
        "charged": money(account.charged),
    })
}

fn list(file: &File, json: bool) -> Result<(), AccountsError> {
    let accounts = file.open()?.accounts()?;
    if json {
        say!("{}", Value::Array(accounts.iter().map(value).collect()));
        return Ok(());
    }
    if accounts.is_empty() {
        say!("No accounts yet. To create one: model-gateway accounts create NAME");
        return Ok(());
    }
    let mut amounts: Vec<[String; 3]> = accounts
        .iter()
        .map(|account| [account.balance(), account.credited, account.charged].map(money))
        .collect();
    for column in 0..3 {
        let mut column: Vec<&mut String> = amounts.iter_mut().filter_map(|row| row.get_mut(column)).collect();
        align(&mut column);
    }
    let mut table = TextTable::new(3, vec!["name", "state", "created", "balance", "credited", "charged"]);
    for (account, amounts) in accounts.iter().zip(amounts) {
        let mut row = vec![account.name.clone(), word(account).to_owned(), time(account.created)];
        row.extend(amounts);
        table.row(row);
    }
    table.print(0);
    Ok(())
}

fn show(file: &File, name: &str, json: bool) -> Result<(), AccountsError> {
    let admin = file.open()?;
    let account = admin.account(name)?;
    let credits = admin.credits(name, None, SHOWN)?;
    if json {
        let credits = credits.iter().map(|credit| {
            json!({
                "time": time(credit.time),
                "amount": money(credit.amount),
                "note": credit.note,
                "reference": credit.reference,
            })
        });
        let mut shown = value(&account);
        if let Some(members) = shown.as_object_mut() {
            members.insert("credits".to_owned(), credits.collect());
        }
        say!("{shown}");
        return Ok(());
    }
    let mut amounts = [account.balance(), account.credited, account.charged].map(money);
    align(&mut amounts.each_mut());
    let width = amounts.iter().map(String::len).max().unwrap_or(0);
    say!("{}, {}, made {}", style::title(name), word(&account), time(account.created));
    for (label, amount) in ["balance", "credited", "charged"].iter().zip(&amounts) {
        say!("{label:8}  {amount:>width$}");
    }
    if !credits.is_empty() {
        say!();
        let mut amounts: Vec<String> = credits.iter().map(|credit| money(credit.amount)).collect();
        align(&mut amounts.iter_mut().collect::<Vec<_>>());
        let mut table = TextTable::new(1, vec!["time", "credit", "reference", "note"]);
        for (credit, amount) in credits.into_iter().zip(amounts) {
            table.row(vec![time(credit.time), amount, credit.reference.unwrap_or_default(), credit.note]);
        }
        table.print(0);
    }
    Ok(())
}

fn audit(file: &File) -> Result<(), AccountsError> {
    let admin = file.open()?;
    let faults = admin.audit()?;
    for fault in &faults {
        say!("{fault}");
    }
    if faults.is_empty() {
        say!("{} the balances of {} accounts are consistent", style::good("ok"), admin.accounts()?.len());
        Ok(())
    } else {
        Err(AccountsError::Audit(faults.len()))
    }
}
