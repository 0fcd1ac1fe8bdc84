//! Methods of the Bot API, one function each.

mod bot;
mod chats;
mod edit;
mod media;
mod reactions;
mod send;
mod target;
mod topics;
pub(super) mod updates;

pub(super) use media::{content as media_content, mime as mime_of};
pub(super) use updates::is_loopback;

use super::answer::{Answer, ApiError};
use super::params::{Params, Upload};
use super::state::State;

/// One call, with all that it may look at and change.
pub(super) struct Call<'a> {
    pub(super) state: &'a mut State,
    pub(super) bot: i64,
    pub(super) now_ms: u64,
    pub(super) params: &'a Params,
    pub(super) files: &'a [Upload],
}

impl Call<'_> {
    fn now_s(&self) -> u64 {
        self.now_ms / 1_000
    }

    fn required(&self, name: &str) -> Result<i64, ApiError> {
        self.params.int(name).ok_or_else(|| ApiError::bad(format!("parameter \"{name}\" is required")))
    }
}

/// Names of methods are compared without regard to case, as the server does.
pub(super) fn run(call: &mut Call<'_>, method: &str) -> Answer {
    match method.to_lowercase().as_str() {
        "getme" => Ok(bot::get_me(call)),
        "logout" | "close" => Ok(true.into()),
        "getupdates" => updates::get_updates(call),
        "setwebhook" => updates::set_webhook(call),
        "deletewebhook" => updates::delete_webhook(call),
        "getwebhookinfo" => Ok(updates::webhook_info(call)),
        "setmycommands" => bot::set_commands(call),
        "getmycommands" => bot::get_commands(call),
        "deletemycommands" => bot::delete_commands(call),
        "answercallbackquery" => bot::answer_callback(call),
        "sendmessage" => send::message(call),
        "sendmessagedraft" => send::draft(call),
        "sendchataction" => send::action(call),
        "sendlocation" => send::location(call),
        "sendphoto" => media::one(call, "photo"),
        "senddocument" => media::one(call, "document"),
        "sendvideo" => media::one(call, "video"),
        "sendaudio" => media::one(call, "audio"),
        "sendvoice" => media::one(call, "voice"),
        "sendanimation" => media::one(call, "animation"),
        "sendsticker" => media::one(call, "sticker"),
        "sendmediagroup" => media::album(call),
        "getfile" => media::get_file(call),
        "editmessagetext" => edit::text(call),
        "editmessagecaption" => edit::caption(call),
        "editmessagereplymarkup" => edit::markup(call),
        "deletemessage" => edit::delete(call),
        "deletemessages" => edit::delete_many(call),
        "setmessagereaction" => reactions::set(call),
        "getchat" => chats::get(call),
        "getchatmember" => chats::member(call),
        "getchatmembercount" => chats::count(call),
        "getchatadministrators" => chats::administrators(call),
        "leavechat" => chats::leave(call),
        "getuserprofilephotos" => chats::profile_photos(call),
        "createforumtopic" => topics::create(call),
        "editforumtopic" => topics::edit(call),
        "closeforumtopic" => topics::close(call, true),
        "reopenforumtopic" => topics::close(call, false),
        "deleteforumtopic" => topics::delete(call),
        _ => Err(ApiError::new(404, "Not Found: method not found")),
    }
}
