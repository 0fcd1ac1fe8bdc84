//! Records that the admin manages: tenants, tokens, bots, routes, links, channels.
//!
//! Secrets are shown once, and stored encrypted or hashed.

use frontdesk_wire::api::{BindingNew, GrantName, RouteNew, TokenMade};
use frontdesk_wire::{InstanceId, TenantId};

use super::facts::{Binding, Enrollment, Fact, Route, Scope, Tenant, Token};
use super::gateways::{check_id, known_tenant};
use super::{DirectoryPlane, Draft, View};
use crate::error::DeskError;
use crate::hash::sha256_hex;

const ENROLLMENT_TTL_MS: u64 = 3_600_000;
/// Expired tokens or codes that go with one new one, so that many of them are not one long transaction.
pub(super) const EXPIRED_STEP: usize = 64;

impl DirectoryPlane {
    pub async fn create_tenant(&self, name: &TenantId) -> Result<(), DeskError> {
        let well_formed = !name.is_empty()
            && name.len() <= 63
            && !name.starts_with('-')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !well_formed {
            let text =
                format!("tenant name {name:?} is invalid: use 1 to 63 of a-z 0-9 - and start with a letter or digit");
            return Err(DeskError::BadRequest(text));
        }
        let created_ms = self.env.now_ms();
        self.put(|view| {
            if view.tenants.contains_key(name) {
                return Err(DeskError::Conflict(format!("tenant {name:?} already exists")));
            }
            Ok(Fact::Tenant(Tenant { name: name.clone(), created_ms, notices: true }))
        })
        .await
    }

    pub async fn create_token(
        &self,
        tenant: &TenantId,
        scope: Scope,
        instance: Option<InstanceId>,
        ttl_s: Option<u64>,
    ) -> Result<TokenMade, DeskError> {
        if let Some(instance) = &instance {
            check_id("instance", instance)?;
            if matches!(scope, Scope::Operator | Scope::Chat) {
                let text = "only tokens of scope identity and agents can be bound to an instance; leave instance out";
                return Err(DeskError::BadRequest(text.into()));
            }
        }
        let (id, token) = (self.env.random_hex(6), format!("fd_{}", self.env.random_hex(24)));
        let now_ms = self.env.now_ms();
        let fact = Token {
            id: id.clone(),
            hash: sha256_hex(&token),
            tenant: tenant.clone(),
            scope,
            instance,
            created_ms: now_ms,
            expires_ms: ttl_s.map(|ttl_s| now_ms.saturating_add(ttl_s.saturating_mul(1000))),
        };
        let decide = |view: &View, draft: &mut Draft| {
            known_tenant(view, tenant)?;
            // Each link to the chat page makes a token, which no operator would remove.
            let is_over = |it: &Token| {
                it.tenant == fact.tenant
                    && it.scope == Scope::Chat
                    && it.expires_ms.is_some_and(|at_ms| at_ms <= now_ms)
            };
            let over = view.tokens.values().filter(|it| fact.scope == Scope::Chat && is_over(it));
            for old in over.take(EXPIRED_STEP) {
                draft.remove(&Fact::Token((**old).clone()));
            }
            draft.put(Fact::Token(fact.clone()));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)?;
        Ok(TokenMade { id, token })
    }

    pub async fn create_enrollment(&self, tenant: &TenantId, ttl_s: Option<u64>) -> Result<TokenMade, DeskError> {
        let (id, token) = (self.env.random_hex(6), format!("fde_{}", self.env.random_hex(24)));
        let ttl_ms = ttl_s.map_or(ENROLLMENT_TTL_MS, |ttl_s| ttl_s.saturating_mul(1000));
        let fact = Enrollment {
            id: id.clone(),
            hash: sha256_hex(&token),
            tenant: tenant.clone(),
            expires_ms: self.env.now_ms().saturating_add(ttl_ms),
            used_by: None,
        };
        self.put(|view| known_tenant(view, tenant).map(|()| Fact::Enrollment(fact.clone()))).await?;
        Ok(TokenMade { id, token })
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), DeskError> {
        self.remove(&format!("token {id:?} not found; `frontdesk token ls` lists them"), |view| {
            view.tokens.get(id).map(|it| Fact::Token((**it).clone()))
        })
        .await
    }

