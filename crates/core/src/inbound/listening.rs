//! Events of a platform that listens by itself, and of its doors.

use std::sync::Arc;

use super::{InboundPlane, Marks};
use crate::directory::check_source;
use crate::error::DeskError;
use crate::gate::{Layer, Verdict};
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::platform::{Bot, Change, Gap, Inlet, LateReceipt};
use crate::port::store::{Acceptance, Delivery, StoreError};

/// The way in for one bot.
pub struct BotInlet {
    inbound: Arc<InboundPlane>,
    platform: String,
    bot: String,
    account: String,
}

impl InboundPlane {
    pub fn inlet(self: &Arc<Self>, platform: &str, bot: &Bot) -> BotInlet {
        let account = bot.account().to_owned();
        BotInlet { inbound: self.clone(), platform: platform.into(), bot: bot.id.clone(), account }
    }

    /// Where this bot's listener goes on. A cursor belongs to the account that the bot's secrets open: another account
    /// under the same id begins anew.
    pub async fn cursor(&self, platform: &str, bot: &Bot) -> Result<Option<String>, StoreError> {
        let kept = self.cursors.cursor(platform, &bot.id).await?;
        Ok(kept.and_then(|kept| Some(kept.strip_prefix(bot.account())?.strip_prefix(':')?.to_owned())))
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
        // As `judge` does: one without an id is its own message.
        let given = intake.event.message_id.clone().filter(|id| !id.is_empty());
        let message_id = given.unwrap_or_else(|| self.env.random_hex(16));
        let marks = Marks { whose: &intake.whose, bot: &intake.bot };
        let tenant = self.directory.read(|view| super::tenant_of(view, &intake.whose, source).map(str::to_owned));
        Refused {
            tenant: tenant.unwrap_or_default(),
            dedup: marks.dedup(source, &message_id, if source.message_is_edit { &intake.event.text } else { "" }),
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
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        Box::pin(async move {
            let inbound = &self.inbound;
            let now_ms = inbound.env.now_ms();
            let (mut judged, mut refusals) = (Vec::new(), Vec::new());
            for mut intake in intakes {
                let refused = match check_source(&intake.event) {
                    Ok(()) => {
                        // It is known now, so that a refusal is recorded under the same id.
                        let given = intake.event.message_id.take().filter(|id| !id.is_empty());
                        intake.event.message_id = given.or_else(|| Some(inbound.env.random_hex(16)));
                        let mark = inbound.refused(&intake);
                        match inbound.judge(intake, now_ms).await {
                            Ok(one) => {
                                judged.push(one);
                                refusals.push(None);
                                continue;
                            }
                            Err(error) if is_final(&error) => (mark, error),
                            Err(error) => return Err(error),
                        }
                    }
                    Err(error) => (inbound.refused(&intake), error),
                };
                let (mark, error) = refused;
                let (platform, bot) = (&self.platform, &self.bot);
                tracing::warn!(%error, platform, bot, message_id = mark.message_id, "an event was refused");
                inbound.record_refusal(&mark, &error.to_string()).await?;
                refusals.push(Some(error));
            }
            let mut receipts = inbound.accept(judged, now_ms).await?.into_iter();
            let outcome = |refusal: Option<DeskError>| match refusal {
                Some(error) => Some(Err(error)),
                None => receipts.next().map(Ok),
            };
            Ok(refusals.into_iter().filter_map(outcome).collect())
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

    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let LateReceipt { vendor_id, outcome, note } = receipt;
            let applied = self.inbound.journal.apply_receipt(&self.platform, &self.bot, vendor_id, *outcome, note);
            let found = applied.await?;
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
        let cursor = format!("{}:{cursor}", self.account);
        self.inbound.cursors.save_cursor(self.platform.clone(), self.bot.clone(), Some(cursor))
    }
}
