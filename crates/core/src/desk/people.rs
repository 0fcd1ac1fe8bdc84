//! Who is who: tenants, tokens, gateways and their secrets, bots, routes, links.
//!
//! Tenants come from our records, never from a body. Secrets are shown once, kept sealed or hashed.

use frontdesk_wire::api::{
    BindingNew, BotNew, EnrollRequest, GatewayMade, GatewayNew, ProvisionReply, ProvisionRequest, RelevancePolicy,
    Rotated, RouteNew, TokenMade,
};
use frontdesk_wire::token::{self, Proof};
use frontdesk_wire::{MessageEvent, Secret};

use super::{Caller, Desk, DeskError};
use crate::registry::facts::{
    Binding, Bot, Enrollment, Fact, Gateway, GatewaySecret, Instance, Policy, Route, Scope, Tenant, Token,
};
use crate::registry::{Draft, View};
use crate::seal::sha256_hex;

/// One post per platform with one gatewayId: within this time they all get the same secret.
const PROVISION_SAME_SECRET_MS: u64 = 10 * 60 * 1000;
/// Live secrets per gateway; the oldest go first.
const SECRETS_MAX: usize = 8;
const ENROLLMENT_TTL_MS: u64 = 3_600_000;
const ID_MAX_CHARS: usize = 256;
const ROUTE_KEYS_MAX: usize = 1000;
const POLICY_SCOPES_MAX: usize = 10_000;

/// Who stands behind a bearer of scope `identity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub tenant: String,
    pub instance: Option<String>,
}

/// Why an upgrade token proves nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("expired")]
    Expired,
    #[error("unauthorized")]
    Unauthorized,
}

impl Desk {
    // ---- proofs --------------------------------------------------------------------------

    /// Checks an upgrade token against every live secret of the gateway it names.
    pub fn prove_gateway(&self, bearer: &str) -> Result<Caller, Unproven> {
        let claimed = token::claim(bearer).ok_or(Unproven::Unauthorized)?;
        let found = self.registry.read(|view| {
            let gateway = view.gateways.get(&claimed.gateway_id)?.clone();
            let instance = view.instance(&gateway.tenant, &gateway.instance)?.clone();
            Some((gateway, instance))
        });
        let Some((gateway, instance)) = found else { return Err(Unproven::Unauthorized) };
        if gateway.revoked_ms.is_some() {
            return Err(Unproven::Unauthorized);
        }
        let secrets = self.live_secrets(&gateway);
        match claimed.prove(&secrets, self.env.now_s()) {
            Proof::Good => Ok(Caller { tenant: gateway.tenant.clone(), gateway: gateway.id.clone(), instance }),
            Proof::Expired => Err(Unproven::Expired),
            Proof::Bad => Err(Unproven::Unauthorized),
        }
    }

    /// Whether a proof of before still holds: nobody revoked the gateway since.
    pub fn is_still_proven(&self, caller: &Caller) -> bool {
        self.registry.read(|view| view.gateways.get(&caller.gateway).is_some_and(|it| it.revoked_ms.is_none()))
    }

    /// The token behind a bearer, if it is known, in time and of this scope.
    pub fn prove_token(&self, bearer: &str, scope: Scope) -> Option<Token> {
        let hash = sha256_hex(bearer);
        let found = self.registry.read(|view| view.token_by_hash(&hash).cloned())?;
        let in_time = found.expires_ms.is_none_or(|at| at > self.env.now_ms());
        (in_time && found.scope == scope).then(|| (*found).clone())
    }

    pub fn prove_identity(&self, bearer: &str) -> Option<Identity> {
        let token = self.prove_token(bearer, Scope::Identity)?;
        Some(Identity { tenant: token.tenant, instance: token.instance })
    }

    fn live_secrets(&self, gateway: &Gateway) -> Vec<Secret> {
        let now_ms = self.env.now_ms();
        let live = gateway.secrets.iter().filter(|secret| secret.retires_ms.is_none_or(|at| at > now_ms));
        live.filter_map(|secret| self.open_secret(gateway, secret)).collect()
    }

    fn open_secret(&self, gateway: &Gateway, secret: &GatewaySecret) -> Option<Secret> {
        let sealed = hex::decode(&secret.sealed).ok()?;
        let opened = self.sealer.open(&sealed, &[&gateway.tenant, "gateway", &gateway.id, &secret.id]);
        opened.inspect_err(|error| tracing::error!(%error, gateway = gateway.id, "a secret does not open")).ok()
    }

