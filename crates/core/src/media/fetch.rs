//! Fetches a file from its platform, once, and stores it under the id that agents know.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frontdesk_wire::{Secret, TenantId};
use futures_util::{StreamExt as _, stream};
use tokio::time::{sleep, timeout};

use super::error::FetchError;
use super::fetches::Joined;
use super::{HANDLE_KIND, MediaPlane, UNKNOWN_MIME, clean_filename, clean_mime};
use crate::meters::Why;
use crate::port::media::{MediaBody, MediaItem, MediaPut, RemoteItem};
use crate::port::platform::{Bot, MediaFault, Platform, RemoteMedia};

/// Time limits: for the start of the answer, for each further piece, and for the whole file.
const ANSWER_TIME: Duration = Duration::from_secs(20);
const PIECE_TIME: Duration = Duration::from_secs(15);
const WHOLE_TIME: Duration = Duration::from_mins(2);

/// Why a body ended early.
#[derive(Clone, Copy)]
enum Broken {
    TooLarge,
    Stalled,
    Cut,
}

impl MediaPlane {
    /// Gets a file from its platform, unless it was fetched in the meantime. Concurrent callers share one fetch. Run it
    /// to its end even if the client disconnects: the next caller then finds the file in the store.
    pub async fn fetch(&self, tenant: &TenantId, id: &str) -> Result<(MediaItem, MediaBody), FetchError> {
        let ended = loop {
            match self.fetches.join(tenant, id) {
                Joined::Full => break Err(FetchError::Busy),
                Joined::Lead(leader) => {
                    let ended = self.fetch_one(tenant, id).await;
                    leader.end(ended.clone());
                    break ended;
                }
                Joined::Follow(follower) => {
                    if let Some(ended) = follower.end().await {
                        break ended;
                    }
                }
            }
        };
        ended?;
        self.store.media_get(tenant, id, self.env.now_ms()).await?.ok_or(FetchError::Absent)
    }

    async fn fetch_one(&self, tenant: &TenantId, id: &str) -> Result<(), FetchError> {
        // Read here and not earlier: the file may have been stored while this fetch waited for its turn.
        let Some(remote) = self.store.media_remote(tenant, id, self.env.now_ms()).await? else { return Ok(()) };
        let fetched = self.fetch_through(tenant, id, &remote).await;
        let outcome = fetched.as_ref().err().map_or("fetched", FetchError::outcome);
        self.meters.media_fetches.get_or_create(&Why { why: outcome }).inc();
        if let Err(error) = &fetched {
            let (platform, bot, event) = (&remote.platform, &remote.bot, remote.event.to_string());
            tracing::warn!(%error, platform, bot = bot.as_str(), event, tenant = tenant.as_str(), "fetching a file from its platform failed");
        }
        fetched
    }

    async fn fetch_through(&self, tenant: &TenantId, id: &str, remote: &RemoteItem) -> Result<(), FetchError> {
        let max = self.rules.media_max_bytes;
        if remote.size.is_some_and(|size| size > max as u64) {
            return Err(FetchError::TooLarge(max));
        }
        if let Some(text) = self.too_many(tenant).await? {
            return Err(FetchError::Unavailable(text));
        }
        let handle = self.sealer.open(&remote.sealed, &[tenant, HANDLE_KIND, id]).map_err(|error| {
            FetchError::Unavailable(format!("the handle of this file cannot be opened ({error}); see the server log"))
        })?;
        let (platform, bot) = self.holder(remote)?;
        let RemoteMedia { mime, filename, body } = ask(&*platform, &bot, &handle).await?;
        let (body, broken) = bounded(body, max);
        let item = MediaItem {
            id: id.to_owned(),
            tenant: tenant.clone(),
            mime: better_mime(&mime, &remote.mime).to_owned(),
            filename: filename.as_deref().and_then(clean_filename).or_else(|| remote.filename.clone()),
            size: 0,
            expires_ms: self.env.now_ms() + self.rules.media_ttl_ms,
        };
        match self.store.media_put(item, body, self.rules.media_tenant_bytes).await? {
            MediaPut::Stored(_) => Ok(()),
            MediaPut::Full(used) => Err(FetchError::Full(used)),
            MediaPut::Aborted => Err(match broken.get().copied().unwrap_or(Broken::Cut) {
                Broken::TooLarge => FetchError::TooLarge(max),
                Broken::Stalled => unavailable("the platform stopped sending it"),
                Broken::Cut => unavailable("the connection to the platform broke off"),
            }),
        }
    }

