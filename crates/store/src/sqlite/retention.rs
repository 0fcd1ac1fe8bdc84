//! Deletes old rows in small steps with cursors. A reader finds the rows, and the writer deletes a few of them by key,
//! so that other writes are not delayed. Within a round no step reads rows that an earlier one has read.

use std::collections::{HashSet, VecDeque};

use frontdesk_core::port::store::{Purged, Retention, StoreError};
use frontdesk_wire::{EventId, InstanceNo, Seq};
use rusqlite::{Connection, Row};

use super::backlogs::{Owed, owed_of_import};
use super::threads::Books;
use super::{STEP_ROWS, SqliteStore, fault, held_media, signed, unsigned};
use crate::read_queue::SERVER;

/// Ledgers or chats read per step.
const STEP_OWNERS: usize = 500;
/// Interval of scans over whole tables.
const SELDOM_MS: u64 = 3_600_000;

/// The parts of a round, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Begin,
    Events,
    Mail,
    Media,
    Files,
    Expired,
    Journal,
    Chats,
    Reach,
}

/// Progress of a round. The next one begins when it is finished.
#[derive(Default)]
pub(super) struct Round {
    part: Part,
    /// Events up to this one were checked.
    event: EventId,
    /// The newest event when the round began. Later ones may be copies of old events, with rows in ledgers that had
    /// none pending then.
    last_event: EventId,
    /// Unsettled rows of the ledgers, to be compared with the events; both are in rising order.
    owed: Owed,
    /// Old events that are being compared.
    old: Vec<EventId>,
    /// Events of unsettled rows that came with an import, in which rows and events need not rise together.
    imported: HashSet<EventId>,
    ledgers: VecDeque<(InstanceNo, Seq)>,
    /// Files up to this one were checked for mail that refers to them.
    media: String,
    /// Files that expired up to this one were checked.
    files: held_media::Expiry,
    chats: (String, String),
    seldom_ms: u64,
}

impl Round {
    /// One step. `more` is false when the round is finished.
    pub(super) async fn step(&mut self, store: &SqliteStore, keep: Retention) -> Result<Purged, StoreError> {
        // If a step fails, `part` stays at its default, so the next step begins a new round.
        let (gone, next) = match std::mem::take(&mut self.part) {
            Part::Begin => {
                self.begin(store).await?;
                (0, Some(Part::Events))
            }
            Part::Events => self.events(store, keep).await?,
            Part::Mail => self.mail(store).await?,
            Part::Media => self.media(store, keep).await?,
            Part::Files => self.files(store, keep).await?,
            Part::Expired => expired(store, keep).await?,
            Part::Journal => journal(store, keep).await?,
            Part::Chats => self.chat_lines(store, keep).await?,
            Part::Reach => self.reach(store, keep).await?,
        };
        self.part = next.unwrap_or_default();
        Ok(Purged { gone: gone as u64, more: next.is_some() })
    }

