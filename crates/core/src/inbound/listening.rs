//! Events from the listener and the HTTP routes of a platform.

use std::sync::Arc;

use frontdesk_wire::{BotId, EventId, MessageEvent, TenantId};

use super::{Evaluated, InboundPlane, Marks};
use crate::directory::check_source;
use crate::error::DeskError;
use crate::gate::{Layer, Verdict};
use crate::intake::{Intake, Receipt, TenantSource, Verified};
use crate::port::BoxFuture;
use crate::port::platform::{Bot, Change, Gap, Inlet, LateReceipt, Layout, Part};
use crate::port::store::{Acceptance, Delivery, JournalEntry, Outcome, StoreError};

/// Receives the events of one bot, or of one part of it.
pub struct BotInlet {
    inbound: Arc<InboundPlane>,
    platform: String,
    bot: BotId,
    account: String,
    part: Part,
    /// The token of the duty to listen as this bot, in this part.
    token: u64,
}

/// The row of a part's cursor. The id of a bot has no control character, so no other bot has this row.
fn row_of(bot: &BotId, part: Part) -> String {
    if part.is_whole() { bot.to_string() } else { format!("{bot}\u{1f}{part}") }
}

impl InboundPlane {
    pub fn inlet(self: &Arc<Self>, platform: &str, bot: &Bot) -> BotInlet {
        let account = bot.account().to_owned();
        let (inbound, platform, bot) = (self.clone(), platform.into(), bot.id.clone());
        BotInlet { inbound, platform, bot, account, part: Part::WHOLE, token: 0 }
    }

    /// For the listener of a part of a bot, which has the duty under this token.
    pub fn listener_inlet(self: &Arc<Self>, platform: &str, bot: &Bot, part: Part, token: u64) -> BotInlet {
        BotInlet { part, token, ..self.inlet(platform, bot) }
    }

    /// Where this part's listener continues. A cursor belongs to the account of the bot's secrets: another account under
    /// the same id starts from the beginning. If the bot has several parts, the cursor of the whole is its layout.
    pub async fn cursor(&self, platform: &str, bot: &Bot, part: Part) -> Result<Option<String>, StoreError> {
        let stored = self.cursors.cursor(platform, &row_of(&bot.id, part)).await?;
        Ok(stored.and_then(|stored| Some(stored.strip_prefix(bot.account())?.strip_prefix(':')?.to_owned())))
    }

    /// How many parts the bot has now, for all servers.
    pub async fn layout(&self, platform: &str, bot: &Bot) -> Result<Layout, StoreError> {
        Ok(Layout::read(self.cursor(platform, bot, Part::WHOLE).await?.as_deref()))
    }

    /// What is stored of an event if it is refused.
    fn refused(&self, intake: &Intake) -> Refused {
        let cut = |id: &str| id.chars().take(ID_MAX_CHARS).collect::<String>();
        let source = &intake.event.source;
        let message_id = intake.event.message_id.as_deref().unwrap_or_default();
        let edit = intake.edit();
        let marks = Marks { tenant_source: &intake.tenant_source, bot: &intake.bot, mark: &intake.mark };
        let tenant = self.directory.read(|view| super::tenant_of(view, &intake.tenant_source, source).cloned());
        let delivery = Delivery {
            event: EventId::default(),
            at_ms: self.env.now_ms(),
            passthrough: false,
            json: String::new(),
            platform: source.platform.clone(),
            bot: intake.bot.clone(),
            chat_id: cut(&source.chat_id).into(),
            session_key: "".into(),
            message_id: cut(message_id).into(),
        };
        Refused { tenant: tenant.unwrap_or_default(), dedup: marks.dedup(source, message_id, edit), delivery }
    }
}

/// Ids of unknown origin are cut to this length before they are stored.
const ID_MAX_CHARS: usize = 256;

struct Refused {
    tenant: TenantId,
    dedup: Vec<u8>,
    delivery: Delivery,
}

impl Refused {
    /// An event without receivers, stored with its reason, so that `explain` and `why` can report it.
    fn evaluated(self, reason: String) -> Evaluated {
        let Self { tenant, dedup, delivery } = self;
        let verdict = Verdict::withheld(Layer::Tenant, "refused", reason);
        let brief = verdict.brief(&tenant, &delivery.platform);
        let stored = verdict.to_stored(&brief.outcome, &delivery.platform);
        let acceptance = Acceptance::unreceived(&tenant, dedup, delivery, stored);
        Evaluated { acceptance, verdict, brief, stops: None, press: None, pending: None }
    }
}

fn reason(why: String) -> Result<(), DeskError> {
    Err(DeskError::BadRequest(why))
}

/// Whether the event itself is at fault, so that it would be refused again.
fn is_final(error: &DeskError) -> bool {
    !matches!(error, DeskError::Store(_) | DeskError::RateLimited(_) | DeskError::Elsewhere(_))
}

