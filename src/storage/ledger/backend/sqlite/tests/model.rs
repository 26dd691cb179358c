//! Model test of the ledger under random interleavings of events: requests of several processes, credits, enabling and
//! disabling, clean ends and crashes.

use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;

use crate::ledger::backend::sqlite::tests::*;
use crate::ledger::wal::{DEFAULT_SEGMENT_LIMIT, orphaned};
use crate::store::journal_files::exists;

const ACCOUNTS: [&str; 2] = ["acme", "umbrella"];
/// Maximum number of concurrent processes, as in an upgrade.
const PROCESSES: usize = 2;
/// Longer than any test: the thread flushes on command only.
const MANUAL_FLUSH: SqliteLedgerConfig = SqliteLedgerConfig {
    flush: Duration::from_secs(3600),
    records: Duration::from_secs(4_000_000_000),
    segment: DEFAULT_SEGMENT_LIMIT,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Credit { account: usize, amount: i64 },
    Enable { account: usize, enabled: bool },
    Start { process: usize },
    Reserve { process: usize, account: usize, amount: i64 },
    Settle { process: usize, which: usize, cost: i64 },
    Charge { process: usize, account: usize, cost: i64 },
    Release { process: usize, which: usize },
    Flush { process: usize },
    Stop { process: usize },
    Crash { process: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let (process, account, which) = (0..PROCESSES, 0..ACCOUNTS.len(), 0..4usize);
    prop_oneof![
        2 => (account.clone(), -20..100i64).prop_map(|(account, amount)| Step::Credit { account, amount }),
        1 => (account.clone(), any::<bool>()).prop_map(|(account, enabled)| Step::Enable { account, enabled }),
        2 => process.clone().prop_map(|process| Step::Start { process }),
        8 => (process.clone(), account.clone(), 0..60i64)
            .prop_map(|(process, account, amount)| Step::Reserve { process, account, amount }),
        6 => (process.clone(), which.clone(), 0..70i64)
            .prop_map(|(process, which, cost)| Step::Settle { process, which, cost }),
        1 => (process.clone(), account, 0..30i64)
            .prop_map(|(process, account, cost)| Step::Charge { process, account, cost }),
        2 => (process.clone(), which).prop_map(|(process, which)| Step::Release { process, which }),
        3 => process.clone().prop_map(|process| Step::Flush { process }),
        1 => process.clone().prop_map(|process| Step::Stop { process }),
        1 => process.prop_map(|process| Step::Crash { process }),
    ]
}

/// Expected state of one process.
#[derive(Debug)]
struct Process {
    ledger: SqliteLedger,
    held: Vec<(usize, Reservation)>,
    /// Balance as last read from the file, and whether the account is enabled.
    seen: [(i64, bool); 2],
    /// Charges that are only in the journal.
    waiting: [i64; 2],
}

/// Expected content of the file.
#[derive(Debug)]
struct Model {
    folder: tempfile::TempDir,
    admin: SqliteAdmin,
    file: [(i64, bool); 2],
    processes: [Option<Process>; PROCESSES],
    /// Charges in the journals of crashed processes.
    left: [i64; 2],
    settled: HashMap<String, i64>,
}

impl Model {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let admin = SqliteAdmin::open(&folder.path().join("state.db")).unwrap();
        admin.create_many(ACCOUNTS.map(id)).unwrap();
        let (processes, settled) = (Default::default(), HashMap::new());
        Model { folder, admin, file: [(0, true); 2], processes, left: [0; 2], settled }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Credit { account, amount } => {
                self.admin.credit(ACCOUNTS[account], amount, "", None).unwrap();
                self.file[account].0 += amount;
            }
            Step::Enable { account, enabled } => {
                self.admin.set_enabled(ACCOUNTS[account], enabled).unwrap();
                self.file[account].1 = enabled;
            }
            Step::Start { process } if self.processes[process].is_none() => {
                let ledger = SqliteLedger::open(&self.folder.path().join("state.db"), MANUAL_FLUSH).unwrap();
                for (file, left) in self.file.iter_mut().zip(&mut self.left) {
                    file.0 -= std::mem::take(left);
                }
                self.processes[process] =
                    Some(Process { ledger, held: Vec::new(), seen: self.file, waiting: [0; 2] });
            }
            Step::Start { .. } => {}
            Step::Reserve { process, account, amount } => {
                let Some(process) = &mut self.processes[process] else { return };
                let available = process.available(account);
                let outcome = reserve(&process.ledger, ACCOUNTS[account], amount);
                match outcome {
                    Ok(held) => {
                        assert!(process.seen[account].1 && (amount == 0 || amount <= available));
                        process.held.push((account, held));
                    }
                    Err(ReserveError::Disabled) => assert!(!process.seen[account].1),
                    Err(ReserveError::Empty { available: reported }) => {
                        assert!(amount > available && reported == available);
                    }
                    Err(refused) => panic!("{refused}"),
                }
            }
            Step::Settle { process, which, cost } => {
                let Some(process) = &mut self.processes[process] else { return };
                if which < process.held.len() {
                    let (account, held) = process.held.swap_remove(which);
                    process.settle(Some(held), account, cost, &mut self.settled);
                }
            }
            Step::Charge { process, account, cost } => {
                let Some(process) = &mut self.processes[process] else { return };
                process.settle(None, account, cost, &mut self.settled);
            }
            Step::Release { process, which } => {
                let Some(process) = &mut self.processes[process] else { return };
                if which < process.held.len() {
                    drop(process.held.swap_remove(which));
                }
            }
            Step::Flush { process } => {
                let Some(process) = &mut self.processes[process] else { return };
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(flush(&process.ledger));
                for (file, waiting) in self.file.iter_mut().zip(&mut process.waiting) {
                    file.0 -= std::mem::take(waiting);
                }
                process.seen = self.file;
            }
            Step::Stop { process } => {
                let Some(process) = self.processes[process].take() else { return };
                drop(process.ledger);
                for (file, waiting) in self.file.iter_mut().zip(process.waiting) {
                    file.0 -= waiting;
                }
            }
            Step::Crash { process } => {
                let Some(process) = self.processes[process].take() else { return };
                let journal = process.ledger.shared.journal.id();
                process.ledger.crash();
                self.await_end(journal);
                for (left, waiting) in self.left.iter_mut().zip(process.waiting) {
                    *left += waiting;
                }
            }
        }
    }

    /// Waits until the lock on the journal of a crashed process is released. Another test of this process may be
    /// forking a program at this moment; between fork and exec, the child holds all locks of its parent.
    fn await_end(&self, journal: u64) {
        let folder = schema::journals(&self.folder.path().join("state.db"));
        let free = || {
            !exists(&folder, journal) || orphaned(&folder).unwrap().any(|left| left.unwrap().id == journal)
        };
        let end = Instant::now() + PATIENCE;
        while !free() {
            assert!(Instant::now() < end, "the journal of a crashed process is still held");
            std::thread::yield_now();
        }
    }

    fn check(&self) {
        for process in self.processes.iter().flatten() {
            for (account, name) in ACCOUNTS.iter().enumerate() {
                assert_eq!(process.ledger.available(&id(name)), Some(process.available(account)), "{name}");
            }
        }
        for (name, file) in ACCOUNTS.iter().zip(self.file) {
            let state = self.admin.account(name).unwrap();
            assert_eq!((state.balance(), state.enabled), file, "{name}");
        }
    }

    /// Ends all processes and starts one: each settlement is applied exactly once.
    fn close(mut self) {
        for process in 0..PROCESSES {
            self.apply(Step::Stop { process });
        }
        self.apply(Step::Start { process: 0 });
        self.check();
        let mut found = HashMap::new();
        let all = UsageFilter { from: 0, to: 100_000, ..UsageFilter::default() };
        self.admin
            .records(&all, &mut |record| {
                assert!(found.insert(record.request.to_owned(), record.cost).is_none(), "twice");
                Ok(())
            })
            .unwrap();
        assert_eq!(found, self.settled);
        assert!(self.admin.audit().unwrap().is_empty());
    }
}

impl Process {
    fn available(&self, account: usize) -> i64 {
        let held: i64 =
            self.held.iter().filter(|(of, _)| *of == account).map(|(_, held)| held.amount()).sum();
        self.seen[account].0 - self.waiting[account] - held
    }

    fn settle(
        &mut self,
        held: Option<Reservation>,
        account: usize,
        cost: i64,
        settled: &mut HashMap<String, i64>,
    ) {
        let request = format!("request {}", settled.len());
        settle(&self.ledger, held, &UsageRecord { request: &request, ..record(ACCOUNTS[account], cost) });
        settled.insert(request, cost);
        self.waiting[account] += cost;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ledger_agrees_with_a_model_after_any_steps(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        for process in 0..PROCESSES {
            model.apply(Step::Start { process });
        }
        for step in steps {
            model.apply(step);
            model.check();
        }
        model.close();
    }
}
