//! Gateways, their secrets and their instances. Secrets are shown once and stored encrypted.

use std::sync::Arc;

use frontdesk_wire::api::{EnrollRequest, GatewayMade, GatewayNew, ProvisionReply, ProvisionRequest, Rotated};
use frontdesk_wire::{BotId, GatewayId, InstanceId, InstanceNo, MessageEvent, Secret, TenantId};

use super::facts::{Enrollment, Fact, Gateway, GatewaySecret, Instance};
use super::index::TenantIndex;
use super::room::check_room;
use super::{DirectoryPlane, Draft, Identity, ProvenInstance, View};
use crate::error::DeskError;
use crate::hash::sha256_hex;
use crate::port::platform::PlatformBot;
use crate::port::store::StoreError;

/// A gateway posts once per platform with the same gatewayId; within this time all posts get the same secret.
const PROVISION_SAME_SECRET_MS: u64 = 10 * 60 * 1000;
/// Valid secrets per gateway; the oldest are removed first.
const SECRETS_MAX: usize = 8;
pub(crate) const ID_MAX_CHARS: usize = 256;
const ROUTE_KEYS_MAX: usize = 1000;
/// Bots (platform and id) of one gateway.
const PLATFORMS_MAX: usize = 64;

impl DirectoryPlane {
    fn new_secret(&self, tenant: &TenantId, gateway_id: &GatewayId) -> (Secret, GatewaySecret) {
        let value = Secret::new(self.env.random_hex(32));
        let id = self.env.random_hex(4);
        let sealed = self.sealer.seal(&*self.env, &value, &[tenant, "gateway", gateway_id, &id]);
        let created_ms = self.env.now_ms();
        (value, GatewaySecret { id, sealed: hex::encode(sealed), created_ms, retires_ms: None })
    }

    pub async fn provision(&self, who: &Identity, ask: ProvisionRequest) -> Result<ProvisionReply, DeskError> {
        if let (Some(bound), Some(asked)) = (&who.instance, &ask.instance_id)
            && bound != asked
        {
            return Err(DeskError::Forbidden("this identity is bound to another instance; use that instanceId".into()));
        }
        check_id("platform", &ask.platform)?;
        if !ask.bot_id.is_empty() {
            check_id("botId", &ask.bot_id)?;
        }
        for route_key in &ask.route_keys {
            check_id("routeKeys", route_key)?;
        }
        if ask.route_keys.len() > ROUTE_KEYS_MAX {
            return Err(DeskError::BadRequest(format!("too many routeKeys; the limit is {ROUTE_KEYS_MAX}")));
        }
        if let Some(url) = &ask.wake_url {
            self.outcall.check(url).map_err(|error| DeskError::BadRequest(format!("wakeUrl: {error}")))?;
        }
        let instance = ask.instance_id.clone().or_else(|| who.instance.clone());
        let new = NewGateway {
            tenant: &who.tenant,
            bound: who.instance.as_ref(),
            gateway_id: &ask.gateway_id,
            instance,
            wake_url: ask.wake_url.clone(),
            platform: Some((ask.platform.clone(), ask.bot_id.clone())),
            route_keys: ask.route_keys.clone(),
        };
        self.registry.write(|view, draft| self.put_gateway(view, draft, new.clone())).await.map_err(DeskError::from)
    }

    /// Creates a gateway for the admin.
    pub async fn add_gateway(&self, ask: GatewayNew) -> Result<GatewayMade, DeskError> {
        let known = self.registry.read(|view| known_tenant(view, &ask.tenant));
        known?;
        let who = Identity { tenant: ask.tenant, instance: ask.instance };
        let ask = ProvisionRequest {
            gateway_id: ask.id,
            platform: "relay".into(), // the platform for which gateways send hello by default
            bot_id: BotId::default(),
            gateway_endpoint: None,
            route_keys: Vec::new(),
            instance_id: None,
            wake_url: ask.wake_url,
        };
        let made = self.provision(&who, ask).await?;
        Ok(GatewayMade { id: made.gateway_id, tenant: made.tenant, secret: made.secret })
    }

