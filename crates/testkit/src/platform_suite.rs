//! The contract of platforms: what the core relies on, whatever the vendor. Each broken rule is a panic with the
//! observed result.
//!
//! The platform gets an [`Unreachable`] client, so nothing leaves the process.

use std::collections::HashSet;
use std::sync::Mutex;

use frontdesk_core::intake::Intake;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, OpenAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{
    ActingAs, Bot, Change, Gap, Inlet, LateReceipt, ListenEnd, Part, Platform, RawRequest,
};
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{DeskError, intake::Receipt};
use frontdesk_wire::{Action, ChatId, Code, Secret, TenantId};
use serde_json::{Value, json};

/// How a vendor cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// No connection: nothing was sent.
    NotSent,
    /// The answer was lost: it may have happened.
    Lost,
    /// Status 502 with a page of a proxy.
    BadGateway,
    /// Status 403 with a page of a proxy.
    Forbidden,
}

impl Way {
    pub const ALL: [Self; 4] = [Self::NotSent, Self::Lost, Self::BadGateway, Self::Forbidden];

    fn answer(self) -> Result<HttpAnswer, OutcallError> {
        let page = |status| HttpAnswer { body: b"<html>".to_vec(), ..HttpAnswer::of(status) };
        match self {
            Self::NotSent => Err(OutcallError::NotSent("refused".into())),
            Self::Lost => Err(OutcallError::Failed("the connection was closed".into())),
            Self::BadGateway => Ok(page(502)),
            Self::Forbidden => Ok(page(403)),
        }
    }
}

/// Answers every call in one way, and records where it should have gone.
pub struct Unreachable {
    pub way: Mutex<Way>,
    pub urls: Mutex<Vec<String>>,
}

impl Default for Unreachable {
    fn default() -> Self {
        Self { way: Mutex::new(Way::NotSent), urls: Mutex::default() }
    }
}

impl Outcall for Unreachable {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        self.urls.lock().unwrap().push(call.url.to_owned());
        let way = *self.way.lock().unwrap();
        Box::pin(std::future::ready(way.answer()))
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        self.urls.lock().unwrap().push(call.url.to_owned());
        Box::pin(std::future::ready(Err(OutcallError::NotSent("refused".into()))))
    }
}

/// A platform with a bot that is complete, and an id of a chat as its vendor writes them.
pub struct Subject<'a> {
    pub platform: &'a dyn Platform,
    pub bot: &'a Bot,
    /// The values of the bot's secrets.
    pub secrets: &'a [&'a str],
    pub chat_id: &'a str,
    pub message_id: &'a str,
}

/// All rules.
pub async fn check(subject: &Subject<'_>, vendor: &Unreachable) {
    describes_itself(subject);
    names_its_settings(subject);
    has_doors_that_can_be_opened(subject);
    splits_texts_without_loss(subject);
    counts_the_same_action_the_same(subject);
    for way in Way::ALL {
        *vendor.way.lock().unwrap() = way;
        claims_nothing_that_did_not_happen(subject, way).await;
        sees_nothing_that_the_vendor_does_not_tell(subject).await;
        tells_why_it_does_not_listen(subject).await;
        tells_why_a_file_is_not_there(subject).await;
    }
    takes_nothing_from_strangers(subject).await;
}

fn name<'a>(subject: &'a Subject<'_>) -> &'a str {
    &subject.platform.descriptor().platform
}

fn keeps_secrets(subject: &Subject<'_>, text: &str) {
    for secret in subject.secrets {
        assert!(!text.contains(secret), "{}: a secret is in {text:?}", name(subject));
    }
}

const OPS: [&str; 12] = [
    "send",
    "edit",
    "delete",
    "typing",
    "get_chat_info",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "draft",
    "follow_up",
];

