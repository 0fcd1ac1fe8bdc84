//! Events of a platform that listens by itself, and of its doors.

use std::sync::Arc;

use super::{InboundPlane, Judged, Marks};
use crate::directory::check_source;
use crate::error::DeskError;
use crate::gate::{Layer, Verdict};
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::platform::{Change, Gap, Inlet};
use crate::port::store::{Acceptance, Delivery, Outcome, StoreError};

/// The way in for one bot.
pub struct BotInlet {
    inbound: Arc<InboundPlane>,
    platform: String,
    bot: String,
}

impl InboundPlane {
    pub fn inlet(self: &Arc<Self>, platform: &str, bot: &str) -> BotInlet {
        BotInlet { inbound: self.clone(), platform: platform.into(), bot: bot.into() }
    }

    /// Where this bot's listener goes on.
    pub async fn cursor(&self, platform: &str, bot: &str) -> Result<Option<String>, StoreError> {
        self.cursors.cursor(platform, bot).await
    }

    /// Takes events whose ids come from outside, all or none.
    pub async fn take(&self, intakes: Vec<Intake>) -> Result<Vec<Receipt>, DeskError> {
        for intake in &intakes {
            check_source(&intake.event)?;
        }
        self.receive(intakes).await
    }

    /// Writes down that an event was refused, so that `explain` and `why` can say so.
    async fn record_refusal(&self, whose: &Refused, reason: &str) -> Result<(), StoreError> {
        let verdict = Verdict::withheld(Layer::Tenant, "refused", reason.to_owned());
        let delivery = Delivery {
            event: 0,
            at_ms: self.env.now_ms(),
            passthrough: false,
            json: String::new(),
            platform: whose.platform.clone(),
            bot: whose.bot.clone(),
            chat_id: whose.chat_id.as_str().into(),
            session_key: "".into(),
            message_id: whose.message_id.clone(),
        };
        let kept = verdict.kept("withheld", &whose.platform);
        let acceptance = Acceptance {
            tenant: whose.tenant.as_str().into(),
            dedup: whose.dedup.clone(),
            delivery,
            verdict: kept,
            receivers: Vec::new(),
            own_json: Vec::new(),
            capabilities: Vec::new(),
            reaches: false,
            message: None,
            chat: None,
        };
        self.count(&verdict);
        self.ledger.accept(vec![acceptance]).await.map(drop)
    }
}

/// What is kept of an event that was refused.
struct Refused {
    tenant: String,
    dedup: Vec<u8>,
    platform: String,
    bot: String,
    chat_id: String,
    message_id: String,
}

/// Ids of strangers are kept no longer than this.
const ID_MAX_CHARS: usize = 256;

impl InboundPlane {
    fn refused(&self, intake: &Intake) -> Refused {
        let cut = |id: &str| id.chars().take(ID_MAX_CHARS).collect::<String>();
        let source = &intake.event.source;
        let message_id = intake.event.message_id.clone().unwrap_or_default();
        let marks = Marks { whose: &intake.whose, bot: &intake.bot };
        let tenant = self.directory.read(|view| super::tenant_of(view, &intake.whose, source).map(str::to_owned));
        Refused {
            tenant: tenant.unwrap_or_default(),
            dedup: marks.dedup(source, &message_id, ""),
            platform: source.platform.clone(),
            bot: intake.bot.clone(),
            chat_id: cut(&source.chat_id),
            message_id: cut(&message_id),
        }
    }
}

/// Whether the event itself is at fault, so that it would be refused again.
fn is_final(error: &DeskError) -> bool {
    !matches!(error, DeskError::Store(_) | DeskError::RateLimited(_) | DeskError::Elsewhere(_))
}

impl Inlet for BotInlet {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Option<Receipt>>, DeskError>> {
        Box::pin(async move {
            let inbound = &self.inbound;
            let now_ms = inbound.env.now_ms();
            let (mut judged, mut places): (Vec<Judged>, Vec<bool>) = (Vec::new(), Vec::new());
            for intake in intakes {
                let refused = inbound.refused(&intake);
                let one = match check_source(&intake.event) {
                    Ok(()) => inbound.judge(intake, now_ms).await,
                    Err(error) => Err(error),
                };
                match one {
                    Ok(one) => judged.push(one),
                    Err(error) if is_final(&error) => {
                        let (platform, bot) = (&self.platform, &self.bot);
                        tracing::warn!(%error, platform, bot, message_id = refused.message_id, "an event was refused");
                        inbound.record_refusal(&refused, &error.to_string()).await?;
                        places.push(false);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                places.push(true);
            }
            let mut receipts = inbound.accept(judged, now_ms).await?.into_iter();
            Ok(places.into_iter().map(|taken| if taken { receipts.next() } else { None }).collect())
        })
    }

    fn changed(&self, change: Change) {
        match change {
            Change::Chat(chat_id) => self.inbound.visibility.forget_chat(&self.platform, &self.bot, &chat_id),
            Change::ChatMoved { from, to } => {
                self.inbound.visibility.forget_chat(&self.platform, &self.bot, &from);
                self.inbound.visibility.forget_chat(&self.platform, &self.bot, &to);
            }
            // Rare, and the cache is short-lived: nothing of it is believed any more.
            Change::Scope(_) | Change::Person(_) => self.inbound.visibility.forget_all(),
        }
    }

    fn receipt<'a>(
        &'a self,
        vendor_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let found = self.inbound.journal.apply_receipt(&self.platform, &self.bot, vendor_id, outcome, note).await?;
            if let Some(entry) = &found {
                self.inbound.tail.say(&entry.tenant, "action", |notice| {
                    notice.instance.clone_from(&entry.instance);
                    notice.platform.clone_from(&entry.platform);
                    notice.chat_id.clone_from(&entry.chat_id);
                    notice.text = format!("{}: the platform reports: {note}", entry.op);
                });
            }
            Ok(found.is_some())
        })
    }

    fn gap(&self, gap: Gap) {
        let (platform, bot) = (&self.platform, &self.bot);
        let Gap { since_ms, until_ms, reason } = gap;
        self.inbound.meters.listener_gaps.inc();
        tracing::error!(platform, bot, since_ms, until_ms, reason, "events of a platform were missed");
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inbound.cursors.save_cursor(self.platform.clone(), self.bot.clone(), Some(cursor))
    }
}
