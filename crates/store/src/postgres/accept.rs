//! Accepts events. A group of them is one statement and one round trip; the further rows of few events (a chat line, an
//! inbox message, files, capabilities) are written by more statements of the same transaction.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::store::{Acceptance, Accepted, ChatWrite, Delivery, MadeRow, NewRow, StoreError, Stored};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};

use super::connection::{Connection, Fault};
use super::groups::{Asked, Group};
use super::text::kept;
use super::worker::{Database, panicked};
use super::{PostgresStore, chat, held_media, inbox, signed, unsigned, vault};
use crate::listeners::Listeners;

/// Bytes of events per transaction, with a little for each: enough to share a commit, few enough for low latency.
const GROUP_MAX_BYTES: usize = 4 << 20;
const EVENT_BYTES: usize = 8 << 10;
/// Chats known to be in `reach`; above this the map is cleared and filled again.
const REACHED_MAX: usize = 100_000;
const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Default)]
pub(super) struct Accepts {
    group: Group<Vec<Acceptance>, Vec<Accepted>>,
    /// With the day for which it is stored, which is enough to find inactive chats.
    reached: Arc<Mutex<HashMap<[String; 4], u64>>>,
}

type Caller = Asked<Vec<Acceptance>, Vec<Accepted>>;

impl PostgresStore {
    pub(super) fn accept_grouped(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        let (accepts, listeners) = (self.accepts.clone(), self.listeners.clone());
        self.worker.ask(async move |database: &Database| {
            // Added inside the job, so that a caller that is dropped while the queue is full leaves nothing behind.
            let answered = accepts.group.add(batch);
            accepts.run(database, &listeners).await;
            answered.await.map_err(panicked)?
        })
    }
}

impl Accepts {
    /// Accepts the events of all waiting callers. An earlier call may have included those of this caller already.
    async fn run(&self, database: &Database, listeners: &Listeners) {
        let _turn = database.ledger_turn.lock().await;
        let cost = |batch: &Vec<Acceptance>| batch.iter().map(|it| it.delivery.json.len() + EVENT_BYTES).sum();
        let mut group = self.group.take(GROUP_MAX_BYTES, cost);
        // A line that changed meanwhile refuses its whole batch, so such a batch is a transaction of its own.
        let alone = |it: &Caller| it.what.iter().any(|it| it.chat.as_ref().is_some_and(|chat| chat.amend.is_some()));
        while !group.is_empty() {
            let count = group.iter().position(alone).unwrap_or(group.len()).max(1);
            let rest = group.split_off(count);
            self.accept(database, listeners, std::mem::replace(&mut group, rest)).await;
        }
    }

    async fn accept(&self, database: &Database, listeners: &Listeners, callers: Vec<Caller>) {
        match self.accept_together(database, &callers).await {
            Ok(made) => report(listeners, callers, made),
            // One event that Postgres refuses must not take the others with it.
            Err(StoreError::Unavailable(why)) if callers.len() > 1 => {
                tracing::warn!(why, callers = callers.len(), "a group of events was refused; trying them one by one");
                let mut failed = None;
                for caller in callers {
                    // After two failures in a row the database counts as unavailable, and the rest fails at once.
                    let is_away = matches!(&failed, Some((_, 2)));
                    let made = match &failed {
                        Some((error, _)) if is_away => Err(StoreError::clone(error)),
                        _ => self.accept_together(database, std::slice::from_ref(&caller)).await,
                    };
                    match made {
                        Ok(made) => {
                            failed = None;
                            report(listeners, vec![caller], made);
                        }
                        Err(error) => {
                            let times = failed.map_or(0, |(_, times)| times) + u8::from(!is_away);
                            failed = Some((error.clone(), times));
                            caller.answer(Err(error));
                        }
                    }
                }
            }
            Err(error) => callers.into_iter().for_each(|caller| caller.answer(Err(error.clone()))),
        }
    }

