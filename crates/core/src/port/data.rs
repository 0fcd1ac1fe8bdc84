//! Data in the store: rows of a tenant, found by their words.

use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use serde_json::Value;

use super::stored::Stored;

/// Filters that every backend honours, beside the words. `domain_tags` is any of; the others are equal to,
/// or any of, what is given.
pub const FILTERS: [&str; 7] =
    ["domain_tags", "agent_id", "vault", "payload_type", "knowledge_type", "thread_status", "pinned"];

/// Bytes of details in one answer. Further rows come without theirs, and can be read by their ids.
pub const ANSWER_MAX_BYTES: usize = 16 << 20;

/// A validated query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataQuery {
    /// All of them must occur; each is one or more words in a row. Empty is everything, newest first.
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
    /// Best first: among the newest that match, ranked by how often and how densely the words occur. `score`
    /// is between 0 and 1 and tells nothing of other tenants. Details up to [`ANSWER_MAX_BYTES`] in all.
    fn data_query<'a>(&'a self, tenant: &'a TenantId, query: DataQuery) -> Stored<'a, Vec<PortableData>>;
}
