//! Skills: sources with status, history and author. Times are unix seconds.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{ManifestInfo, Promise};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkillStatus {
    Draft,
    Approved,
    Disabled,
}

impl SkillStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "Draft",
            Self::Approved => "Approved",
            Self::Disabled => "Disabled",
        }
    }

    /// Parses the status in a body, in any case.
    pub fn read(word: &str) -> Option<Self> {
        [Self::Draft, Self::Approved, Self::Disabled].into_iter().find(|it| it.name().eq_ignore_ascii_case(word))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillSource {
    pub name: String,
    /// The first 12 hex digits of the hash.
    pub version: String,
    /// Lowercase hex SHA-256 of the bytes as stored.
    pub content_hash: String,
    pub source: String,
    pub metadata: SkillMeta,
}

/// Everything except the body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillMeta {
    pub name: String,
    pub version: String,
    pub content_hash: String,
    pub status: SkillStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    pub created_at: u64,
    pub updated_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_changed_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_bag: Option<Map<String, Value>>,
}

/// A write or a change of status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    pub name: String,
    pub version: String,
    pub content_hash: String,
    pub status: SkillStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_status: Option<SkillStatus>,
    pub changed_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

/// What a writer may set beside the source. Other fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillNote {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SkillStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_bag: Option<Map<String, Value>>,
}

/// `PUT /v1/skills/{name}`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillPut {
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<SkillNote>,
}

/// One or many of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Not derived, because the derived error names neither the problem nor the valid values.
impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = match Value::deserialize(deserializer)? {
            Value::Array(many) => serde_json::from_value(Value::Array(many)).map(Self::Many),
            one => serde_json::from_value(one).map(Self::One),
        };
        read.map_err(D::Error::custom)
    }
}

impl<T> OneOrMany<T> {
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<OneOrMany<SkillStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// A regular expression, matched anywhere in the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_pattern: Option<String>,
    /// All of these tags are required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<OneOrMany<String>>,
    /// Updated at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillList {
    pub skills: Vec<SkillMeta>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillVersions {
    pub versions: Vec<VersionInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPost {
    pub status: SkillStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVersion {
    pub version: String,
}

/// A store of skills. A missing skill is a fault (`SkillNotFoundError`, `VersionNotFoundError`).
pub trait SkillStore: Send + Sync {
    fn load<'a>(&'a self, name: &'a str, version: Option<&'a str>) -> Promise<'a, SkillSource>;
    fn query<'a>(&'a self, filter: &'a SkillFilter) -> Promise<'a, Vec<SkillMeta>>;
    fn metadata<'a>(&'a self, name: &'a str) -> Promise<'a, SkillMeta>;
    /// Oldest first.
    fn versions<'a>(&'a self, name: &'a str) -> Promise<'a, Vec<VersionInfo>>;
    /// Stores the source unchanged.
    fn store<'a>(&'a self, name: &'a str, source: &'a str, note: &'a SkillNote) -> Promise<'a, VersionInfo>;
    /// Deletes the whole history and frees the name.
    fn delete<'a>(&'a self, name: &'a str) -> Promise<'a, ()>;
    fn update_status<'a>(&'a self, name: &'a str, status: SkillStatus) -> Promise<'a, VersionInfo>;
    fn manifest(&self) -> Promise<'_, ManifestInfo>;
    /// A token that changes exactly when the name, status or content hash of a skill changes. Cheap.
    fn version(&self) -> Promise<'_, String>;
}