    /// Exchanges a one-time token of the admin for a gateway secret; the caller must also be authenticated.
    pub async fn enroll(&self, who: &Identity, ask: EnrollRequest) -> Result<ProvisionReply, DeskError> {
        let hash = sha256_hex(&ask.enrollment_token);
        let now_ms = self.env.now_ms();
        let refuse = |text: &str| Err(DeskError::Forbidden(text.into()));
        let decide = |view: &View, draft: &mut Draft| {
            let Some(found) = view.enrollments.values().find(|it| it.hash == hash) else {
                return refuse("unknown enrollment token");
            };
            if found.tenant != who.tenant {
                return refuse("unknown enrollment token"); // tokens of other tenants are not disclosed
            }
            if found.used_by.is_some() {
                return refuse("this enrollment token was already used; ask for a new one");
            }
            if found.expires_ms <= now_ms {
                return refuse("this enrollment token has expired; ask for a new one");
            }
            let new = NewGateway {
                tenant: &who.tenant,
                bound: who.instance.as_ref(),
                gateway_id: &ask.gateway_id,
                instance: who.instance.clone(),
                wake_url: None,
                platform: None,
                route_keys: Vec::new(),
            };
            let reply = self.put_gateway(view, draft, new)?;
            let used = Enrollment { used_by: Some(ask.gateway_id.clone()), ..(**found).clone() };
            draft.put(Fact::Enrollment(used));
            Ok(reply)
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    fn put_gateway(&self, view: &View, draft: &mut Draft, new: NewGateway<'_>) -> Result<ProvisionReply, DeskError> {
        let NewGateway { tenant, bound, gateway_id, instance, wake_url, platform, route_keys } = new;
        check_id("gatewayId", gateway_id)?;
        let now_ms = self.env.now_ms();
        let known = view.gateways.get(gateway_id);
        if known.is_some_and(|gateway| gateway.tenant != *tenant) {
            return Err(DeskError::Forbidden("this gatewayId is taken; choose another".into()));
        }
        if let (Some(bound), Some(gateway)) = (bound, known)
            && gateway.instance != *bound
        {
            return Err(DeskError::Forbidden("this gatewayId belongs to another instance; choose another".into()));
        }
        let instance = instance.unwrap_or_else(|| match known {
            Some(gateway) => gateway.instance.clone(),
            None => gateway_id.as_str().into(), // without an instanceId the gatewayId names the instance
        });
        check_id("instanceId", &instance)?;
        let mut gateway = known.map_or_else(
            || Gateway {
                id: gateway_id.clone(),
                tenant: tenant.clone(),
                instance: instance.clone(),
                secrets: Vec::new(),
                platforms: Vec::new(),
                route_keys: Vec::new(),
                created_ms: now_ms,
                revoked_ms: None,
                revocations: 0,
            },
            |gateway| (**gateway).clone(),
        );
        gateway.instance.clone_from(&instance);
        if gateway.revoked_ms.take().is_some() {
            gateway.secrets.clear(); // it may return, but secrets from before the revocation may not
        }
        let recent = gateway.secrets.last().filter(|secret| {
            secret.retires_ms.is_none() && now_ms.saturating_sub(secret.created_ms) < PROVISION_SAME_SECRET_MS
        });
        let secret = match recent.and_then(|recent| self.open_secret(&gateway, recent)) {
            Some(secret) => secret,
            None => self.add_secret(&mut gateway),
        };
        if let Some(identity) = platform.filter(|identity| !gateway.platforms.contains(identity)) {
            if gateway.platforms.len() >= PLATFORMS_MAX {
                let text = format!("this gateway was provisioned for {PLATFORMS_MAX} bots already; that is the limit");
                return Err(DeskError::Forbidden(text));
            }
            gateway.platforms.push(identity);
        }
        if !route_keys.is_empty() {
            gateway.route_keys = route_keys;
        }
        if known.is_none_or(|known| known.revoked_ms.is_some()) {
            let there = view.tenant_index(tenant).map_or((0, 0), TenantIndex::gateway_counts);
            check_quota("gateways", there, known.is_none(), self.rules.gateways_max, "relay.gateways_per_tenant")?;
        }
        self.put_instance(view, draft, tenant, &instance, wake_url, true)?;
        let reply = ProvisionReply {
            secret: secret.expose().into(),
            delivery_key: self.sealer.derive(&["delivery", tenant]),
            tenant: tenant.clone(),
            gateway_id: gateway_id.clone(),
            route_keys: gateway.route_keys.clone(),
        };
        draft.put(Fact::Gateway(gateway));
        check_room(view, draft, tenant, self.rules.directory_max_bytes)?;
        Ok(reply)
    }

    /// `returns`: restores an instance that was removed.
    ///
    /// Names are unique in the whole server, because they are the audience of tokens. A tenant that asks for a name of
    /// another one learns only that it is not available; the log says why.
    pub(super) fn put_instance(
        &self,
        view: &View,
        draft: &mut Draft,
        tenant: &TenantId,
        name: &InstanceId,
        wake_url: Option<String>,
        returns: bool,
    ) -> Result<(), DeskError> {
        let known = view.instance(tenant, name);
        let mut others = view.instances_named(name).iter().filter(|other| other.tenant != *tenant);
        let owner = match known {
            None => others.next(),
            // Of two tenants that have the name since a version that allowed it, one that left does not come back.
            Some(known) if known.left_ms.is_some() && returns => others.find(|other| other.left_ms.is_none()),
            Some(_) => None,
        };
        if let Some(owner) = owner {
            tracing::warn!(
                instance = name.as_str(),
                tenant = tenant.as_str(),
                owner = owner.tenant.as_str(),
                "instance id refused: another tenant has it"
            );
            let text =
                "this instanceId (or gatewayId, if none is given) is not available on this server; choose another";
            return Err(DeskError::Forbidden(text.into()));
        }
        let Some(known) = known else {
            let there = view.tenant_index(tenant).map_or((0, 0), TenantIndex::instance_counts);
            check_quota("instances", there, true, self.rules.instances_max, "relay.instances_per_tenant")?;
            draft.put(Fact::Instance(Instance {
                no: InstanceNo::NONE, // assigned from the store
                tenant: tenant.clone(),
                name: name.clone(),
                wake_url,
                left_ms: None,
            }));
            return Ok(());
        };
        let wake_url = wake_url.or_else(|| known.wake_url.clone());
        let left_ms = known.left_ms.filter(|_| !returns);
        if known.left_ms.is_some() && returns {
            let there = view.tenant_index(tenant).map_or((0, 0), TenantIndex::instance_counts);
            check_quota("instances", there, false, self.rules.instances_max, "relay.instances_per_tenant")?;
        }
        if wake_url != known.wake_url || left_ms != known.left_ms {
            draft.put(Fact::Instance(Instance { wake_url, left_ms, ..(**known).clone() }));
        }
        Ok(())
    }

    /// Adds a new secret; earlier ones retire after the overlap.
    fn add_secret(&self, gateway: &mut Gateway) -> Secret {
        let now_ms = self.env.now_ms();
        let overlap_until = now_ms + self.rules.rotation_overlap_ms;
        gateway.secrets.retain(|secret| secret.retires_ms.is_none_or(|at| at > now_ms));
        for secret in &mut gateway.secrets {
            secret.retires_ms.get_or_insert(overlap_until);
        }
        let (value, kept) = self.new_secret(&gateway.tenant, &gateway.id);
        gateway.secrets.push(kept);
        let surplus = gateway.secrets.len().saturating_sub(SECRETS_MAX);
        gateway.secrets.drain(..surplus);
        value
    }

    pub async fn rotate(&self, gateway_id: &GatewayId) -> Result<Rotated, DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let mut gateway = (**live_gateway(view, gateway_id)?).clone();
            let secret = self.add_secret(&mut gateway);
            draft.put(Fact::Gateway(gateway));
            Ok(secret.expose().to_owned())
        };
        let secret = self.registry.write(decide).await.map_err(DeskError::from)?;
        Ok(Rotated { secret, overlap_until: self.env.now_ms() + self.rules.rotation_overlap_ms })
    }

