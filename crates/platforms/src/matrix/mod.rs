//! Matrix: a bot as an application service, or as a plain account that polls. On the wire it is `matrix`.
//!
//! * `chat_id` is the room id, `thread_id` the root of an `m.thread`, `user_id` is `@user:server`.
//! * `scope_id` is the server name in the room id. Ids of room version 12 have none; there it is the server of the user
//!   who created the room.
//! * A room of two joined members is a direct chat, as is one without a name that the bot was invited to as such
//!   (`m.direct`).
//! * Encrypted rooms are refused: in the room, and in the record of each message.

mod account;
mod act;
mod client;
mod content;
mod door;
mod event;
mod failed;
mod gather;
mod media;
mod normalize;
mod rooms;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Door, Ended, Heard, Inlet, Look, MediaFault, Platform, RawRequest,
    RemoteMedia, Reply,
};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{Action, ActionResult, Code, Descriptor, Secret};
use serde_json::json;

use self::account::Account;
use self::act::event_id;
use self::client::{Client, Fault};
use self::failed::Failed;
use self::rooms::{Rooms, is_member};
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "matrix";
const OPS: [&str; 8] = ["send", "edit", "delete", "typing", "react", "send_media", "prompt", "thread_create"];

pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open };

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
        }
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
            person: room.other(account.user_id).map(str::to_owned),
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

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(&'a self, bot: &'a Bot, cursor: Option<String>, inlet: &'a dyn Inlet) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            match Account::of(bot) {
                Ok(account) => self.listen_as(&account, cursor, inlet).await,
                Err(why) => Ended::Misconfigured(why),
            }
        })
    }

    fn doors(&self) -> &[Door] {
        &door::DOORS
    }

    fn bot_of<'a>(&self, bots: &'a [Arc<Bot>], request: &RawRequest) -> Option<&'a Arc<Bot>> {
        door::bot_of(bots, request)
    }

    fn receive<'a>(&'a self, bot: Option<&'a Bot>, request: &'a RawRequest) -> BoxFuture<'a, Result<Heard, Reply>> {
        Box::pin(self.take(bot, request))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(async move {
            match self.try_act(acting_as, action).await {
                Ok(result) => result.into(),
                Err(Failed(acted)) => *acted,
            }
        })
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a str,
        viewer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<Look>, StoreError>> {
        Box::pin(async move {
            let looked = self.try_look(acting_as.bot, chat_id, viewer).await;
            looked.map_err(|fault| StoreError::Unavailable(fault.to_string()))
        })
    }

    fn notice<'a>(&'a self, acting_as: ActingAs<'a>, chat_id: &'a str, text: &'a str) -> BoxFuture<'a, ActionResult> {
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

    fn split(&self, text: &str) -> Vec<String> {
        content::split_text(text)
    }
}
