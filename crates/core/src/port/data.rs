//! Data in the store: rows of a tenant, found by their words.

use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use serde_json::Value;

use super::stored::Stored;

/// Filters that every backend honours, beside the words. `domain_tags` is any of; the others are equal to,
/// or any of, what is given.
pub const FILTERS: [&str; 7] =
    ["domain_tags", "agent_id", "vault", "payload_type", "knowledge_type", "thread_status", "pinned"];

/// Bytes of `detail` texts in one answer. Further rows are returned without it and can be read by id.
pub const ANSWER_MAX_BYTES: usize = 16 << 20;

/// A validated query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataQuery {
    /// Phrases that must all occur; each is one or more consecutive words. Empty: all rows, newest first.
    pub phrases: Vec<String>,
    /// A key of [`FILTERS`], and the accepted values.
    pub filters: Vec<(String, Vec<Value>)>,
    pub limit: usize,
    /// Rows that have expired by then are left out.
    pub now_s: u64,
}

pub trait Data: Send + Sync {
    /// `row.id` is new; `score` is not stored.
    fn data_put<'a>(&'a self, tenant: &'a TenantId, row: PortableData) -> Stored<'a, ()>;
    fn data_get<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_s: u64) -> Stored<'a, Option<PortableData>>;
    /// Best first: the newest matches, ranked by number and density of hits. `score` is between 0 and 1 and discloses
    /// nothing about other tenants. `detail` texts up to [`ANSWER_MAX_BYTES`] in total.
    fn data_query<'a>(&'a self, tenant: &'a TenantId, query: DataQuery) -> Stored<'a, Vec<PortableData>>;
}