    async fn accept_together(&self, database: &Database, callers: &[Caller]) -> Result<Made, StoreError> {
        let all: Vec<&Acceptance> = callers.iter().flat_map(|caller| &caller.what).collect();
        // A key that comes twice is a duplicate of the first.
        let mut seen = HashSet::new();
        let firsts: Vec<usize> = (0..all.len()).filter(|&index| seen.insert(all[index].dedup.as_slice())).collect();
        let reached = self.to_reach(&all, &firsts);
        let is_plain = all
            .iter()
            .all(|it| it.capabilities.is_empty() && it.message.is_none() && it.chat.is_none() && it.files.is_empty());
        let mut made = if is_plain {
            let work = async |connection: &Connection| insert(connection, &all, &firsts, &reached).await;
            database.ledger.statement(work).await?
        } else {
            let work = async |connection: &Connection| {
                check_lines(connection, &all).await?;
                let mut made = insert(connection, &all, &firsts, &reached).await?;
                bring_along(connection, &all, &mut made).await?;
                Ok(made)
            };
            database.ledger.transaction(work).await?
        };
        self.note_reached(reached.into_iter().filter(|it| made.accepted[it.index].is_some()));
        if made.accepted.iter().any(Option::is_none) {
            // Events that are stored already. They were not visible to the statement that found their keys taken.
            let work = async |connection: &Connection| answer_known(connection, &all, &made.accepted).await;
            let (known, rows) = database.ledger.transaction(work).await.map_err(|error| match error {
                // The new events were written.
                StoreError::Unavailable(why) => StoreError::Unknown(why),
                other => other,
            })?;
            for (index, accepted) in known {
                made.accepted[index] = Some(accepted);
            }
            made.rows.extend(rows);
        }
        Ok(made)
    }

    /// Chats that become reachable, if the event is new, and are not known to be.
    fn to_reach(&self, all: &[&Acceptance], firsts: &[usize]) -> Vec<Reached> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for &index in firsts.iter().filter(|&&index| all[index].reaches) {
            let Delivery { platform, bot, chat_id, at_ms, .. } = &all[index].delivery;
            let chat = [all[index].tenant.as_str(), platform, bot, chat_id].map(|part| kept(part).into_owned());
            if reached.get(&chat).is_none_or(|day| *day < at_ms / DAY_MS) {
                found.push(Reached { index, chat, at_ms: *at_ms });
            }
        }
        found
    }

    /// Some chats were deleted from `reach`.
    pub(super) fn forget_reached(&self) {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn note_reached(&self, chats: impl Iterator<Item = Reached>) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        for Reached { chat, at_ms, .. } in chats {
            if reached.len() >= REACHED_MAX {
                reached.clear();
            }
            let day = reached.entry(chat).or_default();
            *day = (*day).max(at_ms / DAY_MS);
        }
    }
}

/// A chat that an event makes reachable.
struct Reached {
    /// Index of the event in the group.
    index: usize,
    /// Tenant, platform, bot and chat.
    chat: [String; 4],
    at_ms: u64,
}

/// What a group created, to be reported after the commit.
#[derive(Default)]
struct Made {
    /// `None` for an event whose dedup key exists already.
    accepted: Vec<Option<Accepted>>,
    rows: Vec<NewRow>,
}

fn report(listeners: &Listeners, callers: Vec<Caller>, made: Made) {
    listeners.rows_committed(&made.rows);
    let mut accepted = made.accepted.into_iter();
    for caller in callers {
        let own: Option<Vec<Accepted>> = accepted.by_ref().take(caller.what.len()).collect();
        let missing = || {
            StoreError::Unknown("the event was stored before and cannot be read; it may have just been deleted".into())
        };
        caller.answer(own.ok_or_else(missing));
    }
}

/// Checked before anything is written, so that a conflict leaves the database unchanged.
async fn check_lines(connection: &Connection, all: &[&Acceptance]) -> Result<(), Fault> {
    for it in all {
        let amend = it.chat.as_ref().and_then(|chat| Some((chat, chat.amend.as_ref()?)));
        if let Some((chat, amend)) = amend
            && !chat::is_at(connection, &it.tenant, &chat.chat_id, amend).await?
            && !is_repeated(connection, it).await?
        {
            return Err(StoreError::Conflict.into());
        }
    }
    Ok(())
}

/// Whether an earlier call of the same attempt has stored the event.
async fn is_repeated(connection: &Connection, it: &Acceptance) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM event WHERE dedup = $1 AND attempt = $2";
    Ok(it.attempt != 0 && connection.query_opt(sql, &[&it.dedup, &signed(it.attempt)]).await?.is_some())
}

