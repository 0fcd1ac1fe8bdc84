//! Skills: heads, histories, bodies, and the change token of each tenant.

use frontdesk_core::port::skills::{
    Expect, SkillQuery, SkillWrite, Skills, VERSIONS_DROPPED_MAX, VERSIONS_MAX, next_token,
};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{SkillMeta, SkillSource, SkillStatus, VersionInfo};

use super::{MemoryStore, State, now};

/// A head, and all versions with their bodies.
pub(super) struct Skill {
    meta: SkillMeta,
    versions: Vec<(VersionInfo, String)>,
}

impl State {
    fn skill(&self, tenant: &TenantId, name: &str) -> Option<&Skill> {
        self.skills.get(&(tenant.clone(), name.to_owned()))
    }

    fn move_skill_token(&mut self, tenant: &TenantId, name: &str, now: Option<(SkillStatus, &str)>) {
        let token = self.skill_tokens.entry(tenant.clone()).or_insert_with(|| "0".into());
        *token = next_token(token, name, now);
    }

    fn put_skill(&mut self, write: SkillWrite) -> Result<(), StoreError> {
        let SkillWrite { tenant, expect, mut meta, source, version } = write;
        let key = (tenant.clone(), meta.name.clone());
        let old = self.skills.remove(&key);
        let expected = match (&expect, old.as_ref().map(|old| &old.meta)) {
            (Expect::Absent, None) => true,
            (Expect::Hash(hash), Some(old)) => {
                *hash == old.content_hash && (old.author.is_none() || old.author == meta.author)
            }
            _ => false,
        };
        if !expected {
            self.skills.extend(old.map(|old| (key, old)));
            return Err(StoreError::Conflict);
        }
        let before = old.as_ref().map(|old| (old.meta.status, old.meta.content_hash.as_str()));
        if before != Some((meta.status, &meta.content_hash)) {
            self.move_skill_token(&tenant, &meta.name, Some((meta.status, &meta.content_hash)));
        }
        let mut versions = Vec::new();
        if let Some(old) = old {
            (meta.created_at, versions) = (old.meta.created_at, old.versions);
        }
        versions.push((version, source));
        let old = versions.len().saturating_sub(VERSIONS_MAX).min(VERSIONS_DROPPED_MAX);
        versions.drain(..old);
        self.skills.insert(key, Skill { meta, versions });
        Ok(())
    }
}

impl Skills for MemoryStore {
    fn skill_put(&self, write: SkillWrite) -> Stored<'_, ()> {
        let written = self.state().put_skill(write);
        Box::pin(std::future::ready(written))
    }

    fn skill<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        version: Option<&'a str>,
    ) -> Stored<'a, Option<SkillSource>> {
        let state = self.state();
        let find = |skill: &Skill| {
            let wanted = version.unwrap_or(&skill.meta.version);
            let (info, source) = skill.versions.iter().rev().find(|(info, _)| info.version == wanted)?;
            Some(SkillSource {
                name: name.into(),
                version: info.version.clone(),
                content_hash: info.content_hash.clone(),
                source: source.clone(),
                metadata: skill.meta.clone(),
            })
        };
        now(state.skill(tenant, name).and_then(find))
    }

    fn skill_meta<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Option<SkillMeta>> {
        now(self.state().skill(tenant, name).map(|skill| skill.meta.clone()))
    }

    fn skill_versions<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Vec<VersionInfo>> {
        let state = self.state();
        let versions = state.skill(tenant, name).into_iter().flat_map(|skill| &skill.versions);
        now(versions.map(|(info, _)| info.clone()).collect())
    }

    fn skill_query<'a>(&'a self, tenant: &'a TenantId, query: SkillQuery) -> Stored<'a, Vec<SkillMeta>> {
        let state = self.state();
        let own = state.skills.iter().filter(|((owner, _), _)| owner == tenant).map(|(_, skill)| &skill.meta);
        let own = own.filter(|meta| query.admits(meta)).cloned();
        let Ok(page) = query.page(own.map(Ok::<_, std::convert::Infallible>));
        now(page)
    }

    fn skill_delete<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, bool> {
        let mut state = self.state();
        let there = state.skills.remove(&(tenant.clone(), name.to_owned())).is_some();
        if there {
            state.move_skill_token(tenant, name, None);
        }
        now(there)
    }

    fn skill_token<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, String> {
        now(self.state().skill_tokens.get(tenant).cloned().unwrap_or_else(|| "0".into()))
    }
}
