//! The gate: decides which instances get an event, and records the reason for each instance considered.
//!
//! No I/O. Each layer only narrows: authorized, then visible, then relevant. Unknown means no. Considered are the
//! instances that the author is linked to, and the holder of the channel; for each, the first layer that refused is
//! recorded.

mod stored;
pub mod visibility;

use std::borrow::Cow;
use std::sync::Arc;

use frontdesk_wire::api::PrincipalPolicy;
use frontdesk_wire::{InstanceId, InstanceNo, Source, TenantId, UserId};

use crate::directory::View;
use crate::directory::facts::{Binding, Grant, Instance};
use crate::directory::index::{Person, PlatformIndex, TenantIndex};
use crate::gate::visibility::{Spot, VisibilityCache};

pub(crate) use stored::{INTERRUPTED, STOPPED};
pub use stored::{StoredVerdict, read_verdict};

/// The event to decide on.
#[derive(Clone, Copy)]
pub struct GateInput<'a> {
    pub tenant: &'a TenantId,
    pub source: &'a Source,
    /// The bot was mentioned, replied to, or called by a command.
    pub addressed: bool,
    /// It has no author: every linked instance receives it.
    pub to_every_link: bool,
}

/// The layers, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    Tenant,
    Owner,
    Scope,
    Principal,
    Visibility,
    Relevance,
}

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Owner => "owner",
            Self::Scope => "scope",
            Self::Principal => "principal",
            Self::Visibility => "visibility",
            Self::Relevance => "relevance",
        }
    }
}

/// Whether a user can see a chat. Unknown is not a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    Yes,
    No,
    Unknown,
}

impl From<Option<bool>> for Sees {
    fn from(said: Option<bool>) -> Self {
        match said {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unknown,
        }
    }
}

/// What the platform reported about who can see the chat.
#[derive(Default)]
pub struct KnownVisibility<'a> {
    said: Vec<(UserId, Sees)>,
    /// Cached reports.
    earlier: Option<Earlier<'a>>,
}

struct Earlier<'a> {
    cache: &'a VisibilityCache,
    spot: Spot<'a>,
    now_ms: u64,
}

impl<'a> KnownVisibility<'a> {
    pub fn remembered(cache: &'a VisibilityCache, spot: Spot<'a>, now_ms: u64) -> Self {
        Self { earlier: Some(Earlier { cache, spot, now_ms }), ..Self::default() }
    }

    pub fn note(&mut self, viewer: UserId, sees: impl Into<Sees>) {
        self.said.push((viewer, sees.into()));
    }

    fn of(&self, viewer: &UserId) -> Option<Sees> {
        let said = self.said.iter().find(|(known, _)| known == viewer).map(|(_, sees)| *sees);
        let earlier = || self.earlier.as_ref().and_then(|it| it.cache.known(it.spot, viewer, it.now_ms));
        said.or_else(earlier)
    }
}

/// The decision, or the users whose visibility must be asked for first.
#[derive(Debug)]
pub enum Decision {
    Verdict(Verdict),
    Ask(Vec<UserId>),
}

#[derive(Debug, Default)]
pub struct Verdict {
    pub lines: Vec<VerdictLine>,
}

/// One instance that was considered (`None`: there was none) and the rule that decided. Stored with every event, so
/// it is short; the explanation is built on request.
#[derive(Debug, Clone)]
pub struct VerdictLine {
    pub instance: Option<Arc<Instance>>,
    pub delivered: bool,
    pub layer: Layer,
    pub rule: &'static str,
    pub value: Cow<'static, str>,
}

impl Verdict {
    pub fn receivers(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.lines.iter().filter(|line| line.delivered).filter_map(|line| line.instance.as_ref())
    }

    pub fn outcome(&self) -> &'static str {
        if self.lines.iter().any(|line| line.delivered) { "delivered" } else { "withheld" }
    }

    /// A pressed button reaches only the agent that asked, not the others that would get a message of this person.
    pub fn only_for(&mut self, owner: InstanceNo) {
        let others = |line: &&mut VerdictLine| line.delivered && line.instance.as_ref().is_none_or(|it| it.no != owner);
        for line in self.lines.iter_mut().filter(others) {
            (line.delivered, line.layer, line.rule, line.value) = (false, Layer::Owner, "prompt", "".into());
        }
    }

    /// A report on an action: only for the instance that acted, whatever the links say.
    pub fn report(instance: Arc<Instance>) -> Self {
        let (layer, rule) = (Layer::Owner, "sender");
        Self { lines: vec![VerdictLine { instance: Some(instance), delivered: true, layer, rule, value: "".into() }] }
    }

    /// No instance gets it, and none was considered.
    pub fn withheld(layer: Layer, rule: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        Self { lines: vec![VerdictLine { instance: None, delivered: false, layer, rule, value: value.into() }] }
    }
}

