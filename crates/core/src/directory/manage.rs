//! Management API: what an instance decides about itself. The instance is always the authenticated one; fields of a
//! body that name another are not read.

use std::sync::Arc;

use frontdesk_wire::api::{DmDefaultAsk, LinkAsk, LinkOffer, PrincipalAsk, RelevancePolicy, ScopeAsk};
use frontdesk_wire::{BotId, InstanceId, TenantId};

use super::admin::{EXPIRED_STEP, unlink};
use super::facts::{DmDefault, Fact, Grant, Instance, LinkCode, Policy, Principal};
use super::gateways::check_id;
use super::link_codes;
use super::location::{ChatLocation, tenant_of};
use super::room::check_room;
use super::{DirectoryPlane, Draft, ProvenInstance, View};
use crate::base::Base;
use crate::env::Env;
use crate::error::DeskError;
use crate::meters::Meters;
use crate::port::platform::Platforms;
use crate::port::store::Claims;
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::vault::Sealer;

const POLICY_SCOPES_MAX: usize = 10_000;
const ALLOW_MAX: usize = 10_000;
const GRANTS_PER_INSTANCE: usize = 10_000;
/// Valid codes per instance.
const CODES_PER_INSTANCE: usize = 20;

/// Settings of instances, and the commands with which users link themselves.
pub struct Management {
    pub(super) env: Arc<dyn Env>,
    pub(super) directory: Arc<DirectoryPlane>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) platforms: Arc<Platforms>,
    pub(super) meters: Arc<Meters>,
    pub(super) rules: Arc<Rules>,
    pub(super) claims: Arc<dyn Claims>,
}

impl Management {
    pub(crate) fn new(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        sealer: &Arc<Sealer>,
        platforms: &Arc<Platforms>,
    ) -> Self {
        Self {
            env: base.env.clone(),
            directory: directory.clone(),
            sealer: sealer.clone(),
            platforms: platforms.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
            claims: stores.claims.clone(),
        }
    }

