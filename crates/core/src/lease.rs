//! This server among those that share its store: its number, its lease, its duties.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use frontdesk_wire::DeskNo;

use crate::env::Env;
use crate::port::store::{Acceptance, Accepted, DeskRecord, Desks, Ledger, Renewal, StoreError, Stored};

/// A server whose last renewal is this old stops acting, before other servers may take over.
const GOOD_MS: u64 = 4_000;
/// A server that has not confirmed for this long that its directory is the newest authenticates no caller: once its lease
/// has run out, others do not wait for its confirmation of a revocation.
const KNOWN_MS: u64 = 3_000;
/// A renewal counts from the moment it was sent. After this long its answer comes too late to authenticate callers, so
/// the attempt is given up and a new one is sent.
const CALL_TIME: Duration = Duration::from_millis(KNOWN_MS);
/// Time limit at the start, when connections are still being opened and no client waits.
const START_TIME: Duration = Duration::from_mins(1);
/// A version of the directory that no server has read.
const UNKNOWN: u64 = u64::MAX;
/// Bits of an attempt number that count within one start; the bits above are the server number.
const ATTEMPT_BITS: u32 = 40;

pub struct Lease {
    env: Arc<dyn Env>,
    desks: Arc<dyn Desks>,
    name: String,
    me: AtomicU64,
    /// The beginning of the last renewal, on the steady clock.
    renewed_ms: AtomicU64,
    /// Start of the last renewal that was sent while the lease was still valid, so that the directory version it read is
    /// the newest.
    kept_ms: AtomicU64,
    /// Allows one renewal at a time: they share a connection, so a second one would be sent long after its start.
    renewing: tokio::sync::Mutex<()>,
    /// The other live servers, as of the last renewal. Most servers are alone.
    others: RwLock<Vec<DeskNo>>,
    /// How many of the others are stopping, and take no duties.
    leaving: AtomicUsize,
    /// This server is stopping. Not bound to a number, which may change.
    is_leaving: AtomicBool,
    attempts: AtomicU64,
    /// Rows may have been written without a notification.
    has_unknown_rows: AtomicBool,
    /// Hints of other servers do not arrive.
    is_cut_off: AtomicBool,
    /// Directory version that this server has read. Reported with each renewal for servers that wait for a confirmation.
    directory_seen: AtomicU64,
    /// The version of the directory at the last renewal; [`UNKNOWN`] after the lease was lost.
    directory_head: AtomicU64,
    /// The beginning of the last renewal whose version of the directory was read, on the steady clock, plus 1; 0 is none.
    known_ms: AtomicU64,
}

impl Lease {
    pub(crate) async fn open(env: Arc<dyn Env>, desks: Arc<dyn Desks>, name: String) -> Result<Self, StoreError> {
        let lease = Self {
            env,
            desks,
            name,
            me: AtomicU64::new(0),
            renewed_ms: AtomicU64::new(0),
            kept_ms: AtomicU64::new(0),
            renewing: tokio::sync::Mutex::default(),
            others: RwLock::default(),
            leaving: AtomicUsize::new(0),
            is_leaving: AtomicBool::new(false),
            attempts: AtomicU64::new(0),
            has_unknown_rows: AtomicBool::new(false),
            is_cut_off: AtomicBool::new(false),
            directory_seen: AtomicU64::new(0),
            directory_head: AtomicU64::new(0),
            known_ms: AtomicU64::new(0),
        };
        lease.enlist(START_TIME).await?;
        lease.renew_within(START_TIME).await?; // the others are known from the start
        Ok(lease)
    }

    async fn enlist(&self, limit: Duration) -> Result<(), StoreError> {
        let began_ms = self.env.steady_ms();
        let version = env!("CARGO_PKG_VERSION").into();
        let me = in_time(limit, self.desks.enlist(self.name.clone(), version, self.env.now_ms())).await?;
        self.me.store(me.0, Ordering::SeqCst);
        self.renewed_ms.store(began_ms, Ordering::SeqCst);
        Ok(())
    }

    /// The number of this server. It changes if the lease was lost.
    pub fn me(&self) -> DeskNo {
        DeskNo(self.me.load(Ordering::SeqCst))
    }

