//! The ledger: events, one row per receiver, and positions.

use std::collections::HashSet;
use std::sync::Arc;

use frontdesk_core::port::store::{
    Acceptance, Accepted, ChatWrite, Delivery, DeskNo, Ledger, MadeRow, NewRow, OWED_SCANNED_MAX, Position,
    RowListener, SentTurn, Settlement, StoreError, Stored, TURN_ROWS_MAX, TURN_ROWS_OLD_MAX, TURN_SESSIONS_MAX,
    Waiting,
};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, MessageId, Seq, SessionKey, SessionNo, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::heads::{DAY_MS, REACHED_MAX, read_position};
use super::threads::Books;
use super::{SqliteStore, chat, fault, held_media, inbox, signed, text_at, unsigned, vault};
use crate::read_queue::SERVER;

impl Ledger for SqliteStore {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn attach_listener(&self, listener: Arc<dyn RowListener>) {
        self.listeners.attach(listener);
    }

    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        let listeners = self.listeners.clone();
        let answer = self
            .writer
            .write(move |books| accept_batch(books, batch), move |made: &Made| listeners.rows_committed(&made.rows));
        Box::pin(async move { answer.await.map(|made| made.accepted) })
    }

    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let head = books.ledgers.head(&books.connection, instance)?;
            head.position.merge(&settlement.acked);
            let is_mine = settlement.session == head.session;
            if let Some(inferred) = settlement.inferred.as_ref().filter(|_| is_mine) {
                head.position.merge(inferred);
            }
            write_position(&books.connection, instance, &head.position)?;
            Ok(is_mine)
        };
        self.writer.write(work, |_| {})
    }

    fn position(&self, instance: InstanceNo) -> Stored<'_, Position> {
        // Read by the writer, so that settlements in its queue are included.
        let work =
            move |books: &mut Books| books.ledgers.head(&books.connection, instance).map(|head| head.position.clone());
        self.writer.write(work, |_| {})
    }

    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>> {
        self.readers.read(self.tenants.of(instance), move |connection| {
            let position = read_position(connection, instance)?;
            let mut query = connection.prepare_cached(&select_mail("m.seq > ?2 ORDER BY m.seq")).map_err(fault)?;
            let mut rows = query.query((signed(instance), signed(after.max(position.through)))).map_err(fault)?;
            let mut found = Vec::new();
            while found.len() < limit {
                let Some(row) = rows.next().map_err(fault)? else { break };
                let seq = unsigned(row.get(0).map_err(fault)?);
                if !position.settled(seq) {
                    found.push((seq, Arc::new(delivery(row).map_err(fault)?)));
                }
            }
            Ok(found)
        })
    }

    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool> {
        let message_id = message_id.to_owned();
        self.readers.read(self.tenants.of(instance), move |connection| {
            let position = read_position(connection, instance)?;
            let sql = "SELECT m.seq, e.message_id = ?3 FROM mail m JOIN event e ON e.id = m.event
                       WHERE m.instance = ?1 AND m.seq > ?2 ORDER BY m.seq DESC";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let mut rows =
                query.query((signed(instance), signed(position.through), message_id.as_str())).map_err(fault)?;
            let mut unsettled = 0;
            while unsettled < OWED_SCANNED_MAX {
                let Some(row) = rows.next().map_err(fault)? else { break };
                if position.settled(unsigned(row.get(0).map_err(fault)?)) {
                    continue;
                }
                unsettled += 1;
                if row.get(1).map_err(fault)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>> {
        self.readers.read(SERVER, move |connection| {
            let sql = "SELECT p.instance, p.session,
                         COALESCE((SELECT MAX(m.seq) FROM mail m WHERE m.instance = p.instance), 0)
                       FROM presence p WHERE p.desk = ?1";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let head = |row: &Row<'_>| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), unsigned(row.get(2)?)));
            query.query_map([signed(me)], head).and_then(Iterator::collect).map_err(fault)
        })
    }

    fn waiting(&self) -> Stored<'_, Vec<Waiting>> {
        self.readers.read(SERVER, |connection| {
            let sql = "SELECT * FROM (SELECT p.instance,
                         COALESCE((SELECT MAX(m.seq) FROM mail m WHERE m.instance = p.instance), 0) - p.through AS owed,
                         p.through, p.above FROM position p) WHERE owed > 0";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let counted = |row: &Row<'_>| {
                let above: String = row.get(3)?;
                let above: Vec<Seq> = serde_json::from_str(&above).unwrap_or_default();
                let (owed, through): (u64, Seq) = (unsigned(row.get(1)?), unsigned(row.get(2)?));
                let settled = above.iter().filter(|seq| seq.0 <= through.0 + owed).count();
                Ok((unsigned(row.get(0)?), owed, through, settled as u64))
            };
            let counts: Vec<_> = query.query_map([], counted).and_then(Iterator::collect).map_err(fault)?;
            let mut waiting = Vec::new();
            for (instance, rows, through, settled) in counts {
                let first = "SELECT m.seq, e.at_ms FROM mail m JOIN event e ON e.id = m.event
                             WHERE m.instance = ?1 AND m.seq > ?2 AND m.reason IS NULL ORDER BY m.seq LIMIT 1";
                let mut first = connection.prepare_cached(first).map_err(fault)?;
                let oldest = first
                    .query_row((signed(instance), signed(through)), |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()
                    .map_err(fault)?;
                if let (Some((oldest_seq, oldest_ms)), true) = (oldest, rows > settled) {
                    let (oldest_seq, oldest_ms) = (unsigned(oldest_seq), unsigned(oldest_ms));
                    waiting.push(Waiting { instance, count: rows - settled, oldest_ms, oldest_seq });
                }
            }
            Ok(waiting)
        })
    }

    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>> {
        self.readers.read(self.tenants.of(instance), move |connection| {
            let position = read_position(connection, instance)?;
            // Reads only the compared columns; events may be large.
            let sql = "SELECT e.at_ms, e.session_key, e.chat_id FROM mail m JOIN event e ON e.id = m.event
                       WHERE m.instance = ?1 AND m.seq <= ?2 ORDER BY m.seq DESC LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let newest = position.sent.max(position.through);
            let mut rows =
                query.query((signed(instance), signed(newest), signed(TURN_ROWS_MAX as u64))).map_err(fault)?;
            let (mut known, mut turns, mut old) = (HashSet::new(), Vec::new(), 0);
            while let Some(row) = rows.next().map_err(fault)? {
                let at_ms = unsigned(row.get(0).map_err(fault)?);
                old += usize::from(at_ms < since_ms);
                if old > TURN_ROWS_OLD_MAX || turns.len() >= TURN_SESSIONS_MAX {
                    break;
                }
                if at_ms < since_ms {
                    continue;
                }
                let session_key = row.get_ref(1).and_then(|key| Ok(key.as_str()?)).map_err(fault)?;
                if !known.contains(session_key) {
                    let session_key = SessionKey::from(session_key);
                    known.insert(session_key.clone());
                    let chat_id = row.get::<_, String>(2).map_err(fault)?.into();
                    turns.push(SentTurn { session_key, chat_id, at_ms });
                }
            }
            Ok(turns)
        })
    }
}

/// What a group created, to be reported after the commit.
#[derive(Default)]
pub(super) struct Made {
    pub(super) accepted: Vec<Accepted>,
    pub(super) rows: Vec<NewRow>,
}

fn accept_batch(books: &mut Books, batch: Vec<Acceptance>) -> Result<Made, StoreError> {
    let mut made = Made::default();
    // Checked before anything is written, so that a conflict leaves the database unchanged.
    for it in &batch {
        let amend = it.chat.as_ref().and_then(|chat| Some((chat, chat.amend.as_ref()?)));
        if let Some((chat, amend)) = amend
            && !chat::is_at(&books.connection, &it.tenant, &chat.chat_id, amend)?
            && !is_repeated(&books.connection, it)?
        {
            return Err(StoreError::Conflict);
        }
    }
    for acceptance in batch {
        let event = books.ledgers.next_event(&books.connection)?;
        if !insert_event(&books.connection, event, &acceptance)? {
            books.ledgers.last_event = Some(EventId(event.0 - 1));
            made.accepted.push(accepted_before(&books.connection, &acceptance)?);
            continue;
        }
        let Acceptance { tenant, mut delivery, receivers, own_json, capabilities, reaches, .. } = acceptance;
        let Acceptance { message, chat, files, .. } = acceptance;
        delivery.event = event;
        if reaches {
            note_reach(books, &tenant, &delivery)?;
        }
        for capability in capabilities {
            vault::bind(&books.connection, &capability)?;
        }
        let delivery = Arc::new(delivery);
        let mut rows = Vec::with_capacity(receivers.len());
        for instance in receivers {
            let own = own_json.iter().find(|(no, _)| *no == instance).map(|(_, json)| json);
            let row = append(books, instance, event, own)?;
            rows.push(row);
            let delivery = match own {
                None => delivery.clone(),
                Some(json) => Arc::new(Delivery { json: json.clone(), ..(*delivery).clone() }),
            };
            made.rows.push(NewRow { row, delivery });
        }
        held_media::hold(&books.connection, &tenant, &delivery, files, &rows)?;
        let place = match message {
            Some(message) => inbox::append(&books.connection, &tenant, event, delivery.at_ms, &message)?,
            None => InboxSeq::NONE,
        };
        let line = match chat {
            Some(chat) => write_chat(&books.connection, &tenant, &chat)?,
            None => None,
        };
        made.accepted.push(Accepted { event, fresh: true, rows, place, line });
    }
    Ok(made)
}

/// Whether this very attempt has stored the event.
fn is_repeated(connection: &Connection, it: &Acceptance) -> Result<bool, StoreError> {
    let mut query =
        connection.prepare_cached("SELECT 1 FROM event WHERE dedup = ?1 AND attempt = ?2").map_err(fault)?;
    Ok(it.attempt != 0 && query.exists((&it.dedup, signed(it.attempt))).map_err(fault)?)
}

/// An event that was here before. Under the name of the attempt that stored it, it is answered as it was then.
fn accepted_before(connection: &Connection, it: &Acceptance) -> Result<Accepted, StoreError> {
    let sql = "SELECT id, attempt FROM event WHERE dedup = ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let first = query.query_row([it.dedup.as_slice()], |row| Ok((unsigned(row.get(0)?), unsigned::<u64>(row.get(1)?))));
    let (event, stored_by) = first.map_err(fault)?;
    if it.attempt == 0 || stored_by != it.attempt {
        return Ok(Accepted { event, fresh: false, rows: Vec::new(), place: InboxSeq::NONE, line: None });
    }
    let sql = "SELECT seq FROM mail WHERE instance = ?1 AND event = ?2 ORDER BY seq DESC LIMIT 1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = Vec::with_capacity(it.receivers.len());
    for instance in it.receivers.iter().copied() {
        let seq = query.query_row([signed(instance), signed(event)], |row| row.get(0)).optional().map_err(fault)?;
        rows.extend(seq.map(|seq| MadeRow { instance, seq: unsigned(seq), served_by: DeskNo::NONE }));
    }
    let line_of = |line: &ChatWrite| chat::seq_of(connection, [&it.tenant, &line.chat_id, &line.message_id]);
    let line = it.chat.as_deref().map(line_of).transpose()?.flatten();
    Ok(Accepted { event, fresh: true, rows, place: inbox::place_of(connection, event)?, line })
}

/// Writes the message of an event, and changes the message that it answers. Returns the number of a new message.
fn write_chat(connection: &Connection, tenant: &TenantId, it: &ChatWrite) -> Result<Option<u64>, StoreError> {
    let (seq, fresh) = chat::append(connection, [tenant, &it.chat_id, &it.message_id], &it.json, it.at_ms)?;
    if let Some(change) = &it.amend
        && !chat::amend(connection, tenant, &it.chat_id, change)?
    {
        // It had the expected revision when the batch began, so another event of the batch changed it.
        return Err(StoreError::Unavailable("two events of one batch change the same chat message".into()));
    }
    Ok(fresh.then_some(seq))
}

/// False: an event with this dedup key is there.
fn insert_event(connection: &Connection, event: EventId, acceptance: &Acceptance) -> Result<bool, StoreError> {
    let Acceptance { tenant, attempt, dedup, delivery: it, verdict, .. } = acceptance;
    let sql = "INSERT OR IGNORE INTO event (id, dedup, tenant, at_ms, passthrough, platform, bot, chat_id, session_key,
               message_id, json, verdict, attempt) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    let inserted = insert.execute(rusqlite::params![
        signed(event),
        dedup,
        &**tenant,
        signed(it.at_ms),
        it.passthrough,
        it.platform,
        &*it.bot,
        &*it.chat_id,
        &*it.session_key,
        &*it.message_id,
        it.json,
        verdict,
        signed(*attempt),
    ]);
    inserted.map(|rows| rows == 1).map_err(fault)
}

