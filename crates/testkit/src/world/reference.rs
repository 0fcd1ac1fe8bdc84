//! Reference implementation of the gate: evaluates the rules on the plain lists of a [`World`], one after the other.
//! Slow, and simple enough to be checked by reading.
//!
//! It must never call the gate or its parts.

use frontdesk_core::directory::facts::{Binding, Grant};
use frontdesk_wire::Source;
use frontdesk_wire::api::PrincipalPolicy;

use super::{Event, World, is_live};

/// An instance that was considered (`None`: there was none), and the rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub instance: Option<String>,
    pub delivered: bool,
    pub layer: &'static str,
    pub rule: &'static str,
    pub value: String,
}

/// Refusal of a layer: the rule, and the value that decided.
type No = (&'static str, String);

/// Tenant of an event, and how it was determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub tenant: String,
    pub by: &'static str,
}

/// All instances that were considered. Never empty.
pub fn evaluate(world: &World, event: &Event) -> Vec<Line> {
    let source = &event.source;
    let nobody = |layer, rule, value: &str| vec![line(None, Err((layer, (rule, value.to_owned()))))];
    let Some(Found { tenant, .. }) = tenant_of(world, event) else {
        let place = source.scope_id.as_deref().unwrap_or_else(|| channel_of(source));
        return nobody("tenant", "route", place);
    };
    if !world.tenants.contains(&tenant) {
        return nobody("tenant", "known", &tenant);
    }
    let author = source.user_id.as_deref().unwrap_or_default();
    if author.is_empty() {
        return nobody("owner", "author", "");
    }
    let here = Here { world, event, tenant: &tenant, author };
    let linked = here.links_of_author();
    if linked.is_empty() {
        return nobody("owner", "linked", author);
    }
    let grant = here.grant();
    let (own, because) = here.own(&linked, grant);
    let exists = |name: &str| world.instance(&tenant, name).is_some();
    let mut lines = Vec::new();
    if exists(own) {
        let seen = here.may_see(author).map_err(|no| ("visibility", no));
        lines.push(line(Some(own), seen.map(|()| ("owner", ("linked", author.to_owned())))));
    } else {
        lines.push(line(None, Err(("owner", ("instance", own.to_owned())))));
    }
    for link in &linked {
        if link.instance != own && exists(&link.instance) {
            lines.push(line(Some(&link.instance), Err(("owner", (because, own.to_owned())))));
        }
    }
    if let Some(grant) = grant
        && !linked.iter().any(|link| link.instance == grant.instance)
        && exists(&grant.instance)
    {
        let may = here.may_hold(&grant.instance);
        lines.push(line(Some(&grant.instance), may.map(|()| ("scope", ("granted", grant.channel.to_string())))));
    }
    lines
}

fn line(instance: Option<&str>, said: Result<(&'static str, No), (&'static str, No)>) -> Line {
    let delivered = said.is_ok();
    let (Ok((layer, (rule, value))) | Err((layer, (rule, value)))) = said;
    Line { instance: instance.map(str::to_owned), delivered, layer, rule, value }
}

/// Tenant of an event: that of the credential, otherwise by place, and in a direct message by author.
pub fn tenant_of(world: &World, event: &Event) -> Option<Found> {
    let source = &event.source;
    let found = |tenant: &str, by| Some(Found { tenant: tenant.into(), by });
    if let Some(tenant) = &event.tenant {
        return found(tenant, "credential");
    }
    let places = [
        ("scope", source.scope_id.as_deref()),
        ("chat", Some(source.chat_id.as_str())),
        ("parent", source.parent_chat_id.as_deref()),
    ];
    for (by, place) in places {
        for route in &world.routes {
            if route.platform == source.platform && Some(route.key.as_str()) == place {
                return found(&route.tenant, by);
            }
        }
    }
    if source.chat_type != "dm" {
        return None;
    }
    let author = source.user_id.as_deref()?;
    let links = || world.links.iter().filter(|link| link.platform == source.platform && link.user_id == author);
    let chosen = world.dm_defaults.iter().filter(|default| links().any(|link| is_live(default, link)));
    if let Some(default) = chosen.max_by_key(|default| default.at_ms) {
        return found(&default.tenant, "dm-default");
    }
    let latest = links().max_by_key(|link| link.at_ms)?;
    found(&latest.tenant, "latest")
}

