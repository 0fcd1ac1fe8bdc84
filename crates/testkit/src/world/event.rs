//! Events of a world: who writes where.

use frontdesk_core::directory::facts::{Grant, Route};
use frontdesk_wire::{ChatId, Source, UserId};

use super::make::any_tenant;
use super::{APART, Dice, PLATFORMS, World};

/// An event as its platform reports it.
#[derive(Debug, Clone)]
pub struct Event {
    /// The tenant of the platform's credential; `None` if tenants share the platform.
    pub tenant: Option<String>,
    pub source: Source,
    /// The bot was mentioned, replied to, or called by a command.
    pub addressed: bool,
}

impl World {
    pub fn event(&self, dice: &mut Dice) -> Event {
        let platform = *dice.pick(&PLATFORMS);
        self.event_on(dice, platform)
    }

    pub fn event_on(&self, dice: &mut Dice, platform: &str) -> Event {
        // Mostly by a linked user in their tenant, because other events are decided early.
        let links: Vec<_> = self.links.iter().filter(|it| it.platform == platform).collect();
        let link = (!links.is_empty() && dice.chance(80)).then(|| *dice.pick(&links));
        let tenant = link.map_or_else(|| any_tenant(&self.tenants, dice), |link| link.tenant.to_string());
        let author = match (link, dice.below(100)) {
            (_, 0) => None,
            (_, 1) => Some(UserId::default()),
            (_, 2) => Some("stranger".into()),
            (Some(link), 3..85) => Some(link.user_id.clone()),
            _ => Some(dice.pick(&self.people).user_id.clone()),
        };
        let mut source = self.any_place(platform, dice);
        if platform != APART && dice.chance(70) {
            self.walk_to(&tenant, &mut source, dice);
        }
        if dice.chance(75) {
            self.step_into_a_held_channel(&tenant, &mut source, dice);
        }
        source.is_bot = self.people.iter().any(|person| person.is_bot && author.as_ref() == Some(&person.user_id));
        source.user_id = author;
        source.message_is_edit = dice.chance(5);
        let tenant = (platform == APART).then_some(tenant);
        Event { tenant, source, addressed: dice.chance(35) }
    }

    fn any_place(&self, platform: &str, dice: &mut Dice) -> Source {
        let mut source = Source { platform: platform.into(), ..Source::default() };
        let scope = match dice.below(20) {
            0 => Some(String::new()),
            1..5 => None,
            _ => Some(dice.pick(&self.scopes).clone()),
        };
        let channel = dice.pick(&self.channels).clone();
        match dice.below(20) {
            0..4 => {
                // Some platforms use ordinary ids for direct chats, and a few put them into a scope.
                source.chat_id = if dice.chance(80) { dice.pick(&self.directs) } else { &channel }.into();
                source.chat_type = "dm".into();
                source.set_scope(scope.filter(|_| dice.chance(20)));
            }
            4..13 => {
                source.chat_id = dice.pick(&self.threads).into();
                source.chat_type = (*dice.pick(&["thread", "thread", "group", "forum"])).into();
                source.thread_id = dice.chance(50).then(|| source.chat_id.to_string());
                source.parent_chat_id = match dice.below(12) {
                    0 => None,
                    1 => Some(ChatId::default()),
                    _ => Some(channel.into()),
                };
                source.set_scope(scope);
            }
            _ => {
                source.chat_id = if dice.chance(97) { &channel } else { dice.pick(&self.directs) }.into();
                source.chat_type = (*dice.pick(&["group", "channel", "forum", "", "DM"])).into();
                source.thread_id = dice.chance(20).then(|| dice.pick(&self.threads).clone());
                source.set_scope(scope);
            }
        }
        source
    }

    /// Moves to a place that a route of this tenant names, if there is one; other routes may take precedence.
    fn walk_to(&self, tenant: &str, source: &mut Source, dice: &mut Dice) {
        let routes = self.routes.iter().filter(|it| it.tenant == tenant && it.platform == source.platform);
        let routes: Vec<&Route> = routes.collect();
        if routes.is_empty() || (source.chat_type == "dm" && dice.chance(80)) {
            return;
        }
        let key = dice.pick(&routes).key.clone();
        if self.scopes.contains(&key) {
            return source.set_scope(Some(key));
        }
        let is_routed =
            |scope: &String| self.routes.iter().any(|it| it.platform == source.platform && it.key == *scope);
        let scope = source.scope_id.take().filter(|scope| !is_routed(scope));
        source.set_scope(scope);
        match source.parent_chat_id.is_some() {
            true => source.parent_chat_id = Some(key.into()),
            false => source.chat_id = key.into(),
        }
    }

    /// Moves to a held channel of the same scope, if there is one.
    fn step_into_a_held_channel(&self, tenant: &str, source: &mut Source, dice: &mut Dice) {
        let scope = source.scope_id.as_deref().unwrap_or_default();
        let held = self.grants.iter().filter(|it| it.tenant == tenant && it.scope == scope);
        let held: Vec<&Grant> = held.filter(|it| it.platform == source.platform).collect();
        if held.is_empty() || source.chat_type == "dm" {
            return;
        }
        let channel = dice.pick(&held).channel.clone();
        match source.parent_chat_id.is_some() {
            true => source.parent_chat_id = Some(channel),
            false => source.chat_id = channel,
        }
    }

    /// Whether the event can be posted to the built-in chat with the tenant's chat token: there every author has an id,
    /// and threads have no chat of their own.
    pub fn is_postable(&self, event: &Event) -> bool {
        let source = &event.source;
        let known = event.tenant.as_ref().is_some_and(|tenant| self.tenants.contains(tenant));
        let kinds = ["dm", "group", "channel", "thread", "forum"];
        known
            && source.platform == APART
            && source.user_id.as_ref().is_some_and(|id| !id.is_empty())
            && source.parent_chat_id.is_none()
            && kinds.contains(&source.chat_type.as_str())
    }
}
