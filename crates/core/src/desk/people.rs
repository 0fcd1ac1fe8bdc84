//! Who is who: the proofs behind tokens, and gateways with their secrets.
//!
//! Tenants come from our records, never from a body. Secrets are shown once, kept sealed or hashed.

use std::sync::Arc;

use frontdesk_wire::api::{EnrollRequest, GatewayMade, GatewayNew, ProvisionReply, ProvisionRequest, Rotated};
use frontdesk_wire::token::{self, Proof};
use frontdesk_wire::{Close, MessageEvent, Secret};

use super::{Caller, Desk, DeskError, Guest};
use crate::registry::facts::{Bot, Enrollment, Fact, Gateway, GatewaySecret, Instance, Scope, Token};
use crate::registry::house::House;
use crate::registry::{Draft, View};
use crate::seal::sha256_hex;

/// One post per platform with one gatewayId: within this time they all get the same secret.
const PROVISION_SAME_SECRET_MS: u64 = 10 * 60 * 1000;
/// Live secrets per gateway; the oldest go first.
const SECRETS_MAX: usize = 8;
const ID_MAX_CHARS: usize = 256;
const ROUTE_KEYS_MAX: usize = 1000;

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
            Proof::Good => Ok(Caller {
                tenant: gateway.tenant.clone(),
                gateway: gateway.id.clone(),
                instance,
                revocations: gateway.revocations,
            }),
            Proof::Expired => Err(Unproven::Expired),
            Proof::Bad => Err(Unproven::Unauthorized),
        }
    }

    /// The instance that a signed word is about. A name that several tenants use proves nobody.
    pub fn prove_instance(&self, name: &str, tenant: Option<&str>) -> Option<Guest> {
        self.registry.read(|view| {
            let meant = |it: &&Arc<Instance>| it.left_ms.is_none() && tenant.is_none_or(|only| only == it.tenant);
            let mut named = view.instances_named(name).iter().filter(meant);
            match (named.next(), named.next()) {
                (Some(one), None) => Some(Guest::of(one)),
                _ => None,
            }
        })
    }

    /// Why a proof of before no longer holds, if so: the gateway was revoked since, or serves another
    /// instance now and must dial again.
    pub fn disproof(&self, caller: &Caller) -> Option<Close> {
        self.registry.read(|view| match view.gateways.get(&caller.gateway) {
            Some(it) if it.revoked_ms.is_none() && it.revocations == caller.revocations => {
                (it.instance != caller.instance.name).then_some(Close::GoingAway)
            }
            _ => Some(Close::Unauthorized),
        })
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
        let moves = self.registry.read(|view| {
            let known = view.gateways.get(&ask.gateway_id).filter(|it| it.tenant == who.tenant);
            known.is_some_and(|it| seat.instance.as_ref().is_some_and(|instance| *instance != it.instance))
        });
        let reply =
            self.registry.write(|view, draft| self.seat_gateway(view, draft, seat)).await.map_err(DeskError::from)?;
        if moves {
            // Its socket still serves the instance of before; the next one serves the new one.
            self.switchboard.close(Some(&ask.gateway_id), Close::GoingAway);
        }
        Ok(reply)
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
                revocations: 0,
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
        if known.is_none() {
            let there = view.house(tenant).map_or((0, 0), House::gateway_counts);
            check_quota("gateways", there, self.rules.gateways_max, "relay.gateways_per_tenant")?;
        }
        self.seat_instance(view, draft, tenant, &instance, wake_url, true)?;
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

    /// `returns`: an instance that left is there again.
    ///
    /// The name is unique in the whole desk: it is the audience of the tokens that we sign and check. A tenant that
    /// asks for another's learns only that it cannot have it; the log says why.
    pub(super) fn seat_instance(
        &self,
        view: &View,
        draft: &mut Draft,
        tenant: &str,
        name: &str,
        wake_url: Option<String>,
        returns: bool,
    ) -> Result<(), DeskError> {
        let Some(known) = view.instance(tenant, name) else {
            if let Some(other) = view.instances_named(name).first() {
                tracing::warn!(
                    instance = name,
                    tenant,
                    owner = other.tenant,
                    "instance id refused: another tenant has it"
                );
                let text = "this instanceId (the gatewayId, where none is given) is not available on this desk; choose another";
                return Err(DeskError::Forbidden(text.into()));
            }
            let there = view.house(tenant).map_or((0, 0), House::instance_counts);
            check_quota("instances", there, self.rules.instances_max, "relay.instances_per_tenant")?;
            draft.put(Fact::Instance(Instance {
                no: 0, // drawn from the store
                tenant: tenant.into(),
                name: name.into(),
                wake_url,
                left_ms: None,
            }));
            return Ok(());
        };
        let wake_url = wake_url.or_else(|| known.wake_url.clone());
        let left_ms = known.left_ms.filter(|_| !returns);
        if wake_url != known.wake_url || left_ms != known.left_ms {
            draft.put(Fact::Instance(Instance { wake_url, left_ms, ..(**known).clone() }));
        }
        Ok(())
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
            draft.put(Fact::Gateway(gateway.revoked(now_ms)));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)?;
        self.close_gateway(gateway_id);
        Ok(())
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
}

impl Guest {
    pub(super) fn of(instance: &Arc<Instance>) -> Self {
        Guest { tenant: instance.tenant.clone(), instance: instance.clone() }
    }
}

/// Those that are gone stay on record, so that no name is given to somebody else; of them there may be ten times as
/// many. `max` 0 is no limit.
fn check_quota(what: &str, (live, gone): (usize, usize), max: usize, setting: &str) -> Result<(), DeskError> {
    if max == 0 || (live < max && gone < max.saturating_mul(10)) {
        return Ok(());
    }
    let text = format!(
        "this tenant has {live} {what}, and {gone} more that are gone but on record; deprovision some that are live, or \
         ask the operator to raise {setting} ({max})"
    );
    Err(DeskError::Forbidden(text))
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

fn live_gateway<'a>(view: &'a View, id: &str) -> Result<&'a Arc<Gateway>, DeskError> {
    let found = view.gateways.get(id).filter(|gateway| gateway.revoked_ms.is_none());
    found.ok_or_else(|| DeskError::NotFound(format!("no live gateway has the id {id:?}")))
}

pub(super) fn known_tenant(view: &View, name: &str) -> Result<(), DeskError> {
    match view.tenants.contains_key(name) {
        true => Ok(()),
        false => Err(DeskError::NotFound(format!(
            "no tenant is called {name:?}; make it with `frontdesk tenant create {name}`"
        ))),
    }
}

/// Ids of others are opaque, but bounded and printable.
pub(super) fn check_id(field: &str, id: &str) -> Result<(), DeskError> {
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
