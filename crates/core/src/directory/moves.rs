//! Moves the records of a chat whose id changed to the new id.

use frontdesk_wire::{BotId, ChatId, TenantId};

use super::bots::Bots;
use super::facts::{Fact, Grant, Policy, Route};
use super::registry::{AmendError, Draft};
use super::view::View;
use crate::port::store::StoreError;

impl Bots {
    /// Moves routes, grants and policies that name the chat. For a bot of one tenant, only that tenant's. A place that
    /// is routed to another tenant already stays with that tenant.
    pub(crate) async fn move_chat(
        &self,
        platform: &str,
        bot: &BotId,
        from: &ChatId,
        to: &ChatId,
    ) -> Result<(), StoreError> {
        let Some(bot) = self.added(platform, bot) else { return Ok(()) };
        let is_ours = |owner: &TenantId| bot.tenant.as_ref().is_none_or(|tenant| tenant == owner);
        let decide = |view: &View, draft: &mut Draft| {
            let taken = view.route(platform, to).map(|it| it.tenant.clone());
            if let Some(route) = view.route(platform, from).filter(|it| is_ours(&it.tenant)) {
                draft.remove(&Fact::Route((**route).clone()));
                match taken {
                    Some(owner) if owner != route.tenant => {
                        tracing::warn!(
                            platform,
                            from = from.as_str(),
                            to = to.as_str(),
                            owner = owner.as_str(),
                            "a route was removed: its chat got an id that is routed to another tenant"
                        );
                    }
                    _ => draft.put(Fact::Route(Route { key: to.to_string(), ..(**route).clone() })),
                }
            }
            for grant in view.grants.values().filter(|it| it.platform == platform && is_ours(&it.tenant)) {
                if grant.channel == *from || grant.scope == *from {
                    let moved = |id: &str| if id == *from { to.to_string() } else { id.to_owned() };
                    draft.remove(&Fact::Grant((**grant).clone()));
                    let (scope, channel) = (moved(&grant.scope), moved(&grant.channel));
                    draft.put(Fact::Grant(Grant { scope, channel: channel.into(), ..(**grant).clone() }));
                }
            }
            for policy in view.policies.values().filter(|it| it.policy.platform == platform && is_ours(&it.tenant)) {
                if policy.policy.free_response_scopes.iter().any(|scope| scope == from.as_str()) {
                    let mut moved: Policy = (**policy).clone();
                    for scope in moved.policy.free_response_scopes.iter_mut().filter(|scope| *scope == from.as_str()) {
                        *scope = to.to_string();
                    }
                    draft.put(Fact::Policy(moved));
                }
            }
            Ok::<_, std::convert::Infallible>(())
        };
        self.registry().write(decide).await.map_err(|AmendError::Store(error)| error)
    }
}