    fn new_secret(&self, tenant: &str, gateway_id: &str) -> (Secret, GatewaySecret) {
        let value = Secret::new(self.env.random_hex(32));
        let id = self.env.random_hex(4);
        let sealed = self.sealer.seal(&*self.env, &value, &[tenant, "gateway", gateway_id, &id]);
        let created_ms = self.env.now_ms();
        (value, GatewaySecret { id, sealed: hex::encode(sealed), created_ms, retires_ms: None })
    }

    // ---- gateways ------------------------------------------------------------------------

    pub async fn provision(&self, who: &Identity, ask: ProvisionRequest) -> Result<ProvisionReply, DeskError> {
        if let (Some(bound), Some(asked)) = (&who.instance, &ask.instance_id)
            && bound != asked
        {
            return Err(DeskError::Forbidden("this identity is bound to another instance".into()));
        }
        check_id("platform", &ask.platform)?;
        if ask.route_keys.len() > ROUTE_KEYS_MAX {
            return Err(DeskError::BadRequest(format!("more than {ROUTE_KEYS_MAX} routeKeys")));
        }
        if let Some(url) = &ask.wake_url {
            self.outcall.check(url).map_err(|error| DeskError::BadRequest(format!("wakeUrl: {error}")))?;
        }
        let instance = ask.instance_id.clone().or_else(|| who.instance.clone());
        let seat = Seat {
            tenant: &who.tenant,
            bound: who.instance.as_deref(),
            gateway_id: &ask.gateway_id,
            instance,
            wake_url: ask.wake_url.clone(),
            platform: Some((ask.platform.clone(), ask.bot_id.clone())),
            route_keys: ask.route_keys.clone(),
        };
        self.registry.write(|view, draft| self.seat_gateway(view, draft, seat)).await.map_err(DeskError::from)
    }

    /// The admin lets an agent in.
    pub async fn add_gateway(&self, ask: GatewayNew) -> Result<GatewayMade, DeskError> {
        let known = self.registry.read(|view| known_tenant(view, &ask.tenant));
        known?;
        let who = Identity { tenant: ask.tenant, instance: ask.instance };
        let ask = ProvisionRequest {
            gateway_id: ask.id,
            platform: "relay".into(), // what a gateway says hello for when it is told nothing else
            bot_id: String::new(),
            gateway_endpoint: None,
            route_keys: Vec::new(),
            instance_id: None,
            wake_url: ask.wake_url,
        };
        let made = self.provision(&who, ask).await?;
        Ok(GatewayMade { id: made.gateway_id, tenant: made.tenant, secret: made.secret })
    }