fn describes_itself(subject: &Subject<'_>) {
    let descriptor = subject.platform.descriptor();
    assert!(!descriptor.platform.is_empty() && !descriptor.label.is_empty());
    assert!(
        descriptor.max_message_length >= 64,
        "{}: a limit of {}",
        descriptor.platform,
        descriptor.max_message_length
    );
    let ops: HashSet<&str> = descriptor.supported_ops.iter().map(String::as_str).collect();
    assert_eq!(ops.len(), descriptor.supported_ops.len(), "{}: an op twice", descriptor.platform);
    assert!(ops.iter().all(|op| OPS.contains(op)), "{}: an unknown op in {ops:?}", descriptor.platform);
    assert_eq!(descriptor.supports_edit, ops.contains("edit"), "{}: edit", descriptor.platform);
    assert_eq!(descriptor.supports_draft_streaming, ops.contains("draft"), "{}: draft", descriptor.platform);
}

fn names_its_settings(subject: &Subject<'_>) {
    if let Some(names) = subject.platform.bot_names() {
        let known: Vec<&str> = names.settings.iter().chain(names.secrets).copied().collect();
        assert_eq!(known.iter().collect::<HashSet<_>>().len(), known.len(), "{}: a name twice", name(subject));
        assert!(names.required.iter().all(|it| known.contains(it)), "{}: {:?}", name(subject), names.required);
    }
    assert_eq!(subject.platform.check_bot(subject.bot), Ok(()), "{}: a complete bot", name(subject));
    if let Err(why) = subject.platform.check_bot(&Bot::bare("empty")) {
        assert!(!why.is_empty());
    }
}

fn has_doors_that_can_be_opened(subject: &Subject<'_>) {
    let mut seen = HashSet::new();
    for door in subject.platform.doors() {
        assert!(door.path.starts_with('/') && !door.summary.is_empty() && door.max_bytes > 0, "{}", door.path);
        assert!(seen.insert((format!("{:?}", door.method), door.path)), "{}: {} twice", name(subject), door.path);
    }
}

fn splits_texts_without_loss(subject: &Subject<'_>) {
    let descriptor = subject.platform.descriptor();
    assert!(subject.platform.split("").len() <= 1);
    assert_eq!(subject.platform.split("short"), ["short"]);
    let words: Vec<String> = (0..descriptor.max_message_length / 4).map(|number| format!("wörd{number}.")).collect();
    let parts = subject.platform.split(&words.join(" "));
    assert!(parts.len() > 1, "{}: a long text in one part", name(subject));
    let seen: Vec<&str> = parts.iter().flat_map(|part| part.split_whitespace()).collect();
    assert_eq!(seen, words, "{}: words of a long text", name(subject));
    for part in &parts {
        let length = descriptor.len_unit.measure(part);
        assert!(length <= descriptor.max_message_length, "{}: a part of {length}", name(subject));
    }
}

fn actions(subject: &Subject<'_>) -> Vec<Action> {
    let (chat_id, message_id) = (subject.chat_id, subject.message_id);
    let option = json!([{ "id": "y", "label": "Yes" }]);
    let all = [
        json!({ "op": "send", "content": "hello" }),
        json!({ "op": "edit", "message_id": message_id, "content": "hello" }),
        json!({ "op": "delete", "message_id": message_id }),
        json!({ "op": "typing" }),
        json!({ "op": "get_chat_info" }),
        json!({ "op": "send_media", "media_kind": "image", "source_url": "https://files.example/a.png" }),
        json!({ "op": "prompt", "prompt_id": "p", "content": "?", "options": option }),
        json!({ "op": "react", "message_id": message_id, "emoji": "👍" }),
        json!({ "op": "thread_create", "thread_name": "t", "message_id": message_id }),
        json!({ "op": "thread_rename", "message_id": message_id, "thread_name": "t" }),
        json!({ "op": "draft", "draft_id": 1, "content": "hello" }),
    ];
    let supported = &subject.platform.descriptor().supported_ops;
    let with_chat = |mut action: Value| {
        action["chat_id"] = chat_id.into();
        Action::parse(&action.to_string()).unwrap()
    };
    all.into_iter().map(with_chat).filter(|action| supported.iter().any(|op| op == action.act.op())).collect()
}

fn counts_the_same_action_the_same(subject: &Subject<'_>) {
    let home = TenantId::from("home");
    let acting_as = ActingAs::new(&home, subject.bot);
    for action in actions(subject) {
        let (first, second) = (subject.platform.cost(acting_as, &action), subject.platform.cost(acting_as, &action));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        let names: HashSet<&String> = first.buckets.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), first.buckets.len(), "{}: a bucket twice", name(subject));
        assert!(!first.droppable || action.act.op() == "typing", "{} may be dropped", action.act.op());
    }
}