pub fn evaluate(view: &View, input: &GateInput<'_>, known: &KnownVisibility<'_>) -> Decision {
    let source = input.source;
    let withheld = |layer, rule, value: &str| Decision::Verdict(Verdict::withheld(layer, rule, value.to_owned()));
    let Some(index) = view.tenant_index(input.tenant) else {
        let rule = if view.unreadable().has("tenant", &[input.tenant]) { "unreadable" } else { "known" };
        return withheld(Layer::Tenant, rule, input.tenant);
    };
    let Some(author) = source.user_id.as_ref().filter(|id| !id.is_empty()) else {
        return withheld(Layer::Owner, "author", "");
    };
    let there = index.on_platform(&source.platform);
    // A direct message is between a user and their own agent; grants do not apply.
    let grant = match there {
        Some(there) if !source.is_direct() => {
            there.grant(source.scope_id.as_deref().unwrap_or_default(), source.channel())
        }
        _ => None,
    };
    if let Some(kind) = view.unreadable().bears_on(input.tenant, source, author, grant.map(|it| &**it)) {
        return withheld(Layer::Tenant, "unreadable", kind);
    }
    let Some((there, person)) = there.and_then(|there| Some((there, there.person(author)?))) else {
        return withheld(Layer::Owner, "linked", author);
    };
    let mut evaluation = Evaluation { index, there, input, known, lines: Vec::with_capacity(2), ask: Vec::new() };
    evaluation.own(person, grant, author);
    if let Some(grant) = grant
        && !person.links.iter().any(|link| link.instance == grant.instance)
    {
        evaluation.holder(grant, author);
    }
    match evaluation.ask.is_empty() {
        true => Decision::Verdict(Verdict { lines: evaluation.lines }),
        false => Decision::Ask(evaluation.ask),
    }
}

struct Evaluation<'a> {
    index: &'a TenantIndex,
    there: &'a PlatformIndex,
    input: &'a GateInput<'a>,
    known: &'a KnownVisibility<'a>,
    lines: Vec<VerdictLine>,
    ask: Vec<UserId>,
}

impl Evaluation<'_> {
    /// The author's own instance, subject only to visibility. Their other instances are passed over.
    fn own(&mut self, person: &Person, grant: Option<&Arc<Grant>>, author: &UserId) {
        if self.input.to_every_link {
            for link in &person.links {
                self.own_by(link, author);
            }
            return;
        }
        let Some((chosen, rule)) = own_link(person, grant) else { return };
        self.own_by(chosen, author);
        for link in person.links.iter().filter(|link| link.instance != chosen.instance) {
            if let Some(instance) = self.index.instance(&link.instance) {
                self.note(Some(instance), false, Layer::Owner, rule, chosen.instance.to_string());
            }
        }
    }

    fn own_by(&mut self, link: &Binding, author: &UserId) {
        match self.index.instance(&link.instance) {
            None => self.note(None, false, Layer::Owner, "instance", link.instance.to_string()),
            Some(instance) => match self.blind(author) {
                Some(rule) => self.note(Some(instance), false, Layer::Visibility, rule, author.to_string()),
                None => self.note(Some(instance), true, Layer::Owner, "linked", author.to_string()),
            },
        }
    }

    /// The holder of the channel, for an author who is not linked to it.
    fn holder(&mut self, grant: &Grant, author: &UserId) {
        let Some(instance) = self.index.instance(&grant.instance) else { return };
        let principal = self.index.principal(&grant.instance);
        let policy = principal.map_or(PrincipalPolicy::OwnerOnly, |it| it.policy);
        let admitted = match policy {
            PrincipalPolicy::OwnerOnly => false,
            PrincipalPolicy::AllowList => principal.is_some_and(|it| it.allow.contains(author)),
            PrincipalPolicy::Any => true,
        };
        if !admitted {
            return self.note(Some(instance), false, Layer::Principal, "policy", policy.name());
        }
        let Some(owner) = self.there.owner(&grant.instance) else {
            return self.note(Some(instance), false, Layer::Visibility, "owner", "");
        };
        if let Some(rule) = self.blind(&owner.user_id) {
            return self.note(Some(instance), false, Layer::Visibility, rule, owner.user_id.to_string());
        }
        if let Some((rule, value)) = self.irrelevant(&grant.instance) {
            return self.note(Some(instance), false, Layer::Relevance, rule, value);
        }
        self.note(Some(instance), true, Layer::Scope, "granted", grant.channel.to_string());
    }

    /// Why this user cannot see the chat; `None` if they can, or if it must be asked first.
    fn blind(&mut self, viewer: &UserId) -> Option<&'static str> {
        match self.known.of(viewer) {
            Some(Sees::Yes) => None,
            Some(Sees::No) => Some("can_see"),
            Some(Sees::Unknown) => Some("unknown"),
            None => {
                self.ask.push(viewer.clone());
                None
            }
        }
    }

    /// Why the event is not relevant for the instance. Without a policy, everything written by people is.
    fn irrelevant(&self, instance: &InstanceId) -> Option<(&'static str, &'static str)> {
        let source = self.input.source;
        let policy = self.there.relevance(instance);
        if source.is_bot && !policy.is_some_and(|it| it.allow_other_bots) {
            return Some(("allowOtherBots", "false"));
        }
        let policy = policy.filter(|it| it.require_address)?;
        let free = policy.is_free(&source.chat_id, source.channel());
        (!self.input.addressed && !free).then_some(("requireAddress", "true"))
    }

    fn note(
        &mut self,
        instance: Option<&Arc<Instance>>,
        delivered: bool,
        layer: Layer,
        rule: &'static str,
        value: impl Into<Cow<'static, str>>,
    ) {
        self.lines.push(VerdictLine { instance: instance.cloned(), delivered, layer, rule, value: value.into() });
    }
}

/// Which of several links of the author counts: in channels the one that holds the channel, then the DM default, then
/// the newest.
fn own_link<'a>(person: &'a Person, grant: Option<&Arc<Grant>>) -> Option<(&'a Arc<Binding>, &'static str)> {
    let holder = grant.and_then(|grant| person.links.iter().find(|link| link.instance == grant.instance));
    holder.map(|link| (link, "granted")).or_else(|| person.preferred())
}

#[cfg(test)]
mod tests;