    /// Whether other servers still count this one as live.
    pub fn is_good(&self) -> bool {
        self.env.steady_ms().saturating_sub(self.renewed_ms.load(Ordering::SeqCst)) < GOOD_MS
    }

    /// Whether this server has read all changes of the directory that were committed until a short while ago.
    pub fn knows_directory(&self) -> bool {
        let known_ms = self.known_ms.load(Ordering::SeqCst);
        known_ms != 0 && (self.env.steady_ms() + 1).saturating_sub(known_ms) < KNOWN_MS
    }

    fn note_renewal(&self, began_ms: u64, renewal: &Renewal) {
        let known = renewal.directory_version;
        let _ = self.directory_head.compare_exchange(UNKNOWN, known, Ordering::SeqCst, Ordering::SeqCst);
        self.directory_head.fetch_max(renewal.directory_version, Ordering::SeqCst);
        // Others see a renewal once it is committed. If the lease could run out before that, a concurrent revocation
        // did not wait for this server, and this renewal may have read the directory before it.
        let last_ms = self.renewed_ms.swap(began_ms, Ordering::SeqCst);
        if self.env.steady_ms().saturating_sub(last_ms) < GOOD_MS {
            self.kept_ms.store(began_ms, Ordering::SeqCst);
        }
        self.note_live(renewal);
        self.note_directory(0);
    }

    /// Whether this is another server, and live as far as this one knows.
    pub fn is_other(&self, desk: DeskNo) -> bool {
        !desk.is_none()
            && desk != self.me()
            && self.others.read().unwrap_or_else(PoisonError::into_inner).contains(&desk)
    }

    /// All live servers, as of the last renewal.
    pub fn live(&self) -> Vec<DeskNo> {
        let mut live = self.others.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.push(self.me());
        live
    }

