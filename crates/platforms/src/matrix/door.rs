//! The door of an application service: transactions that the homeserver pushes until they are answered with 200.
//!
//! A transaction that comes again has the same id and the same events. Each event is stored once by its own id, so a
//! repeated transaction stores nothing, also after a restart and at another server of the same store.

use std::sync::Arc;

use frontdesk_core::intake::Verified;
use frontdesk_core::port::platform::{Answer, Bot, Door, Heard, Method, RawRequest, Reply};
use frontdesk_wire::secret::same_bytes;
use serde_json::{Value, json};

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Client, Fault};
use super::gather::Gathered;

const TRANSACTIONS: &str = "/_matrix/app/v1/transactions/{txn}";
/// A hundred events of the longest size, which is what Synapse sends at most, each with the state that it replaces and what
/// the homeserver adds. A longer one would come again for ever. The body is read only after the token was found to be right.
const BODY_MAX_BYTES: usize = 32 << 20;

pub(super) const DOORS: [Door; 2] = [
    Door {
        method: Method::Put,
        path: TRANSACTIONS,
        summary: "Take events that a homeserver pushes to its application service",
        max_bytes: BODY_MAX_BYTES,
    },
    Door {
        method: Method::Post,
        path: "/_matrix/app/v1/ping",
        summary: "Answer the homeserver that checks whether its application service is there",
        max_bytes: 4 << 10,
    },
];

fn refused(status: u16, errcode: &str, error: &str) -> Reply {
    Reply::json(status, &json!({ "errcode": errcode, "error": error }))
}

/// The token that the homeserver shows: in the header, and in the query if it is an older one.
fn token_of(request: &RawRequest) -> Option<String> {
    let header = request.header("authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    header.or_else(|| {
        let value = request.query.split('&').find_map(|pair| pair.strip_prefix("access_token="))?;
        decoded(value)
    })
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => u8::from_str_radix(std::str::from_utf8(&[bytes.next()?, bytes.next()?]).ok()?, 16).ok()?,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// The bot whose homeserver sent this. All of them are compared, each in constant time.
pub(super) fn bot_of<'a>(bots: &'a [Arc<Bot>], request: &RawRequest) -> Option<&'a Arc<Bot>> {
    let shown = token_of(request)?;
    let is_right = |bot: &Bot| {
        let is_pushed = Account::of(bot).is_ok_and(|account| account.mode == Mode::AppService);
        let same = bot.secret("hs_token").is_some_and(|it| same_bytes(it.expose().as_bytes(), shown.as_bytes()));
        is_pushed && same
    };
    bots.iter().fold(None, |found, bot| if is_right(bot) { found.or(Some(bot)) } else { found })
}

impl Homeservers {
    pub(super) async fn take(&self, bot: Option<&Bot>, request: &RawRequest) -> Result<Heard, Reply> {
        let Some(bot) = bot else {
            let text = "no bot in mode appservice has this hs_token";
            return Err(refused(if token_of(request).is_some() { 403 } else { 401 }, "M_FORBIDDEN", text));
        };
        let done = || Reply::json(200, &json!({}));
        if request.door != TRANSACTIONS {
            return Ok(Heard::nothing(done()));
        }
        let not_json = |_| refused(400, "M_NOT_JSON", "the body is not JSON");
        let body: Value = serde_json::from_slice(&request.body).map_err(not_json)?;
        let Some(events) = body["events"].as_array() else {
            return Err(refused(400, "M_BAD_JSON", "the body has no list of events"));
        };
        let account = Account::of(bot).map_err(|why| refused(503, "M_UNKNOWN", &why))?;
        let client = Client::new(&*self.outcall, &account);
        let mut gathered = Gathered::default();
        for event in events {
            let Some(room_id) = event["room_id"].as_str() else { continue };
            let proof = || Verified::by("hs_token of the application service");
            let one = std::slice::from_ref(event);
            if let Err(fault) = self.gather(&client, room_id, one, proof, &mut gathered).await {
                // The homeserver sends the transaction again.
                tracing::warn!(%fault, bot = bot.id, "a transaction was not taken");
                return Err(later(&fault));
            }
        }
        let Gathered { intakes, changes } = gathered;
        Ok(Heard { changes, ..Heard::events(intakes, Answer::Fixed(done())) })
    }
}

fn later(fault: &Fault) -> Reply {
    refused(503, "M_UNKNOWN", &format!("not now: {fault}"))
}
