//! Requests of Feishu: verified, then read.

use frontdesk_core::intake::Verified;
use frontdesk_core::port::platform::{Bot, Door, Method, RawRequest, ReceivedRequest, Reply};
use serde_json::json;

use super::envelope::{self, is_challenge};
use super::events::check_app;
use super::received::Received;
use super::value::text_of;
use super::{Feishu, PLATFORM};

/// An event with the longest message, encrypted.
const REQUEST_MAX_BYTES: usize = 1 << 20;

pub(super) const DOORS: [Door; 1] = [Door {
    method: Method::Post,
    path: "/feishu/{bot}",
    summary: "Events and card callbacks of a Feishu or Lark app",
    max_bytes: REQUEST_MAX_BYTES,
}];

impl Feishu {
    pub(super) async fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let payload = envelope::open(bot, request)?;
        if is_challenge(&payload) {
            return Ok(ReceivedRequest::nothing(Reply::json(
                200,
                &json!({ "challenge": text_of(&payload, "challenge") }),
            )));
        }
        if text_of(&payload, "schema") != "2.0" {
            // Events of the old schema have other names and ids; the app chooses per event.
            tracing::warn!(
                platform = PLATFORM,
                bot = bot.id.as_str(),
                "an event of an old schema was ignored; choose v2.0 events"
            );
            return Ok(Received::default().into_request());
        }
        check_app(bot, &payload).map_err(|why| Reply::text(403, why))?;
        let proof = Verified::by("signature over the raw body, or the verification token");
        let received = self.events(bot, proof, &payload, request.now_ms).await;
        received.map(Received::into_request).map_err(|why| Reply::text(503, why))
    }
}