    /// A one-time token of the admin, plus a proof of who asks.
    pub async fn enroll(&self, who: &Identity, ask: EnrollRequest) -> Result<ProvisionReply, DeskError> {
        let hash = sha256_hex(&ask.enrollment_token);
        let now_ms = self.env.now_ms();
        let refuse = |text: &str| Err(DeskError::Forbidden(text.into()));
        let decide = |view: &View, draft: &mut Draft| {
            let Some(found) = view.enrollments.values().find(|it| it.hash == hash) else {
                return refuse("unknown enrollment token");
            };
            if found.tenant != who.tenant {
                return refuse("unknown enrollment token"); // nothing is told about another tenant's
            }
            if found.used_by.is_some() {
                return refuse("this enrollment token was used already; ask for a new one");
            }
            if found.expires_ms <= now_ms {
                return refuse("this enrollment token has expired; ask for a new one");
            }
            let seat = Seat {
                tenant: &who.tenant,
                bound: who.instance.as_deref(),
                gateway_id: &ask.gateway_id,
                instance: who.instance.clone(),
                wake_url: None,
                platform: None,
                route_keys: Vec::new(),
            };
            let reply = self.seat_gateway(view, draft, seat)?;
            let used = Enrollment { used_by: Some(ask.gateway_id.clone()), ..(**found).clone() };
            draft.put(Fact::Enrollment(used));
            Ok(reply)
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    fn seat_gateway(&self, view: &View, draft: &mut Draft, seat: Seat<'_>) -> Result<ProvisionReply, DeskError> {
        let Seat { tenant, bound, gateway_id, instance, wake_url, platform, route_keys } = seat;
        check_id("gatewayId", gateway_id)?;
        let now_ms = self.env.now_ms();
        let known = view.gateways.get(gateway_id);
        if known.is_some_and(|gateway| gateway.tenant != tenant) {
            return Err(DeskError::Forbidden("this gatewayId is taken".into()));
        }
        if let (Some(bound), Some(gateway)) = (bound, known)
            && gateway.instance != bound
        {
            return Err(DeskError::Forbidden("this gatewayId is of another instance".into()));
        }
        let instance = instance.unwrap_or_else(|| match known {
            Some(gateway) => gateway.instance.clone(),
            None => gateway_id.to_owned(), // no instanceId: the gatewayId is the instance
        });
        check_id("instanceId", &instance)?;
        let mut gateway = known.map_or_else(
            || Gateway {
                id: gateway_id.into(),
                tenant: tenant.into(),
                instance: instance.clone(),
                secrets: Vec::new(),
                platforms: Vec::new(),
                route_keys: Vec::new(),
                created_ms: now_ms,
                revoked_ms: None,
            },
            |gateway| (**gateway).clone(),
        );
        gateway.instance.clone_from(&instance);
        if gateway.revoked_ms.take().is_some() {
            gateway.secrets.clear(); // a fresh proof of identity, but never an old secret
        }
        let recent = gateway.secrets.last().filter(|secret| {
            secret.retires_ms.is_none() && now_ms.saturating_sub(secret.created_ms) < PROVISION_SAME_SECRET_MS
        });
        let secret = match recent.and_then(|recent| self.open_secret(&gateway, recent)) {
            Some(secret) => secret,
            None => self.add_secret(&mut gateway),
        };
        if let Some(identity) = platform.filter(|identity| !gateway.platforms.contains(identity)) {
            gateway.platforms.push(identity);
        }
        if !route_keys.is_empty() {
            gateway.route_keys = route_keys;
        }
        Self::seat_instance(view, draft, tenant, &instance, wake_url);
        let reply = ProvisionReply {
            secret: secret.expose().into(),
            delivery_key: self.sealer.derive(&["delivery", tenant]),
            tenant: tenant.into(),
            gateway_id: gateway_id.into(),
            route_keys: gateway.route_keys.clone(),
        };
        draft.put(Fact::Gateway(gateway));
        Ok(reply)
    }

    fn seat_instance(view: &View, draft: &mut Draft, tenant: &str, name: &str, wake_url: Option<String>) {
        match view.instance(tenant, name) {
            None => draft.put(Fact::Instance(Instance {
                no: view.next_instance_no(),
                tenant: tenant.into(),
                name: name.into(),
                wake_url,
            })),
            Some(known) if wake_url.is_some() && known.wake_url != wake_url => {
                draft.put(Fact::Instance(Instance { wake_url, ..(**known).clone() }));
            }
            Some(_) => {}
        }
    }

    /// A new secret at the end; the ones before it retire after the overlap.
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

    pub async fn rotate(&self, gateway_id: &str) -> Result<Rotated, DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let mut gateway = (**live_gateway(view, gateway_id)?).clone();
            let secret = self.add_secret(&mut gateway);
            draft.put(Fact::Gateway(gateway));
            Ok(secret.expose().to_owned())
        };
        let secret = self.registry.write(decide).await.map_err(DeskError::from)?;
        Ok(Rotated { secret, overlap_until: self.env.now_ms() + self.rules.rotation_overlap_ms })
    }

