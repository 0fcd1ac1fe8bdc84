//! Skills in the store: one head per name, every version behind it, and a token over all heads of a tenant.

use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{SkillMeta, SkillSource, SkillStatus, VersionInfo};

use super::stored::Stored;
use crate::hash::short_hash;

/// Heads are read in pages. A page ends when it has this many bytes.
pub const PAGE_MAX_BYTES: usize = 16 << 20;

/// A condition on the current head for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// The name is free.
    Absent,
    /// The head has this content hash.
    Hash(String),
}

/// A new head. The store keeps it as given and computes only the token.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillWrite {
    pub tenant: TenantId,
    pub expect: Expect,
    /// Metadata as returned by reads; `created_at` of an existing head is kept.
    pub meta: SkillMeta,
    pub source: String,
    /// The entry for the history.
    pub version: VersionInfo,
}

/// A validated query.
#[derive(Debug, Clone, Default)]
pub struct SkillQuery {
    /// Accepted statuses; `None` does not filter, an empty list matches nothing.
    pub statuses: Option<Vec<SkillStatus>>,
    pub author: Option<String>,
    pub name: Option<regex::Regex>,
    /// Tags that are all required.
    pub tags: Vec<String>,
    pub since_s: u64,
    pub offset: usize,
    pub limit: usize,
}

impl SkillQuery {
    pub fn admits(&self, meta: &SkillMeta) -> bool {
        self.statuses.as_ref().is_none_or(|any| any.contains(&meta.status))
            && self.author.as_ref().is_none_or(|author| meta.author.as_ref() == Some(author))
            && self.name.as_ref().is_none_or(|name| name.is_match(&meta.name))
            && self.tags.iter().all(|tag| meta.tags.contains(tag))
            && meta.updated_at >= self.since_s
    }

    /// What is asked for of all heads of a tenant, in their order.
    pub fn page<E>(&self, heads: impl Iterator<Item = Result<SkillMeta, E>>) -> Result<Vec<SkillMeta>, E> {
        let mut page = HeadPage::of(self);
        for head in heads {
            if !page.add(head?) {
                break;
            }
        }
        Ok(page.heads())
    }
}

/// The answer to a query, as it grows.
pub struct HeadPage<'a> {
    query: &'a SkillQuery,
    skipped: usize,
    bytes: usize,
    heads: Vec<SkillMeta>,
}

impl<'a> HeadPage<'a> {
    pub fn of(query: &'a SkillQuery) -> Self {
        Self { query, skipped: 0, bytes: 0, heads: Vec::new() }
    }

    /// Takes the next head of the tenant, if it is asked for. False: no further one is.
    pub fn add(&mut self, head: SkillMeta) -> bool {
        if self.query.limit == 0 || self.query.statuses.as_ref().is_some_and(Vec::is_empty) {
            return false;
        }
        if !self.query.admits(&head) {
            return true;
        }
        if self.skipped < self.query.offset {
            self.skipped += 1;
            return true;
        }
        self.bytes += size(&head);
        self.heads.push(head);
        self.heads.len() < self.query.limit && self.bytes < PAGE_MAX_BYTES
    }

    pub fn heads(self) -> Vec<SkillMeta> {
        self.heads
    }
}

/// Bytes of the fields whose length the writer chooses.
fn size(head: &SkillMeta) -> usize {
    let bag = head.metadata_bag.as_ref().map_or(0, |bag| serde_json::to_string(bag).map_or(0, |json| json.len()));
    bag + head.description.as_ref().map_or(0, String::len) + head.tags.iter().map(String::len).sum::<usize>()
}

/// The tenant's token after a change of a head: its new state, or `None` if it was deleted. The tokens form a hash chain,
/// so that a restored backup does not produce a token that had another meaning before.
pub fn next_token(token: &str, name: &str, now: Option<(SkillStatus, &str)>) -> String {
    let (status, hash) = now.map_or(("", ""), |(status, hash)| (status.name(), hash));
    hex::encode(short_hash(&[token, name, status, hash]))
}

/// Versions of a skill that are kept, the newest. Their list is one response.
pub const VERSIONS_MAX: usize = 1_000;
/// Older ones that a write removes at most, so that none takes long.
pub const VERSIONS_DROPPED_MAX: usize = 64;

pub trait Skills: Send + Sync {
    /// Writes head, history and token in one commit. `Conflict` if `expect` does not hold or the head has another author;
    /// nothing is written then.
    fn skill_put(&self, write: SkillWrite) -> Stored<'_, ()>;
    /// The head, or the newest history entry with this version; the metadata are those of the head.
    fn skill<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        version: Option<&'a str>,
    ) -> Stored<'a, Option<SkillSource>>;
    fn skill_meta<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Option<SkillMeta>>;
    /// Oldest first, of the newest [`VERSIONS_MAX`]; empty for a name that is free.
    fn skill_versions<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Vec<VersionInfo>>;
    /// In the order of names, byte by byte; no more after [`PAGE_MAX_BYTES`].
    fn skill_query<'a>(&'a self, tenant: &'a TenantId, query: SkillQuery) -> Stored<'a, Vec<SkillMeta>>;
    /// Erases head and history. False: there was none.
    fn skill_delete<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, bool>;
    /// Moves exactly when (name, status, content hash) of some head does; survives a restart; O(1).
    fn skill_token<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, String>;
}