/// Events, heads and rows, in the order of their keys: two servers that accept at once wait for each other, but never in a
/// circle. The number of a row is drawn under the lock of its head, which is held until the commit is visible.
const INSERT: &str = "
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[], $5::bigint[], $6::boolean[], $7::text[],
                       $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[])
    AS g (n, dedup, attempt, tenant, at_ms, passthrough, platform, bot, chat_id, session_key, message_id, json, verdict)
), drawn AS MATERIALIZED (
  SELECT n, nextval('event_number') AS id FROM (SELECT n FROM given ORDER BY n) AS o
), made AS (
  INSERT INTO event (id, dedup, attempt, tenant, at_ms, passthrough, platform, bot, chat_id, session_key, message_id, json,
                     verdict)
  SELECT id, dedup, attempt, tenant, at_ms, passthrough, platform, bot, chat_id, session_key, message_id, json, verdict
    FROM given JOIN drawn USING (n) ORDER BY dedup
  ON CONFLICT (dedup) DO NOTHING RETURNING id
), fresh AS MATERIALIZED (
  SELECT n, id FROM made JOIN drawn USING (id)
), wanted AS MATERIALIZED (
  SELECT k, n, id, instance, json
    FROM unnest($14::bigint[], $15::bigint[], $16::text[]) WITH ORDINALITY AS r (n, instance, json, k)
    JOIN fresh USING (n)
), counted AS (
  SELECT instance, count(*) AS rows FROM wanted GROUP BY instance
), heads AS (
  INSERT INTO head AS h (instance, last_seq) SELECT instance, rows FROM counted ORDER BY instance
  ON CONFLICT (instance) DO UPDATE SET last_seq = h.last_seq + excluded.last_seq RETURNING instance, last_seq, desk
), numbered AS MATERIALIZED (
  SELECT k, n, id, instance, json, desk,
         last_seq - rows + row_number() OVER (PARTITION BY instance ORDER BY k) AS seq
    FROM wanted JOIN heads USING (instance) JOIN counted USING (instance)
), written AS (
  INSERT INTO mail (instance, seq, event, json) SELECT instance, seq, id, json FROM numbered
), reached AS (
  INSERT INTO reach AS r (tenant, platform, bot, chat_id, at_ms)
  SELECT tenant, platform, bot, chat_id, max(at_ms)
    FROM unnest($17::text[], $18::text[], $19::text[], $20::text[], $21::bigint[], $22::bigint[])
      AS c (tenant, platform, bot, chat_id, at_ms, n)
    JOIN fresh USING (n) GROUP BY tenant, platform, bot, chat_id ORDER BY tenant, platform, bot, chat_id
  ON CONFLICT (tenant, platform, bot, chat_id) DO UPDATE SET at_ms = greatest(r.at_ms, excluded.at_ms)
)
SELECT f.n, f.id, m.k, m.seq, m.desk FROM fresh f LEFT JOIN numbered m USING (n) ORDER BY f.n, m.k";

