//! One event from a platform, verified there, with what was stripped from it.

use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{MessageEvent, Secret, TenantId};

use crate::port::store::ChatAmend;

/// A promise, written where the check was made: the bytes behind this event were verified
/// (signature, socket, or our own token) before anything was parsed from them.
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
}

/// A file that is still at the platform. It is fetched when an agent asks for it, which may be days later.
pub struct RemoteFile {
    /// By which [`Platform::fetch_media`](crate::port::platform::Platform::fetch_media) finds it. It may be a
    /// credential: it is kept sealed and never shown to an agent.
    pub handle: Secret,
    pub mime: String,
    pub filename: Option<String>,
    /// As the platform says; the bytes are counted when they come.
    pub size: Option<u64>,
}

/// How the event asks to be handed over.
pub enum Handover {
    Event,
    /// As a sanitized request, for agents that understand it.
    Forward(PassthroughForward),
}

/// What tells whose event it is. Never the socket or the bot's token that brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A platform that keeps tenants apart itself: its credential names one.
    Tenant(TenantId),
    /// A shared bot: the event's scope or chat, and in a direct message its author, looked up in our records.
    Shared,
    /// A webhook: the path that was called, looked up in the routes.
    Path(String),
}

/// What the built-in chat writes with an event, in one commit.
pub struct ChatLine {
    pub json: String,
    /// A change of the line that it answers, made if somebody receives the event.
    pub answers: Option<ChatAmend>,
}

pub struct Intake {
    pub whose: Whose,
    pub bot: String,
    pub event: MessageEvent,
    pub capabilities: Vec<RawCapability>,
    pub handover: Handover,
    /// Addressed to the bot: a mention, a reply, a command, a button.
    pub addressed: bool,
    /// A program wrote it (a webhook): it is no command to the desk, and every linked instance receives it, not only the
    /// preferred one.
    pub from_program: bool,
    pub chat: Option<Box<ChatLine>>,
    /// Files at the platform; the event gets a URL of this desk for each. At most [`REMOTE_MEDIA_MAX`], with handles of
    /// at most [`HANDLE_MAX_BYTES`]. A forwarded request cannot name them, so they are left out there.
    pub remote_media: Vec<RemoteFile>,
    /// Why nobody can receive it, in words for users: it is recorded with this reason, and `explain` shows it. For what
    /// the platform cannot read, such as an encrypted message.
    pub refusal: Option<String>,
    /// Ids of files of this desk that the event refers to: they are kept while the event is owed.
    pub kept_media: Vec<String>,
}

/// Files at the platform that one event may have.
pub const REMOTE_MEDIA_MAX: usize = 16;
pub const HANDLE_MAX_BYTES: usize = 4 << 10;

impl Intake {
    pub fn new(_proof: Verified, whose: Whose, bot: String, event: MessageEvent) -> Self {
        Self {
            whose,
            bot,
            event,
            capabilities: Vec::new(),
            handover: Handover::Event,
            addressed: false,
            from_program: false,
            chat: None,
            remote_media: Vec::new(),
            refusal: None,
            kept_media: Vec::new(),
        }
    }
}

/// What became of an event that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub event_id: String,
    pub verdict: VerdictBrief,
    /// False: the same message was here before, and nothing new was written.
    pub fresh: bool,
    /// The number of the chat line that was written with it.
    pub line: Option<u64>,
}
