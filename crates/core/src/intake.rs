//! One event from a platform, verified there, with what was stripped from it.

use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{BotId, EventId, InstanceId, MessageEvent, MessageId, Secret, TenantId};

use crate::port::store::ChatAmend;

/// Proof that the bytes of this event were verified (signature, socket, or our own token) before they were parsed.
/// Create it where the check is made.
pub struct Verified(());

impl Verified {
    /// Name what was checked; the name is for the reader of the code.
    pub fn by(_what: &'static str) -> Self {
        Self(())
    }
}

/// A credential that came inside an event. It goes to the vault, never to an agent.
pub struct RawCapability {
    pub kind: String,
    pub value: Secret,
    pub ttl_ms: u64,
    /// The platform shows that an answer is awaited, and the first message of a receiver in the same chat gives it.
    pub is_awaited: bool,
}

/// A file that is still at the platform. It is fetched when an agent asks for it, which may be days later.
pub struct RemoteFile {
    /// By which [`Platform::fetch_media`](crate::port::platform::Platform::fetch_media) finds it. It may be a
    /// credential: it is kept sealed and never shown to an agent.
    pub handle: Secret,
    pub mime: String,
    pub filename: Option<String>,
    /// As the platform reports it; the bytes are counted when they are fetched.
    pub size: Option<u64>,
}

/// The form in which the event is delivered.
pub enum Handover {
    Event,
    /// As a sanitized request, for agents that understand it.
    Forward(PassthroughForward),
}

/// How the tenant of an event is found. Never by the socket or bot token that received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantSource {
    /// The platform separates tenants: its credential names one.
    Tenant(TenantId),
    /// A shared bot: the event's scope or chat, and in a direct message its author, looked up in our records.
    Shared,
    /// A webhook: the path that was called, looked up in the routes.
    Path(String),
}

/// What the built-in chat writes with an event, in one commit.
pub struct ChatLine {
    pub json: String,
    /// A change of the line that it answers, made only if the event has a receiver.
    pub answers: Option<ChatAmend>,
}

pub struct Intake {
    pub tenant_source: TenantSource,
    pub bot: BotId,
    pub event: MessageEvent,
    pub capabilities: Vec<RawCapability>,
    pub handover: Handover,
    /// Addressed to the bot: a mention, a reply, a command or a button.
    pub addressed: bool,
    /// A program wrote it (a webhook): it is no command to the server, and every linked instance receives it, not only
    /// the preferred one.
    pub from_program: bool,
    /// A user pressed a button or used a command of the platform and waits for the answer, which is made from the
    /// receipt: its author sees the chat, look-ups about others are kept short, and the receipt alone answers a command
    /// to the server.
    pub is_interaction: bool,
    /// The author has just written it there, so they see the chat.
    pub author_sees: bool,
    pub chat: Option<Box<ChatLine>>,
    /// Files at the platform; the event gets a URL of this server for each. At most [`REMOTE_MEDIA_MAX`], with handles of
    /// at most [`HANDLE_MAX_BYTES`]. A forwarded request cannot name them, so they are left out there.
    pub remote_media: Vec<RemoteFile>,
    /// Tells it from other events with the same message id, in the same chat and of the same bot, such as another edit
    /// of the message, or another account under the id of the bot. Part of the dedup key.
    pub mark: String,
    /// Identifies this edit among others of the message, where the platform names it. Without it, the text does.
    pub edit_id: Option<String>,
    /// The platform could not read it (it is malformed or encrypted): it is recorded with this reason, and has no
    /// receiver.
    pub refused: Option<String>,
    /// Ids of stored files that the event refers to. They do not expire while a row of the event is unsettled.
    pub stored_media: Vec<String>,
    /// It reports on an action of this instance and is delivered to it only: other agents do not know of the action.
    pub reports_to: Option<InstanceId>,
    /// The message whose button was pressed. The first press that reaches an agent counts; the platform tells the others
    /// what their receipt says.
    pub press_of: Option<MessageId>,
}

/// Files at the platform that one event may have.
pub const REMOTE_MEDIA_MAX: usize = 16;
pub const HANDLE_MAX_BYTES: usize = 4 << 10;

impl Intake {
    pub fn new(_proof: Verified, tenant_source: TenantSource, bot: BotId, event: MessageEvent) -> Self {
        Self {
            tenant_source,
            bot,
            event,
            capabilities: Vec::new(),
            handover: Handover::Event,
            addressed: false,
            from_program: false,
            is_interaction: false,
            author_sees: false,
            chat: None,
            remote_media: Vec::new(),
            mark: String::new(),
            edit_id: None,
            refused: None,
            stored_media: Vec::new(),
            reports_to: None,
            press_of: None,
        }
    }

    pub(crate) fn edit(&self) -> &str {
        edit_of(&self.event, self.edit_id.as_deref())
    }
}

/// Identifies an edit among others of the same message. Empty: it is no edit.
pub(crate) fn edit_of<'a>(event: &'a MessageEvent, edit_id: Option<&'a str>) -> &'a str {
    match event.source.message_is_edit {
        true => edit_id.unwrap_or(&event.text),
        false => "",
    }
}

/// Outcome of a stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub event_id: EventId,
    pub verdict: VerdictBrief,
    /// False: a duplicate; nothing was written.
    pub fresh: bool,
    /// The number of the chat line that was written with it.
    pub line: Option<u64>,
}

#[cfg(test)]
mod tests {
    use frontdesk_wire::Source;

    use super::*;

    #[test]
    fn an_edit_is_identified_by_its_name_and_else_by_its_text() {
        let event = |message_is_edit| {
            let source = Source { message_is_edit, ..Source::default() };
            MessageEvent { text: "text".into(), source, ..MessageEvent::default() }
        };
        assert_eq!(edit_of(&event(false), Some("at noon")), "");
        assert_eq!(edit_of(&event(true), None), "text");
        assert_eq!(
            edit_of(&event(true), Some("at noon")),
            "at noon",
            "a text that is told in another way is no new edit"
        );
    }
}