    /// The platform and bot that have the file.
    fn holder(&self, remote: &RemoteItem) -> Result<(Arc<dyn Platform>, Arc<Bot>), FetchError> {
        let RemoteItem { platform: name, bot, .. } = remote;
        let platform = self.platforms.get(name).cloned();
        let platform = platform.ok_or_else(|| unavailable(&format!("this server does not run the platform {name}")))?;
        let is_common = platform.common_bot() == Some(bot.as_str());
        if !is_common && self.directory.bots().added(name, bot).is_none() {
            return Err(unavailable(&format!("the {name} bot {bot:?} was removed; the operator can add it again")));
        }
        Ok((platform, self.directory.bots().bot(name, bot)))
    }
}

fn unavailable(why: &str) -> FetchError {
    FetchError::Unavailable(MediaFault::Unavailable(why.into()).to_string())
}

async fn ask(platform: &dyn Platform, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, FetchError> {
    let asked = timeout(ANSWER_TIME, platform.fetch_media(bot, handle)).await;
    let answer = asked.map_err(|_| unavailable(&format!("the platform did not answer within {ANSWER_TIME:?}")))?;
    // An adapter must not repeat the handle in its reason. If one does, it is removed here.
    let redacted = |fault: &MediaFault| fault.to_string().replace(handle.expose(), "...");
    answer.map_err(|fault| match fault {
        MediaFault::Gone(_) => FetchError::Gone(redacted(&fault)),
        MediaFault::Unavailable(_) => FetchError::Unavailable(redacted(&fault)),
    })
}

/// The type in the event is often more exact than the one that the vendor's file server sends.
fn better_mime<'a>(sent: &'a str, known: &'a str) -> &'a str {
    match clean_mime(sent) {
        Some(sent) if !sent.eq_ignore_ascii_case(UNKNOWN_MIME) => sent,
        _ => known,
    }
}

/// A body that ends at its limits. The reason is left in the cell that is returned with it.
fn bounded(body: MediaBody, max: usize) -> (MediaBody, Arc<OnceLock<Broken>>) {
    let broken = Arc::new(OnceLock::new());
    let reason = broken.clone();
    let begun = (body, Box::pin(sleep(WHOLE_TIME)), 0);
    let pieces = stream::try_unfold(begun, move |(mut body, mut whole_time, size)| {
        let reason = reason.clone();
        async move {
            let stop = |why: Broken, error: std::io::Error| {
                let _ = reason.set(why); // the first reason counts
                Err(error)
            };
            let next = tokio::select! {
                biased;
                () = &mut whole_time => Err(()),
                piece = timeout(PIECE_TIME, body.next()) => piece.map_err(drop),
            };
            match next {
                Err(()) => stop(Broken::Stalled, std::io::ErrorKind::TimedOut.into()),
                Ok(None) => Ok(None),
                Ok(Some(Err(error))) => stop(Broken::Cut, error),
                Ok(Some(Ok(piece))) if piece.len() > max - size => {
                    stop(Broken::TooLarge, std::io::ErrorKind::FileTooLarge.into())
                }
                Ok(Some(Ok(piece))) => {
                    let size = size + piece.len();
                    Ok(Some((piece, (body, whole_time, size))))
                }
            }
        }
    });
    (Box::pin(pieces), broken)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::port::media::read_whole;

    fn body(pieces: Vec<std::io::Result<Bytes>>) -> MediaBody {
        Box::pin(stream::iter(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_ends_at_its_limits_and_says_why() {
        let piece = |size: usize| Ok(Bytes::from(vec![7; size]));
        let (whole, broken) = bounded(body(vec![piece(6), piece(4)]), 10);
        assert_eq!((read_whole(whole).await.unwrap().len(), broken.get().is_none()), (10, true));
        let (long, broken) = bounded(body(vec![piece(6), piece(5)]), 10);
        assert!(read_whole(long).await.is_err() && matches!(broken.get(), Some(Broken::TooLarge)));
        let (cut, broken) = bounded(body(vec![piece(6), Err(std::io::Error::other("reset"))]), 10);
        assert!(read_whole(cut).await.is_err() && matches!(broken.get(), Some(Broken::Cut)));
        let (silent, broken) = bounded(Box::pin(stream::pending()), 10);
        assert!(read_whole(silent).await.is_err() && matches!(broken.get(), Some(Broken::Stalled)));
        // Slow, but never idle for long: the limit for the whole file applies.
        let drops = stream::unfold((), move |()| async move {
            sleep(PIECE_TIME / 2).await;
            Some((Ok(Bytes::from_static(b".")), ()))
        });
        let (slow, broken) = bounded(Box::pin(drops), 1_000);
        assert!(read_whole(slow).await.is_err() && matches!(broken.get(), Some(Broken::Stalled)));
    }

    #[test]
    fn the_better_type_is_kept() {
        assert_eq!(better_mime("image/png", "image/jpeg"), "image/png");
        for vague in ["application/octet-stream", "", "nonsense", "a/b\r\nx: y"] {
            assert_eq!(better_mime(vague, "audio/ogg"), "audio/ogg", "{vague:?}");
        }
    }
}