    async fn begin(&mut self, store: &SqliteStore) -> Result<(), StoreError> {
        let sql =
            "SELECT p.instance, p.through, COALESCE((SELECT MAX(m.seq) FROM mail m WHERE m.instance = p.instance), 0)
                   FROM position p ORDER BY p.instance";
        let row = |row: &Row<'_>| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), unsigned::<Seq>(row.get(2)?)));
        let found = store.readers.read(SERVER, move |connection| {
            // One snapshot for both: every event up to `last` has its rows among those read here or later.
            let moment = connection.unchecked_transaction().map_err(fault)?;
            let last = "SELECT COALESCE(MAX(id), 0) FROM event";
            let last: i64 = moment.query_row(last, [], |row| row.get(0)).map_err(fault)?;
            let mut query = moment.prepare_cached(sql).map_err(fault)?;
            let ledgers = query.query_map([], row).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fault)?;
            Ok((unsigned(last), ledgers, owed_of_import(&moment)?))
        });
        let (last, ledgers, imported) = found.await?;
        (self.last_event, self.imported) = (last, imported);
        let behind = ledgers.iter().filter(|(_, through, last)| last > through);
        self.owed = Owed::of(behind.map(|(instance, through, _)| (*instance, *through)));
        self.old.clear();
        self.ledgers = ledgers.into_iter().map(|(no, through, _)| (no, through)).collect();
        self.event = EventId::default();
        self.media.clear();
        self.files = Default::default();
        self.chats = Default::default();
        Ok(())
    }

    /// Deletes the oldest events that have expired and have no unsettled rows. Stops at the first event that has not
    /// expired, although replayed old ones may follow. Rows are created with their event and never later, so an event
    /// without unsettled rows now has none when it is deleted.
    async fn events(&mut self, store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
        let before_ms = keep.verdicts_before_ms.min(keep.events_before_ms);
        let (after, until, mut owed) = (self.event, self.last_event, std::mem::take(&mut self.owed));
        let mut old = std::mem::take(&mut self.old);
        let found = store.readers.read(SERVER, move |connection| {
            if old.is_empty() {
                old = old_events(connection, after, until, before_ms)?;
                owed.begin();
            }
            if let Some(last) = old.last() {
                owed.compare(connection, *last)?;
            }
            Ok((owed, old))
        });
        let (owed, old): (Owed, Vec<EventId>) = found.await?;
        self.owed = owed;
        if !old.is_empty() && !self.owed.is_compared() {
            self.old = old; // the next step continues with these
            return Ok((0, Some(Part::Events)));
        }
        let is_owed = |event: &EventId| self.owed.has(*event) || self.imported.contains(event);
        let free: Vec<EventId> = old.iter().copied().filter(|event| !is_owed(event)).collect();
        let count = free.len();
        if count > 0 {
            store.writer.write(move |books: &mut Books| delete_events(&books.connection, &free), |()| {}).await?;
        }
        self.event = old.last().copied().unwrap_or(self.event);
        let next = if old.len() < STEP_ROWS { Part::Mail } else { Part::Events };
        Ok((count, Some(next)))
    }

    /// Deletes settled rows of events that were checked. Rows of a ledger refer to events in rising order.
    async fn mail(&mut self, store: &SqliteStore) -> Result<(usize, Option<Part>), StoreError> {
        let count = self.ledgers.len().min(STEP_OWNERS);
        let some: Vec<(InstanceNo, Seq)> = self.ledgers.drain(..count).collect();
        let until = self.event;
        let found = store.readers.read(SERVER, move |connection| settled_rows(connection, some, until));
        let (rows, rest) = found.await?;
        for ledger in rest.into_iter().rev() {
            self.ledgers.push_front(ledger);
        }
        let gone = if rows.is_empty() {
            0
        } else {
            let work = move |books: &mut Books| {
                let sql = "DELETE FROM mail WHERE instance = ?1 AND seq <= ?2";
                let mut delete = books.connection.prepare_cached(sql).map_err(fault)?;
                let mut gone = 0;
                for (instance, seq) in rows {
                    gone += delete.execute((signed(instance), signed(seq))).map_err(fault)?;
                }
                Ok(gone)
            };
            store.writer.write(work, |_| {}).await?
        };
        Ok((gone, Some(if self.ledgers.is_empty() { Part::Media } else { Part::Mail })))
    }

    /// Files expire from the time on at which the last mail that refers to them was found settled.
    async fn media(&mut self, store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
        let after = self.media.clone();
        let found = store.readers.read(SERVER, move |connection| held_media::settled(connection, &after, STEP_ROWS));
        let (last, settled) = found.await?;
        if !settled.is_empty() {
            let expires_ms = keep.now_ms.saturating_add(keep.media_ttl_ms);
            let work = move |books: &mut Books| held_media::release(&books.connection, &settled, expires_ms);
            store.writer.write(work, |()| {}).await?;
        }
        let next = if last.is_some() { Part::Media } else { Part::Files };
        self.media = last.unwrap_or_default();
        Ok((0, Some(next)))
    }

    /// Deletes files that have expired and that no mail refers to.
    async fn files(&mut self, store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
        let (after, now_ms) = (self.files.clone(), keep.now_ms);
        let found =
            store.readers.read(SERVER, move |connection| held_media::expired(connection, &after, now_ms, STEP_ROWS));
        let (last, free) = found.await?;
        let mut gone = 0;
        if !free.is_empty() {
            let folder = store.media_dir.clone();
            let work = move |books: &mut Books| held_media::delete(&books.connection, free, now_ms);
            // The bytes are deleted after the rows are committed.
            let after = move |ids: &Vec<String>| {
                for id in ids {
                    let _ = std::fs::remove_file(folder.join(id)); // the next start removes files without a row
                }
            };
            gone = store.writer.write(work, after).await?.len();
        }
        let next = if last.is_some() { Part::Files } else { Part::Expired };
        self.files = last.unwrap_or_default();
        Ok((gone, Some(next)))
    }

    /// Deletes the oldest messages of each chat. Runs once an hour.
    async fn chat_lines(&mut self, store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
        let is_due = keep.now_ms.abs_diff(self.seldom_ms) >= SELDOM_MS;
        if keep.chat_before_ms == 0 || !is_due {
            return Ok((0, if is_due { Some(Part::Reach) } else { None }));
        }
        let (from, before_ms) = (self.chats.clone(), keep.chat_before_ms);
        let found = store.readers.read(SERVER, move |connection| old_lines(connection, from, before_ms)).await?;
        let OldLines { lines, next } = found;
        let gone = if lines.is_empty() {
            0
        } else {
            let work = move |books: &mut Books| {
                let sql = "DELETE FROM chat_line WHERE tenant = ?1 AND chat_id = ?2 AND seq <= ?3";
                let mut delete = books.connection.prepare_cached(sql).map_err(fault)?;
                let mut gone = 0;
                for (tenant, chat_id, seq) in lines {
                    gone += delete.execute((tenant, chat_id, signed(seq))).map_err(fault)?;
                }
                Ok(gone)
            };
            store.writer.write(work, |_| {}).await?
        };
        let is_over = next.is_none();
        self.chats = next.unwrap_or_default();
        Ok((gone, Some(if is_over { Part::Reach } else { Part::Chats })))
    }

    async fn reach(&mut self, store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
        let before_ms = signed(keep.reach_before_ms);
        let found = store.readers.read(SERVER, move |connection| {
            let sql = "SELECT tenant, platform, bot, chat_id FROM reach WHERE at_ms < ?1 LIMIT ?2";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let place = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
            let some = query.query_map((before_ms, signed(STEP_ROWS as u64)), place);
            some.and_then(Iterator::collect::<Result<Vec<[String; 4]>, _>>).map_err(fault)
        });
        let places = found.await?;
        let count = places.len();
        if count > 0 {
            let work = move |books: &mut Books| {
                // Used again since it was found: it stays.
                let sql = "DELETE FROM reach WHERE tenant = ?1 AND platform = ?2 AND bot = ?3 AND chat_id = ?4
                           AND at_ms < ?5";
                let mut delete = books.connection.prepare_cached(sql).map_err(fault)?;
                for [tenant, platform, bot, chat_id] in places {
                    delete.execute((tenant, platform, bot, chat_id, before_ms)).map_err(fault)?;
                }
                books.ledgers.forget_reached();
                Ok(())
            };
            store.writer.write(work, |()| {}).await?;
        }
        if count == STEP_ROWS {
            return Ok((count, Some(Part::Reach)));
        }
        self.seldom_ms = keep.now_ms;
        Ok((count, None))
    }
}