    /// The credential is dead at once, and so are its sockets.
    pub async fn revoke(&self, gateway_id: &str) -> Result<(), DeskError> {
        let now_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            let gateway = live_gateway(view, gateway_id)?;
            let revoked = Gateway { revoked_ms: Some(now_ms), secrets: Vec::new(), ..(**gateway).clone() };
            draft.put(Fact::Gateway(revoked));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)?;
        self.close_gateway(gateway_id);
        Ok(())
    }

    /// The gateway leaves for good: links to its instance, secrets and sockets go.
    pub async fn deprovision(&self, caller: &Caller) -> Result<(), DeskError> {
        let now_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            let gateway = live_gateway(view, &caller.gateway)?;
            draft.put(Fact::Gateway(Gateway { revoked_ms: Some(now_ms), secrets: Vec::new(), ..(**gateway).clone() }));
            let linked =
                |it: &&std::sync::Arc<Binding>| it.tenant == caller.tenant && it.instance == caller.instance.name;
            for binding in view.bindings.values().filter(linked) {
                draft.remove(&Fact::Binding((**binding).clone()));
            }
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)?;
        self.close_gateway(&caller.gateway);
        Ok(())
    }

    pub async fn set_policy(&self, caller: &Caller, policy: RelevancePolicy) -> Result<(), DeskError> {
        check_id("platform", &policy.platform)?;
        if policy.free_response_scopes.len() > POLICY_SCOPES_MAX {
            return Err(DeskError::BadRequest(format!("more than {POLICY_SCOPES_MAX} freeResponseScopes")));
        }
        let fact = Policy { tenant: caller.tenant.clone(), instance: caller.instance.name.clone(), policy };
        self.put(|_| Ok(Fact::Policy(fact))).await
    }

    /// Whether this tenant may speak as that bot. An empty id means its default bot of that platform.
    pub fn resolve_bot(&self, tenant: &str, platform: &str, bot: &str) -> Option<String> {
        let common = self.platform(platform).and_then(|found| found.common_bot());
        if let Some(common) = common.filter(|common| bot.is_empty() || bot == *common) {
            return Some(common.to_owned());
        }
        self.registry.read(|view| {
            let allowed = |it: &Bot| it.platform == platform && it.tenant.as_deref().is_none_or(|t| t == tenant);
            if bot.is_empty() {
                return view.bots.values().find(|it| allowed(it)).map(|it| it.id.clone());
            }
            view.bot(platform, bot).filter(|it| allowed(it)).map(|it| it.id.clone())
        })
    }

    // ---- the admin's records -------------------------------------------------------------

    pub async fn create_tenant(&self, name: &str) -> Result<(), DeskError> {
        let well_formed = !name.is_empty()
            && name.len() <= 63
            && !name.starts_with('-')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !well_formed {
            let text = format!("tenant name {name:?} is not 1 to 63 of a-z 0-9 -, beginning with a letter or digit");
            return Err(DeskError::BadRequest(text));
        }
        let created_ms = self.env.now_ms();
        self.put(|view| {
            if view.tenants.contains_key(name) {
                return Err(DeskError::Conflict(format!("tenant {name:?} exists already")));
            }
            Ok(Fact::Tenant(Tenant { name: name.into(), created_ms, notices: true }))
        })
        .await
    }

    pub async fn create_token(
        &self,
        tenant: &str,
        scope: Scope,
        instance: Option<String>,
        ttl_s: Option<u64>,
    ) -> Result<TokenMade, DeskError> {
        if let Some(instance) = &instance {
            check_id("instance", instance)?;
        }
        let (id, token) = (self.env.random_hex(6), format!("fd_{}", self.env.random_hex(24)));
        let now_ms = self.env.now_ms();
        let fact = Token {
            id: id.clone(),
            hash: sha256_hex(&token),
            tenant: tenant.into(),
            scope,
            instance,
            created_ms: now_ms,
            expires_ms: ttl_s.map(|ttl_s| now_ms.saturating_add(ttl_s.saturating_mul(1000))),
        };
        self.put(|view| known_tenant(view, tenant).map(|()| Fact::Token(fact))).await?;
        Ok(TokenMade { id, token })
    }

    pub async fn create_enrollment(&self, tenant: &str, ttl_s: Option<u64>) -> Result<TokenMade, DeskError> {
        let (id, token) = (self.env.random_hex(6), format!("fde_{}", self.env.random_hex(24)));
        let ttl_ms = ttl_s.map_or(ENROLLMENT_TTL_MS, |ttl_s| ttl_s.saturating_mul(1000));
        let fact = Enrollment {
            id: id.clone(),
            hash: sha256_hex(&token),
            tenant: tenant.into(),
            expires_ms: self.env.now_ms().saturating_add(ttl_ms),
            used_by: None,
        };
        self.put(|view| known_tenant(view, tenant).map(|()| Fact::Enrollment(fact))).await?;
        Ok(TokenMade { id, token })
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), DeskError> {
        self.remove(|view| view.tokens.get(id).map(|it| Fact::Token((**it).clone()))).await
    }

    pub async fn add_bot(&self, ask: BotNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("id", &ask.id)?;
        let seal = |(name, value): (String, String)| {
            let words = ["bot", &ask.platform, &ask.id, &name];
            let sealed = hex::encode(self.sealer.seal(&*self.env, &Secret::new(value), &words));
            (name, sealed)
        };
        let fact = Bot {
            secrets: ask.secrets.into_iter().map(seal).collect(),
            platform: ask.platform.clone(),
            id: ask.id.clone(),
            tenant: ask.tenant.clone(),
            settings: ask.settings,
        };
        self.put(|view| {
            if let Some(tenant) = &ask.tenant {
                known_tenant(view, tenant)?;
            }
            let taken = view.bot(&fact.platform, &fact.id).is_some_and(|bot| bot.tenant != fact.tenant);
            if taken {
                return Err(DeskError::Conflict(format!("{} bot {:?} belongs elsewhere", fact.platform, fact.id)));
            }
            Ok(Fact::Bot(fact))
        })
        .await
    }

    pub async fn remove_bot(&self, platform: &str, id: &str) -> Result<(), DeskError> {
        self.remove(|view| view.bot(platform, id).map(|it| Fact::Bot((**it).clone()))).await
    }

    pub async fn add_route(&self, ask: RouteNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("key", &ask.key)?;
        self.put(|view| {
            known_tenant(view, &ask.tenant)?;
            if view.route(&ask.platform, &ask.key).is_some_and(|it| it.tenant != ask.tenant) {
                return Err(DeskError::Conflict(format!("{} {:?} is routed elsewhere", ask.platform, ask.key)));
            }
            Ok(Fact::Route(Route { platform: ask.platform, key: ask.key, tenant: ask.tenant }))
        })
        .await
    }

    pub async fn remove_route(&self, platform: &str, key: &str) -> Result<(), DeskError> {
        self.remove(|view| view.route(platform, key).map(|it| Fact::Route((**it).clone()))).await
    }

    /// Links a person to an instance, which is made if it is not there yet.
    pub async fn bind(&self, ask: BindingNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("user_id", &ask.user_id)?;
        check_id("instance", &ask.instance)?;
        let at_ms = self.env.now_ms();
        let decide = |view: &View, draft: &mut Draft| {
            known_tenant(view, &ask.tenant)?;
            Self::seat_instance(view, draft, &ask.tenant, &ask.instance, None);
            let BindingNew { platform, user_id, tenant, instance } = ask;
            draft.put(Fact::Binding(Binding { tenant, platform, user_id, instance, at_ms }));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    pub async fn unbind(&self, ask: BindingNew) -> Result<(), DeskError> {
        self.remove(|view| {
            let links = view.links(&ask.tenant, &ask.platform, &ask.user_id);
            let found = links.iter().find(|link| link.instance == ask.instance);
            found.map(|it| Fact::Binding((**it).clone()))
        })
        .await
    }

    async fn put(&self, decide: impl FnOnce(&View) -> Result<Fact, DeskError>) -> Result<(), DeskError> {
        let written = self.registry.write(|view, draft| decide(view).map(|fact| draft.put(fact))).await;
        written.map_err(DeskError::from)
    }

    async fn remove(&self, find: impl FnOnce(&View) -> Option<Fact>) -> Result<(), DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let fact = find(view).ok_or_else(|| DeskError::NotFound("there is no such record".into()))?;
            draft.remove(&fact);
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }
}

