//! `getUpdates`, and webhooks.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::state::{Bot, Webhook};
use super::Call;

const WEBHOOK_IS_SET: &str =
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";

fn bot<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Bot, ApiError> {
    call.state.bots.get_mut(&call.bot).ok_or_else(|| ApiError::new(401, "Unauthorized"))
}

/// Without waiting. The socket layer asks again while the answer is empty.
pub(super) fn get_updates(call: &mut Call<'_>) -> Answer {
    let allowed = call.params.texts("allowed_updates")?;
    let offset = call.params.int("offset").unwrap_or_default();
    let limit = call.params.int("limit").filter(|limit| (1..=100).contains(limit)).unwrap_or(100);
    let bot = bot(call)?;
    if bot.webhook.is_some() {
        return Err(ApiError::conflict(WEBHOOK_IS_SET));
    }
    if let Some(kinds) = allowed {
        bot.queue.allowed = Some(kinds).filter(|kinds| !kinds.is_empty());
    }
    bot.queue.confirm(offset);
    Ok(Value::Array(bot.queue.first(usize::try_from(limit).unwrap_or(100))))
}

/// The error of a poll that another call ended.
pub(in super::super) fn ended(bot: &Bot) -> ApiError {
    let only_one = match bot.queue.ended_by {
        "other getUpdates" => "; make sure that only one bot instance is running",
        _ => "",
    };
    ApiError::conflict(format!("terminated by {} request{only_one}", bot.queue.ended_by))
}

pub(super) fn set_webhook(call: &mut Call<'_>) -> Answer {
    let url = call.params.text("url").unwrap_or_default();
    if url.is_empty() {
        return delete_webhook(call);
    }
    let parsed = url::Url::parse(&url).map_err(|_| ApiError::bad("bad webhook: invalid URL"))?;
    // The vendor wants HTTPS. This fake also delivers to plain addresses of this machine, and to no others.
    if parsed.scheme() != "https" && !is_loopback(&parsed) {
        return Err(ApiError::bad("bad webhook: An HTTPS URL must be provided for webhook"));
    }
    let secret = call.params.some_text("secret_token");
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if secret.as_ref().is_some_and(|it| it.len() > 256 || !it.chars().all(is_token)) {
        return Err(ApiError::bad("secret token contains unallowed characters"));
    }
    let allowed = call.params.texts("allowed_updates")?;
    let max_connections = call.params.int("max_connections").unwrap_or(40);
    let drops = call.params.is_true("drop_pending_updates");
    let bot = bot(call)?;
    if let Some(kinds) = allowed {
        bot.queue.allowed = Some(kinds).filter(|kinds| !kinds.is_empty());
    }
    if drops {
        bot.queue.clear();
    }
    bot.queue.poll += 1;
    bot.queue.ended_by = "setWebhook";
    // A delivery that is on its way to the old address still counts as the one at a time.
    let in_flight = bot.webhook.as_ref().is_some_and(|known| known.in_flight);
    bot.webhook = Some(Webhook { url, secret, max_connections, in_flight, ..Webhook::default() });
    Ok(true.into())
}

pub(in super::super) fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

pub(super) fn delete_webhook(call: &mut Call<'_>) -> Answer {
    let drops = call.params.is_true("drop_pending_updates");
    let bot = bot(call)?;
    bot.webhook = None;
    if drops {
        bot.queue.clear();
    }
    Ok(true.into())
}

pub(super) fn webhook_info(call: &Call<'_>) -> Value {
    let Some(bot) = call.state.bots.get(&call.bot) else { return Value::Null };
    let mut shown = json!({"url": "", "has_custom_certificate": false, "pending_update_count": bot.queue.len()});
    if let Some(webhook) = &bot.webhook {
        shown["url"] = webhook.url.as_str().into();
        shown["max_connections"] = webhook.max_connections.into();
        shown["ip_address"] = "127.0.0.1".into();
        if let Some((at_ms, text)) = &webhook.last_error {
            shown["last_error_date"] = (at_ms / 1_000).into();
            shown["last_error_message"] = text.as_str().into();
        }
    }
    if let Some(kinds) = &bot.queue.allowed {
        shown["allowed_updates"] = json!(kinds);
    }
    shown
}