fn old_events(
    connection: &Connection,
    after: EventId,
    until: EventId,
    before_ms: u64,
) -> Result<Vec<EventId>, StoreError> {
    let sql = "SELECT id, at_ms FROM event WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = query.query((signed(after), signed(until), signed(STEP_ROWS as u64))).map_err(fault)?;
    let mut old = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        if unsigned::<u64>(row.get(1).map_err(fault)?) >= before_ms {
            break;
        }
        old.push(unsigned(row.get(0).map_err(fault)?));
    }
    Ok(old)
}

fn delete_events(connection: &Connection, events: &[EventId]) -> Result<(), StoreError> {
    // Keeps the newest number, so that it is never reused.
    let keep = "INSERT OR REPLACE INTO meta (key, value)
                SELECT 'last_event', MAX(COALESCE((SELECT MAX(id) FROM event), 0),
                                         COALESCE((SELECT value FROM meta WHERE key = 'last_event'), 0))";
    connection.prepare_cached(keep).and_then(|mut keep| keep.execute([])).map_err(fault)?;
    let mut delete = connection.prepare_cached("DELETE FROM event WHERE id = ?1").map_err(fault)?;
    for event in events {
        delete.execute([signed(*event)]).map_err(fault)?;
    }
    Ok(())
}

type Ledgers = Vec<(InstanceNo, Seq)>;

