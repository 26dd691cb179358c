//! The ledger on a server against a plain model, under random interleavings of everything that happens to it.

use proptest::prelude::*;

use super::*;

const ACCOUNTS: [&str; 2] = ["acme", "umbrella"];
const GATEWAYS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Credit { account: usize, amount: i64 },
    Reserve { gateway: usize, account: usize, amount: i64 },
    Settle { gateway: usize, which: usize, cost: i64 },
    Charge { gateway: usize, account: usize, cost: i64 },
    Release { gateway: usize, which: usize },
    Flush { gateway: usize },
    Restart { gateway: usize, crash: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let (gateway, account, which) = (0..GATEWAYS, 0..ACCOUNTS.len(), 0..4usize);
    prop_oneof![
        2 => (account.clone(), -20..100i64).prop_map(|(account, amount)| Step::Credit { account, amount }),
        8 => (gateway.clone(), account.clone(), 0..60i64)
            .prop_map(|(gateway, account, amount)| Step::Reserve { gateway, account, amount }),
        6 => (gateway.clone(), which.clone(), 0..70i64)
            .prop_map(|(gateway, which, cost)| Step::Settle { gateway, which, cost }),
        1 => (gateway.clone(), account, 0..30i64)
            .prop_map(|(gateway, account, cost)| Step::Charge { gateway, account, cost }),
        2 => (gateway.clone(), which).prop_map(|(gateway, which)| Step::Release { gateway, which }),
        3 => gateway.clone().prop_map(|gateway| Step::Flush { gateway }),
        1 => (gateway, any::<bool>()).prop_map(|(gateway, crash)| Step::Restart { gateway, crash }),
    ]
}

struct Gateway {
    ledger: Option<Valkey>,
    held: Vec<(usize, Reservation)>,
    /// What is in the journal only: account, hold and cost.
    waiting: Vec<(usize, i64, i64)>,
}

struct World<'a> {
    server: &'a Server,
    journals: TempDir,
    /// Unlike those of another case on the same server.
    names: [String; 2],
    credits: [i64; 2],
    charged: [i64; 2],
    held: [i64; 2],
    gateways: Vec<Gateway>,
    settled: HashMap<String, i64>,
}

impl World<'_> {
    fn open(&self) -> Valkey {
        // By hand: nothing happens by itself but what is left is brought in at the start.
        let by_hand = Duration::from_secs(3600);
        Valkey::open(ValkeyTerms { flush: by_hand, holds: by_hand, ..self.server.terms(&self.journals) })
            .unwrap()
    }

    fn ledger(&self, gateway: usize) -> &Valkey {
        self.gateways[gateway].ledger.as_ref().unwrap()
    }

    /// What was in the journal only is on the server.
    fn arrived(&mut self, gateway: usize) {
        for (account, hold, cost) in std::mem::take(&mut self.gateways[gateway].waiting) {
            self.held[account] -= hold;
            self.charged[account] += cost;
        }
    }

    fn settle(&mut self, gateway: usize, held: Option<Reservation>, account: usize, cost: i64) {
        let request = format!("request {}", self.settled.len());
        let hold = held.as_ref().map_or(0, Reservation::amount);
        settle(self.ledger(gateway), held, &record(&request, &self.names[account], cost));
        self.settled.insert(format!("{} {request}", self.names[account]), cost);
        self.gateways[gateway].waiting.push((account, hold, cost));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Credit { account, amount } => {
                self.server.desk().credit(&self.names[account], amount, "", None).unwrap();
                self.credits[account] += amount;
            }
            Step::Reserve { gateway, account, amount } => {
                let left = self.credits[account] - self.charged[account] - self.held[account];
                match reserve(self.ledger(gateway), &self.names[account], amount) {
                    Ok(held) => {
                        assert!(amount == 0 || amount <= left);
                        self.held[account] += amount;
                        self.gateways[gateway].held.push((account, held));
                    }
                    Err(refused) => {
                        assert_eq!(refused, Refused::Empty { available: left });
                        assert!(amount > left);
                    }
                }
            }
            Step::Settle { gateway, which, cost } => {
                if which < self.gateways[gateway].held.len() {
                    let (account, held) = self.gateways[gateway].held.swap_remove(which);
                    self.settle(gateway, Some(held), account, cost);
                }
            }
            Step::Charge { gateway, account, cost } => self.settle(gateway, None, account, cost),
            Step::Release { gateway, which } => {
                if which < self.gateways[gateway].held.len() {
                    let (account, held) = self.gateways[gateway].held.swap_remove(which);
                    self.held[account] -= held.amount();
                }
            }
            Step::Flush { gateway } => {
                flush(self.ledger(gateway));
                self.arrived(gateway);
            }
            Step::Restart { gateway, crash } => {
                let ledger = self.gateways[gateway].ledger.take().unwrap();
                if crash {
                    ledger.crash();
                } else {
                    drop(ledger);
                }
                // What it held stays held: the time of holds is longer than the test.
                self.gateways[gateway].held.clear();
                let ledger = self.open();
                self.gateways[gateway].ledger = Some(ledger);
                let folder = self.journals.path().to_owned();
                until("what was left is brought in", || {
                    std::fs::read_dir(&folder).unwrap().count() == GATEWAYS * 3
                });
                self.arrived(gateway);
            }
        }
    }

    fn check(&self) {
        for (account, name) in self.names.iter().enumerate() {
            let left = self.credits[account] - self.charged[account] - self.held[account];
            until("the balance of the model", || self.server.available(name) == left);
            let there = self.server.desk().account(name).unwrap();
            assert_eq!((there.credited, there.charged), (self.credits[account], self.charged[account]));
        }
    }

    fn close(mut self) {
        for gateway in 0..GATEWAYS {
            self.take(Step::Restart { gateway, crash: gateway == 0 });
        }
        self.check();
        let mut found = HashMap::new();
        for name in &self.names {
            found.extend(
                self.server
                    .records(name)
                    .into_iter()
                    .map(|(request, cost)| (format!("{name} {request}"), cost)),
            );
        }
        assert_eq!(found, self.settled);
    }
}

#[test]
fn the_books_add_up_whatever_happens() {
    let Some(server) = Server::start() else { return };
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        max_shrink_iters: 16,
        ..ProptestConfig::default()
    };
    let case = std::cell::Cell::new(0);
    proptest::test_runner::TestRunner::new(config)
        .run(&prop::collection::vec(step(), 1..50), |steps| {
            case.set(case.get() + 1);
            let names = ACCOUNTS.map(|name| format!("{name} {}", case.get()));
            for name in &names {
                server.desk().create(&id(name)).unwrap();
            }
            let mut world = World {
                server: &server,
                journals: tempfile::tempdir().unwrap(),
                names,
                credits: [0; 2],
                charged: [0; 2],
                held: [0; 2],
                gateways: Vec::new(),
                settled: HashMap::new(),
            };
            for _ in 0..GATEWAYS {
                let ledger = Some(world.open());
                world.gateways.push(Gateway { ledger, held: Vec::new(), waiting: Vec::new() });
            }
            for step in steps {
                world.take(step);
                world.check();
            }
            world.close();
            Ok(())
        })
        .unwrap();
}
