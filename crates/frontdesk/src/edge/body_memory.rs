//! Memory for the bodies of requests in progress, divided so that one sender cannot use up the share of others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use frontdesk_wire::TenantId;
use futures_util::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::flow::Budgets;

/// For all bodies of authenticated callers.
const PROVEN_KIB: usize = 768 << 10;
/// For all other bodies: a signature is checked over the whole body.
const UNPROVEN_KIB: usize = 256 << 10;
/// Share of one bot's route within that memory. It exists twice: once for the first `SMALL_KIB` of every body, once for the
/// rest of larger bodies. So large bodies that stall do not block ordinary messages of a vendor, and a flood on one route
/// leaves memory for others.
const DOOR_KIB: usize = 32 << 10;
const SMALL_KIB: usize = 64;
/// How long a request waits for others to finish.
const WAIT_TIME: Duration = Duration::from_secs(5);

/// The memory. A body takes as much as has arrived, not as much as its sender announces.
#[derive(Clone)]
pub(crate) struct BodyMemory(Arc<Pools>);

struct Pools {
    proven: Arc<Semaphore>,
    tenants: Budgets,
    unproven: Arc<Semaphore>,
    doors: Budgets,
    /// Shares of routes for the first `SMALL_KIB` of their bodies.
    small: Budgets,
}

/// The reservation of a request, released when its last clone is dropped: a request that continues after a disconnect
/// keeps its body.
#[derive(Clone)]
pub(crate) struct BodyReservation(Arc<Mutex<Held>>);

struct Held {
    memory: BodyMemory,
    owner: Owner,
    kib: usize,
    taken: Taken,
}

/// Permits of the owner's two shares and of the pool.
type Taken = [Option<OwnedSemaphorePermit>; 3];

/// Whose memory it is.
#[derive(Clone)]
enum Owner {
    /// Not authenticated, or not yet.
    Unproven,
    /// Sent to this door of a bot.
    Door(String),
    Tenant(TenantId),
    Operator,
}

/// Others kept the memory for the whole waiting time.
#[derive(Debug, thiserror::Error)]
#[error("too many requests in progress {0}; nothing was stored, try again")]
pub(crate) struct BodyMemoryFull(String);

impl BodyMemory {
    /// `tenant_kib`: the share of one tenant.
    pub(crate) fn new(tenant_kib: usize) -> Self {
        Self::with(PROVEN_KIB, tenant_kib, UNPROVEN_KIB, DOOR_KIB)
    }

    fn with(proven_kib: usize, tenant_kib: usize, unproven_kib: usize, door_kib: usize) -> Self {
        Self(Arc::new(Pools {
            proven: Arc::new(Semaphore::new(proven_kib)),
            tenants: Budgets::new(tenant_kib),
            unproven: Arc::new(Semaphore::new(unproven_kib)),
            doors: Budgets::new(door_kib),
            small: Budgets::new(door_kib),
        }))
    }

    /// For an unauthenticated request. The reader of the body lets it [grow](BodyReservation::grow).
    pub(super) fn reservation(&self) -> BodyReservation {
        let held = Held { memory: self.clone(), owner: Owner::Unproven, kib: 0, taken: Taken::default() };
        BodyReservation(Arc::new(Mutex::new(held)))
    }
}

impl Pools {
    /// Reserves `more` KiB for a body that has `held` KiB: first from the owner's shares, then from the pool.
    async fn take(&self, owner: &Owner, held: usize, more: usize) -> Result<Taken, BodyMemoryFull> {
        let large = more.min((held + more).saturating_sub(SMALL_KIB));
        let shares = match owner {
            Owner::Door(door) => [(&self.small, &**door, more - large), (&self.doors, door, large)],
            Owner::Tenant(tenant) => [(&self.tenants, &**tenant, more), (&self.tenants, tenant, 0)],
            Owner::Unproven | Owner::Operator => [(&self.small, "", 0), (&self.small, "", 0)],
        };
        let mut taken = Taken::default();
        for (place, (budget, name, kib)) in taken.iter_mut().zip(shares) {
            if kib > 0 {
                let share = budget.take_within(name, kib, WAIT_TIME).await;
                *place = Some(share.ok_or_else(|| owner.is_full())?);
            }
        }
        let pool = match owner {
            Owner::Unproven | Owner::Door(_) => &self.unproven,
            Owner::Tenant(_) | Owner::Operator => &self.proven,
        };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let waiting = async { timeout(WAIT_TIME, pool.clone().acquire_many_owned(more)).await.ok()?.ok() };
        let of_pool = match pool.clone().try_acquire_many_owned(more) {
            Ok(taken) => Some(taken),
            Err(_) => waiting.await,
        };
        taken[2] = Some(of_pool.ok_or_else(|| BodyMemoryFull("at this server".into()))?);
        Ok(taken)
    }
}

impl Owner {
    fn is_full(&self) -> BodyMemoryFull {
        BodyMemoryFull(match self {
            Self::Door(door) => format!("at the route of {door}"),
            Self::Tenant(tenant) => format!("of tenant {tenant}"),
            Self::Unproven | Self::Operator => "at this server".into(),
        })
    }
}

impl BodyReservation {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender was authenticated for this tenant, before its body is read.
    pub(super) fn prove(parts: &Parts, tenant: &TenantId) {
        Self::assign(parts, Owner::Tenant(tenant.clone()));
    }

    pub(super) fn prove_operator(parts: &Parts) {
        Self::assign(parts, Owner::Operator);
    }

    fn assign(parts: &Parts, owner: Owner) {
        if let Some(reservation) = parts.extensions.get::<Self>() {
            reservation.held().owner = owner;
        }
    }

