//! Joins the fragments of events that come in several requests.
//!
//! A fragment is stored before its request is answered. The event is made when the group is complete: no fragment came
//! for a while, or another message came in its chat. The server that makes it claims the group first. A claim that was
//! left by a crash is taken again; it makes the same event, which the ledger recognises.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::{ChatId, Secret};

use super::{BotInlet, InboundPlane};
use crate::error::DeskError;
use crate::port::platform::{Bot, Inlet as _, ReceivedFragment};
use crate::port::store::{ChatGroups, Claim, Fragment, Held, StoreError};

/// A group without a new fragment for this long is complete.
const QUIET_MS: u64 = 1_000;
/// A claim of this age was left by a crash.
const CLAIM_MS: u64 = 10_000;
/// Time between two checks while groups are open, and otherwise.
const LOOK_SOON: Duration = Duration::from_millis(250);
const LOOK_LATER: Duration = Duration::from_mins(1);
const SEAL_KIND: &str = "fragment";

impl InboundPlane {
    /// Stores a fragment. `false`: there are too many; it has to be an event of its own.
    pub(super) async fn hold(&self, platform: &str, bot: &Bot, it: &ReceivedFragment) -> Result<bool, StoreError> {
        let ReceivedFragment { chat_id, group, id, body } = it;
        let fragment = Fragment {
            platform: platform.to_owned(),
            bot: bot.id.clone(),
            chat_id: chat_id.clone(),
            group: group.clone(),
            id: id.clone(),
            at_ms: self.env.now_ms(),
            sealed: self.sealer.seal(&*self.env, body, &[SEAL_KIND, platform, &bot.id, id]),
        };
        let held = self.fragments.hold(fragment).await?;
        if held == Held::Full {
            self.meters.fragments_refused.inc();
        }
        self.fragment_came.notify_one();
        Ok(held != Held::Full)
    }

    /// Another message came in this chat: the groups that wait there are stored before it.
    pub(super) async fn complete_groups(
        self: &Arc<Self>,
        platform: &str,
        bot: &Bot,
        chat_id: &ChatId,
        but: Option<&str>,
    ) -> Result<(), DeskError> {
        let groups = ChatGroups {
            platform: platform.to_owned(),
            bot: bot.id.clone(),
            chat_id: chat_id.to_owned(),
            but: but.map(str::to_owned),
        };
        for claim in self.fragments.claim_chat(groups, self.env.now_ms()).await? {
            self.join(claim).await?;
        }
        Ok(())
    }

    /// Waits until groups may be complete. `is_open`: incomplete groups exist.
    pub async fn fragments_due(&self, is_open: bool) {
        let pause = if is_open { LOOK_SOON } else { LOOK_LATER };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.fragment_came.notified(), if !is_open => {}
        }
    }

    /// Creates events from the complete groups. `true`: incomplete groups remain.
    pub async fn join_quiet(self: &Arc<Self>) -> bool {
        let now_ms = self.env.now_ms();
        let (quiet_since_ms, claimed_until_ms) = (now_ms.saturating_sub(QUIET_MS), now_ms.saturating_sub(CLAIM_MS));
        match self.fragments.claim_quiet(quiet_since_ms, claimed_until_ms, now_ms).await {
            Ok((claims, is_more)) => {
                // A bot whose vendor does not answer must not delay the others.
                let joins = claims.into_iter().map(|claim| async move {
                    if let Err(error) = self.join(claim).await {
                        tracing::warn!(%error, "joining the fragments of an event failed; trying again later");
                    }
                });
                futures_util::future::join_all(joins).await;
                is_more
            }
            Err(error) => {
                tracing::warn!(%error, "reading fragments of events failed; trying again later");
                false
            }
        }
    }

    async fn join(self: &Arc<Self>, claim: Claim) -> Result<(), DeskError> {
        let Some(first) = claim.fragments.first() else { return Ok(()) };
        let (name, bot) = (first.platform.clone(), first.bot.clone());
        let known = self.platforms.get(&name).zip(self.directory.bots().added(&name, &bot));
        let Some((platform, bot)) = known else {
            tracing::warn!(platform = name, bot = bot.as_str(), "fragments of a removed bot were dropped");
            return Ok(self.fragments.joined(claim.number).await?);
        };
        let open = |it: &Fragment| self.sealer.open(&it.sealed, &[SEAL_KIND, &name, &bot.id, &it.id]);
        let bodies = match claim.fragments.iter().map(open).collect::<Result<Vec<Secret>, _>>() {
            Ok(bodies) => bodies,
            Err(error) => {
                tracing::error!(
                    %error,
                    platform = name,
                    bot = bot.id.as_str(),
                    "fragments of an event could not be decrypted; the event is lost"
                );
                return Ok(self.fragments.joined(claim.number).await?);
            }
        };
        let intakes = platform.join(&bot, &bodies).await.map_err(StoreError::Unavailable)?;
        let inlet: BotInlet = self.inlet(&name, &bot);
        inlet.take(intakes).await?; // what is refused is recorded
        Ok(self.fragments.joined(claim.number).await?)
    }
}
