//! Files both ways. Twilio fetches what it sends from a URL, so files of this server get one that is valid for an hour
//! and needs no token of a tenant. Received files are at Twilio, which redirects to its file storage.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use frontdesk_core::port::outcall::{Call, OpenAnswer};
use frontdesk_core::port::platform::{Bot, DoorAnswer, MediaFault, ReceivedRequest, RemoteMedia, Reply};
use frontdesk_wire::secret::same_bytes;
use frontdesk_wire::{ActionResult, Code, Secret, TenantId};

use super::Sms;
use super::api::{Api, BASE_URL, tokens_of};
use crate::shared::missing_bot;
use crate::shared::vendor_url::is_of_vendor;

/// Larger files are refused by Twilio.
const UPLOAD_MAX_BYTES: usize = 5 << 20;
const DOWNLOAD_MAX_BYTES: usize = 20 << 20;
/// How long Twilio may fetch a file.
const LINK_TTL_S: u64 = 3_600;
/// Steps from the API to the store of files.
const REDIRECTS_MAX: usize = 3;

impl Sms {
    /// The URL at which Twilio gets the file of an action. Nothing was sent yet.
    pub(super) async fn media_url(
        &self,
        bot: &Bot,
        tenant: &TenantId,
        source_url: &str,
    ) -> Result<String, ActionResult> {
        let Some(id) = source_url.strip_prefix(&self.own_files) else {
            self.outcall
                .check(source_url)
                .map_err(|error| ActionResult::refused(Code::UrlRefused, format!("source_url: {error}")))?;
            return Ok(source_url.to_owned());
        };
        let file = self.files.open(tenant, source_url, UPLOAD_MAX_BYTES).await?;
        if file.size.is_some_and(|size| size > UPLOAD_MAX_BYTES as u64) {
            let text = format!("Twilio takes files of at most {UPLOAD_MAX_BYTES} bytes");
            return Err(ActionResult::refused(Code::TooLarge, text));
        }
        let link = Link { tenant, id, until_s: self.env.now_ms() / 1_000 + LINK_TTL_S };
        let token = link.token(bot).ok_or_else(|| missing_bot::refused(bot))?;
        Ok(format!("{}/twilio/{}/media/{token}", self.public_url, bot.id))
    }

    /// A file of this server, for any client that has its link.
    pub(super) async fn show_file(&self, bot: &Bot, token: &str, now_ms: u64) -> Result<ReceivedRequest, Reply> {
        let absent = || Reply::text(404, "the link is not valid, or expired");
        let (tenant, id) = Link::read(bot, token, now_ms / 1_000).ok_or_else(absent)?;
        let found = self.media.media_get(&tenant, &id, now_ms).await;
        let (item, body) = found.map_err(|_| Reply::text(503, "the file cannot be read"))?.ok_or_else(absent)?;
        Ok(ReceivedRequest::events(Vec::new(), DoorAnswer::File(item, body)))
    }

    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = || MediaFault::Gone("the bot was removed".into());
        let api = Api::of(&*self.outcall, bot).ok_or_else(gone)?;
        let at_twilio = |path: &str| format!("{}{path}", api.own_base().unwrap_or(BASE_URL).trim_end_matches('/'));
        let mut url = match handle.expose().strip_prefix(BASE_URL) {
            Some(path) if path.starts_with('/') => at_twilio(path),
            _ => handle.expose().to_owned(),
        };
        if !is_of_twilio(&url, api.own_base()) {
            return Err(MediaFault::Gone("its URL is not one of Twilio".into()));
        }
        let authorization = api.authorization();
        for _ in 0..=REDIRECTS_MAX {
            let headers = [("authorization", authorization.as_str())];
            // The store of files has URLs that are credentials themselves, and gets no other one.
            let headers = if is_of_twilio(&url, api.own_base()) { &headers[..] } else { &[] };
            let call = Call { headers, trusted: api.own_base(), ..Call::get(&url, DOWNLOAD_MAX_BYTES) };
            let answer = self.outcall.open(call).await;
            let answer = answer.map_err(|error| MediaFault::Unavailable(api.no_answer(&error).text()))?;
            match answer.status {
                200..=299 => return Ok(shown(answer)),
                301 | 302 | 303 | 307 | 308 => {
                    let to = answer.header("location").unwrap_or_default();
                    url = match to.starts_with('/') && !to.starts_with("//") {
                        true => at_twilio(to),
                        false => to.to_owned(),
                    };
                }
                404 | 410 => return Err(MediaFault::Gone(format!("status {}", answer.status))),
                status => return Err(MediaFault::Unavailable(format!("status {status}"))),
            }
        }
        Err(MediaFault::Unavailable("Twilio redirected the request too often".into()))
    }
}

