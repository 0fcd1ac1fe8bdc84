//! A place on a shared platform, and the tenant that it belongs to.

use std::sync::Arc;

use frontdesk_wire::{ChatId, Source, TenantId, UserId};

use super::facts::Binding;
use super::view::View;

/// Tenant of a chat on a shared platform: that of the scope, otherwise of the chat (or its parent, for a thread), and
/// in a direct message the tenant in which the user is linked.
pub fn tenant_of<'a>(view: &'a View, platform: &str, place: &ChatLocation<'_>) -> Option<&'a TenantId> {
    let keys = [place.scope_id, Some(place.chat_id.as_str()), place.parent_chat_id.map(ChatId::as_str)];
    if view.unreadable().bears_on_place(platform, &keys, place.person) {
        return None; // it may belong to another tenant
    }
    let routed = keys.into_iter().flatten().find_map(|key| view.route(platform, key));
    if let Some(route) = routed {
        return Some(&route.tenant);
    }
    let links = view.links_anywhere(platform, place.person?);
    let chosen = |link: &&Arc<Binding>| {
        let default = view.dm_default(&link.tenant, platform, &link.user_id);
        default.filter(|it| it.instance == link.instance).map(|it| it.at_ms)
    };
    let preferred = links.iter().filter(|link| chosen(link).is_some()).max_by_key(chosen);
    preferred.or_else(|| links.last()).map(|link| &link.tenant)
}

/// A place, as the platform reports it.
#[derive(Debug, Clone, Copy)]
pub struct ChatLocation<'a> {
    pub scope_id: Option<&'a str>,
    pub chat_id: &'a ChatId,
    pub parent_chat_id: Option<&'a ChatId>,
    /// The user of a direct chat.
    pub person: Option<&'a UserId>,
}

impl<'a> ChatLocation<'a> {
    pub fn of(source: &'a Source) -> Self {
        Self {
            scope_id: source.scope_id.as_deref(),
            chat_id: &source.chat_id,
            parent_chat_id: source.parent_chat_id.as_ref(),
            person: source.user_id.as_ref().filter(|_| source.is_direct()),
        }
    }
}