pub(super) fn append(
    books: &mut Books,
    instance: InstanceNo,
    event: EventId,
    own_json: Option<&String>,
) -> Result<MadeRow, StoreError> {
    let head = books.ledgers.head(&books.connection, instance)?;
    head.last_seq = head.last_seq.next();
    let (seq, served_by) = (head.last_seq, head.served_by);
    let sql = "INSERT INTO mail (instance, seq, event, json) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = books.connection.prepare_cached(sql).map_err(fault)?;
    insert.execute((signed(instance), signed(seq), signed(event), own_json)).map_err(fault)?;
    Ok(MadeRow { instance, seq, served_by })
}

fn note_reach(books: &mut Books, tenant: &TenantId, it: &Delivery) -> Result<(), StoreError> {
    let place = (tenant.clone(), it.platform.clone(), it.bot.clone(), it.chat_id.clone());
    // Updated once a day, which is enough to find inactive chats.
    let day = it.at_ms / DAY_MS;
    if books.ledgers.reached.get(&place).is_some_and(|known| *known >= day) {
        return Ok(());
    }
    let sql = "INSERT INTO reach (tenant, platform, bot, chat_id, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT DO UPDATE SET at_ms = MAX(at_ms, excluded.at_ms)";
    let mut insert = books.connection.prepare_cached(sql).map_err(fault)?;
    insert.execute((&**tenant, &it.platform, &*it.bot, &*it.chat_id, signed(it.at_ms))).map_err(fault)?;
    if books.ledgers.reached.len() >= REACHED_MAX {
        books.ledgers.reached.clear();
    }
    books.ledgers.reached.insert(place, day);
    Ok(())
}