/// No action succeeds at a vendor that cannot be reached, and only one that was sent is ambiguous.
async fn claims_nothing_that_did_not_happen(subject: &Subject<'_>, way: Way) {
    let home = TenantId::from("home");
    for action in actions(subject) {
        let op = action.act.op();
        let acting_as = ActingAs { idempotency_key: Some("1.2.3"), ..ActingAs::new(&home, subject.bot) };
        let result = subject.platform.act(acting_as, &action, None).await.result;
        let what = format!("{} {op} when {way:?}: {result:?}", name(subject));
        assert!(!result.success, "{what}");
        assert!(result.code.is_some() && result.error.as_ref().is_some_and(|text| !text.is_empty()), "{what}");
        assert!(!result.ambiguous || matches!(way, Way::Lost | Way::BadGateway), "{what}");
        // A platform that first asks about the chat has sent nothing.
        let is_honest = result.ambiguous || result.code == Some(Code::Unavailable);
        assert!(op != "send" || way != Way::Lost || is_honest, "a lost answer is in doubt: {what}");
        keeps_secrets(subject, &format!("{result:?}"));
    }
}

async fn sees_nothing_that_the_vendor_does_not_tell(subject: &Subject<'_>) {
    let looked = subject
        .platform
        .look(ActingAs::new(&"home".into(), subject.bot), &ChatId::from(subject.chat_id), Some(&"777".into()))
        .await;
    match looked {
        Ok(look) => {
            assert_ne!(look.and_then(|look| look.visible), Some(true), "{}: somebody sees a chat", name(subject));
        }
        Err(error) => keeps_secrets(subject, &error.to_string()),
    }
}

async fn tells_why_it_does_not_listen(subject: &Subject<'_>) {
    if !subject.platform.listens() {
        return;
    }
    let limit = std::time::Duration::from_mins(5);
    let ended = tokio::time::timeout(limit, subject.platform.listen(subject.bot, Part::WHOLE, None, &NoInlet)).await;
    match ended.unwrap_or_else(|_| panic!("{}: it hangs", name(subject))) {
        ListenEnd::Never => {}
        ListenEnd::Lost(why) | ListenEnd::Misconfigured(why) => {
            assert!(!why.is_empty());
            keeps_secrets(subject, &why);
        }
    }
}

async fn tells_why_a_file_is_not_there(subject: &Subject<'_>) {
    let handle = Secret::new("a-handle/of-some/file");
    if let Err(fault) = subject.platform.fetch_media(subject.bot, &handle).await {
        keeps_secrets(subject, &fault.to_string());
    } else {
        panic!("{}: a file of nowhere", name(subject));
    }
}

/// Without a proof no event is taken, whatever the body says.
async fn takes_nothing_from_strangers(subject: &Subject<'_>) {
    for door in subject.platform.doors() {
        for body in [&b""[..], b"{}", b"{\"events\":[]}", b"\xff\xfe", b"[[[[[[["] {
            let request = RawRequest {
                door: door.path,
                body: bytes::Bytes::copy_from_slice(body),
                headers: vec![("authorization".into(), "Bearer guess".into())],
                ..RawRequest::default()
            };
            for bot in [Some(subject.bot), None] {
                match subject.platform.receive(bot, &request).await {
                    Err(reply) => assert!((400..600).contains(&reply.status), "{}: status {}", door.path, reply.status),
                    Ok(received) => {
                        assert!(received.intakes.is_empty() && received.changes.is_empty(), "{}: taken", door.path);
                    }
                }
            }
        }
    }
}

/// Nothing comes here: the vendor is not reached.
struct NoInlet;

impl Inlet for NoInlet {
    fn take(&self, _: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        panic!("an event of nobody")
    }

    fn changed(&self, _: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        panic!("a change of nobody")
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        panic!("a receipt of nobody")
    }

    fn gap(&self, _: Gap) {}

    fn save_cursor(&self, _: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
