//! From the fields of a message to what the server stores.

use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, RemoteFile, Verified};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::{MessageEvent, Secret, Source};

use super::PLATFORM;
use super::xml::Fields;

/// The message is not for this app.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign(pub(super) String);

/// Events of members that are no messages. Gateways leave out the first two as well.
const SILENT_EVENTS: [&str; 12] = [
    "enter_agent",
    "subscribe",
    "unsubscribe",
    "location",
    "view",
    "view_miniprogram",
    "batch_job_result",
    "change_contact",
    "open_approval_change",
    "sys_approval_change",
    "share_agent_change",
    "share_chain_change",
];

/// `Ok(None)`: it is no message of a member.
pub(super) fn intake_of(bot: &Bot, message: &Fields) -> Result<Option<Intake>, Foreign> {
    let corp_id = bot.setting("corp_id").unwrap_or_default();
    if message.get("ToUserName").is_some_and(|corp| corp != corp_id) {
        return Err(Foreign("the message is for another company than corp_id of the bot".into()));
    }
    // What concerns the whole company has none.
    if message.get("AgentID").is_some_and(|agent| Some(agent) != bot.setting("agent_id")) {
        return Err(Foreign(
            "the message is for another app than agent_id of the bot; each app needs the address of its own bot".into(),
        ));
    }
    let Some(person) = message.get("FromUserName").map(str::trim).filter(|id| !id.is_empty() && *id != "sys") else {
        return Ok(None);
    };
    let Some(content) = Content::of(message) else { return Ok(None) };
    // An event has no id.
    let created = message.get("CreateTime").unwrap_or("0");
    let message_id = message.get("MsgId").map_or_else(|| format!("{person}:{created}"), str::to_owned);
    let source = Source {
        platform: PLATFORM.into(),
        chat_id: format!("{corp_id}:{person}").into(),
        chat_type: "dm".into(),
        chat_name: Some(person.to_owned()),
        user_id: Some(person.into()),
        user_name: Some(person.to_owned()),
        message_id: Some(message_id.as_str().into()),
        ..Source::default()
    };
    let event = MessageEvent {
        text: content.text,
        message_type: content.kind.into(),
        source,
        message_id: Some(message_id.into()),
        ..MessageEvent::default()
    };
    let proof = Verified::by("msg_signature over the sealed text");
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    intake.remote_media = content.file.into_iter().collect();
    Ok(Some(intake))
}

/// What a message is.
struct Content {
    kind: &'static str,
    text: String,
    file: Option<RemoteFile>,
}

impl Content {
    fn text(text: impl Into<String>) -> Self {
        Self { kind: "text", text: text.into(), file: None }
    }

    fn of(message: &Fields) -> Option<Self> {
        let field = |name: &str| message.get(name).map(str::trim).filter(|text| !text.is_empty());
        let file = |kind, mime: &str| {
            let filename = field("FileName").or_else(|| field("Title").filter(|_| kind == "document"));
            Some(Self { kind, text: String::new(), file: Some(remote(field("MediaId")?, mime, filename)?) })
        };
        match message.get("MsgType").unwrap_or_default().to_lowercase().as_str() {
            "text" => field("Content").map(Self::text),
            "event" => {
                let name = message.get("Event").unwrap_or_default().to_lowercase();
                // As gateways do it: a press on a button of the menu begins a conversation.
                (!SILENT_EVENTS.contains(&name.as_str())).then(|| Self::text(field("Content").unwrap_or("/start")))
            }
            "image" => file("photo", "image/jpeg"),
            "voice" => file("voice", "audio/amr"),
            "video" | "shortvideo" => file("video", "video/mp4"),
            "file" => file("document", "application/octet-stream"),
            "location" => Some(Self { kind: "location", ..Self::text(place(field)) }),
            "link" => Some(Self::text(link(field))),
            "" => None,
            kind => {
                let kind: String = kind.chars().take(32).collect();
                Some(Self::text(format!("[A message of the kind {kind:?}, which can only be seen in WeCom]")))
            }
        }
    }
}

fn remote(id: &str, mime: &str, filename: Option<&str>) -> Option<RemoteFile> {
    (id.len() <= HANDLE_MAX_BYTES).then(|| RemoteFile {
        handle: Secret::new(id),
        mime: mime.to_owned(),
        filename: filename.map(str::to_owned),
        size: None,
    })
}

fn place<'a>(field: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut lines = vec!["[The user shared a location.]".to_owned()];
    lines.extend(field("Label").map(|address| format!("Address: {address}")));
    lines.extend(field("Location_X").map(|latitude| format!("latitude: {latitude}")));
    lines.extend(field("Location_Y").map(|longitude| format!("longitude: {longitude}")));
    lines.join("\n")
}

fn link<'a>(field: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut lines = vec![format!("[The user shared a link: {}]", field("Title").unwrap_or("without a title"))];
    lines.extend(field("Description").map(str::to_owned));
    lines.extend(field("Url").map(str::to_owned));
    lines.join("\n")
}
