//! Files that pass through the server. Ids cannot be guessed, and only the tenant of a file may get it. A file of a
//! platform is fetched from there by the first request for it.

mod error;
mod fetch;
mod fetches;

use std::sync::Arc;

use frontdesk_wire::TenantId;

use crate::base::Base;
use crate::directory::DirectoryPlane;
use crate::env::Env;
use crate::error::DeskError;
use crate::meters::Meters;
use crate::port::media::{MediaBody, MediaItem, MediaPut, MediaStore};
use crate::port::platform::Platforms;
use crate::port::store::StoreError;
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::vault::Sealer;

use self::fetches::Fetches;

pub use self::error::FetchError;

/// Kind of file handles in the context of sealed secrets.
pub(crate) const HANDLE_KIND: &str = "media";
/// Type of a file whose sender gave none that is valid.
pub const UNKNOWN_MIME: &str = "application/octet-stream";

const MIME_MAX_BYTES: usize = 128;
const FILENAME_MAX_CHARS: usize = 200;

pub struct MediaPlane {
    env: Arc<dyn Env>,
    store: Arc<dyn MediaStore>,
    directory: Arc<DirectoryPlane>,
    platforms: Arc<Platforms>,
    sealer: Arc<Sealer>,
    fetches: Fetches,
    meters: Arc<Meters>,
    rules: Arc<Rules>,
}

/// Where a file is.
pub enum Found {
    Here(MediaItem, MediaBody),
    /// At its platform: [`MediaPlane::fetch`] gets it.
    Remote,
    Nowhere,
}

impl MediaPlane {
    pub(crate) fn new(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        sealer: &Arc<Sealer>,
        platforms: &Arc<Platforms>,
    ) -> Self {
        Self {
            env: base.env.clone(),
            store: stores.media.clone(),
            directory: directory.clone(),
            platforms: platforms.clone(),
            sealer: sealer.clone(),
            fetches: Fetches::default(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        }
    }

    /// Size limit of a file.
    pub fn max_bytes(&self) -> usize {
        self.rules.media_max_bytes
    }

    /// Bytes of files that one tenant may have; 0 is no limit.
    pub fn tenant_max_bytes(&self) -> u64 {
        self.rules.media_tenant_bytes
    }

    /// Stores a file under a new id. Returns the id and the outcome.
    pub async fn put(
        &self,
        tenant: TenantId,
        mime: String,
        filename: Option<String>,
        body: MediaBody,
    ) -> Result<(String, MediaPut), DeskError> {
        if let Some(text) = self.too_many(&tenant).await? {
            return Err(DeskError::TooLarge(text));
        }
        let id = self.env.random_hex(16);
        let expires_ms = self.env.now_ms() + self.rules.media_ttl_ms;
        let item = MediaItem { id: id.clone(), tenant, mime, filename, size: 0, expires_ms };
        let put = self.store.media_put(item, body, self.rules.media_tenant_bytes).await?;
        Ok((id, put))
    }

    /// Why the tenant may store no further file. Uploads that are under way are not counted: they are few.
    async fn too_many(&self, tenant: &TenantId) -> Result<Option<String>, StoreError> {
        let max = self.rules.media_tenant_files;
        if max == 0 {
            return Ok(None);
        }
        Ok(self.store.media_total(tenant).await?.too_many(max))
    }

    pub async fn find(&self, tenant: &TenantId, id: &str) -> Result<Found, StoreError> {
        let now_ms = self.env.now_ms();
        if let Some((item, body)) = self.store.media_get(tenant, id, now_ms).await? {
            return Ok(Found::Here(item, body));
        }
        if self.store.media_remote(tenant, id, now_ms).await?.is_some() {
            return Ok(Found::Remote);
        }
        // It may have been fetched between the two queries.
        let found = self.store.media_get(tenant, id, now_ms).await?;
        Ok(found.map_or(Found::Nowhere, |(item, body)| Found::Here(item, body)))
    }
}

const PATH: &str = "/relay/media/";

/// The URL under which agents get a file.
pub fn url(base_url: &str, id: &str) -> String {
    format!("{base_url}{PATH}{id}")
}

/// The id in the URL of a file of this server. The path alone is enough: an agent may know the server by another address.
pub fn id_in<'a>(base_url: &str, url: &'a str) -> Option<&'a str> {
    url.strip_prefix(base_url).unwrap_or(url).strip_prefix(PATH)
}

/// The type of a file as an untrusted sender gives it, if it can be sent in a header.
pub fn clean_mime(mime: &str) -> Option<&str> {
    let mime = mime.trim();
    let is_plain = mime.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    (mime.contains('/') && mime.len() <= MIME_MAX_BYTES && is_plain).then_some(mime)
}

/// The name of a file as an untrusted sender gives it, without folders and control characters.
pub fn clean_filename(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(FILENAME_MAX_CHARS).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_server_are_known_by_their_path() {
        let base = "https://desk.example";
        for url in [url(base, "f1"), "/relay/media/f1".into()] {
            assert_eq!(id_in(base, &url), Some("f1"));
        }
        for other in
            ["https://other.example/relay/media/f1", "https://desk.example/x", "relay/media/f1", "//x/relay/media/f1"]
        {
            assert_eq!(id_in(base, other), None, "{other}");
        }
    }

    #[test]
    fn what_strangers_say_about_a_file_is_cleaned() {
        assert_eq!(clean_mime(" text/plain; charset=utf-8 "), Some("text/plain; charset=utf-8"));
        for strange in ["", "png", "image/png\r\nset-cookie: x", "image/pñg", &format!("a/{}", "b".repeat(200))] {
            assert_eq!(clean_mime(strange), None, "{strange:?}");
        }
        assert_eq!(clean_filename("../../etc/passwd").as_deref(), Some("passwd"));
        assert_eq!(clean_filename("C:\\a\nb.png").as_deref(), Some("ab.png"));
        assert_eq!(clean_filename("folder/"), None);
        assert_eq!(clean_filename(&"x".repeat(500)).map(|name| name.len()), Some(FILENAME_MAX_CHARS));
    }
}
