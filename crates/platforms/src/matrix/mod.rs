//! Matrix: a bot as an application service, or as a plain account that polls. On the wire it is `matrix`.
//!
//! * `chat_id` is the room id, `thread_id` the root of an `m.thread`, `user_id` is `@user:server`.
//! * `scope_id` is the server name in the room id. Ids of room version 12 have none; there it is the server of the user
//!   who created the room.
//! * A room of two joined members without a name is a direct chat, as is one that the bot was invited to as such
//!   (`m.direct`), unless it has a name and more members.
//! * Encrypted rooms are refused: in the room, and in the record of each message.

mod account;
mod act;
mod backfill;
mod client;
mod content;
mod deadline;
mod door;
mod event;
mod failed;
mod gather;
mod inspect;
mod listen;
mod lock;
mod media;
mod normalize;
mod notes;
mod room;
mod room_state;
mod rooms;
mod run_task;
mod store;
mod sync;
mod task;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Door, Inlet, ListenEnd, Look, LookFault, MediaFault, Part,
    Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::{Act, Action, ActionResult, BotId, ChatId, Code, Descriptor, Secret, UserId};
use serde_json::json;

use self::account::Account;
use self::act::event_id;
use self::client::{Client, Fault};
use self::door::Attempts;
use self::failed::Failed;
use self::lock::locked;
use self::notes::Notes;
use self::room_state::is_member;
use self::rooms::Rooms;
use self::task::TaskQueue;
use crate::shared::source_file::SourceFiles;
use crate::shared::transfers::Transfers;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "matrix";
const OPS: [&str; 8] = ["send", "edit", "delete", "typing", "react", "send_media", "prompt", "thread_create"];

/// The budget of all that is sent into rooms.
const MESSAGES: &str = "messages";
const USUAL_RATE: Rate = Rate { burst: 10, every_ms: 100 };
const LIMITED_RATE: Rate = Rate { burst: 10, every_ms: 5_000 };
/// A limit that the homeserver reported is kept to for this long.
const LIMITED_FOR_MS: u64 = 600_000;

pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: None };

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    if kit.settings.contains_key(PLATFORM) {
        let why = "this platform has no settings; those of a bot are given with `frontdesk bot add`";
        return Err(SettingsError::invalid(PLATFORM, why));
    }
    Ok(Arc::new(Homeservers::new(kit)))
}

pub struct Homeservers {
    descriptor: Descriptor,
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    rooms: Rooms,
    notes: Notes,
    tasks: TaskQueue,
    attempts: Attempts,
    own_bots: RwLock<OwnBots>,
    /// Bots whose homeserver limited them lately, and until when that counts.
    limited: Mutex<HashMap<BotId, u64>>,
    held_files: Transfers,
}

/// All bots of this server.
#[derive(Default)]
struct OwnBots {
    all: Vec<Arc<Bot>>,
    users: HashSet<String>,
}

