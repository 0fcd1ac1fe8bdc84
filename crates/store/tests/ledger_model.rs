//! The ledger against a simple model: random steps, and for the file store restarts and crashes in between. After each
//! step both must agree.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use frontdesk_core::port::store::{Mail, MailState, Position, Store};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::store_suite::{NotifiedRows, acceptance, numbers};
use frontdesk_wire::{InstanceNo, Seq};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseError, TestRunner};
use tempfile::TempDir;

const INSTANCES: [u64; 3] = [3, 7, 20];

#[derive(Debug, Clone)]
enum Step {
    /// Dedup keys from a small set, so that they repeat; receivers as a bit mask over the instances.
    Accept(Vec<(u64, u8)>),
    /// Any existing rows in any order, including settled ones, like late acks.
    Settle {
        who: usize,
        rows: Vec<Index>,
        sent: Option<Index>,
    },
    /// Everything up to a row, as saved by a session with its watermark.
    SettleThrough {
        who: usize,
        row: Index,
    },
    Drop {
        who: usize,
        row: Index,
    },
    Replay {
        who: usize,
        row: Index,
    },
    Read {
        who: usize,
        after: Index,
        limit: usize,
    },
    /// Closed and reopened.
    Close,
    /// The process was killed: the files on disk are opened elsewhere.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..INSTANCES.len();
    let row = any::<Index>;
    prop_oneof![
        6 => prop::collection::vec((0_u64..40, 0_u8..8), 1..5).prop_map(Step::Accept),
        6 => (who.clone(), prop::collection::vec(row(), 0..5), any::<Option<Index>>())
            .prop_map(|(who, rows, sent)| Step::Settle { who, rows, sent }),
        1 => (who.clone(), row()).prop_map(|(who, row)| Step::SettleThrough { who, row }),
        2 => (who.clone(), row()).prop_map(|(who, row)| Step::Drop { who, row }),
        2 => (who.clone(), row()).prop_map(|(who, row)| Step::Replay { who, row }),
        2 => (who, row(), 0_usize..6).prop_map(|(who, after, limit)| Step::Read { who, after, limit }),
        1 => Just(Step::Close),
        1 => Just(Step::Crash),
    ]
}

/// One row of the model: its content and its state.
#[derive(Debug, Clone, Default)]
struct Row {
    key: u64,
    settled: bool,
    dead: bool,
}

/// The ledger of one instance: row `seq` is at `seq - 1`.
#[derive(Debug, Default)]
struct Account {
    rows: Vec<Row>,
    sent: u64,
}

#[derive(Debug, Default)]
struct Model {
    known: BTreeSet<u64>,
    accounts: BTreeMap<u64, Account>,
    added: Vec<(u64, u64)>,
}

impl Account {
    fn push(&mut self, key: u64) -> u64 {
        self.rows.push(Row { key, ..Row::default() });
        self.rows.len() as u64
    }

    fn pick(&self, index: Index) -> Option<u64> {
        (!self.rows.is_empty()).then(|| index.index(self.rows.len()) as u64 + 1)
    }

    fn row(&mut self, seq: u64) -> &mut Row {
        &mut self.rows[usize::try_from(seq).unwrap() - 1]
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &Row)> {
        (1..).zip(&self.rows)
    }

    fn pending(&self, after: u64, limit: usize) -> Vec<(u64, String)> {
        let owed = self.numbered().filter(|(seq, row)| *seq > after && !row.settled);
        owed.take(limit).map(|(seq, row)| (seq, format!("m-{}", row.key))).collect()
    }

    fn position(&self) -> Position {
        let through = self.rows.iter().take_while(|row| row.settled).count() as u64;
        let above =
            self.numbered().filter(|(seq, row)| *seq > through && row.settled).map(|(seq, _)| Seq(seq)).collect();
        Position { through: Seq(through), above, sent: Seq(self.sent) }
    }

