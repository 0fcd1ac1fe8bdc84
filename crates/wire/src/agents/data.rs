//! Data: what agents and skills store, with full-text search. Times are unix seconds.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ManifestInfo, Promise};

/// Fields with a fixed meaning. They are top-level fields, never in `metadata` as well.
pub const CURATED: [&str; 11] = [
    "thread_status",
    "pinned",
    "confidence",
    "domain_tags",
    "payload_type",
    "knowledge_type",
    "recipients",
    "expires_at",
    "created_at",
    "agent_id",
    "vault",
];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DataWrite {
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipients: Option<Vec<String>>,
    /// Absent or null: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Other fields count as metadata.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataWritten {
    pub id: String,
    pub created_at: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortableData {
    pub id: String,
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_tags: Option<Vec<String>>,
    /// The remaining curated fields.
    #[serde(flatten)]
    pub curated: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// Other keys than these four are filters, and must be in the manifest's `supported_filters`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryFilters {
    #[serde(default)]
    pub query: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Unsupported filters are ignored instead of refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissive_filters: bool,
    #[serde(flatten)]
    pub filters: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DataItems {
    pub items: Vec<PortableData>,
}

/// A store of data. Missing data are `None` or an empty list, never a fault.
pub trait DataStore: Send + Sync {
    fn query<'a>(&'a self, filters: &'a QueryFilters) -> Promise<'a, Vec<PortableData>>;
    fn write<'a>(&'a self, entry: &'a DataWrite) -> Promise<'a, DataWritten>;
    fn get<'a>(&'a self, id: &'a str) -> Promise<'a, Option<PortableData>>;
    fn manifest(&self) -> Promise<'_, ManifestInfo>;
}