/// The channel whose rules apply: for a thread that of its parent.
pub fn channel_of(source: &Source) -> &str {
    match source.parent_chat_id.as_deref() {
        None | Some("") => &source.chat_id,
        Some(parent) => parent,
    }
}

/// One event in its tenant.
struct Here<'a> {
    world: &'a World,
    event: &'a Event,
    tenant: &'a str,
    author: &'a str,
}

impl<'a> Here<'a> {
    fn links_of_author(&self) -> Vec<&'a Binding> {
        self.links().filter(|link| link.user_id == self.author).collect()
    }

    fn links(&self) -> impl Iterator<Item = &'a Binding> {
        let (tenant, platform) = (self.tenant, &self.event.source.platform);
        self.world.links.iter().filter(move |link| link.tenant == tenant && link.platform == *platform)
    }

    /// Grants do not apply to direct messages.
    fn grant(&self) -> Option<&'a Grant> {
        let source = &self.event.source;
        if source.chat_type == "dm" {
            return None;
        }
        let scope = source.scope_id.as_deref().unwrap_or("");
        self.world.grants.iter().find(|grant| {
            grant.tenant == self.tenant
                && grant.platform == source.platform
                && grant.scope == scope
                && grant.channel == channel_of(source)
        })
    }

    /// Which of the author's instances is chosen, and by which rule.
    fn own(&self, linked: &[&'a Binding], grant: Option<&Grant>) -> (&'a str, &'static str) {
        for link in linked {
            if grant.is_some_and(|grant| grant.instance == link.instance) {
                return (&link.instance, "granted");
            }
        }
        for link in linked {
            if self.world.dm_defaults.iter().any(|default| is_live(default, link)) {
                return (&link.instance, "dm-default");
            }
        }
        let latest = linked.iter().max_by_key(|link| link.at_ms).unwrap();
        (&latest.instance, "latest")
    }

    /// All layers for the holder of the channel, for an author who is not linked to it.
    fn may_hold(&self, instance: &str) -> Result<(), (&'static str, No)> {
        self.may_hear(instance).map_err(|no| ("principal", no))?;
        let owner = self.owner_of(instance).ok_or(("visibility", ("owner", String::new())))?;
        self.may_see(owner).map_err(|no| ("visibility", no))?;
        self.may_engage(instance).map_err(|no| ("relevance", no))
    }

    /// Principal layer: may it listen to this author?
    fn may_hear(&self, instance: &str) -> Result<(), No> {
        let stored = self.world.principals.iter().find(|it| it.tenant == self.tenant && it.instance == instance);
        match stored.map(|it| it.policy) {
            None | Some(PrincipalPolicy::OwnerOnly) => Err(("policy", "owner-only".into())),
            Some(PrincipalPolicy::AllowList) => {
                let listed = stored.is_some_and(|it| it.allow.iter().any(|user_id| user_id == self.author));
                if listed { Ok(()) } else { Err(("policy", "allow-list".into())) }
            }
            Some(PrincipalPolicy::Any) => Ok(()),
        }
    }

    /// The user who was linked first; among equal times, the first by id.
    fn owner_of(&self, instance: &str) -> Option<&'a str> {
        let links = self.links().filter(|link| link.instance == instance);
        links.min_by_key(|link| (link.since_ms, link.user_id.clone())).map(|link| link.user_id.as_str())
    }

    /// Visibility layer: can this user see the chat? Unknown means no.
    fn may_see(&self, viewer: &str) -> Result<(), No> {
        let source = &self.event.source;
        match self.world.sees(self.tenant, &source.platform, &source.chat_id, viewer) {
            Some(true) => Ok(()),
            Some(false) => Err(("can_see", viewer.into())),
            None => Err(("unknown", viewer.into())),
        }
    }

    /// Relevance layer: should it engage?
    fn may_engage(&self, instance: &str) -> Result<(), No> {
        let source = &self.event.source;
        let stored =
            self.world.policies.iter().find(|it| {
                it.tenant == self.tenant && it.policy.platform == source.platform && it.instance == instance
            });
        let policy = stored.map(|it| it.policy.clone()).unwrap_or_default();
        if source.is_bot && !policy.allow_other_bots {
            return Err(("allowOtherBots", "false".into()));
        }
        let free = |place: &String| place == "*" || *place == source.chat_id || place == channel_of(source);
        if policy.require_address && !self.event.addressed && !policy.free_response_scopes.iter().any(free) {
            return Err(("requireAddress", "true".into()));
        }
        Ok(())
    }
}