    /// Newest first.
    fn mail(&self) -> Vec<(u64, MailState, String)> {
        let state = |seq: u64, row: &Row| match row {
            Row { dead: true, .. } => MailState::Dead,
            Row { settled: true, .. } => MailState::Acked,
            _ if seq <= self.sent => MailState::Sent,
            _ => MailState::Accepted,
        };
        let mut mail: Vec<_> =
            self.numbered().map(|(seq, row)| (seq, state(seq, row), format!("m-{}", row.key))).collect();
        mail.reverse();
        mail
    }
}

/// A backend under test: how it is closed, and how it crashes. Memory supports neither.
struct Subject {
    store: Option<Arc<dyn Store>>,
    notified: Arc<NotifiedRows>,
    received: Vec<(u64, u64)>,
    folder: Option<TempDir>,
}

fn open(folder: Option<&Path>) -> Arc<dyn Store> {
    match folder {
        Some(folder) => Arc::new(SqliteStore::open(folder, 1).unwrap()),
        None => Arc::new(MemoryStore::new(1)),
    }
}

impl Subject {
    fn new(folder: Option<TempDir>) -> Self {
        let store = open(folder.as_ref().map(TempDir::path));
        let notified = NotifiedRows::on(&*store);
        Self { store: Some(store), notified, received: Vec::new(), folder }
    }

    fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    fn received(&self) -> Vec<(u64, u64)> {
        [self.received.clone(), self.notified.rows()].concat()
    }

    fn reopen(&mut self, crash: bool) {
        let Some(folder) = &self.folder else { return };
        self.received = self.received();
        let left = crash.then(|| {
            // These files have everything that was answered; the shared memory of the killed process does not count.
            let left = tempfile::tempdir().unwrap();
            for name in ["frontdesk.db", "frontdesk.db-wal"] {
                std::fs::copy(folder.path().join(name), left.path().join(name)).unwrap();
            }
            left
        });
        self.store = None;
        if left.is_some() {
            self.folder = left;
        }
        let store = open(self.folder.as_ref().map(TempDir::path));
        self.notified = NotifiedRows::on(&*store);
        self.store = Some(store);
    }
}

async fn take(step: Step, model: &mut Model, subject: &mut Subject) -> Result<(), TestCaseError> {
    match step {
        Step::Accept(batch) => {
            let asked = batch.iter().map(|(key, mask)| acceptance(*key, &receivers(*mask))).collect();
            let answered = subject.store().accept(asked).await.unwrap();
            for ((key, mask), done) in batch.into_iter().zip(answered) {
                let fresh = model.known.insert(key);
                let receivers = if fresh { receivers(mask) } else { Vec::new() };
                let rows: Vec<_> =
                    receivers.into_iter().map(|no| (no, model.accounts.entry(no).or_default().push(key))).collect();
                prop_assert_eq!(done.fresh, fresh);
                let made = numbers(&done.rows);
                prop_assert_eq!(&made, &rows);
                model.added.extend(rows);
            }
        }
        Step::Settle { who, rows, sent } => {
            let account = model.accounts.entry(INSTANCES[who]).or_default();
            let above: Vec<u64> = rows.into_iter().filter_map(|row| account.pick(row)).collect();
            let sent = sent.and_then(|row| account.pick(row)).unwrap_or(0);
            account.sent = account.sent.max(sent);
            for seq in &above {
                account.row(*seq).settled = true;
            }
            let above = above.into_iter().map(Seq).collect();
            let position = Position { through: Seq::NONE, above, sent: Seq(sent) };
            subject.store().settle(InstanceNo(INSTANCES[who]), position.into()).await.unwrap();
        }
        Step::SettleThrough { who, row } => {
            let account = model.accounts.entry(INSTANCES[who]).or_default();
            let through = account.pick(row).unwrap_or(0);
            (1..=through).for_each(|seq| account.row(seq).settled = true);
            let position = Position { through: Seq(through), ..Position::default() };
            subject.store().settle(InstanceNo(INSTANCES[who]), position.into()).await.unwrap();
        }
        Step::Drop { who, row } => {
            let account = model.accounts.entry(INSTANCES[who]).or_default();
            let seq = account.pick(row).unwrap_or(1);
            let expected = account.rows.get(usize::try_from(seq).unwrap() - 1).is_some_and(|row| !row.settled);
            if expected {
                *account.row(seq) = Row { settled: true, dead: true, key: account.row(seq).key };
            }
            let dropped =
                subject.store().drop_mail(InstanceNo(INSTANCES[who]), Seq(seq), None, "no".into()).await.unwrap();
            prop_assert_eq!(dropped, expected);
        }
        Step::Replay { who, row } => {
            let account = model.accounts.entry(INSTANCES[who]).or_default();
            let seq = account.pick(row);
            let expected = seq.map(|seq| account.row(seq).key).map(|key| account.push(key));
            let made = subject.store().replay_mail(InstanceNo(INSTANCES[who]), Seq(seq.unwrap_or(1))).await.unwrap();
            let made = made.map(|seq| seq.0);
            prop_assert_eq!(made, expected);
            model.added.extend(made.map(|seq| (INSTANCES[who], seq)));
        }
        Step::Read { who, after, limit } => {
            let account = model.accounts.entry(INSTANCES[who]).or_default();
            let after = after.index(account.rows.len() + 2) as u64;
            prop_assert_eq!(
                pending(subject.store(), INSTANCES[who], after, limit).await,
                account.pending(after, limit)
            );
        }
        Step::Close => subject.reopen(false),
        Step::Crash => subject.reopen(true),
    }
    Ok(())
}

