//! In: tenant, gate, one commit, then the bell. Whoever sent it is answered only after the commit.

use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::{Source, build_session_key};

use super::{Desk, DeskError, event_id};
use crate::gate;
use crate::intake::{Handover, Intake, RawCapability};
use crate::meters::Why;
use crate::port::store::{Acceptance, Delivery, SealedCapability};
use crate::seal::short_hash;

/// Room for the frame around an event.
const FRAME_MARGIN_BYTES: usize = 512;
/// Longer message ids are kept as a hash.
const DEDUP_ID_MAX_BYTES: usize = 48;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub event_id: String,
    pub verdict: VerdictBrief,
    /// False: the same message was here before, and nothing new was written.
    pub fresh: bool,
}

impl Desk {
    /// Takes events of any platforms, all or none. An `Ok` means written down and safe.
    pub async fn receive(&self, intakes: Vec<Intake>) -> Result<Vec<Receipt>, DeskError> {
        let now_ms = self.env.now_ms();
        let mut batch = Vec::with_capacity(intakes.len());
        let mut briefs = Vec::with_capacity(intakes.len());
        for intake in intakes {
            let (acceptance, brief) = self.judge(intake, now_ms).await?;
            batch.push(acceptance);
            briefs.push(brief);
        }
        let watched: Vec<_> = batch.iter().map(|it| self.watch(it)).collect();
        let accepted = self.store.accept(batch).await.inspect_err(|error| {
            self.meters.store_faults.inc();
            tracing::error!(%error, "events were not accepted");
        })?;
        let mut receipts = Vec::with_capacity(accepted.len());
        for ((accepted, brief), watched) in accepted.into_iter().zip(briefs).zip(watched) {
            let id = event_id(accepted.event);
            if accepted.fresh {
                self.meters.events_accepted.inc();
                self.meters.mail_rows.inc_by(accepted.rows.len() as u64);
            } else {
                self.meters.events_duplicate.inc();
            }
            let step = match (accepted.fresh, brief.outcome.as_str()) {
                (false, _) => "duplicate",
                (true, "delivered") => "accepted",
                (true, "interrupted") => "interrupted",
                (true, _) => "withheld",
            };
            if let Some((tenant, platform, chat_id, message_id)) = watched {
                self.say(&tenant, step, |notice| {
                    notice.at = now_ms; // it may be handed over before we get to say so
                    notice.event_id.clone_from(&id);
                    notice.platform = platform;
                    notice.chat_id = chat_id;
                    notice.message_id = message_id;
                    notice.text.clone_from(&brief.text);
                });
            }
            receipts.push(Receipt { event_id: id, verdict: brief, fresh: accepted.fresh });
        }
        Ok(receipts)
    }

    /// What the tail will want to name, kept only if somebody watches.
    fn watch(&self, it: &Acceptance) -> Option<(String, String, String, String)> {
        let d = &it.delivery;
        (self.tail.is_watched())
            .then(|| (it.tenant.to_string(), d.platform.clone(), d.chat_id.to_string(), d.message_id.clone()))
    }