async fn insert(
    connection: &Connection,
    all: &[&Acceptance],
    firsts: &[usize],
    reached: &[Reached],
) -> Result<Made, Fault> {
    let column = |of: &dyn Fn(&Acceptance) -> String| firsts.iter().map(|&index| of(all[index])).collect::<Vec<_>>();
    let number = |of: &dyn Fn(&Acceptance) -> i64| firsts.iter().map(|&index| of(all[index])).collect::<Vec<_>>();
    let text = |text: &str| kept(text).into_owned();
    let n: Vec<i64> = firsts.iter().map(|&index| signed(index as u64)).collect();
    let dedup: Vec<&[u8]> = firsts.iter().map(|&index| all[index].dedup.as_slice()).collect();
    let passthrough: Vec<bool> = firsts.iter().map(|&index| all[index].delivery.passthrough).collect();
    let receivers: Vec<(usize, InstanceNo, Option<&String>)> = firsts
        .iter()
        .flat_map(|&index| {
            let it = all[index];
            let own = |instance| it.own_json.iter().find(|(no, _)| *no == instance).map(|(_, json)| json);
            it.receivers.iter().map(move |&instance| (index, instance, own(instance)))
        })
        .collect();
    let row_n: Vec<i64> = receivers.iter().map(|(index, ..)| signed(*index as u64)).collect();
    let row_instance: Vec<i64> = receivers.iter().map(|(_, instance, _)| signed(*instance)).collect();
    let row_json: Vec<Option<String>> = receivers.iter().map(|(.., json)| json.map(|json| text(json))).collect();
    let chat = |part: usize| reached.iter().map(|it| it.chat[part].as_str()).collect::<Vec<_>>();
    let reached_ms: Vec<i64> = reached.iter().map(|it| signed(it.at_ms)).collect();
    let reached_n: Vec<i64> = reached.iter().map(|it| signed(it.index as u64)).collect();
    let found = connection
        .query(
            INSERT,
            &[
                &n,
                &dedup,
                &number(&|it| signed(it.attempt)),
                &column(&|it| text(&it.tenant)),
                &number(&|it| signed(it.delivery.at_ms)),
                &passthrough,
                &column(&|it| text(&it.delivery.platform)),
                &column(&|it| text(&it.delivery.bot)),
                &column(&|it| text(&it.delivery.chat_id)),
                &column(&|it| text(&it.delivery.session_key)),
                &column(&|it| text(&it.delivery.message_id)),
                &column(&|it| text(&it.delivery.json)),
                &column(&|it| text(&it.verdict)),
                &row_n,
                &row_instance,
                &row_json,
                &chat(0),
                &chat(1),
                &chat(2),
                &chat(3),
                &reached_ms,
                &reached_n,
            ],
        )
        .await?;
    let mut made = Made { accepted: all.iter().map(|_| None).collect(), rows: Vec::new() };
    let mut delivery: Option<(usize, Arc<Delivery>)> = None;
    for row in found {
        let (n, event): (i64, EventId) = (row.get(0), unsigned(row.get(1)));
        let index = usize::try_from(n).unwrap_or(usize::MAX);
        let it = all[index];
        let accepted = made.accepted[index].get_or_insert_with(|| new(event));
        let Some(k) = row.get::<_, Option<i64>>(2) else { continue };
        let (_, instance, own) = receivers[usize::try_from(k - 1).unwrap_or(usize::MAX)];
        let made_row = MadeRow { instance, seq: unsigned(row.get(3)), served_by: unsigned(row.get(4)) };
        accepted.rows.push(made_row);
        let shared = match &delivery {
            Some((of, shared)) if *of == index => shared.clone(),
            _ => Arc::new(Delivery { event, ..it.delivery.clone() }),
        };
        delivery = Some((index, shared.clone()));
        let delivery = match own {
            None => shared,
            Some(json) => Arc::new(Delivery { json: json.clone(), ..(*shared).clone() }),
        };
        made.rows.push(NewRow { row: made_row, delivery });
    }
    Ok(made)
}

fn new(event: EventId) -> Accepted {
    Accepted { event, fresh: true, rows: Vec::new(), place: InboxSeq::NONE, line: None }
}

/// The further rows of new events, in the order of the rows that are locked for them.
async fn bring_along(connection: &Connection, all: &[&Acceptance], made: &mut Made) -> Result<(), Fault> {
    let mut order: Vec<usize> = (0..all.len()).filter(|&index| made.accepted[index].is_some()).collect();
    let mut capabilities: Vec<_> = order.iter().flat_map(|&index| &all[index].capabilities).collect();
    // A stable sort: of two under one key, the later stays.
    capabilities.sort_by_key(|it| (&it.tenant, it.session_keys.iter().min(), &it.kind));
    for capability in capabilities {
        vault::bind(connection, capability).await?;
    }
    for &index in &order {
        let (it, Some(accepted)) = (all[index], &made.accepted[index]) else { continue };
        if !it.files.is_empty() {
            let delivery = Delivery { event: accepted.event, ..it.delivery.clone() };
            held_media::hold(connection, &it.tenant, &delivery, &it.files, &accepted.rows).await?;
        }
    }
    order.sort_by_key(|&index| all[index].message.as_ref().map(|message| message.agent));
    for &index in &order {
        let (it, Some(accepted)) = (all[index], &mut made.accepted[index]) else { continue };
        if let Some(message) = &it.message {
            let at_ms = it.delivery.at_ms;
            accepted.place = inbox::append(connection, &it.tenant, accepted.event, at_ms, message).await?;
        }
    }
    order.sort_by_key(|&index| all[index].chat.as_ref().map(|chat| (&all[index].tenant, &chat.chat_id)));
    for &index in &order {
        let (it, Some(accepted)) = (all[index], &mut made.accepted[index]) else { continue };
        if let Some(chat) = &it.chat {
            accepted.line = write_chat(connection, &it.tenant, chat).await?;
        }
    }
    Ok(())
}