impl BotInlet {
    /// Notifies the agent that a message of it failed: once for an action, however many parts failed and however often
    /// the vendor reports it.
    async fn report(&self, entry: &JournalEntry, mut event: MessageEvent) -> Result<(), StoreError> {
        let inbound = &self.inbound;
        if !inbound.reports.may_report(&self.platform, &self.bot, &entry.chat_id, inbound.env.now_ms()) {
            tracing::warn!(
                platform = self.platform,
                bot = self.bot.as_str(),
                instance = entry.instance.as_str(),
                "an agent was not notified of a failed message: too many failed in this chat; see the journal"
            );
            return Ok(());
        }
        event.message_id = Some(format!("undelivered-{}.{}", entry.at_ms, entry.id).into());
        let proof = Verified::by("the vendor's report on an action of the journal");
        let tenant_source = TenantSource::Tenant(entry.tenant.clone());
        let mut intake = Intake::new(proof, tenant_source, self.bot.clone(), event);
        (intake.from_program, intake.reports_to) = (true, Some(entry.instance.clone()));
        match self.take(vec![intake]).await {
            Ok(_) => Ok(()), // what was refused is recorded
            Err(DeskError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }
}

impl Inlet for BotInlet {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        Box::pin(async move {
            let inbound = &self.inbound;
            let now_ms = inbound.env.now_ms();
            let (mut evaluated, mut refusals) = (Vec::new(), Vec::new());
            for mut intake in intakes {
                // Known from here on, so that a refusal is recorded under the same id.
                let given = intake.event.message_id.take().filter(|id| !id.is_empty());
                intake.event.message_id = given.or_else(|| Some(inbound.env.random_hex(16).into()));
                let refused = inbound.refused(&intake);
                let is_by_platform = intake.refused.is_some();
                let one = match intake.refused.take().map_or_else(|| check_source(&intake.event), reason) {
                    Ok(()) => inbound.evaluate(intake, now_ms).await,
                    Err(error) => Err(error),
                };
                match one {
                    Ok(one) => {
                        evaluated.push(one);
                        refusals.push(None);
                    }
                    Err(error) if is_final(&error) => {
                        let (platform, bot, message_id) = (&self.platform, &self.bot, &refused.delivery.message_id);
                        // Events that a platform refuses are caused by users; they are recorded like the others.
                        if is_by_platform {
                            tracing::debug!(%error, platform, bot = bot.as_str(), message_id = message_id.as_str(), "an event was refused");
                        } else {
                            tracing::warn!(%error, platform, bot = bot.as_str(), message_id = message_id.as_str(), "an event was refused");
                        }
                        evaluated.push(refused.evaluated(error.to_string()));
                        refusals.push(Some(error));
                    }
                    Err(error) => return Err(error),
                }
            }
            let receipts = inbound.accept(evaluated, now_ms).await?;
            let outcome = |(receipt, refusal): (Receipt, Option<DeskError>)| refusal.map_or(Ok(receipt), Err);
            Ok(receipts.into_iter().zip(refusals).map(outcome).collect())
        })
    }

    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        let (inbound, platform, bot) = (&self.inbound, &self.platform, &self.bot);
        Box::pin(async move {
            match change {
                Change::Chat(chat_id) => inbound.visibility.forget_chat(platform, bot, &chat_id),
                Change::Member { chat_id, user_id } => {
                    inbound.visibility.forget_viewer(platform, bot, &chat_id, &user_id);
                }
                Change::ChatMoved { from, to } => {
                    inbound.directory.bots().move_chat(platform, bot, &from, &to).await?;
                    tracing::info!(
                        platform,
                        bot = bot.as_str(),
                        from = from.as_str(),
                        to = to.as_str(),
                        "a chat got a new id"
                    );
                    inbound.visibility.forget_chat(platform, bot, &from);
                    inbound.visibility.forget_chat(platform, bot, &to);
                }
                Change::Scope(_) => inbound.visibility.forget_bot(platform, bot),
                Change::Person(user_id) => inbound.visibility.forget_person(platform, bot, &user_id),
                Change::GrantEnded { name, hash } => {
                    inbound.directory.bots().end_grant(platform, bot, &name, hash).await?;
                }
            }
            Ok(())
        })
    }

    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let LateReceipt { vendor_id, key, outcome, note, event } = receipt;
            let mut found = None;
            for id in [Some(vendor_id), key.as_ref()].into_iter().flatten() {
                let applied = self.inbound.journal.apply_receipt(&self.platform, &self.bot, id, *outcome, note);
                found = applied.await?;
                if found.is_some() {
                    break;
                }
            }
            if let Some(entry) = &found {
                self.inbound.tail.publish(&entry.tenant, "action", |notice| {
                    notice.instance.clone_from(&entry.instance);
                    notice.platform.clone_from(&entry.platform);
                    notice.chat_id.clone_from(&entry.chat_id);
                    notice.text = format!("{}: the platform reports: {note}", entry.op);
                });
                if let (Outcome::Rejected, Some(event)) = (outcome, event) {
                    self.report(entry, (**event).clone()).await?;
                }
            }
            Ok(found.is_some())
        })
    }

    fn gap(&self, gap: Gap) {
        let (platform, bot) = (&self.platform, &self.bot);
        let Gap { since_ms, until_ms, reason } = gap;
        let reason = self.part.describe(&reason);
        self.inbound.meters.listener_gaps.inc();
        tracing::error!(platform, bot = bot.as_str(), since_ms, until_ms, reason, "events of a platform were missed");
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        let cursor = format!("{}:{cursor}", self.account);
        self.inbound.cursors.save_cursor(self.platform.clone(), row_of(&self.bot, self.part), self.token, cursor)
    }
}