/// Per ledger the last row that can be deleted, and the ledgers that have more rows or were not read.
fn settled_rows(connection: &Connection, ledgers: Ledgers, until: EventId) -> Result<(Ledgers, Ledgers), StoreError> {
    let sql = "SELECT seq, event FROM mail WHERE instance = ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let (mut rows, mut rest, mut room) = (Vec::new(), Vec::new(), STEP_ROWS);
    for (instance, through) in ledgers {
        if room == 0 {
            rest.push((instance, through));
            continue;
        }
        let pair = |row: &Row<'_>| Ok((unsigned::<Seq>(row.get(0)?), unsigned::<EventId>(row.get(1)?)));
        let which = (signed(instance), signed(through), signed(room as u64));
        let some = query.query_map(which, pair).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fault)?;
        let old = some.iter().take_while(|(_, event)| *event <= until).count();
        if old > 0 {
            rows.push((instance, some[old - 1].0));
        }
        room -= old;
        if old > 0 && old == some.len() {
            rest.push((instance, through)); // there may be more rows
        }
    }
    Ok((rows, rest))
}

/// Deletes what has its own expiry: alarm results, fired alarms, capabilities, messages, data.
async fn expired(store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
    let work = move |books: &mut Books| expire(&books.connection, keep);
    let (gone, is_full) = store.writer.write(work, |_| {}).await?;
    Ok((gone, Some(if is_full { Part::Expired } else { Part::Journal })))
}

/// Number of deleted rows, and whether there may be more.
fn expire(connection: &Connection, keep: Retention) -> Result<(usize, bool), StoreError> {
    let max = signed(STEP_ROWS as u64);
    let now = signed(keep.now_ms);
    let mut counts = alarms(connection, signed(keep.verdicts_before_ms), max)?;
    let sql =
        "DELETE FROM capability WHERE id IN (SELECT id FROM capability WHERE expires_ms <= ?1 LIMIT ?2) RETURNING id";
    let ids = take_ids(connection, sql, now, max)?;
    let mut unbind = connection.prepare_cached("DELETE FROM capability_key WHERE id = ?1").map_err(fault)?;
    for id in &ids {
        unbind.execute([id]).map_err(fault)?;
    }
    counts.push(ids.len());
    // Oldest first: a full page shows that there may be more.
    let messages = "DELETE FROM inbox_message WHERE event IN
                   (SELECT event FROM (SELECT event, at_ms FROM inbox_message ORDER BY event LIMIT ?2) WHERE at_ms < ?1)";
    counts.push(connection.execute(messages, (signed(keep.inbox_before_ms), max)).map_err(fault)?);
    let data = super::data::expire(connection, keep.now_ms / 1000)?;
    let is_full = data > 0 || counts.iter().any(|count| *count >= STEP_ROWS);
    Ok((counts.iter().sum::<usize>() + data, is_full))
}

