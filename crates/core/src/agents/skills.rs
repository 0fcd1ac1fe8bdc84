//! Skills of a tenant: ownership, changes of status, and queries.

use std::sync::Arc;

use frontdesk_wire::agents::{
    Fault, ManifestInfo, OneOrMany, Promise, SkillFilter, SkillMeta, SkillNote, SkillSource, SkillStatus, SkillStore,
    VersionInfo,
};
use regex::{Regex, RegexBuilder};
use serde_json::json;

use super::caller::{AgentsCaller, StoreCaller};
use super::skill_text::{self, is_name, status_of, with_status};
use super::stores::{ASIDE_MAX_BYTES, Approval, TEXT_MAX_BYTES, TenantStores, check_size};
use crate::port::skills::{Expect, PAGE_MAX_BYTES, SkillQuery, SkillWrite};
use crate::port::store::StoreError;

/// Attempts of a write if other writers change the same skill.
const TRIES: usize = 16;
/// Skills per response.
const QUERY_MAX: u64 = 10_000;
const PATTERN_MAX_CHARS: usize = 256;
/// Memory of a compiled pattern.
const PATTERN_MAX_BYTES: usize = 64 << 10;
const AUTHOR_MAX_CHARS: usize = 256;
/// Lists show descriptions without the body, so they are limited.
const DESCRIPTION_MAX_CHARS: usize = 2_000;

/// The skills of one tenant.
#[derive(Clone)]
pub struct TenantSkills {
    stores: Arc<TenantStores>,
    who: StoreCaller,
}

impl TenantStores {
    /// The skills of the caller's tenant as a `SkillStore`. The name of the caller is used for attribution only.
    pub fn skills(self: &Arc<Self>, who: AgentsCaller<'_>) -> TenantSkills {
        TenantSkills { stores: self.clone(), who: StoreCaller::new(who) }
    }
}

impl TenantSkills {
    async fn head(&self, name: &str) -> Result<Option<SkillMeta>, Fault> {
        self.stores.skills.skill_meta(&self.who.tenant, name).await.map_err(Fault::from)
    }

    async fn known(&self, name: &str) -> Result<SkillMeta, Fault> {
        self.head(name).await?.ok_or_else(|| Fault::skill_not_found(name))
    }

    async fn find(&self, name: &str, version: Option<&str>) -> Result<SkillSource, Fault> {
        if let Some(found) = self.stores.skills.skill(&self.who.tenant, name, version).await? {
            return Ok(found);
        }
        // Without a version in the query, "version not found" would be wrong even if the skill was created just now.
        let Some(version) = version else { return Err(Fault::skill_not_found(name)) };
        self.known(name).await?;
        Err(Fault::version_not_found(name, version))
    }

    /// Stores a draft, whatever status the source has: an agent's tool does not approve. Without `overwrite` the name must
    /// be new.
    pub async fn store_draft(&self, name: &str, source: &str, overwrite: bool) -> Result<VersionInfo, Fault> {
        let note = SkillNote { status: Some(SkillStatus::Draft), ..SkillNote::default() };
        self.put(name, source, &note, !overwrite).await
    }

    async fn put(&self, name: &str, source: &str, note: &SkillNote, only_new: bool) -> Result<VersionInfo, Fault> {
        self.who.rights().check_name("metadata.author", note.author.as_deref())?;
        check_name(name)?;
        check_size("the source", source.len(), TEXT_MAX_BYTES)?;
        let claimed = note.author.clone().filter(|author| !author.is_empty());
        let named = claimed.clone().or_else(|| self.who.name.clone());
        check_note(note, named.as_deref())?;
        let body = self.body(source, note.status);
        for _ in 0..TRIES {
            let head = self.head(name).await?;
            if only_new && head.is_some() {
                return Err(Fault::storage_conflict(name, "the skill exists; set overwrite to replace it"));
            }
            let known = head.as_ref().and_then(|head| head.author.clone());
            // Only an explicitly given author is checked; other callers may edit skills of any author.
            if let (Some(known), Some(claimed)) = (&known, &claimed)
                && known != claimed
            {
                return Err(Fault::storage_conflict(name, "it belongs to another author"));
            }
            let description = note.description.clone().or_else(|| skill_text::description(&body).map(|it| cut(&it)));
            let bag = note.metadata_bag.clone().or_else(|| head.as_ref().and_then(|it| it.metadata_bag.clone()));
            let mut next = self.next(head.as_ref(), name, &body, named.clone());
            next.meta.author = known.or_else(|| named.clone());
            (next.meta.description, next.meta.metadata_bag) = (description, bag);
            if let Some(done) = self.try_put(next).await? {
                return Ok(done);
            }
        }
        Err(Fault::storage_conflict(name, CONTENDED))
    }