    /// How many live servers share the duties, this one included, as of the last renewal.
    pub fn sharers(&self) -> usize {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner).len();
        others.saturating_sub(self.leaving.load(Ordering::SeqCst)) + 1
    }

    /// Whether no other server uses the store, as of the last renewal.
    pub fn is_alone(&self) -> bool {
        self.others.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether hints of other servers do not arrive.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Returns whether that is new.
    pub(crate) fn note_cut_off(&self, is_cut_off: bool) -> bool {
        self.is_cut_off.swap(is_cut_off, Ordering::Relaxed) != is_cut_off
    }

    /// Accepts a batch. Where the answer of the store can get lost, each event is stored under the name of this
    /// attempt, and the store is asked once more under the same names. If that answer is lost too, `note_unknown_rows`
    /// makes a sweep look for the rows.
    pub async fn accept(&self, ledger: &dyn Ledger, mut batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        if !ledger.may_lose_answers() {
            return ledger.accept(batch).await;
        }
        for it in &mut batch {
            it.attempt = self.next_token();
        }
        let first = ledger.accept(batch.clone()).await;
        if !matches!(first, Err(StoreError::Unknown(_))) {
            return first;
        }
        let again = ledger.accept(batch).await;
        again.map_err(|error| {
            self.note_unknown_rows();
            // The first attempt may have been stored, whatever the result of this one.
            match error {
                StoreError::Unavailable(why) => StoreError::Unknown(why),
                other => other,
            }
        })
    }

    /// Rows may have been written whose answer was lost, so that no session was notified of them.
    pub(crate) fn note_unknown_rows(&self) {
        self.has_unknown_rows.store(true, Ordering::SeqCst);
    }

    pub(crate) fn take_unknown_rows(&self) -> bool {
        self.has_unknown_rows.swap(false, Ordering::SeqCst)
    }

    /// No other server, and no other start of this one, returns the same token.
    pub(crate) fn next_token(&self) -> u64 {
        (self.me().0 << ATTEMPT_BITS) | (self.attempts.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn note_live(&self, renewal: &Renewal) {
        let me = self.me();
        let leaving = renewal.leaving.iter().filter(|desk| **desk != me).count();
        self.leaving.store(leaving, Ordering::SeqCst);
        let others = renewal.live.iter().copied().filter(|desk| *desk != me).collect();
        *self.others.write().unwrap_or_else(PoisonError::into_inner) = others;
    }

    /// Renews the lease; call it every second. Returns the version of the directory and all live servers. A lease that
    /// ran out (the process was suspended, or the store was away) is lost: the server gets another number, and its duties
    /// are free.
    pub async fn renew(&self) -> Result<(u64, Vec<DeskNo>), StoreError> {
        self.renew_within(CALL_TIME).await
    }

    async fn renew_within(&self, limit: Duration) -> Result<(u64, Vec<DeskNo>), StoreError> {
        let _turn = self.renewing.lock().await;
        let mut began_ms = self.env.steady_ms();
        let renewal = match self.renew_once(limit).await {
            Err(StoreError::Conflict) => {
                let lost = self.me();
                began_ms = self.env.steady_ms();
                // Revocations did not wait for this server, whatever its own clock says: the clock of a suspended machine
                // stands still.
                self.directory_head.store(UNKNOWN, Ordering::SeqCst);
                self.known_ms.store(0, Ordering::SeqCst);
                self.enlist(limit).await?;
                tracing::warn!(
                    %lost,
                    now = %self.me(),
                    "the lease of this server had expired; it continues under a new number"
                );
                self.renew_once(limit).await?
            }
            renewed => renewed?,
        };
        self.note_renewal(began_ms, &renewal);
        // The new number is not known as leaving yet.
        if self.is_leaving.load(Ordering::SeqCst) && !renewal.leaving.contains(&self.me()) {
            in_time(limit, self.desks.leave(self.me())).await?;
        }
        Ok((renewal.directory_version, renewal.live))
    }

    async fn renew_once(&self, limit: Duration) -> Result<Renewal, StoreError> {
        let seen = self.directory_seen.load(Ordering::SeqCst);
        in_time(limit, self.desks.renew(self.me(), seen, self.env.now_ms())).await
    }

    /// Reported to the other servers with the next renewal.
    pub fn note_directory(&self, version: u64) {
        let kept_ms = self.kept_ms.load(Ordering::SeqCst);
        let seen = self.directory_seen.fetch_max(version, Ordering::SeqCst).max(version);
        if seen >= self.directory_head.load(Ordering::SeqCst) {
            self.known_ms.fetch_max(kept_ms + 1, Ordering::SeqCst);
        }
    }

    /// Takes or keeps a duty. `None`: another live server has it.
    pub async fn take_duty(&self, duty: &str) -> Result<Option<u64>, StoreError> {
        self.desks.take_duty(self.me(), duty.to_owned(), self.env.now_ms()).await
    }

    pub async fn drop_duty(&self, duty: &str) -> Result<(), StoreError> {
        self.desks.drop_duty(self.me(), duty.to_owned()).await
    }

    /// The server is stopping: others take its duties at once. It serves its sessions until it resigns.
    pub async fn leave(&self) -> Result<(), StoreError> {
        self.is_leaving.store(true, Ordering::SeqCst);
        self.desks.leave(self.me()).await
    }

    /// The server ends: others may take over at once.
    pub async fn resign(&self) -> Result<(), StoreError> {
        self.desks.resign(self.me()).await
    }

    /// The name of this server, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stored for requests at other servers.
    pub(crate) async fn report(&self, report: String) -> Result<(), StoreError> {
        self.desks.put_report(self.me(), report).await
    }

    /// Servers that ended without resigning, and how many milliseconds ago.
    pub async fn absent(&self) -> Result<Vec<(DeskRecord, u64)>, StoreError> {
        self.desks.absent(self.env.now_ms()).await
    }

    /// The live servers and their duties.
    pub async fn desks(&self) -> Result<Vec<(DeskRecord, Vec<String>)>, StoreError> {
        self.desks.desks(self.env.now_ms()).await
    }
}

/// A limit for each call, not for all that a renewal needs: after a lost lease these are three.
async fn in_time<T>(limit: Duration, asked: Stored<'_, T>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unknown(format!("no answer within {} s", limit.as_secs())));
    tokio::time::timeout(limit, asked).await.unwrap_or_else(late)
}