    /// Revokes the credential at once and closes its sockets.
    pub async fn revoke(&self, gateway_id: &GatewayId) -> Result<(), DeskError> {
        let now_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            let gateway = live_gateway(view, gateway_id)?;
            draft.put(Fact::Gateway(gateway.revoked(now_ms)));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    /// The instance of an identity; created if needed.
    pub async fn proven_instance(&self, who: &Identity) -> Result<ProvenInstance, DeskError> {
        let Some(name) = &who.instance else {
            let text = "this identity is not bound to an instance; create its token with --instance".into();
            return Err(DeskError::Forbidden(text));
        };
        let found = || self.registry.read(|view| view.instance(&who.tenant, name).map(ProvenInstance::of));
        match found() {
            Some(proven) if proven.instance.left_ms.is_none() => return Ok(proven),
            Some(_) => {
                let text = "this instance was deprovisioned; POST /relay/provision brings it back";
                return Err(DeskError::Forbidden(text.into()));
            }
            None => {}
        }
        let put = |view: &View, draft: &mut Draft| {
            self.put_instance(view, draft, &who.tenant, name, None, false)?;
            check_room(view, draft, &who.tenant, self.rules.directory_max_bytes)
        };
        self.registry.write(put).await.map_err(DeskError::from)?;
        found().ok_or_else(|| DeskError::NotFound("instance not found".into()))
    }

    /// An instance by name; the tenant is needed only if two tenants use the same name.
    pub fn find_instance(&self, name: &InstanceId, tenant: Option<&TenantId>) -> Result<Arc<Instance>, DeskError> {
        self.registry.read(|view| {
            let of_tenant = |it: &&Arc<Instance>| tenant.is_none_or(|t| it.tenant == *t);
            let mut found = view.instances_named(name).iter().filter(of_tenant);
            match (found.next(), found.next()) {
                (Some(one), None) => Ok(one.clone()),
                (None, _) => Err(DeskError::NotFound(no_instance(view, name, tenant))),
                (Some(_), Some(_)) => {
                    Err(DeskError::BadRequest(format!("several tenants have an instance {name:?}; name the tenant")))
                }
            }
        })
    }
}

/// Error text; an agent without a socket has an inbox but is not an instance.
fn no_instance(view: &View, name: &InstanceId, tenant: Option<&TenantId>) -> String {
    let mut tenants = view.tenants.keys().filter(|it| tenant.is_none_or(|tenant| tenant == it.as_str()));
    match tenants.find(|it| view.agent(it, name).is_some()) {
        Some(tenant) => format!(
            "instance {name:?} not found; it is a registered agent, see `frontdesk inbox {name} --tenant {tenant}`"
        ),
        None => format!("instance {name:?} not found"),
    }
}

/// Removed ones stay on record, so that their names are not reused; there may be ten times as many. One that returns is on
/// record already. `max` 0: no limit.
fn check_quota(
    what: &str,
    (live, gone): (usize, usize),
    is_new: bool,
    max: usize,
    setting: &str,
) -> Result<(), DeskError> {
    if max == 0 || (live < max && (!is_new || gone < max.saturating_mul(10))) {
        return Ok(());
    }
    let text = format!(
        "this tenant has {live} {what} and {gone} removed ones on record; deprovision some of the live ones, or \
         ask the operator to raise {setting} ({max})"
    );
    Err(DeskError::Forbidden(text))
}

/// A request for a gateway.
#[derive(Clone)]
struct NewGateway<'a> {
    tenant: &'a TenantId,
    /// The only instance that the caller may act for, if its identity is bound.
    bound: Option<&'a InstanceId>,
    gateway_id: &'a GatewayId,
    instance: Option<InstanceId>,
    wake_url: Option<String>,
    platform: Option<PlatformBot>,
    route_keys: Vec<String>,
}

