//! Authentication by tokens. The tenant always comes from stored records, never from a request body.

use std::sync::Arc;

use frontdesk_wire::token::{self, Proof};
use frontdesk_wire::{Close, GatewayId, InstanceId, Secret, TenantId};

use super::facts::{Gateway, GatewaySecret, Instance, Scope, Token};
use super::{DirectoryPlane, View};
use crate::hash::sha256_hex;

/// The owner of an identity token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub tenant: TenantId,
    pub instance: Option<InstanceId>,
}

/// Why an upgrade token was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("expired")]
    Expired,
    #[error("unauthorized")]
    Unauthorized,
    /// This server may not know of revocations.
    #[error("the directory may be out of date; try again later")]
    Unavailable,
}

/// An authenticated gateway. Created only where a token was verified, never from an id in a body.
#[derive(Clone)]
pub struct Caller {
    pub tenant: TenantId,
    pub gateway: GatewayId,
    pub instance: Arc<Instance>,
    /// Revocation count of the gateway at the time of authentication.
    revocations: u32,
}

impl Caller {
    pub fn proven_instance(&self) -> ProvenInstance {
        ProvenInstance::of(&self.instance)
    }
}

/// An authenticated instance, by its gateway's token or by a signed token about it. It may manage only itself.
#[derive(Clone)]
pub struct ProvenInstance {
    pub tenant: TenantId,
    pub instance: Arc<Instance>,
}

impl ProvenInstance {
    pub(crate) fn of(instance: &Arc<Instance>) -> Self {
        Self { tenant: instance.tenant.clone(), instance: instance.clone() }
    }
}

impl DirectoryPlane {
    /// Verifies an upgrade token against all valid secrets of the gateway that it names.
    pub fn prove_gateway(&self, bearer: &str) -> Result<Caller, Unproven> {
        if !self.is_current() {
            return Err(Unproven::Unavailable);
        }
        let claimed = token::claim(bearer).ok_or(Unproven::Unauthorized)?;
        let found = self.registry.read(|view| {
            let gateway = view.gateways.get(claimed.gateway_id.as_str())?.clone();
            let instance = view.instance(&gateway.tenant, &gateway.instance)?.clone();
            Some((gateway, instance))
        });
        let Some((gateway, instance)) = found else {
            return Err(self.registry.read(|view| unknown(view, &claimed.gateway_id)));
        };
        if gateway.revoked_ms.is_some() {
            return Err(Unproven::Unauthorized);
        }
        let now_ms = self.env.now_ms();
        let live = gateway.secrets.iter().filter(|secret| secret.retires_ms.is_none_or(|at| at > now_ms));
        let secrets: Vec<Secret> = live.filter_map(|secret| self.open_secret(&gateway, secret)).collect();
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

    /// The instance that a signed token names. A name used by several tenants is rejected.
    pub fn prove_instance(&self, name: &InstanceId, tenant: Option<&TenantId>) -> Option<ProvenInstance> {
        self.registry.read(|view| {
            let mut named = view
                .live_instances_named(name)
                .filter(|it| tenant.is_none_or(|only| *only == it.tenant))
                .filter(|_| !view.unreadable().is_named_in(tenant, name));
            match (named.next(), named.next()) {
                (Some(one), None) => Some(ProvenInstance::of(one)),
                _ => None,
            }
        })
    }

    /// Why an earlier authentication is no longer valid: the gateway was revoked since, or serves another instance and
    /// must reconnect, or this server may not know of it.
    pub fn disproof(&self, caller: &Caller) -> Option<Close> {
        if !self.is_current() {
            return Some(Close::TryLater);
        }
        self.registry.read(|view| match view.gateways.get(&caller.gateway) {
            Some(it) if it.revoked_ms.is_none() && it.revocations == caller.revocations => {
                (it.instance != caller.instance.name).then_some(Close::GoingAway)
            }
            None if view.unreadable().has("gateway", &[&caller.gateway]) => Some(Close::TryLater),
            _ => Some(Close::Unauthorized),
        })
    }

    /// The token, if it is known, not expired, and of this scope.
    pub fn prove_token(&self, bearer: &str, scope: Scope) -> Option<Token> {
        let hash = sha256_hex(bearer);
        let found = self.registry.read(|view| view.token_by_hash(&hash).cloned())?;
        (found.is_live_at(self.env.now_ms()) && found.scope == scope).then(|| (*found).clone())
    }

    /// Whether the token with this id still exists and has not expired.
    pub fn is_live_token(&self, id: &str) -> bool {
        self.registry.read(|view| view.token(id).is_some_and(|it| it.is_live_at(self.env.now_ms())))
    }

    pub fn prove_identity(&self, bearer: &str) -> Option<Identity> {
        let token = self.prove_token(bearer, Scope::Identity)?;
        Some(Identity { tenant: token.tenant, instance: token.instance })
    }

    pub(super) fn open_secret(&self, gateway: &Gateway, secret: &GatewaySecret) -> Option<Secret> {
        let sealed = hex::decode(&secret.sealed).ok()?;
        let opened = self.sealer.open(&sealed, &[&gateway.tenant, "gateway", &gateway.id, &secret.id]);
        opened
            .inspect_err(
                |error| tracing::error!(%error, gateway = gateway.id.as_str(), "opening a gateway secret failed"),
            )
            .ok()
    }
}

/// A gateway whose record cannot be read here is not told that it was revoked.
fn unknown(view: &View, gateway: &GatewayId) -> Unproven {
    let unreadable = view.unreadable();
    let of_instance = |it: &Arc<Gateway>| unreadable.has("instance", &[&it.tenant, &it.instance]);
    match unreadable.has("gateway", &[gateway]) || view.gateways.get(gateway).is_some_and(of_instance) {
        true => Unproven::Unavailable,
        false => Unproven::Unauthorized,
    }
}