pub(super) fn write_position(
    connection: &Connection,
    instance: InstanceNo,
    position: &Position,
) -> Result<(), StoreError> {
    let sql = "UPDATE position SET through = ?2, above = ?3, sent = ?4 WHERE instance = ?1";
    let above = serde_json::to_string(&position.above).unwrap_or_default();
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    let written = put.execute((signed(instance), signed(position.through), above, signed(position.sent)));
    written.map(drop).map_err(fault)
}

/// Mail with its event; the caller adds the condition on rows of instance `?1`.
pub(super) fn select_mail(which: &str) -> String {
    format!(
        "SELECT m.seq, m.reason, e.id, e.at_ms, e.passthrough, e.platform, e.bot, e.chat_id, e.session_key,
         e.message_id, COALESCE(m.json, e.json) FROM mail m JOIN event e ON e.id = m.event WHERE m.instance = ?1 AND {which}"
    )
}

pub(super) fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        event: unsigned(row.get(2)?),
        at_ms: unsigned(row.get(3)?),
        passthrough: row.get(4)?,
        platform: row.get(5)?,
        bot: text_at(row, 6)?.into(),
        chat_id: text_at(row, 7)?.into(),
        session_key: text_at(row, 8)?.into(),
        message_id: text_at(row, 9)?.into(),
        json: row.get(10)?,
    })
}
