//! Sessions and presence. The session that serves an instance is in the head of its ledger, so that rows and sessions
//! are serialized by the lock of that row; every other verb writes its own columns of `presence`.

use frontdesk_core::port::store::{Attached, DeskNo, Presence, SessionNo, Sessions, Stored};
use frontdesk_wire::{GatewayId, InstanceNo, Seq};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::heads::read_position;
use super::text::{given, kept};
use super::{Clock, PostgresStore, gone, now, signed, signed_all, unsigned};
use crate::read_queue::SERVER;

/// The caller adds which.
const SELECT: &str = "SELECT p.instance, coalesce(h.desk, 0), coalesce(h.session, 0), p.idle, p.seen_ms,
                      p.noticed_through, p.never_acks, p.gateway FROM presence p LEFT JOIN head h USING (instance)";

impl Sessions for PostgresStore {
    fn attach(&self, instance: InstanceNo, me: DeskNo, gateway: GatewayId, now_ms: u64) -> Stored<'_, Attached> {
        let (instance, me, now) = (signed(instance), signed(me), signed(now_ms));
        let gateway = kept(&gateway).into_owned();
        self.worker.write(async move |connection| {
            lock_head(connection, instance).await?;
            let before = read(connection, instance).await?;
            let sql = "UPDATE head SET desk = $2, session = nextval('session_number') WHERE instance = $1
                       RETURNING session";
            let session = unsigned(connection.query_one(sql, &[&instance, &me]).await?.get(0));
            let sql = "INSERT INTO presence (instance, seen_ms, gateway) VALUES ($1, $2, $3)
                       ON CONFLICT (instance) DO UPDATE SET seen_ms = $2, gateway = $3, idle = false, waked_by = 0";
            connection.execute(sql, &[&instance, &now, &gateway]).await?;
            Ok(Attached { session, position: read_position(connection, instance).await?, before })
        })
    }

    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool> {
        let (instance, session, now) = (signed(instance), signed(session), signed(now_ms));
        self.worker.write(async move |connection| {
            let sql = "UPDATE head SET desk = 0, session = 0 WHERE instance = $1 AND session = $2";
            if connection.execute(sql, &[&instance, &session]).await? == 0 {
                return Ok(false);
            }
            let sql = "UPDATE presence SET seen_ms = $2, never_acks = $3 WHERE instance = $1";
            connection.execute(sql, &[&instance, &now, &never_acks]).await?;
            Ok(true)
        })
    }

    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>> {
        let (instances, numbers): (Vec<i64>, Vec<i64>) =
            sessions.into_iter().map(|(instance, session)| (signed(instance), signed(session))).unzip();
        let me = signed(me);
        self.worker.write(async move |connection| {
            // Locked in the order of instances, like every batch.
            let sql = "WITH mine AS (
                         SELECT h.instance FROM head h
                         JOIN unnest($2::bigint[], $3::bigint[]) AS s (instance, session) USING (instance, session)
                         ORDER BY h.instance FOR UPDATE OF h)
                       UPDATE head SET desk = $1 FROM mine WHERE head.instance = mine.instance RETURNING head.instance";
            let rows = connection.query(sql, &[&me, &instances, &numbers]).await?;
            Ok(rows.iter().map(|row| unsigned(row.get(0))).collect())
        })
    }

    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool> {
        let (instance, session) = (signed(instance), session.map(signed));
        self.worker.write(async move |connection| {
            if let Some(session) = session {
                // Locked, so that the session cannot change until this is written.
                let sql = "SELECT 1 FROM head WHERE instance = $1 AND session = $2 FOR SHARE";
                if connection.query_opt(sql, &[&instance, &session]).await?.is_none() {
                    return Ok(false);
                }
            }
            let sql = "INSERT INTO presence (instance, idle) VALUES ($1, $2)
                       ON CONFLICT (instance) DO UPDATE SET idle = $2";
            connection.execute(sql, &[&instance, &idle]).await?;
            Ok(true)
        })
    }

    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()> {
        let instance = signed(instance);
        self.worker.write(async move |connection| {
            let sql = "INSERT INTO presence (instance, never_acks) VALUES ($1, true)
                       ON CONFLICT (instance) DO UPDATE SET never_acks = true";
            connection.execute(sql, &[&instance]).await.map(drop)
        })
    }

    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>> {
        let (instance, through) = (signed(instance), signed(through));
        self.worker.write(async move |connection| {
            let sql = "INSERT INTO presence (instance) VALUES ($1) ON CONFLICT (instance) DO NOTHING";
            connection.execute(sql, &[&instance]).await?;
            let sql = "SELECT noticed_through FROM presence WHERE instance = $1 FOR UPDATE";
            let noticed: i64 = connection.query_one(sql, &[&instance]).await?.get(0);
            if noticed >= through {
                return Ok(None);
            }
            let sql = "UPDATE presence SET noticed_through = $2 WHERE instance = $1";
            connection.execute(sql, &[&instance, &through]).await?;
            Ok(Some(unsigned(noticed)))
        })
    }

    fn claim_wake(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: Vec<DeskNo>,
        cooldown_ms: u64,
        now_ms: u64,
    ) -> Stored<'_, bool> {
        let (instance, me, live) = (signed(instance), signed(me), signed_all(&live));
        let (cooldown, now) = (signed(cooldown_ms), self.clock.at(now_ms));
        // A server that enlisted after the list was made is live as well; only the database's clock can tell.
        let by_lease = self.clock == Clock::Database;
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO presence AS p (instance, waked_by, waked_ms) VALUES ($2, $3, ",
                now!("$1"),
                ") ON CONFLICT (instance) DO UPDATE SET waked_by = excluded.waked_by, waked_ms = excluded.waked_ms
                   WHERE p.waked_by IN (0, $3) OR p.waked_ms + $5 <= excluded.waked_ms OR ",
                gone!("p.waked_by", "$4", "$6")
            );
            Ok(connection.execute(sql, &[&now, &instance, &me, &live, &cooldown, &by_lease]).await? == 1)
        })
    }

    fn presence(&self, instance: InstanceNo) -> Stored<'_, Presence> {
        let (owner, instance) = (self.tenants.of(instance), signed(instance));
        self.worker.read(owner, async move |connection| read(connection, instance).await)
    }

    fn presences(&self) -> Stored<'_, Vec<(InstanceNo, Presence)>> {
        self.worker.read(SERVER, async move |connection| {
            let rows = connection.query(&format!("{SELECT} ORDER BY p.instance"), &[]).await?;
            Ok(rows.iter().map(presence).collect())
        })
    }
}

/// The head of a ledger, made where there is none, and locked until the end of the transaction.
async fn lock_head(connection: &Connection, instance: i64) -> Result<(), Fault> {
    let sql = "INSERT INTO head (instance) VALUES ($1) ON CONFLICT (instance) DO NOTHING";
    connection.execute(sql, &[&instance]).await?;
    connection.execute("SELECT 1 FROM head WHERE instance = $1 FOR UPDATE", &[&instance]).await.map(drop)
}

async fn read(connection: &Connection, instance: i64) -> Result<Presence, Fault> {
    let found = connection.query_opt(&format!("{SELECT} WHERE p.instance = $1"), &[&instance]).await?;
    Ok(found.map(|row| presence(&row).1).unwrap_or_default())
}

fn presence(row: &Row) -> (InstanceNo, Presence) {
    let known = Presence {
        served_by: unsigned(row.get(1)),
        session: unsigned(row.get(2)),
        idle: row.get(3),
        seen_ms: unsigned(row.get(4)),
        noticed_through: unsigned(row.get(5)),
        never_acks: row.get(6),
        gateway: given(row.get(7)).into(),
    };
    (unsigned(row.get(0)), known)
}
