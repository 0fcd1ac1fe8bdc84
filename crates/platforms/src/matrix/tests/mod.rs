//! The platform against a homeserver that is a table of answers.

mod acting;
mod goldens;
mod hostile;
mod listening;
mod patient;
mod pushing;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::{body_of, read_whole};
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, OpenAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{ActingAs, Bot};
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Secret, TenantId};
use serde_json::{Value, json};

use super::Homeservers;
use crate::{Kit, NoMedia};

pub(super) const ME: &str = "@bot:example.org";
pub(super) const ROOM: &str = "!room:example.org";
const BASE: &str = "http://127.0.0.1:8008";

/// A request that was made: method and path below `/_matrix`, and its body.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) what: String,
    pub(super) body: Value,
}

/// What a request begins with, how long the answer takes, and the answer.
type Rule = (String, Duration, Result<(u16, Value), OutcallError>);

/// With a clock that advances when all tasks wait.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_hours(24), future).await.expect("it ends") })
}

/// Answers by the first rule that the request begins with; a rule is used up unless it is the last of its kind.
#[derive(Default)]
pub(super) struct Table {
    rules: Mutex<Vec<Rule>>,
    pub(super) seen: Mutex<Vec<Seen>>,
}

impl Table {
    pub(super) fn rule(&self, what: &str, status: u16, body: Value) {
        self.slow(what, Duration::ZERO, status, body);
    }

    pub(super) fn slow(&self, what: &str, time: Duration, status: u16, body: Value) {
        self.rules.lock().unwrap().push((what.to_owned(), time, Ok((status, body))));
    }

    pub(super) fn fail(&self, what: &str, error: OutcallError) {
        self.rules.lock().unwrap().push((what.to_owned(), Duration::ZERO, Err(error)));
    }

    async fn answer(&self, what: &str) -> Result<(u16, Value), OutcallError> {
        let (_, time, answer) = self.take_rule(what);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        answer
    }

    fn take_rule(&self, what: &str) -> Rule {
        let mut rules = self.rules.lock().unwrap();
        let Some(at) = rules.iter().position(|(known, ..)| what.starts_with(known.as_str())) else {
            let absent = json!({ "errcode": "M_NOT_FOUND", "error": "no rule" });
            return (what.to_owned(), Duration::ZERO, Ok((404, absent)));
        };
        let is_last = !rules[at + 1..].iter().any(|(known, ..)| *known == rules[at].0);
        if is_last { rules[at].clone() } else { rules.remove(at) }
    }

    /// Requests whose first words these are.
    pub(super) fn seen(&self, what: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|it| it.what.starts_with(what)).cloned().collect()
    }
}

impl Outcall for Table {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            assert_eq!(call.trusted, Some(BASE));
            assert!(call.bearer.is_some_and(|it| it.expose() == "token"), "every request has the token");
            let method = match call.method {
                HttpMethod::Get => "GET",
                HttpMethod::Post => "POST",
                HttpMethod::Put => "PUT",
                other => panic!("{other:?}"),
            };
            let path = call.url.strip_prefix(&format!("{BASE}/_matrix/")).expect("the homeserver and nobody else");
            let what = format!("{method} {path}");
            let body = match call.body {
                Body::Json(text) => serde_json::from_str(text).unwrap(),
                Body::Stream { body, mime, length } => {
                    let text = String::from_utf8(read_whole(body).await.unwrap()).unwrap();
                    json!({ "mime": mime, "text": text, "length": length })
                }
                _ => Value::Null,
            };
            self.seen.lock().unwrap().push(Seen { what: what.clone(), body });
            let (status, body) = self.answer(&what).await?;
            Ok(HttpAnswer { status, body: body.to_string().into_bytes(), ..HttpAnswer::default() })
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(async move {
            let what = format!("OPEN {}", call.url);
            self.seen.lock().unwrap().push(Seen { what: what.clone(), body: call.bearer.is_some().into() });
            let (status, body) = self.answer(&what).await?;
            let headers = vec![("content-type".to_owned(), "image/png".to_owned())];
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            Ok(OpenAnswer { status, headers, body: body_of(text.into_bytes()) })
        })
    }
}

pub(super) fn acting_as(bot: &Bot) -> ActingAs<'_> {
    static HOME: LazyLock<TenantId> = LazyLock::new(|| "home".into());
    ActingAs::new(&HOME, bot)
}

pub(super) fn bot(mode: &str) -> Bot {
    let settings = [("homeserver_url", BASE), ("user_id", ME), ("mode", mode)];
    let secrets = [("access_token", "token"), ("as_token", "token"), ("hs_token", "pushed")];
    bot_with(&settings, &secrets)
}

pub(super) fn bot_with(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Bot::new("b", Some("home".into()), settings, secrets)
}

/// A homeserver with one room of three.
pub(super) fn world() -> (Arc<Table>, Homeservers) {
    let table = Arc::new(Table::default());
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: table.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    (table, Homeservers::new(&kit))
}

pub(super) fn with_room(table: &Table, members: &[&str]) {
    let named = |id: &&str| ((*id).to_owned(), json!({ "display_name": id[1..4].to_owned() }));
    let joined: serde_json::Map<String, Value> = members.iter().map(named).collect();
    table.rule(&path("GET", "joined_members"), 200, json!({ "joined": joined }));
    // Two people without a name for their room talk to each other.
    if members.len() != 2 {
        table.rule(&path("GET", "state/m.room.name/"), 200, json!({ "name": "Ops" }));
    }
}

/// A request of the room.
pub(super) fn path(method: &str, rest: &str) -> String {
    format!("{method} client/v3/rooms/%21room%3Aexample.org/{rest}")
}
