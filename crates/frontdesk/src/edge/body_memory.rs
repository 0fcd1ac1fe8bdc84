//! Memory that the bodies of requests in progress may take.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// For all bodies: a request that continues after a disconnect keeps its body.
const LIMIT_KIB: usize = 1 << 20;
/// How long a request waits for others to finish.
const WAIT_TIME: Duration = Duration::from_secs(5);
/// Taken at once. A longer body takes more as it arrives: a peer that announces much and sends nothing holds little.
const FIRST_KIB: u64 = 64;

pub(crate) struct BodyMemory(Arc<Semaphore>);

/// What a request takes. It is given back when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct BodyReservation(Arc<Mutex<OwnedSemaphorePermit>>);

/// Other requests took all memory, and kept it for the waiting time.
#[derive(Debug, thiserror::Error)]
#[error("too many requests in progress; nothing was stored, try again")]
pub(crate) struct BodyMemoryFull;

impl Default for BodyMemory {
    fn default() -> Self {
        Self::new(LIMIT_KIB)
    }
}

impl BodyMemory {
    fn new(limit_kib: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit_kib)))
    }

    /// What a request takes at first, by the announced length of its body. Whoever reads the body lets it [grow](BodyReservation::grow).
    pub(super) async fn hold(&self, length: Option<u64>) -> Result<BodyReservation, BodyMemoryFull> {
        let kib = length.map_or(FIRST_KIB, |bytes| bytes / 1024 + 1).min(FIRST_KIB);
        let permit = take(&self.0, u32::try_from(kib).unwrap_or(1)).await?;
        Ok(BodyReservation(Arc::new(Mutex::new(permit))))
    }
}

async fn take(room: &Arc<Semaphore>, kib: u32) -> Result<OwnedSemaphorePermit, BodyMemoryFull> {
    if let Ok(permit) = room.clone().try_acquire_many_owned(kib) {
        return Ok(permit);
    }
    timeout(WAIT_TIME, room.clone().acquire_many_owned(kib))
        .await
        .map_err(|_| BodyMemoryFull)?
        .map_err(|_| BodyMemoryFull)
}

impl BodyReservation {
    /// So many bytes of the body have arrived.
    pub(super) async fn grow(&self, bytes: usize) -> Result<(), BodyMemoryFull> {
        let (room, more) = {
            let permit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (permit.semaphore().clone(), (bytes / 1024 + 1).saturating_sub(permit.num_permits()))
        };
        if more > 0 {
            let more = take(&room, u32::try_from(more).unwrap_or(u32::MAX)).await?;
            self.0.lock().unwrap_or_else(PoisonError::into_inner).merge(more);
        }
        Ok(())
    }

    /// A body that grows as it is read by somebody who does not know of this.
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

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_as_much_as_has_arrived() {
        let body_memory = BodyMemory::new(8 << 10);
        let free = || body_memory.0.available_permits();
        for length in [Some(1 << 30), Some(1 << 16), None] {
            let held = body_memory.hold(length).await.ok();
            assert_eq!(free(), (8 << 10) - 64, "nothing has arrived");
            drop(held);
        }
        let held = body_memory.hold(Some(5)).await.unwrap();
        assert_eq!(free(), (8 << 10) - 1);
        held.grow(5).await.unwrap();
        assert_eq!(free(), (8 << 10) - 1);
        held.clone().grow(4 * MIB).await.unwrap();
        assert_eq!(free(), (4 << 10) - 1);
        drop(held);
        assert_eq!(free(), 8 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_room_waits_and_is_refused() {
        let body_memory = BodyMemory::new(3 << 10);
        let first = body_memory.hold(None).await.unwrap();
        first.grow(2 * MIB).await.unwrap();
        let second = body_memory.hold(None).await.unwrap();
        let body = second.clone().counted(chunked(2));
        let error = axum::body::to_bytes(body, 9 * MIB).await.unwrap_err().into_inner();
        assert!(error.to_string().contains("too many requests in progress"), "{error}");
        drop(second);
        let third = body_memory.hold(None).await.unwrap();
        let body = axum::body::to_bytes(third.clone().counted(chunked(2)), 9 * MIB);
        let (body, ()) = tokio::join!(body, async { drop(first) });
        assert_eq!((body.unwrap().len(), body_memory.0.available_permits()), (2 * MIB, (1 << 10) - 1));
        drop(third);
        assert_eq!(body_memory.0.available_permits(), 3 << 10);
    }
}