fn live_gateway<'a>(view: &'a View, id: &GatewayId) -> Result<&'a Arc<Gateway>, DeskError> {
    let found = view.gateways.get(id).filter(|gateway| gateway.revoked_ms.is_none());
    found.ok_or_else(|| match view.unreadable().has("gateway", &[id]) {
        true => unreadable("gateway", id),
        false => DeskError::NotFound(format!("gateway {id:?} not found, or revoked")),
    })
}

fn unreadable(kind: &str, name: &str) -> DeskError {
    let text = format!("the record of {kind} {name:?} cannot be read by this server; use a server of a newer version");
    DeskError::Store(StoreError::Newer(text))
}

pub(crate) fn known_tenant(view: &View, name: &TenantId) -> Result<(), DeskError> {
    match view.tenants.contains_key(name) {
        true => Ok(()),
        false if view.unreadable().has("tenant", &[name]) => Err(unreadable("tenant", name)),
        false => Err(DeskError::NotFound(format!(
            "tenant {name:?} not found; create it with `frontdesk tenant create {name}`"
        ))),
    }
}

/// External ids are opaque, but limited in length and without control characters.
pub(crate) fn check_id(field: &str, id: &str) -> Result<(), DeskError> {
    if id.is_empty() || id.chars().count() > ID_MAX_CHARS || id.chars().any(char::is_control) {
        let text = format!("{field} must have 1 to {ID_MAX_CHARS} characters and no control characters");
        return Err(DeskError::BadRequest(text));
    }
    Ok(())
}

/// The same limits for events of platforms.
pub fn check_source(event: &MessageEvent) -> Result<(), DeskError> {
    check_id("chat_id", &event.source.chat_id)?;
    check_id("user_id", event.source.user_id.as_deref().unwrap_or_default())?;
    event.message_id.as_deref().map_or(Ok(()), |id| check_id("message_id", id))
}
