//! Files of an event. Those at the platform get an id of this server, and their handles are sealed.

use frontdesk_wire::event::{Media, media_kind, media_message_type};
use frontdesk_wire::{MessageEvent, TenantId};

use super::InboundPlane;
use crate::error::DeskError;
use crate::intake::{HANDLE_MAX_BYTES, REMOTE_MEDIA_MAX, RemoteFile};
use crate::media::{self, HANDLE_KIND, UNKNOWN_MIME, clean_filename, clean_mime};
use crate::port::store::{EventFile, SealedMedia};

pub(super) fn check(files: &[RemoteFile]) -> Result<(), DeskError> {
    if files.len() > REMOTE_MEDIA_MAX {
        let text = format!("the event has {} files; at most {REMOTE_MEDIA_MAX} are accepted", files.len());
        return Err(DeskError::BadRequest(text));
    }
    if files.iter().any(|file| file.handle.expose().is_empty() || file.handle.expose().len() > HANDLE_MAX_BYTES) {
        let text = format!("the handle of a file is empty or longer than {HANDLE_MAX_BYTES} bytes");
        return Err(DeskError::BadRequest(text));
    }
    Ok(())
}

impl InboundPlane {
    /// Adds the files of the platform to the event, each under a URL of this server.
    pub(super) fn add_remote_media(
        &self,
        files: Vec<RemoteFile>,
        tenant: &TenantId,
        event: &mut MessageEvent,
        now_ms: u64,
    ) -> Vec<EventFile> {
        let mut sealed = Vec::with_capacity(files.len());
        for RemoteFile { handle, mime, filename, size } in files {
            let id = self.env.random_hex(16);
            let mime = clean_mime(&mime).unwrap_or(UNKNOWN_MIME).to_owned();
            let filename = filename.as_deref().and_then(clean_filename);
            // The kind that the platform gave wins: it tells stickers and voice notes apart.
            if event.message_type.is_empty() || event.message_type == "text" {
                event.message_type = media_message_type(&mime).into();
            }
            let url = media::url(&self.rules.issuer, &id);
            event.media_urls.push(url.clone());
            event.media.push(Media {
                url,
                kind: media_kind(&mime).into(),
                mime: mime.clone(),
                size: size.unwrap_or(0),
                filename: filename.clone(),
                caption: None,
            });
            sealed.push(EventFile::Remote(SealedMedia {
                sealed: self.sealer.seal(&*self.env, &handle, &[tenant, HANDLE_KIND, &id]),
                id,
                mime,
                filename,
                size,
                expires_ms: now_ms + self.rules.media_ttl_ms,
            }));
        }
        sealed
    }
}