    async fn change(&self, name: &str, status: SkillStatus) -> Result<VersionInfo, Fault> {
        for _ in 0..TRIES {
            let found = self.find(name, None).await?;
            let body = self.promoted(name, &found.source, status)?;
            let head = found.metadata;
            let mut next = self.next(Some(&head), name, &body, self.who.name.clone());
            next.version.previous_status = Some(head.status);
            (next.meta.author, next.meta.description) = (head.author, head.description);
            next.meta.metadata_bag = head.metadata_bag;
            if let Some(done) = self.try_put(next).await? {
                return Ok(done);
            }
        }
        Err(Fault::storage_conflict(name, CONTENDED))
    }

    /// `None`: another writer was faster.
    async fn try_put(&self, next: SkillWrite) -> Result<Option<VersionInfo>, Fault> {
        let version = next.version.clone();
        match self.stores.skills.skill_put(next).await {
            Ok(()) => Ok(Some(version)),
            Err(StoreError::Conflict) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The next head, from body and current head. The caller fills in author, description and metadata.
    fn next(&self, head: Option<&SkillMeta>, name: &str, body: &str, by: Option<String>) -> SkillWrite {
        let now_s = self.stores.env.now_s();
        let status = status_of(body);
        let content_hash = skill_text::content_hash(body);
        let version = skill_text::version_of(&content_hash);
        let unchanged_since = head.filter(|head| head.status == status).map(|head| head.status_changed_at);
        SkillWrite {
            tenant: self.who.tenant.clone(),
            expect: head.map_or(Expect::Absent, |head| Expect::Hash(head.content_hash.clone())),
            meta: SkillMeta {
                name: name.into(),
                version: version.clone(),
                content_hash: content_hash.clone(),
                status,
                description: None,
                tags: skill_text::tags(body),
                created_at: head.map_or(now_s, |head| head.created_at),
                updated_at: now_s,
                status_changed_at: unchanged_since.unwrap_or(Some(now_s)),
                author: None,
                metadata_bag: None,
            },
            source: body.into(),
            version: VersionInfo {
                name: name.into(),
                version,
                content_hash,
                status,
                previous_status: None,
                changed_at: now_s,
                changed_by: by,
            },
        }
    }

    /// The body to store: unchanged, unless the note sets another status, or an approval without a valid signature
    /// becomes a draft.
    fn body(&self, source: &str, asked: Option<SkillStatus>) -> String {
        let says = status_of(source);
        let wanted = asked.unwrap_or(says);
        let status = match self.stores.approval(&self.who.tenant) {
            Approval::Signed(key) if wanted == SkillStatus::Approved => match key.approved(source) {
                Some(approved) if says != wanted => return approved,
                Some(_) => wanted,
                None => SkillStatus::Draft,
            },
            Approval::Barred if wanted == SkillStatus::Approved => SkillStatus::Draft,
            _ => wanted,
        };
        if status == says { source.into() } else { with_status(source, status.name()) }
    }

    /// The stored body with another status. In secured mode only a body with a valid signature can be approved.
    fn promoted(&self, name: &str, source: &str, status: SkillStatus) -> Result<String, Fault> {
        let approves = status == SkillStatus::Approved;
        match self.stores.approval(&self.who.tenant) {
            Approval::Signed(key) if approves => {
                let unsigned = || Fault::approval_rejected(name, "the body has no valid signature");
                key.approved(source).ok_or_else(unsigned)
            }
            Approval::Barred if approves => {
                Err(Fault::approval_rejected(name, "no public key is configured to verify the signature"))
            }
            _ => Ok(with_status(source, status.name())),
        }
    }
}

const CONTENDED: &str = "other writers changed it during every attempt; try again";

impl SkillStore for TenantSkills {
    fn load<'a>(&'a self, name: &'a str, version: Option<&'a str>) -> Promise<'a, SkillSource> {
        Box::pin(self.find(name, version))
    }

    fn query<'a>(&'a self, filter: &'a SkillFilter) -> Promise<'a, Vec<SkillMeta>> {
        Box::pin(async move {
            let query = checked(filter)?;
            self.stores.skills.skill_query(&self.who.tenant, query).await.map_err(Fault::from)
        })
    }

    fn metadata<'a>(&'a self, name: &'a str) -> Promise<'a, SkillMeta> {
        Box::pin(self.known(name))
    }

    fn versions<'a>(&'a self, name: &'a str) -> Promise<'a, Vec<VersionInfo>> {
        Box::pin(async move {
            let versions = self.stores.skills.skill_versions(&self.who.tenant, name).await?;
            if versions.is_empty() { Err(Fault::skill_not_found(name)) } else { Ok(versions) }
        })
    }