    async fn judge(&self, intake: Intake, now_ms: u64) -> Result<(Acceptance, VerdictBrief), DeskError> {
        let Intake { tenant, bot, mut event, capabilities, handover, .. } = intake;
        let message_id = match event.message_id.take().filter(|id| !id.is_empty()) {
            Some(id) => id,
            None => self.env.random_hex(16),
        };
        event.message_id = Some(message_id.clone());
        event.source.message_id = Some(message_id.clone());
        let source = &event.source;
        let session_key = build_session_key(source);
        let dedup = dedup_key(&tenant, source, &bot, &message_id);

        let verdict = self.registry.read(|view| gate::judge(view, &tenant, source));
        let mut brief = verdict.brief(&tenant, &source.platform);
        let mut receivers: Vec<u64> = verdict.receivers.iter().map(|instance| instance.no).collect();
        let reaches = !receivers.is_empty();
        if event.text.trim() == "/stop"
            && self.interrupt_live_turns(&receivers, &session_key, &main_key(source), now_ms).await?
        {
            receivers.clear();
            brief = VerdictBrief { outcome: "interrupted".into(), text: "the running turn was interrupted".into() };
        }
        if !reaches {
            let layer = verdict.lines.first().map_or("unknown", |line| line.layer);
            self.meters.events_withheld.get_or_create(&Why { why: layer }).inc();
        }
        let passthrough = matches!(handover, Handover::Forward(_));
        let capabilities = if reaches {
            capabilities.into_iter().map(|raw| self.seal_capability(raw, &tenant, &bot, source, now_ms)).collect()
        } else {
            Vec::new()
        };
        let json = match &handover {
            Handover::Event => serde_json::to_string(&event),
            Handover::Forward(forward) => serde_json::to_string(forward),
        };
        let json = json.map_err(|error| DeskError::BadRequest(error.to_string()))?;
        if json.len() + FRAME_MARGIN_BYTES > self.rules.frame_max_bytes {
            return Err(DeskError::TooLarge(format!("the event is over {} bytes", self.rules.frame_max_bytes)));
        }
        let delivery = Delivery {
            event: 0,
            at_ms: now_ms,
            passthrough,
            json,
            bot,
            chat_id: source.chat_id.as_str().into(),
            session_key: session_key.into(),
            message_id,
            platform: event.source.platform,
        };
        let verdict = verdict.kept(&brief.outcome, &delivery.platform);
        let tenant = tenant.into();
        Ok((Acceptance { tenant, dedup, delivery, verdict, receivers, capabilities, reaches }, brief))
    }

    fn seal_capability(
        &self,
        raw: RawCapability,
        tenant: &str,
        bot: &str,
        source: &Source,
        now_ms: u64,
    ) -> SealedCapability {
        let id = self.env.random_hex(16);
        SealedCapability {
            sealed: self.sealer.seal(&*self.env, &raw.value, &[tenant, &raw.kind, &id]),
            id,
            tenant: tenant.into(),
            session_keys: session_keys(source),
            platform: source.platform.clone(),
            bot: bot.into(),
            chat_id: source.chat_id.clone(),
            expires_ms: now_ms + raw.ttl_ms.min(self.rules.vault_ttl_ms),
            kind: raw.kind,
        }
    }
}

/// Every name that a supported gateway may give to this conversation: its own platform, or `relay`
/// for a forwarded interaction (`dm`, `channel`, and for newer ones `thread`), with its profile.
fn session_keys(source: &Source) -> Vec<String> {
    let mut keys = vec![build_session_key(source), main_key(source)];
    let chat_types: &[&str] = if source.chat_type == "dm" { &["dm"] } else { &["channel", "thread", "group"] };
    for chat_type in chat_types {
        for platform in [source.platform.as_str(), "relay"] {
            let named = Source { platform: platform.into(), chat_type: (*chat_type).into(), ..source.clone() };
            keys.extend([build_session_key(&named), main_key(&named)]);
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The key of a gateway that does not tell profiles apart.
fn main_key(source: &Source) -> String {
    build_session_key(&Source { profile: None, ..source.clone() })
}

/// The place as a short hash, then the message's own id: ids of one chat mostly rise, so the index
/// grows at a few edges instead of everywhere.
fn dedup_key(tenant: &str, source: &Source, bot: &str, message_id: &str) -> Vec<u8> {
    let mut key = short_hash(&[tenant, &source.platform, bot, &source.chat_id]).to_vec();
    if message_id.len() <= DEDUP_ID_MAX_BYTES {
        key.extend_from_slice(message_id.as_bytes());
    } else {
        key.push(0); // no id of ours begins so: a hash is never taken for an id
        key.extend_from_slice(&short_hash(&[message_id]));
    }
    key
}