/// Writes the message of an event, and changes the message that it answers. Returns the number of a new message.
async fn write_chat(connection: &Connection, tenant: &TenantId, it: &ChatWrite) -> Result<Option<u64>, Fault> {
    let (seq, fresh) = chat::append(connection, [tenant, &it.chat_id, &it.message_id], &it.json, it.at_ms).await?;
    if let Some(change) = &it.amend
        && !chat::amend(connection, tenant, &it.chat_id, change).await?
    {
        // It had the expected revision when the batch began, so another event of the batch changed it.
        return Err(StoreError::Unavailable("two events of one batch change the same chat message".into()).into());
    }
    Ok(fresh.then_some(seq))
}

/// Events that were stored before. Repeated under the name of the attempt that stored it, an event is answered as the
/// first time, with its rows, of which no session was notified.
async fn answer_known(
    connection: &Connection,
    all: &[&Acceptance],
    accepted: &[Option<Accepted>],
) -> Result<(Vec<(usize, Accepted)>, Vec<NewRow>), Fault> {
    let unknown: Vec<usize> = (0..all.len()).filter(|&index| accepted[index].is_none()).collect();
    let dedups: Vec<&[u8]> = unknown.iter().map(|&index| all[index].dedup.as_slice()).collect();
    let rows = connection.query("SELECT dedup, id, attempt FROM event WHERE dedup = ANY($1)", &[&dedups]).await?;
    let known: HashMap<Vec<u8>, (i64, i64)> = rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    let (mut answers, mut new_rows) = (Vec::new(), Vec::new());
    for index in unknown {
        let it = all[index];
        let Some(&(id, stored_by)) = known.get(&it.dedup) else { continue };
        let mut answer = Accepted { fresh: false, ..new(unsigned(id)) };
        if it.attempt != 0
            && stored_by == signed(it.attempt)
            && accepted.iter().flatten().all(|a| a.event != answer.event)
        {
            answer.fresh = true;
            repeat(connection, it, &mut answer, &mut new_rows).await?;
        }
        answers.push((index, answer));
    }
    Ok((answers, new_rows))
}

/// The rows of an event that an earlier attempt has stored.
async fn repeat(
    connection: &Connection,
    it: &Acceptance,
    answer: &mut Accepted,
    new_rows: &mut Vec<NewRow>,
) -> Result<(), Fault> {
    let sql = "SELECT m.seq, h.desk FROM mail m JOIN head h USING (instance)
               WHERE m.instance = $1 AND m.event = $2 ORDER BY m.seq DESC LIMIT 1";
    let event = signed(answer.event);
    for &instance in &it.receivers {
        let Some(row) = connection.query_opt(sql, &[&signed(instance), &event]).await? else { continue };
        let row = MadeRow { instance, seq: unsigned(row.get(0)), served_by: unsigned(row.get(1)) };
        answer.rows.push(row);
        let own = it.own_json.iter().find(|(no, _)| *no == instance).map(|(_, json)| json.clone());
        let json = own.unwrap_or_else(|| it.delivery.json.clone());
        new_rows
            .push(NewRow { row, delivery: Arc::new(Delivery { event: answer.event, json, ..it.delivery.clone() }) });
    }
    answer.place = inbox::place_of(connection, answer.event).await?;
    if let Some(chat) = it.chat.as_deref() {
        answer.line = chat::seq_of(connection, [&it.tenant, &chat.chat_id, &chat.message_id]).await?;
    }
    Ok(())
}
