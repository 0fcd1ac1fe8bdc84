//! Installing the app in further workspaces: a person opens `/install`, agrees at Slack, and comes back to `/oauth` with a
//! code that is exchanged for the token of the workspace.
//!
//! The state that comes back must be the one that this server gave to this browser a moment ago. So a user cannot be
//! made to finish an installation that another one began.

use aws_lc_rs::hmac;
use frontdesk_core::port::platform::{Bot, DoorAnswer, GrantedSecret, RawRequest, ReceivedRequest, Reply};
use frontdesk_wire::Secret;
use frontdesk_wire::secret::same_bytes;

use super::Slack;
use super::account::{WORKSPACE, WORKSPACES_MAX, is_id};
use super::api::{Api, ApiError, BASE_URL};
use super::form::{encoded, field};
use super::rich::text_of;

const COOKIE: &str = "frontdesk_slack_install";
const STATE_S: u64 = 600;
const STATE_MAX_BYTES: usize = 256;

/// What the app may do. The first ones are needed; the status line and commands work only with theirs.
pub(super) const SCOPES: [&str; 17] = [
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:write",
    "users:read",
    "commands",
    "assistant:write",
];

/// What the operator gave for installations.
struct App<'a> {
    client_id: &'a str,
    client_secret: &'a Secret,
}

fn app(bot: &Bot) -> Result<App<'_>, Reply> {
    match (bot.setting("client_id"), bot.secret("client_secret")) {
        (Some(client_id), Some(client_secret)) => Ok(App { client_id, client_secret }),
        _ => Err(Reply::text(
            404,
            "this bot cannot be installed in further workspaces: it was added without --set client_id=... and --secret \
             client_secret=...",
        )),
    }
}

impl Slack {
    pub(super) fn begin_install(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let App { client_id, client_secret } = app(bot)?;
        let expires_s = request.now_ms / 1_000 + STATE_S;
        let state = sign(client_secret, &bot.id, &format!("{expires_s}.{}", self.env.random_hex(16)));
        let site = bot.setting("base_url").unwrap_or(BASE_URL).trim_end_matches('/').trim_end_matches("/api");
        let location = format!(
            "{site}/oauth/v2/authorize?client_id={}&scope={}&state={state}&redirect_uri={}",
            encoded(client_id),
            encoded(&SCOPES.join(",")),
            encoded(&self.redirect_uri(bot)),
        );
        let secure = if self.public_url.starts_with("https://") { "; Secure" } else { "" };
        let cookie =
            format!("{COOKIE}={state}; Path=/slack/{}/; Max-Age={STATE_S}; HttpOnly; SameSite=Lax{secure}", bot.id);
        let headers = vec![("location", location), ("set-cookie", cookie), ("cache-control", "no-store".into())];
        Ok(ReceivedRequest::nothing(Reply { headers, ..Reply::text(302, "") }))
    }