impl Homeservers {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            emoji: "🟩".into(),
            platform_hint: "You are in a Matrix room. Markdown is rendered as HTML. Name users by their full id \
                            (@name:server) to mention them."
                .into(),
            markdown_dialect: "html".into(),
            supports_edit: true,
            supports_threads: true,
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Matrix", content::TEXT_MAX_CHARS)
        };
        Self {
            descriptor,
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            rooms: Rooms::default(),
            notes: Notes::default(),
            tasks: TaskQueue::default(),
            attempts: Attempts::default(),
            own_bots: RwLock::default(),
            limited: Mutex::default(),
            held_files: Transfers::new(media::HELD_MAX, media::HELD_PER_BOT),
        }
    }

    /// Whether this is a user of any bot of this server.
    fn is_own_bot(&self, user_id: &str) -> bool {
        self.own_bots.read().unwrap_or_else(PoisonError::into_inner).users.contains(user_id)
    }

    /// For bots that were added before this was refused.
    fn clash_with_known(&self, bot: &Bot) -> Result<(), String> {
        door::clash(bot, &self.own_bots.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    async fn try_look(&self, bot: &Bot, room_id: &str, viewer: Option<&str>) -> Result<Option<Look>, Fault> {
        let unusable = |why| Fault::Unreachable { why, may_have_happened: false };
        let account = Account::of(bot).map_err(unusable)?;
        let client = Client::new(&*self.outcall, &account);
        let Some(room) = self.rooms.room(&client, room_id, self.env.steady_ms()).await? else { return Ok(None) };
        // Who can see a room is not taken from memory.
        let visible = match viewer {
            None => None,
            Some(viewer) => Some(is_member(&client, room_id, viewer).await?),
        };
        Ok(Some(Look {
            info: room.info(room_id, account.user_id),
            visible,
            scope_id: room.scope.clone(),
            parent_chat_id: None,
            person: room.other(account.user_id).filter(|_| room.is_dm()).map(UserId::from),
        }))
    }

    async fn try_notice(&self, bot: &Bot, room_id: &str, text: &str) -> Result<ActionResult, Failed> {
        let account = Account::of(bot).map_err(|why| ActionResult::refused(Code::UnknownIdentity, why))?;
        let client = Client::new(&*self.outcall, &account);
        let content = json!({ "msgtype": "m.notice", "body": text, "m.mentions": {} });
        let txn = self.env.random_hex(16);
        let parts = ["client", "v3", "rooms", room_id, "send", "m.room.message", &txn];
        event_id(&client.put_once(&parts, &content).await?)
    }
}

impl Platform for Homeservers {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(account::NAMES)
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        Account::of(bot).map(drop)
    }

    fn clash(&self, bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
        door::clash(bot, others)
    }

    fn know_bots(&self, bots: &[Arc<Bot>]) {
        let users = bots.iter().filter_map(|bot| bot.setting("user_id")).map(str::to_owned).collect();
        *self.own_bots.write().unwrap_or_else(PoisonError::into_inner) = OwnBots { all: bots.to_vec(), users };
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        _: Part,
        cursor: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(async move {
            match Account::of(bot) {
                Ok(account) => self.listen_as(&account, cursor, inlet).await,
                Err(why) => ListenEnd::Misconfigured(why),
            }
        })
    }

    fn doors(&self) -> &[Door] {
        &door::DOORS
    }

    fn bot_of<'a>(&self, bots: &'a [Arc<Bot>], request: &RawRequest) -> Option<&'a Arc<Bot>> {
        door::bot_of(bots, request)
    }

    fn receive<'a>(
        &'a self,
        bot: Option<&'a Bot>,
        request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        Box::pin(self.take(bot, request))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(async move {
            let mut acted = match self.try_act(acting_as, action).await {
                Ok(result) => Acted::from(result),
                Err(Failed(acted)) => *acted,
            };
            let is_message = !matches!(action.act, Act::Typing { .. } | Act::GetChatInfo { .. });
            if acted.pace.retry_after_ms.is_some() && is_message {
                acted.pace.bucket = Some(MESSAGES.to_owned());
                let until_ms = self.env.steady_ms() + LIMITED_FOR_MS;
                locked(&self.limited).insert(acting_as.bot.id.clone(), until_ms);
            }
            acted
        })
    }

    fn typing_lasts_ms(&self) -> Option<u64> {
        Some(act::TYPING_MS)
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(async move {
            let looked = self.try_look(acting_as.bot, chat_id, viewer.map(UserId::as_str)).await;
            looked.map_err(|fault| LookFault::Platform(fault.to_string()))
        })
    }

    fn notice<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        text: &'a str,
    ) -> BoxFuture<'a, ActionResult> {
        Box::pin(async move {
            let sent = self.try_notice(acting_as.bot, chat_id, text).await;
            sent.unwrap_or_else(|Failed(acted)| acted.result)
        })
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(async move {
            let account = Account::of(bot).map_err(MediaFault::Unavailable)?;
            media::fetch(&Client::new(&*self.outcall, &account), handle.expose()).await
        })
    }

    /// Ordinary users of Synapse may send 10 messages at once, then one in 5 s. A homeserver may permit more, so that is
    /// kept to only after it has limited the bot.
    fn cost(&self, acting_as: ActingAs<'_>, action: &Action) -> Cost {
        let cost = Cost::of(action);
        if matches!(action.act, Act::Typing { .. } | Act::GetChatInfo { .. }) {
            return cost; // not counted by homeservers like messages
        }
        let until_ms = locked(&self.limited).get(&acting_as.bot.id).copied().unwrap_or_default();
        let rate = if until_ms > self.env.steady_ms() { LIMITED_RATE } else { USUAL_RATE };
        cost.in_bot_bucket(MESSAGES, rate)
    }

    fn split(&self, text: &str) -> Vec<String> {
        content::split_text(text)
    }
}