/// What a gateway wants to sit on.
struct Seat<'a> {
    tenant: &'a str,
    /// The one instance that the asker may speak for, if its identity says so.
    bound: Option<&'a str>,
    gateway_id: &'a str,
    instance: Option<String>,
    wake_url: Option<String>,
    platform: Option<(String, String)>,
    route_keys: Vec<String>,
}

fn live_gateway<'a>(view: &'a View, id: &str) -> Result<&'a std::sync::Arc<Gateway>, DeskError> {
    let found = view.gateways.get(id).filter(|gateway| gateway.revoked_ms.is_none());
    found.ok_or_else(|| DeskError::NotFound(format!("no live gateway has the id {id:?}")))
}

fn known_tenant(view: &View, name: &str) -> Result<(), DeskError> {
    match view.tenants.contains_key(name) {
        true => Ok(()),
        false => Err(DeskError::NotFound(format!(
            "no tenant is called {name:?}; make it with `frontdesk tenant create {name}`"
        ))),
    }
}

/// Ids of others are opaque, but bounded and printable.
fn check_id(field: &str, id: &str) -> Result<(), DeskError> {
    if id.is_empty() || id.chars().count() > ID_MAX_CHARS || id.chars().any(char::is_control) {
        let text = format!("{field} must have 1 to {ID_MAX_CHARS} characters and no control characters");
        return Err(DeskError::BadRequest(text));
    }
    Ok(())
}

/// The same bounds for what a platform hands in.
pub fn check_source(event: &MessageEvent) -> Result<(), DeskError> {
    check_id("chat_id", &event.source.chat_id)?;
    check_id("user_id", event.source.user_id.as_deref().unwrap_or_default())?;
    event.message_id.as_deref().map_or(Ok(()), |id| check_id("message_id", id))
}