    fn store<'a>(&'a self, name: &'a str, source: &'a str, note: &'a SkillNote) -> Promise<'a, VersionInfo> {
        Box::pin(self.put(name, source, note, false))
    }

    fn delete<'a>(&'a self, name: &'a str) -> Promise<'a, ()> {
        Box::pin(async move {
            self.who.rights().check_operator("deleting a skill, with its history,")?;
            let there = self.stores.skills.skill_delete(&self.who.tenant, name).await?;
            if there { Ok(()) } else { Err(Fault::skill_not_found(name)) }
        })
    }

    fn update_status<'a>(&'a self, name: &'a str, status: SkillStatus) -> Promise<'a, VersionInfo> {
        Box::pin(self.change(name, status))
    }

    fn manifest(&self) -> Promise<'_, ManifestInfo> {
        let manifest = json!({
            "kind": "frontdesk",
            "supports_versions": true,
            "supported_filters": ["status", "author", "name_pattern", "tag", "since", "offset", "limit"],
            "query_max": QUERY_MAX,
            "answer_max_bytes": PAGE_MAX_BYTES,
            "source_max_bytes": TEXT_MAX_BYTES,
            "secured": !matches!(self.stores.approval(&self.who.tenant), Approval::Open),
        });
        Box::pin(std::future::ready(Ok(ManifestInfo { capabilities_version: "1".into(), manifest })))
    }

    fn version(&self) -> Promise<'_, String> {
        Box::pin(async move { self.stores.skills.skill_token(&self.who.tenant).await.map_err(Fault::from) })
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    let text =
        format!("invalid skill name {shown:?}: use up to 256 of A-Z a-z 0-9 _ - . and start with a letter or digit");
    Err(Fault::invalid(text).with("skill_name", name))
}

fn check_note(note: &SkillNote, author: Option<&str>) -> Result<(), Fault> {
    if author.is_some_and(|author| author.chars().count() > AUTHOR_MAX_CHARS) {
        return Err(Fault::invalid(format!("author has more than {AUTHOR_MAX_CHARS} characters")));
    }
    if note.description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION_MAX_CHARS) {
        return Err(Fault::invalid(format!("description has more than {DESCRIPTION_MAX_CHARS} characters")));
    }
    let bag = note.metadata_bag.as_ref().map_or(0, |bag| json!(bag).to_string().len());
    check_size("metadata_bag", bag, ASIDE_MAX_BYTES)
}

fn cut(description: &str) -> String {
    description.chars().take(DESCRIPTION_MAX_CHARS).collect()
}

fn checked(filter: &SkillFilter) -> Result<SkillQuery, Fault> {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let tags = filter.tag.clone().map(OneOrMany::into_vec).unwrap_or_default();
    Ok(SkillQuery {
        statuses: filter.status.clone().map(OneOrMany::into_vec).map(each_once),
        author: filter.author.clone(),
        name: filter.name_pattern.as_deref().map(pattern).transpose()?,
        tags: each_once(tags.into_iter().map(|tag| tag.trim().to_lowercase()).collect()),
        since_s: filter.since.unwrap_or(0),
        offset: number(filter.offset.unwrap_or(0)),
        limit: number(filter.limit.unwrap_or(QUERY_MAX).min(QUERY_MAX)),
    })
}

/// Removes duplicates, because every value is searched in every skill.
fn each_once<T: Ord>(mut asked: Vec<T>) -> Vec<T> {
    asked.sort_unstable();
    asked.dedup();
    asked
}

fn pattern(text: &str) -> Result<Regex, Fault> {
    if text.chars().count() > PATTERN_MAX_CHARS {
        return Err(Fault::invalid(format!("name_pattern has more than {PATTERN_MAX_CHARS} characters")));
    }
    RegexBuilder::new(text).size_limit(PATTERN_MAX_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Fault::invalid("name_pattern is too large after compilation"),
        error => Fault::invalid(format!("name_pattern is not a valid regular expression: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_22_duplicate_filter_values_are_searched_once() {
        let filter = SkillFilter {
            status: Some(OneOrMany::Many(vec![SkillStatus::Draft; 1_000])),
            tag: Some(OneOrMany::Many([" Mail", "mail ", "daily"].repeat(1_000).into_iter().map(Into::into).collect())),
            ..SkillFilter::default()
        };
        let query = checked(&filter).unwrap();
        assert_eq!((query.statuses, query.tags), (Some(vec![SkillStatus::Draft]), vec!["daily".into(), "mail".into()]));
    }
}