fn receivers(mask: u8) -> Vec<u64> {
    INSTANCES.into_iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, no)| no).collect()
}

async fn pending(store: &dyn Store, instance: u64, after: u64, limit: usize) -> Vec<(u64, String)> {
    let rows = store.pending(InstanceNo(instance), Seq(after), limit).await.unwrap();
    rows.into_iter().map(|(seq, delivery)| (seq.0, delivery.message_id.to_string())).collect()
}

async fn compare(model: &Model, subject: &Subject) -> Result<(), TestCaseError> {
    let (store, nothing) = (subject.store(), Account::default());
    let mut owing = 0;
    for instance in INSTANCES {
        let account = model.accounts.get(&instance).unwrap_or(&nothing);
        let owed = account.pending(0, usize::MAX);
        owing += owed.len() as u64;
        prop_assert_eq!(store.position(InstanceNo(instance)).await.unwrap(), account.position());
        prop_assert_eq!(&pending(store, instance, 0, usize::MAX).await, &owed);
        let mail = store.mail(InstanceNo(instance), None, Seq(0), usize::MAX).await.unwrap();
        prop_assert!(mail.is_sorted_by(|newer, older| newer.delivery.event > older.delivery.event), "{:?}", mail);
        let summary = |it: Mail| (it.seq.0, it.state, it.delivery.message_id.to_string());
        prop_assert_eq!(mail.into_iter().map(summary).collect::<Vec<_>>(), account.mail());
        let waiting = store.waiting().await.unwrap().into_iter().find(|one| one.instance == InstanceNo(instance));
        let waiting = waiting.map(|one| (one.count, one.oldest_seq.0));
        prop_assert_eq!(waiting, owed.first().map(|(oldest, _)| (owed.len() as u64, *oldest)));
    }
    prop_assert_eq!(store.report().await.unwrap().rows_waiting, owing);
    prop_assert_eq!(&subject.received(), &model.added);
    Ok(())
}

fn run(cases: u32, steps: usize, folder: impl Fn() -> Option<TempDir>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() };
    let walks = prop::collection::vec(step(), 1..steps);
    let walk = |steps: Vec<Step>| {
        runtime.block_on(async {
            let (mut model, mut subject) = (Model::default(), Subject::new(folder()));
            for step in steps {
                take(step, &mut model, &mut subject).await?;
                compare(&model, &subject).await?;
            }
            Ok(())
        })
    };
    if let Err(error) = TestRunner::new(config).run(&walks, walk) {
        panic!("{error}");
    }
}

#[test]
fn memory_keeps_the_ledger_of_the_model() {
    run(400, 60, || None);
}

#[test]
fn sqlite_keeps_the_ledger_of_the_model_through_crashes() {
    run(48, 40, || Some(tempfile::tempdir().unwrap()));
}