/// A fired alarm is kept as long as its result, so that arming the same time again is recognised. It is found by that:
/// armed alarms may be many. Returns the number of deleted results and alarms.
fn alarms(connection: &Connection, before_ms: i64, max: i64) -> Result<Vec<usize>, StoreError> {
    let sql = "DELETE FROM alarm_end WHERE id IN (SELECT id FROM alarm_end WHERE at_ms < ?1 LIMIT ?2)
               RETURNING instance, job_id, fire_at";
    let mut delete = connection.prepare_cached(sql).map_err(fault)?;
    let ends = delete.query_map((before_ms, max), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let ends: Vec<(i64, String, String)> = ends.and_then(Iterator::collect).map_err(fault)?;
    let sql = "DELETE FROM alarm WHERE instance = ?1 AND job_id = ?2 AND fire_at = ?3 AND state = 'fired'";
    let mut delete = connection.prepare_cached(sql).map_err(fault)?;
    let mut fired = 0;
    for (instance, job_id, fire_at) in &ends {
        fired += delete.execute((instance, job_id, fire_at)).map_err(fault)?;
    }
    Ok(vec![ends.len(), fired])
}

fn take_ids(connection: &Connection, sql: &str, now: i64, max: i64) -> Result<Vec<String>, StoreError> {
    let mut take = connection.prepare_cached(sql).map_err(fault)?;
    take.query_map((now, max), |row| row.get(0)).and_then(Iterator::collect).map_err(fault)
}

async fn journal(store: &SqliteStore, keep: Retention) -> Result<(usize, Option<Part>), StoreError> {
    let work = move |books: &mut Books| {
        // Open entries are kept, because their result is still to come.
        let old = "SELECT id FROM
                   (SELECT id, at_ms FROM journal WHERE outcome <> 'open' ORDER BY id LIMIT ?2) WHERE at_ms < ?1";
        let bounds = (signed(keep.journal_before_ms), signed(STEP_ROWS as u64));
        let receipts = format!("DELETE FROM journal_receipt WHERE entry IN ({old})");
        books.connection.execute(&receipts, bounds).map_err(fault)?;
        books.connection.execute(&format!("DELETE FROM journal WHERE id IN ({old})"), bounds).map_err(fault)
    };
    let gone = store.writer.write(work, |_| {}).await?;
    Ok((gone, Some(if gone == STEP_ROWS { Part::Journal } else { Part::Chats })))
}

struct OldLines {
    /// Tenant, chat, and the last message that can be deleted.
    lines: Vec<(String, String, u64)>,
    /// Where to continue; `None`: this was the last chat.
    next: Option<(String, String)>,
}

fn old_lines(connection: &Connection, from: (String, String), before_ms: u64) -> Result<OldLines, StoreError> {
    let sql = "SELECT tenant, chat_id FROM chat WHERE (tenant, chat_id) > (?1, ?2) ORDER BY tenant, chat_id LIMIT ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let name = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let chats = query.query_map((&from.0, &from.1, signed(STEP_OWNERS as u64)), name);
    let chats: Vec<(String, String)> = chats.and_then(Iterator::collect).map_err(fault)?;
    let is_last = chats.len() < STEP_OWNERS;
    let sql = "SELECT seq, at_ms FROM chat_line WHERE tenant = ?1 AND chat_id = ?2 ORDER BY seq LIMIT ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let (mut lines, mut room, mut last) = (Vec::new(), STEP_ROWS, from);
    for (tenant, chat_id) in chats {
        if room == 0 {
            return Ok(OldLines { lines, next: Some(last) });
        }
        let pair = |row: &Row<'_>| Ok((unsigned::<u64>(row.get(0)?), unsigned::<u64>(row.get(1)?)));
        let some = query.query_map((&tenant, &chat_id, signed(room as u64)), pair);
        let some = some.and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fault)?;
        let old = some.iter().take_while(|(_, at_ms)| *at_ms < before_ms).count();
        if old > 0 {
            lines.push((tenant.clone(), chat_id.clone(), some[old - 1].0));
        }
        room -= old;
        if old > 0 && old == some.len() {
            return Ok(OldLines { lines, next: Some(last) }); // there may be more messages in this chat
        }
        last = (tenant, chat_id);
    }
    Ok(OldLines { lines, next: (!is_last).then_some(last) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Barrier};

    use frontdesk_core::port::alarms::Alarms as _;
    use frontdesk_core::port::media::{EventFile, SealedMedia};
    use frontdesk_core::port::store::{Acceptance, Ledger as _, MailLog as _, Position, Upkeep as _};
    use frontdesk_testkit::store_suite::alarms::alarm;
    use frontdesk_testkit::store_suite::{acceptance, owed};

    use super::*;
    use crate::sqlite::{FILE, instructions};

    const FEW: u64 = 600;
    const MANY: u64 = 10 * FEW;

    /// Instructions of each step of a round in which every event has expired.
    async fn round(store: &SqliteStore, executed: &AtomicU64, now_ms: u64, reach_before_ms: u64) -> Vec<u64> {
        let before_ms = u64::MAX >> 2;
        let keep = Retention {
            now_ms,
            events_before_ms: before_ms,
            verdicts_before_ms: before_ms,
            reach_before_ms,
            ..Retention::default()
        };
        let mut steps = Vec::new();
        loop {
            executed.store(0, Ordering::Relaxed);
            let more = store.purge(keep).await.unwrap().more;
            steps.push(executed.load(Ordering::Relaxed));
            if !more {
                return steps;
            }
        }
    }

    /// An event with a file that has expired, in a chat of its own.
    fn with_file(number: u64) -> Acceptance {
        let file = SealedMedia {
            id: format!("{number:032x}"),
            mime: "image/png".into(),
            filename: None,
            size: None,
            sealed: vec![1],
            expires_ms: 500,
        };
        let mut it = Acceptance { files: vec![EventFile::Remote(file)], reaches: true, ..acceptance(number, &[7]) };
        // The oldest chats have the last keys.
        it.delivery.chat_id = format!("c-{:06}", MANY - number).as_str().into();
        it
    }

    /// Both readers load the schema now, and not during a step.
    async fn warm(store: &SqliteStore) {
        let both = Arc::new(Barrier::new(2));
        let read = || {
            let both = both.clone();
            store.readers.read(SERVER, move |connection| {
                both.wait();
                connection.query_row("SELECT COUNT(*) FROM meta", [], |row| row.get::<_, i64>(0)).map_err(fault)
            })
        };
        tokio::try_join!(read(), read()).unwrap();
    }

    /// Three rounds over this many events, each with a file: none can be deleted; all can; all were deleted. There are as
    /// many armed alarms, which stay, and chats, of which half are deleted in the first round.
    async fn rounds(count: u64) -> [Vec<u64>; 3] {
        let folder = tempfile::tempdir().unwrap();
        let executed = instructions::count(&folder.path().join(FILE));
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        for first in (1..=count).step_by(100) {
            store.accept((first..first + 100).map(with_file).collect()).await.unwrap();
            store.arm((first..first + 100).map(|number| alarm(number, 100)).collect()).await.unwrap();
        }
        warm(&store).await;
        // What is looked at once an hour is looked at in each round.
        let [first, second, third] = [1, 2, 3].map(|hour| hour * SELDOM_MS);
        let reach_before_ms = 1_001 + count / 2;
        let unsettled = round(&store, &executed, first, reach_before_ms).await;
        let chats = store.readers.read(SERVER, |connection| {
            connection.query_row("SELECT COUNT(*) FROM reach", [], |row| row.get(0).map(unsigned::<u64>)).map_err(fault)
        });
        assert_eq!(chats.await.unwrap(), count / 2);
        assert_eq!(owed(&store, 7).await.len() as u64, count);
        let all = Position { through: Seq(count), above: Vec::new(), sent: Seq(count) };
        store.settle(InstanceNo(7), all.into()).await.unwrap();
        let settled = round(&store, &executed, second, reach_before_ms).await;
        assert!(store.mail(InstanceNo(7), None, Seq(0), 1).await.unwrap().is_empty());
        [unsettled, settled, round(&store, &executed, third, reach_before_ms).await]
    }

    #[tokio::test]
    async fn no_step_reads_rows_again_however_many_there_are() {
        let (few, many) = (rounds(FEW).await, rounds(MANY).await);
        let most = |steps: &[u64]| steps.iter().copied().max().unwrap();
        let sum = |steps: &[u64]| steps.iter().sum::<u64>();
        for (name, few, many) in [("unsettled", &few[0], &many[0]), ("settled", &few[1], &many[1])] {
            assert!(most(many) <= 2 * most(few), "one step, {name}: {few:?}, {many:?}");
            assert!(sum(many) <= 2 * MANY / FEW * sum(few), "a round, {name}: {few:?}, {many:?}");
        }
        assert!(sum(&many[2]) <= 2 * sum(&few[2]), "a round over nothing: {:?}, {:?}", few[2], many[2]);
    }

    /// Instructions of the steps after the first one, over expired events that each of these ledgers has in its backlog.
    /// The last ledger has settled all but one of its rows.
    async fn backlogs(ledgers: u64) -> Vec<u64> {
        const EVENTS: u64 = 20;
        let folder = tempfile::tempdir().unwrap();
        let executed = instructions::count(&folder.path().join(FILE));
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        let all: Vec<u64> = (1..=ledgers).collect();
        let alone = |number| if number % 2 == 0 { vec![ledgers] } else { all.clone() };
        store.accept((1..=EVENTS).map(|number| acceptance(number, &alone(number))).collect()).await.unwrap();
        let but_two = Position { through: Seq(1), above: (3..=EVENTS).map(Seq).collect(), sent: Seq(EVENTS) };
        store.settle(InstanceNo(ledgers), but_two.into()).await.unwrap();
        warm(&store).await;
        let steps = round(&store, &executed, 1_000, 0).await;
        for ledger in [1, ledgers - 1] {
            assert_eq!(owed(&store, ledger).await, (1..=EVENTS / 2).collect::<Vec<_>>());
        }
        assert_eq!(owed(&store, ledgers).await, [2]);
        // A ledger that has settled rows above its watermark owes all from there on, for retention.
        store
            .settle(InstanceNo(ledgers), Position { through: Seq(EVENTS), ..Position::default() }.into())
            .await
            .unwrap();
        let gone = round(&store, &executed, 1_000, 0).await.len();
        assert!(gone > 0);
        let left = store.readers.read(SERVER, |connection| {
            connection.query_row("SELECT COUNT(*) FROM event", [], |row| row.get(0).map(unsigned::<u64>)).map_err(fault)
        });
        assert_eq!(left.await.unwrap(), EVENTS / 2, "those that the others have");
        steps[1..].to_vec()
    }

    #[tokio::test]
    async fn a_step_reads_no_more_rows_if_more_ledgers_have_a_backlog() {
        let (few, many) = (backlogs(200).await, backlogs(2_000).await);
        let most = |steps: &[u64]| steps.iter().copied().max().unwrap();
        assert!(most(&many) <= 3 * most(&few), "{few:?}, {many:?}");
    }
}