    /// Creates a one-time code that links the user who sends it to the bot.
    pub async fn offer_link(&self, who: &ProvenInstance, ask: LinkAsk) -> Result<LinkOffer, DeskError> {
        check_id("platform", &ask.platform)?;
        if self.directory.bots().resolve(&who.tenant, &ask.platform, &BotId::default()).is_none() {
            return Err(DeskError::BadRequest(format!("this tenant has no bot on {:?}", ask.platform)));
        }
        let now_ms = self.env.now_ms();
        let code = link_codes::new_code(&*self.env);
        let fact = LinkCode {
            hash: self.hash_code(&code),
            tenant: who.tenant.clone(),
            platform: ask.platform,
            instance: who.instance.name.clone(),
            expires_ms: now_ms + self.rules.link_ttl_ms,
            used_by: None,
        };
        let expires_at = fact.expires_ms;
        let decide = |view: &View, draft: &mut Draft| {
            let codes = || view.link_codes.values();
            let over = codes().filter(|it| it.expires_ms + self.rules.link_ttl_ms < now_ms);
            for old in over.take(EXPIRED_STEP) {
                draft.remove(&Fact::LinkCode((**old).clone())); // until then it is answered with "expired"
            }
            let open = |it: &&Arc<LinkCode>| {
                it.tenant == fact.tenant
                    && it.instance == fact.instance
                    && it.used_by.is_none()
                    && it.expires_ms > now_ms
            };
            if codes().filter(open).count() >= CODES_PER_INSTANCE {
                let text = format!("{CODES_PER_INSTANCE} codes are already open; use one, or wait until they expire");
                return Err(DeskError::RateLimited(text));
            }
            draft.put(Fact::LinkCode(fact.clone()));
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.directory.write(decide).await.map_err(DeskError::from)?;
        Ok(LinkOffer { code, expires_at })
    }

    /// Claims a channel; a channel has at most one holder.
    pub async fn claim_scope(&self, who: &ProvenInstance, ask: ScopeAsk) -> Result<(), DeskError> {
        let at_ms = self.env.now_ms();
        let apart = self.platforms.keeps_tenants_apart(&ask.platform);
        check_scope(&ask)?;
        let decide = |view: &View, draft: &mut Draft| {
            let scope = Some(ask.scope_id.as_str()).filter(|scope| !scope.is_empty());
            let place = ChatLocation { scope_id: scope, chat_id: &ask.channel_id, parent_chat_id: None, person: None };
            if !apart && tenant_of(view, &ask.platform, &place) != Some(&who.tenant) {
                return Err(DeskError::Forbidden("this channel does not belong to this tenant".into()));
            }
            if held(view, who, &ask)? {
                return Ok(());
            }
            let own = |it: &&Arc<Grant>| it.tenant == who.tenant && it.instance == who.instance.name;
            if view.grants.values().filter(own).count() >= GRANTS_PER_INSTANCE {
                return Err(DeskError::Conflict(format!(
                    "too many channels; the limit is {GRANTS_PER_INSTANCE} per agent"
                )));
            }
            draft.put(Fact::Grant(grant(who, &ask, at_ms)));
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }

    pub async fn release_scope(&self, who: &ProvenInstance, ask: ScopeAsk) -> Result<(), DeskError> {
        check_scope(&ask)?;
        let decide = |view: &View, draft: &mut Draft| {
            if held(view, who, &ask)? {
                draft.remove(&Fact::Grant(grant(who, &ask, 0)));
            }
            Ok(())
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }

    pub async fn set_principal(&self, who: &ProvenInstance, ask: PrincipalAsk) -> Result<(), DeskError> {
        if ask.allow.len() > ALLOW_MAX {
            return Err(DeskError::BadRequest(format!("too many users in allow; the limit is {ALLOW_MAX}")));
        }
        for user_id in &ask.allow {
            check_id("allow", user_id)?;
        }
        let (tenant, instance) = (who.tenant.clone(), who.instance.name.clone());
        let fact = Principal { tenant, instance, policy: ask.policy, allow: ask.allow.into_iter().collect() };
        let decide = |view: &View, draft: &mut Draft| {
            let known = view.tenant_index(&fact.tenant).and_then(|index| index.principal(&fact.instance));
            if known.is_none_or(|known| **known != fact) {
                draft.put(Fact::Principal(fact.clone()));
            }
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }

    /// The user must be linked to this instance; other links are not disclosed.
    pub async fn set_dm_default(&self, who: &ProvenInstance, ask: DmDefaultAsk) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("user_id", &ask.user_id)?;
        let at_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            let links = view.links(&who.tenant, &ask.platform, &ask.user_id);
            if !links.iter().any(|link| link.instance == who.instance.name) {
                let text = format!("{:?} on {} is not linked to this agent", ask.user_id, ask.platform);
                return Err(DeskError::Conflict(text));
            }
            let (tenant, instance) = (who.tenant.clone(), who.instance.name.clone());
            let (platform, user_id) = (ask.platform.clone(), ask.user_id.clone());
            draft.put(Fact::DmDefault(DmDefault { tenant, platform, user_id, instance, at_ms }));
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }

    /// Replaces the whole policy: the gateway is authoritative and sends it at every start.
    pub async fn set_policy(&self, who: &ProvenInstance, policy: RelevancePolicy) -> Result<(), DeskError> {
        check_id("platform", &policy.platform)?;
        if policy.free_response_scopes.len() > POLICY_SCOPES_MAX {
            return Err(DeskError::BadRequest(format!(
                "too many freeResponseScopes; the limit is {POLICY_SCOPES_MAX}"
            )));
        }
        for scope in policy.free_response_scopes.iter().filter(|scope| !scope.is_empty()) {
            check_id("freeResponseScopes", scope)?;
        }
        let fact = Policy { tenant: who.tenant.clone(), instance: who.instance.name.clone(), policy };
        let decide = |view: &View, draft: &mut Draft| {
            let fact = Fact::Policy(fact.clone());
            if view.policies.get(&fact.key()).is_none_or(|known| Fact::Policy((**known).clone()).json() != fact.json())
            {
                draft.put(fact);
            }
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }

    /// Removes the instance: its gateways with their secrets and sockets, and everything that it held.
    pub async fn deprovision(&self, who: &ProvenInstance) -> Result<(), DeskError> {
        let now_ms = self.env.now_ms();
        let own = |tenant: &TenantId, instance: &InstanceId| *tenant == who.tenant && *instance == who.instance.name;
        let decide = |view: &View, draft: &mut Draft| {
            let gateways = view.gateways.values().filter(|it| own(&it.tenant, &it.instance));
            let live: Vec<_> = gateways.filter(|it| it.revoked_ms.is_none()).cloned().collect();
            for gateway in &live {
                draft.put(Fact::Gateway(gateway.revoked(now_ms)));
            }
            for binding in view.bindings.values().filter(|it| own(&it.tenant, &it.instance)) {
                unlink(view, draft, binding);
            }
            for it in view.grants.values().filter(|it| own(&it.tenant, &it.instance)) {
                draft.remove(&Fact::Grant((**it).clone()));
            }
            for it in view.policies.values().filter(|it| own(&it.tenant, &it.instance)) {
                draft.remove(&Fact::Policy((**it).clone()));
            }
            for it in view.link_codes.values().filter(|it| own(&it.tenant, &it.instance)) {
                draft.remove(&Fact::LinkCode((**it).clone()));
            }
            for it in view.commands.values().filter(|it| own(&it.tenant, &it.instance)) {
                draft.remove(&Fact::Commands((**it).clone()));
            }
            if let Some(it) = view.tenant_index(&who.tenant).and_then(|index| index.principal(&who.instance.name)) {
                draft.remove(&Fact::Principal((**it).clone()));
            }
            // It is not woken any more, and tokens that name it are no longer accepted.
            draft.put(Fact::Instance(Instance { wake_url: None, left_ms: Some(now_ms), ..(*who.instance).clone() }));
            Ok::<_, DeskError>(())
        };
        self.directory.write(decide).await.map_err(DeskError::from)
    }
}

fn check_scope(ask: &ScopeAsk) -> Result<(), DeskError> {
    check_id("platform", &ask.platform)?;
    check_id("channel_id", &ask.channel_id)?;
    if ask.scope_id.is_empty() { Ok(()) } else { check_id("scope_id", &ask.scope_id) }
}

/// Whether the caller holds the channel. If another instance does, the conflict does not say which.
fn held(view: &View, who: &ProvenInstance, ask: &ScopeAsk) -> Result<bool, DeskError> {
    let there = view.tenant_index(&who.tenant).and_then(|index| index.on_platform(&ask.platform));
    match there.and_then(|there| there.grant(&ask.scope_id, &ask.channel_id)) {
        None => Ok(false),
        Some(grant) if grant.instance == who.instance.name => Ok(true),
        Some(_) => Err(DeskError::Conflict("another agent holds this channel".into())),
    }
}

fn grant(who: &ProvenInstance, ask: &ScopeAsk, at_ms: u64) -> Grant {
    Grant {
        tenant: who.tenant.clone(),
        platform: ask.platform.clone(),
        scope: ask.scope_id.clone(),
        channel: ask.channel_id.clone(),
        instance: who.instance.name.clone(),
        at_ms,
    }
}