    pub async fn add_route(&self, ask: RouteNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("key", &ask.key)?;
        self.put(|view| {
            known_tenant(view, &ask.tenant)?;
            if view.route(&ask.platform, &ask.key).is_some_and(|it| it.tenant != ask.tenant) {
                return Err(DeskError::Conflict(format!("{} {:?} is routed to another tenant", ask.platform, ask.key)));
            }
            let RouteNew { platform, key, tenant } = ask.clone();
            Ok(Fact::Route(Route { platform, key, tenant }))
        })
        .await
    }

    pub async fn remove_route(&self, platform: &str, key: &str) -> Result<(), DeskError> {
        self.remove(&format!("route {key:?} of {platform:?} not found; `frontdesk route ls` lists them"), |view| {
            view.route(platform, key).map(|it| Fact::Route((**it).clone()))
        })
        .await
    }

    /// Links a user to an instance, which is created if needed.
    pub async fn bind(&self, ask: BindingNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("user_id", &ask.user_id)?;
        check_id("instance", &ask.instance)?;
        let now_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            known_tenant(view, &ask.tenant)?;
            let others = view.instances_named(&ask.instance);
            if view.instance(&ask.tenant, &ask.instance).is_none()
                && let Some(other) = others.first()
            {
                let text =
                    format!("instance {:?} belongs to tenant {:?}; choose another name", ask.instance, other.tenant);
                return Err(DeskError::Conflict(text));
            }
            self.put_instance(view, draft, &ask.tenant, &ask.instance, None, false)?;
            link(view, draft, ask.clone(), now_ms);
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    pub async fn unbind(&self, ask: BindingNew) -> Result<(), DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let links = view.links(&ask.tenant, &ask.platform, &ask.user_id);
            let found = links.iter().find(|link| link.instance == ask.instance);
            let found = found.ok_or_else(|| {
                let BindingNew { platform, user_id, instance, .. } = &ask;
                DeskError::NotFound(format!("user {user_id:?} of {platform:?} is not linked to {instance:?}"))
            })?;
            unlink(view, draft, found);
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    /// Removes a channel from the instance that holds it.
    pub async fn remove_grant(&self, ask: &GrantName) -> Result<(), DeskError> {
        let missing = format!("{:?} has no grant for channel {:?}", ask.tenant, ask.channel_id);
        self.remove(&missing, |view| {
            let there = view.tenant_index(&ask.tenant)?.on_platform(&ask.platform)?;
            there.grant(&ask.scope_id, &ask.channel_id).map(|it| Fact::Grant((**it).clone()))
        })
        .await
    }

    pub(crate) async fn put(&self, mut decide: impl FnMut(&View) -> Result<Fact, DeskError>) -> Result<(), DeskError> {
        let written = self.registry.write(|view, draft| decide(view).map(|fact| draft.put(fact))).await;
        written.map_err(DeskError::from)
    }

    async fn remove(&self, missing: &str, mut find: impl FnMut(&View) -> Option<Fact>) -> Result<(), DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let fact = find(view).ok_or_else(|| DeskError::NotFound(missing.to_owned()))?;
            draft.remove(&fact);
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }
}

/// Makes the link the newest one of the user, also within the same millisecond.
pub(super) fn link(view: &View, draft: &mut Draft, ask: BindingNew, now_ms: u64) {
    let BindingNew { platform, user_id, tenant, instance } = ask;
    let links = view.links(&tenant, &platform, &user_id);
    let latest = view.links_anywhere(&platform, &user_id).last().map_or(0, |link| link.at_ms);
    let since_ms = links.iter().find(|link| link.instance == instance).map_or(now_ms, |link| link.since_ms);
    let at_ms = now_ms.max(latest + 1);
    draft.put(Fact::Binding(Binding { tenant, platform, user_id, instance, at_ms, since_ms }));
}

/// Removes a link, and the DM default that names it.
pub(super) fn unlink(view: &View, draft: &mut Draft, it: &Binding) {
    draft.remove(&Fact::Binding(it.clone()));
    let default = view.dm_default(&it.tenant, &it.platform, &it.user_id);
    if let Some(default) = default.filter(|default| default.instance == it.instance) {
        draft.remove(&Fact::DmDefault((**default).clone()));
    }
}