    pub(super) async fn finish_install(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let App { client_id, client_secret } = app(bot)?;
        let asked = |name: &str| field(request.query.as_bytes(), name).filter(|value| !value.is_empty());
        let state = asked("state").filter(|state| state.len() <= STATE_MAX_BYTES).unwrap_or_default();
        let is_ours = has_cookie(request, &state)
            && is_genuine(client_secret, &bot.id, &state)
            && expiry(&state).is_some_and(|expires_s| expires_s >= request.now_ms / 1_000);
        if !is_ours {
            return Err(page(
                403,
                "Not installed",
                "This installation was not begun in this browser, or more than ten minutes ago. Please begin again.",
            ));
        }
        if let Some(error) = asked("error") {
            let text = format!("Slack says: {error}. Nothing was installed.");
            return Err(page(400, "Not installed", &text));
        }
        let code =
            asked("code").ok_or_else(|| page(400, "Not installed", "Slack sent no code. Please begin again."))?;
        let none = Secret::new("");
        let api = Api { outcall: &*self.outcall, own_base: bot.setting("base_url"), token: &none };
        let redirect_uri = self.redirect_uri(bot);
        let fields = [
            ("client_id", client_id),
            ("client_secret", client_secret.expose()),
            ("code", &code),
            ("redirect_uri", &redirect_uri),
        ];
        let response = api.ask("oauth.v2.access", &fields).await.map_err(|error| {
            let status = if matches!(error, ApiError::Refused { .. }) { 400 } else { 503 };
            page(status, "Not installed", &format!("{}. Please begin again.", error.text()))
        })?;
        let refused = |text: &str| page(409, "Not installed", text);
        let (team, token) = (text_of(&response["team"], "id").to_owned(), text_of(&response, "access_token"));
        if response["is_enterprise_install"].as_bool() == Some(true) || !is_id(&team) {
            return Err(refused("Please install the app in a workspace, and not in the whole organization."));
        }
        if !token.starts_with("xoxb-") {
            return Err(refused("Slack granted no token of a bot. The app needs a bot user."));
        }
        if response.get("expires_in").is_some_and(|seconds| !seconds.is_null()) {
            return Err(refused("The token would expire. Please turn off token rotation in the settings of the app."));
        }
        let installed: Vec<&str> = bot.granted(WORKSPACE).map(|(team, _)| team).collect();
        if installed.len() >= WORKSPACES_MAX && !installed.contains(&team.as_str()) {
            return Err(refused(&format!(
                "The app is installed in {WORKSPACES_MAX} workspaces, and in no more from here."
            )));
        }
        self.known.forget(&(bot.id.clone(), bot.account().to_owned(), team.clone()));
        let name = Some(text_of(&response["team"], "name")).filter(|name| !name.is_empty()).unwrap_or(&team);
        let text = format!(
            "The app is installed in {name} ({team}). Whoever runs this server decides which agents are reached from there."
        );
        let granted = vec![GrantedSecret { name: format!("{WORKSPACE}{team}"), value: Secret::new(token) }];
        Ok(ReceivedRequest {
            granted,
            ..ReceivedRequest::events(Vec::new(), DoorAnswer::Fixed(page(200, "Installed", &text)))
        })
    }

    fn redirect_uri(&self, bot: &Bot) -> String {
        format!("{}/slack/{}/oauth", self.public_url, bot.id)
    }
}

/// A page for the person who installs.
fn page(status: u16, title: &str, text: &str) -> Reply {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#39;")
    };
    let body = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{0}</title><h1>{0}</h1><p>{1}</p>",
        escaped(title),
        escaped(text)
    );
    let headers = vec![
        ("cache-control", "no-store".to_owned()),
        ("content-security-policy", "default-src 'none'".to_owned()),
        ("referrer-policy", "no-referrer".to_owned()),
    ];
    Reply { status, content_type: "text/html; charset=utf-8", body, headers }
}

fn key(client_secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, client_secret.expose().as_bytes())
}

fn signed_text(bot: &str, what: &str) -> String {
    format!("frontdesk install {bot} {what}")
}

fn sign(client_secret: &Secret, bot: &str, what: &str) -> String {
    let tag = hmac::sign(&key(client_secret), signed_text(bot, what).as_bytes());
    format!("{what}.{}", hex::encode(tag))
}

fn is_genuine(client_secret: &Secret, bot: &str, state: &str) -> bool {
    let Some((what, tag)) = state.rsplit_once('.') else { return false };
    let Ok(tag) = hex::decode(tag) else { return false };
    hmac::verify(&key(client_secret), signed_text(bot, what).as_bytes(), &tag).is_ok()
}

fn expiry(state: &str) -> Option<u64> {
    state.split('.').next()?.parse().ok()
}

fn has_cookie(request: &RawRequest, state: &str) -> bool {
    let headers = request.headers.iter().filter(|(name, _)| name == "cookie");
    let mut cookies = headers.flat_map(|(_, value)| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    !state.is_empty() && cookies.any(|(name, value)| name == COOKIE && same_bytes(value.as_bytes(), state.as_bytes()))
}