    /// The body goes to this bot, which may have sent it.
    pub(super) fn send_to(&self, platform: &str, bot: &str) {
        self.held().owner = Owner::Door(format!("{platform}/{bot}"));
    }

    /// Grows the reservation to this number of received bytes.
    pub(super) async fn grow(&self, bytes: usize) -> Result<(), BodyMemoryFull> {
        let (memory, owner, kib) = {
            let held = self.held();
            (held.memory.clone(), held.owner.clone(), held.kib)
        };
        let more = (bytes / 1024 + 1).saturating_sub(kib);
        if more == 0 {
            return Ok(());
        }
        let taken = memory.0.take(&owner, kib, more).await?;
        let mut held = self.held();
        held.kib += more;
        for (had, more) in held.taken.iter_mut().zip(taken) {
            match (had.as_mut(), more) {
                // The owner is known before the body is read, so it is the same semaphore.
                (Some(had), Some(more)) => had.merge(more),
                (None, more) => *had = more,
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Wraps a body so that the reservation grows while the body is read.
    pub(super) fn counted(self, body: Body) -> Body {
        let begun = (body.into_data_stream(), 0, self);
        Body::from_stream(stream::try_unfold(begun, async |(mut pieces, bytes, held)| {
            let Some(piece) = pieces.next().await.transpose()? else { return Ok(None) };
            let bytes = bytes + piece.len();
            held.grow(bytes).await.map_err(axum::Error::new)?;
            Ok::<_, axum::Error>(Some((piece, (pieces, bytes, held))))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;

    use super::*;

    const MIB: usize = 1 << 20;

    fn chunked(pieces: usize) -> Body {
        let pieces = vec![Ok::<_, Infallible>(Bytes::from(vec![7; MIB])); pieces];
        Body::from_stream(stream::iter(pieces))
    }

    fn of(memory: &BodyMemory, owner: Owner) -> BodyReservation {
        let reservation = memory.reservation();
        reservation.held().owner = owner;
        reservation
    }

    fn tenant(memory: &BodyMemory, name: &str) -> BodyReservation {
        of(memory, Owner::Tenant(name.into()))
    }

    fn door(memory: &BodyMemory, bot: &str) -> BodyReservation {
        let reservation = memory.reservation();
        reservation.send_to("hooks", bot);
        reservation
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_as_much_as_has_arrived() {
        let memory = BodyMemory::with(8 << 10, 6 << 10, 0, 0);
        let free = || memory.0.proven.available_permits();
        let held = tenant(&memory, "a");
        assert_eq!(free(), 8 << 10, "nothing has arrived");
        held.grow(5).await.unwrap();
        held.grow(6).await.unwrap();
        assert_eq!(free(), (8 << 10) - 1);
        held.clone().grow(4 * MIB).await.unwrap();
        assert_eq!(free(), (4 << 10) - 1);
        drop(held);
        assert_eq!(free(), 8 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_room_waits_and_is_refused() {
        let memory = BodyMemory::with(3 << 10, 3 << 10, 0, 0);
        let first = tenant(&memory, "a");
        first.grow(2 * MIB).await.unwrap();
        let second = tenant(&memory, "b");
        let body = second.clone().counted(chunked(2));
        let error = axum::body::to_bytes(body, 9 * MIB).await.unwrap_err().into_inner();
        assert!(error.to_string().contains("too many requests in progress"), "{error}");
        drop(second);
        let third = tenant(&memory, "b");
        let body = axum::body::to_bytes(third.clone().counted(chunked(2)), 9 * MIB);
        let (body, ()) = tokio::join!(body, async { drop(first) });
        assert_eq!((body.unwrap().len(), memory.0.proven.available_permits()), (2 * MIB, (1 << 10) - 1));
        drop(third);
        assert_eq!(memory.0.proven.available_permits(), 3 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_cannot_take_the_memory_of_others() {
        let memory = BodyMemory::with(8 << 10, 2 << 10, 8 << 10, 8 << 10);
        let flood = [tenant(&memory, "a"), tenant(&memory, "a")];
        flood[0].grow(2 * MIB - 1).await.unwrap();
        assert!(flood[1].grow(1).await.is_err(), "its share is used up");
        tenant(&memory, "b").grow(2 * MIB - 1).await.unwrap();
        of(&memory, Owner::Operator).grow(6 * MIB - 1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_unproven_callers_leave_room_for_ordinary_messages_and_for_the_proven() {
        let memory = BodyMemory::with(4 << 10, 4 << 10, 4 << 10, 1 << 10);
        let stalled = door(&memory, "a");
        stalled.grow(MIB).await.unwrap();
        let second = door(&memory, "a");
        assert!(second.grow(MIB).await.is_err(), "the large bodies of this door have their share");
        let small = [door(&memory, "a"), door(&memory, "a")];
        small[0].grow(SMALL_KIB * 1024 - 1).await.unwrap();
        small[1].grow(SMALL_KIB * 1024 - 1).await.unwrap();
        let flood: Vec<_> = (0..13).map(|_| door(&memory, "a")).collect();
        for body in &flood {
            body.grow(SMALL_KIB * 1024 - 1).await.unwrap();
        }
        let full = door(&memory, "a").grow(SMALL_KIB * 1024 - 1).await.unwrap_err();
        assert!(full.to_string().contains("at the route of hooks/a"), "{full}");
        door(&memory, "b").grow(MIB).await.unwrap();
        let unauthenticated = memory.reservation();
        let rest = memory.0.unproven.available_permits() * 1024 - 1;
        unauthenticated.grow(rest).await.unwrap();
        assert!(memory.reservation().grow(1).await.is_err(), "all memory for unproven callers is taken");
        tenant(&memory, "t").grow(4 * MIB - 1).await.unwrap();
    }
}