fn shown(answer: OpenAnswer) -> RemoteMedia {
    let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
    RemoteMedia { mime, filename: None, body: answer.body }
}

/// Whether the credentials may be sent there: to the API, or to the address that the operator set instead.
fn is_of_twilio(url: &str, own_base: Option<&str>) -> bool {
    is_of_vendor(url, own_base, |host| {
        host == "api.twilio.com" || (host.starts_with("api.") && host.ends_with(".twilio.com"))
    })
}

/// A file that Twilio may fetch until some time.
struct Link<'a> {
    tenant: &'a TenantId,
    id: &'a str,
    until_s: u64,
}

impl Link<'_> {
    fn mark(&self, bot: &Bot) -> Option<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, tokens_of(bot).next()?.as_bytes());
        let until = self.until_s.to_string();
        let mut context = hmac::Context::with_key(&key);
        // Twilio signs with the same key, and never something that begins so.
        for part in ["frontdesk-file", &bot.id, &until, self.tenant, self.id] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        Some(hex::encode(context.sign()))
    }

    fn token(&self, bot: &Bot) -> Option<String> {
        let names = [self.tenant.as_str(), self.id].map(|name| URL_SAFE_NO_PAD.encode(name));
        Some(format!("{}.{}.{}.{}", self.until_s, names[0], names[1], self.mark(bot)?))
    }

    /// Tenant and id of a link that is valid.
    fn read(bot: &Bot, token: &str, now_s: u64) -> Option<(TenantId, String)> {
        let mut parts = token.split('.');
        let until_s: u64 = parts.next()?.parse().ok()?;
        let mut name = || String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
        let (tenant, id) = (TenantId::from(name()?), name()?);
        let mark = parts.next()?;
        let link = Link { tenant: &tenant, id: &id, until_s };
        let is_valid = same_bytes(link.mark(bot)?.as_bytes(), mark.as_bytes()) && parts.next().is_none();
        (is_valid && now_s <= until_s).then_some((tenant, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot(id: &str, token: &str) -> Bot {
        Bot::new(id, None, [].into(), [("auth_token".to_owned(), Secret::new(token))].into())
    }

    #[test]
    fn a_link_is_for_one_file_of_one_bot_and_ends() {
        let ours = bot("b", "token");
        let token = Link { tenant: &"home".into(), id: "f1", until_s: 100 }.token(&ours).unwrap();
        assert_eq!(Link::read(&ours, &token, 100), Some(("home".into(), "f1".into())));
        assert_eq!(Link::read(&ours, &token, 101), None, "it is over");
        assert_eq!(Link::read(&bot("c", "token"), &token, 1), None);
        assert_eq!(Link::read(&bot("b", "other"), &token, 1), None);
        let (_, rest) = token.split_once('.').unwrap();
        let foreign = Link { tenant: &"away".into(), id: "f1", until_s: 100 }.token(&ours).unwrap();
        let mixed = format!("{}.{}", foreign.rsplit_once('.').unwrap().0, token.rsplit_once('.').unwrap().1);
        for wrong in
            [format!("200.{rest}"), format!("{token}.x"), mixed, token[..token.len() - 1].into(), String::new()]
        {
            assert_eq!(Link::read(&ours, &wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn credentials_go_to_twilio_only() {
        for (url, base, is_ours) in [
            ("https://api.twilio.com/2010-04-01/x", None, true),
            ("https://api.dublin.ie1.twilio.com/x", None, true),
            ("http://api.twilio.com/x", None, false),
            ("https://api.twilio.com.evil.example/x", None, false),
            ("https://api.evil.example/.twilio.com", None, false),
            ("https://api.twilio.com@evil.example/x", None, false),
            ("https://evil.example\\.twilio.com/x", None, false),
            ("https://media.twiliocdn.com/x", None, false),
            ("http://127.0.0.1:9/x", Some("http://127.0.0.1:9/"), true),
            ("http://127.0.0.1:99/x", Some("http://127.0.0.1:9"), false),
            ("https://api.twilio.com/x", Some("http://127.0.0.1:9"), false),
        ] {
            assert_eq!(is_of_twilio(url, base), is_ours, "{url} {base:?}");
        }
    }
}
