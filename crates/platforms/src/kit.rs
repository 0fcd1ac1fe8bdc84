//! What the server gives to its platforms, and how they take their settings.

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut, MediaStore, RemoteItem};
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::Platform;
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::shared::sample::Sample;

/// What a platform may use.
#[derive(Clone)]
pub struct Kit {
    pub env: Arc<dyn Env>,
    /// The only way to call a vendor.
    pub outcall: Arc<dyn Outcall>,
    /// Files of the tenants, by the ids in URLs of this server.
    pub media: Arc<dyn MediaStore>,
    /// URL at which vendors and people reach this server, without a final slash.
    pub public_url: String,
    /// `[platform]` as it was written: one table per platform.
    pub settings: Table,
}

impl Kit {
    /// `[platform.NAME]` as the type of that platform. The type denies unknown fields, so that a misspelled setting is
    /// an error which names the known ones.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, SettingsError> {
        section(&self.settings, name)
    }
}

/// For a kit without a server, with which settings are only checked.
pub struct NoMedia;

impl NoMedia {
    fn none<T: Send + 'static>() -> Stored<'static, T> {
        Box::pin(std::future::ready(Err(StoreError::Unavailable("no files are stored here".into()))))
    }
}

impl MediaStore for NoMedia {
    fn media_put(&self, _: MediaItem, _: MediaBody, _: u64) -> Stored<'_, MediaPut> {
        Self::none()
    }

    fn media_item<'a>(&'a self, _: &'a TenantId, _: &'a str, _: u64) -> Stored<'a, Option<MediaItem>> {
        Self::none()
    }

    fn media_get<'a>(&'a self, _: &'a TenantId, _: &'a str, _: u64) -> Stored<'a, Option<(MediaItem, MediaBody)>> {
        Self::none()
    }

    fn media_remote<'a>(&'a self, _: &'a TenantId, _: &'a str, _: u64) -> Stored<'a, Option<RemoteItem>> {
        Self::none()
    }
}

fn section<T: DeserializeOwned>(settings: &Table, name: &str) -> Result<T, SettingsError> {
    let table = settings.get(name).cloned().unwrap_or_else(|| Value::Table(Table::new()));
    // The error has a line of its own for the key.
    table.try_into().map_err(|error| SettingsError::invalid(name, error.to_string().trim().replace('\n', " ")))
}

/// A platform as `lib.rs` lists it.
pub struct Listed {
    /// As on the wire and in `[platform.NAME]`.
    pub name: &'static str,
    /// Its section with defaults and comments, in TOML. Empty: it has no settings.
    pub defaults: &'static str,
    /// Makes the platform. It must do nothing else: settings are checked by it, also without a server.
    pub open: fn(&Kit) -> Result<Arc<dyn Platform>, SettingsError>,
    /// A bot for benchmarks and tests that send requests to the doors of platforms.
    pub sample: Option<fn() -> Box<dyn Sample>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("[platform.{name}]: there is no platform {name:?}; known platforms: {known}")]
    UnknownPlatform { name: String, known: String },
    #[error("[platform.{name}]: {why}")]
    Invalid { name: String, why: String },
}

impl SettingsError {
    pub fn invalid(name: &str, why: impl Into<String>) -> Self {
        Self::Invalid { name: name.into(), why: why.into() }
    }
}

/// Opens all of them. A section that none of them takes is an error.
pub(crate) fn open_all(listed: &[Listed], kit: &Kit) -> Result<Vec<Arc<dyn Platform>>, SettingsError> {
    check_names(listed, &kit.settings)?;
    listed.iter().map(|platform| (platform.open)(kit)).collect()
}

fn check_names(listed: &[Listed], settings: &Table) -> Result<(), SettingsError> {
    let names: Vec<&str> = listed.iter().map(|platform| platform.name).collect();
    match settings.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(SettingsError::UnknownPlatform { name: name.clone(), known: names.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Two {
        size: usize,
        #[serde(default)]
        name: String,
    }

    #[test]
    fn a_platform_takes_its_own_section_and_an_error_names_section_and_key() {
        let take = |text: &str| section::<Two>(&text.parse().unwrap(), "x");
        assert_eq!(take("[x]\nsize = 3\n[y]\nother = 1"), Ok(Two { size: 3, name: String::new() }));
        for (text, expected) in [
            ("[x]\nsize = 3\nsise = 4", ["[platform.x]", "`sise`", "`size`"]),
            ("[x]\nsize = -1", ["[platform.x]", "-1", "in `size`"]),
            ("[x]\nsize = 1\nname = 2", ["[platform.x]", "expected a string", "in `name`"]),
            ("", ["[platform.x]", "missing field", "`size`"]),
        ] {
            let error = take(text).unwrap_err().to_string();
            assert!(expected.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_section_of_no_platform_is_an_error_that_lists_the_platforms() {
        fn never(_: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
            Err(SettingsError::invalid("x", "not opened here"))
        }
        let listed = ["x", "y"].map(|name| Listed { name, defaults: "", open: never, sample: None });
        assert_eq!(check_names(&listed, &"[x]\n[y]".parse().unwrap()), Ok(()));
        let error = check_names(&listed, &"[z]".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "[platform.z]: there is no platform \"z\"; known platforms: x, y");
    }
}
