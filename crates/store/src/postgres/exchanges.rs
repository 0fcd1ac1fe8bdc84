//! Questions whose askers wait. Each decision about a question is one statement on its row.

use frontdesk_core::port::exchanges::{
    EXCHANGE_LEFT_MS, Exchange, Exchanges, LEFT_MAX, Mention, Reply, ReplyOutcome, StoredAnswer,
};
use frontdesk_core::port::store::{DeskNo, Stored};
use frontdesk_core::short_hash;
use frontdesk_wire::InstanceNo;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::text::{given, kept};
use super::{Clock, PostgresStore, gone, now, signed, signed_all, unsigned};
use crate::read_queue::SERVER;

impl Exchanges for PostgresStore {
    fn open_exchange(&self, it: Exchange, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, bool> {
        let (now, live, by_lease) = (self.clock.at(now_ms), signed_all(&live), self.clock == Clock::Database);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO exchange AS x (tenant, correlation_id, token, desk, asker, agent, agent_id, delivery_id, chat_id,
                   instances, timeout_ms, until_ms, name)
                 VALUES ($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, ",
                now!("$1"),
                " + $14 + $15, $16)
                 ON CONFLICT (tenant, name) DO UPDATE SET token = excluded.token, desk = excluded.desk,
                   asker = excluded.asker, agent = excluded.agent, agent_id = excluded.agent_id,
                   delivery_id = excluded.delivery_id, chat_id = excluded.chat_id, instances = excluded.instances,
                   timeout_ms = excluded.timeout_ms, until_ms = excluded.until_ms,
                   answer = CASE WHEN x.is_taken THEN NULL ELSE x.answer END, is_taken = false
                 WHERE x.is_taken OR ((x.answer IS NULL OR x.agent = excluded.agent) AND (x.until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("x.desk", "$2", "$3"),
                "))"
            );
            let asker = it.asker.as_deref().map(kept);
            let (tenant, correlation_id, agent_id) = (kept(&it.tenant), kept(&it.correlation_id), kept(&it.agent_id));
            let (delivery_id, chat_id) = (kept(&it.delivery_id), kept(&it.chat_id));
            let (token, desk, agent) = (signed(it.token), signed(it.desk), signed(it.agent));
            let (timeout, left) = (signed(it.timeout_ms), signed(EXCHANGE_LEFT_MS));
            let instances = signed_all(&it.instances);
            let name = name_of(&it.correlation_id);
            #[rustfmt::skip]
            let given: [&(dyn ToSql + Sync); 16] = [
                &now, &live, &by_lease, &tenant, &correlation_id, &token, &desk, &asker, &agent, &agent_id, &delivery_id,
                &chat_id, &instances, &timeout, &left, &name,
            ];
            Ok(connection.execute(sql, &given).await? == 1)
        })
    }

    fn name_question(&self, token: u64, delivery_id: String) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE exchange SET delivery_id = $2 WHERE token = $1";
            connection.execute(sql, &[&signed(token), &kept(&delivery_id)]).await.map(drop)
        })
    }

    fn meant_exchange(&self, it: Mention) -> Stored<'_, Option<(String, InstanceNo)>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT correlation_id, agent FROM exchange
                       WHERE tenant = $1 AND chat_id = $2 AND $3 = ANY (instances) AND answer IS NULL
                         AND (name = $4 OR delivery_id = $5)
                       ORDER BY coalesce(name = $4, false) DESC LIMIT 1";
            let (named, replied) = (it.correlation_id.as_deref().map(name_of), it.delivery_id.as_deref().map(kept));
            let instance = signed(it.instance);
            let (tenant, chat_id) = (kept(&it.tenant), kept(&it.chat_id));
            let found = connection.query_opt(sql, &[&tenant, &chat_id, &instance, &named, &replied]).await?;
            Ok(found.map(|row| (given(row.get(0)), unsigned(row.get(1)))))
        })
    }

    fn answer_exchange(&self, reply: Reply, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, ReplyOutcome> {
        let (now, live, by_lease) = (self.clock.at(now_ms), signed_all(&live), self.clock == Clock::Database);
        self.worker.write(async move |connection| {
            let (tenant, name) = (kept(&reply.tenant), name_of(&reply.correlation_id));
            let sql = concat!(
                "SELECT agent, desk, token, answer IS NOT NULL, answer = $6 AND NOT is_taken, until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("x.desk", "$2", "$3"),
                " FROM exchange x WHERE tenant = $4 AND name = $5 FOR UPDATE"
            );
            let content = kept(&reply.answer.content);
            let found = connection.query_opt(sql, &[&now, &live, &by_lease, &tenant, &name, &content]).await?;
            let Some(row) = found else { return Ok(ReplyOutcome::NobodyWaits) };
            let (agent, desk, token): (InstanceNo, DeskNo, u64) =
                (unsigned(row.get(0)), unsigned(row.get(1)), unsigned(row.get(2)));
            let (is_answered, is_same, is_left): (bool, Option<bool>, bool) = (row.get(3), row.get(4), row.get(5));
            if is_answered {
                let is_same = is_same == Some(true) && agent == reply.agent;
                return Ok(if is_same { ReplyOutcome::At(desk, token) } else { ReplyOutcome::Answered });
            }
            if is_left {
                return Ok(ReplyOutcome::NobodyWaits);
            }
            if agent != reply.agent {
                return Ok(ReplyOutcome::OtherAgent);
            }
            let sql = "UPDATE exchange SET answer = $2, answered_ms = $3, is_taken = desk = $4 WHERE token = $1";
            let at = signed(reply.answer.at_ms);
            connection.execute(sql, &[&signed(token), &content, &at, &signed(reply.desk)]).await?;
            Ok(ReplyOutcome::At(desk, token))
        })
    }

    fn take_answers(&self, tokens: Vec<u64>) -> Stored<'_, Vec<(u64, StoredAnswer)>> {
        let tokens = signed_all(&tokens);
        self.worker.ask(async move |database| {
            let sql = "SELECT token, answer, answered_ms FROM exchange WHERE token = ANY ($1) AND answer IS NOT NULL
                       ORDER BY token";
            let look = async |connection: &super::connection::Connection| connection.query(sql, &[&tokens]).await;
            // A sweep reads the answers for all that wait, and nearly always there are none.
            if database.read(look).await?.is_empty() {
                return Ok(Vec::new());
            }
            let take = async |connection: &super::connection::Connection| {
                // Locked in the order of tokens.
                let sql = "WITH answered AS (
                             SELECT token FROM exchange WHERE token = ANY ($1) AND answer IS NOT NULL ORDER BY token FOR UPDATE)
                           UPDATE exchange x SET is_taken = true FROM answered a WHERE x.token = a.token
                           RETURNING x.token, x.answer, x.answered_ms";
                let rows = connection.query(sql, &[&tokens]).await?;
                Ok(rows.iter().map(|row| (unsigned(row.get(0)), answer(row, 1))).collect())
            };
            database.writers.transaction(take).await
        })
    }

    fn leave_answer(&self, token: u64, now_ms: u64) -> Stored<'_, ()> {
        let now = self.clock.at(now_ms);
        self.worker.write(async move |connection| {
            let sql = concat!("UPDATE exchange SET is_taken = false, until_ms = ", now!("$1"), " WHERE token = $2");
            connection.execute(sql, &[&now, &signed(token)]).await.map(drop)
        })
    }

    fn adopt_exchanges(&self, me: DeskNo, tokens: Vec<u64>) -> Stored<'_, ()> {
        let (me, tokens) = (signed(me), signed_all(&tokens));
        self.worker.write(async move |connection| {
            let sql = "WITH mine AS (SELECT token FROM exchange WHERE token = ANY ($2) ORDER BY token FOR UPDATE)
                       UPDATE exchange x SET desk = $1 FROM mine m WHERE x.token = m.token";
            connection.execute(sql, &[&me, &tokens]).await.map(drop)
        })
    }

    fn end_exchange(&self, token: u64) -> Stored<'_, Option<StoredAnswer>> {
        self.worker.write(async move |connection| {
            let sql = "DELETE FROM exchange WHERE token = $1 RETURNING answer, answered_ms";
            let found = connection.query_opt(sql, &[&signed(token)]).await?;
            Ok(found.filter(|row| row.get::<_, Option<&str>>(0).is_some()).map(|row| answer(&row, 0)))
        })
    }

    fn left_exchanges(&self, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, Vec<(Exchange, StoredAnswer)>> {
        let (now, live, by_lease) = (self.clock.at(now_ms), signed_all(&live), self.clock == Clock::Database);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "DELETE FROM exchange WHERE token IN (
                   SELECT token FROM exchange x WHERE answer IS NULL AND (until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("x.desk", "$2", "$3"),
                ") ORDER BY token FOR UPDATE SKIP LOCKED)"
            );
            connection.execute(sql, &[&now, &live, &by_lease]).await?;
            let sql = concat!(
                "SELECT answer, answered_ms, token, tenant, correlation_id, desk, asker, agent, agent_id, delivery_id, chat_id,
                        instances, timeout_ms
                 FROM exchange x WHERE answer IS NOT NULL AND (until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("x.desk", "$2", "$3"),
                ") ORDER BY token LIMIT $4"
            );
            let limit = i64::try_from(LEFT_MAX).unwrap_or(i64::MAX);
            let rows = connection.query(sql, &[&now, &live, &by_lease, &limit]).await?;
            Ok(rows.iter().map(|row| (exchange(row), answer(row, 0))).collect())
        })
    }
}

fn name_of(correlation_id: &str) -> Vec<u8> {
    short_hash(&[correlation_id]).to_vec()
}

fn answer(row: &Row, at: usize) -> StoredAnswer {
    StoredAnswer { content: given(row.get(at)), at_ms: unsigned(row.get(at + 1)) }
}

fn exchange(row: &Row) -> Exchange {
    let instances: Vec<i64> = row.get(11);
    Exchange {
        token: unsigned(row.get(2)),
        tenant: given(row.get(3)).into(),
        correlation_id: given(row.get(4)),
        desk: unsigned(row.get(5)),
        asker: row.get::<_, Option<String>>(6).map(|asker| given(asker).into()),
        agent: unsigned(row.get(7)),
        agent_id: given(row.get(8)).into(),
        delivery_id: given(row.get(9)),
        chat_id: given(row.get(10)).into(),
        instances: instances.into_iter().map(unsigned).collect(),
        timeout_ms: unsigned(row.get(12)),
    }
}
