//! The list of commands that Discord shows: made from what agents offer, and written only if it is another one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Bot, Command};
use serde_json::{Map, Value, json};

use super::Discord;
use super::api::ApiError;
use super::snowflake::is_id;

const COMMANDS_MAX: usize = 100;
const NAME_MAX: usize = 32;
const DESCRIPTION_MAX: usize = 100;
const OPTIONS_MAX: usize = 25;
const CHOICES_MAX: usize = 25;
const CHOICE_MAX: usize = 100;
/// Of numbers, and of lengths.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
const LENGTH_MAX: f64 = 6_000.0;
const CHANNEL_TYPES: [u64; 13] = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16];
const TYPED: u64 = 1;
/// Of a command itself.
const TOP: u64 = 0;
const SUBCOMMAND: u64 = 1;
const SUBCOMMAND_GROUP: u64 = 2;
/// Commands of the server itself that work in direct chats only.
const ONLY_DIRECT: [&str; 3] = ["link", "unlink", "whoami"];
/// Commands of the server itself.
const OWN: [&str; 4] = ["link", "unlink", "whoami", "stop"];
const DIRECT_CONTEXT: u8 = 1;

/// Discord permits 200 new commands a day, and locks the application out for the rest of it.
const CREATES_A_DAY: usize = 150;
const WRITES_A_DAY: usize = 50;
const DAY_MS: u64 = 86_400_000;

/// What was written by each application in the last day: when, and how many new names.
#[derive(Default)]
pub(super) struct CommandBudget(Mutex<HashMap<String, VecDeque<(u64, usize)>>>);

impl CommandBudget {
    fn check(&self, application: &str, creates: usize, now_ms: u64) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = all.entry(application.to_owned()).or_default();
        while written.front().is_some_and(|(at_ms, _)| at_ms + DAY_MS <= now_ms) {
            written.pop_front();
        }
        let made: usize = written.iter().map(|(_, creates)| creates).sum();
        if written.len() >= WRITES_A_DAY || made + creates > CREATES_A_DAY {
            let (writes, made) = (written.len(), made);
            return Err(format!(
                "the list of commands was written {writes} times with {made} new commands in the last day; it is not \
                 written more than {WRITES_A_DAY} times or with more than {CREATES_A_DAY} new commands, because Discord \
                 refuses more than 200 a day"
            ));
        }
        Ok(())
    }

    fn note(&self, application: &str, creates: usize, now_ms: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(application.to_owned()).or_default().push_back((now_ms, creates));
    }
}

impl Discord {
    /// The application of a bot: as it was set, or as Discord says.
    async fn application(&self, bot: &Bot) -> Result<String, String> {
        if let Some(id) = bot.setting("application_id") {
            return Ok(id.to_owned());
        }
        let known = || self.applications.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, id)) = known().get(&bot.id).filter(|(account, _)| account == bot.account()) {
            return Ok(id.clone());
        }
        let api = self.api(bot).ok_or("the bot has no token")?;
        let found: Value = api.get("/applications/@me").await.map_err(|error| error.text())?;
        let id =
            found["id"].as_str().filter(|id| is_id(id)).ok_or("Discord did not return the id of the application")?;
        known().insert(bot.id.clone(), (bot.account().to_owned(), id.to_owned()));
        Ok(id.to_owned())
    }

    pub(super) async fn declare(&self, bot: &Bot, commands: &[Command]) -> Result<(), String> {
        let application = self.application(bot).await?;
        let api = self.api(bot).ok_or("the bot has no token")?;
        let path = format!("/applications/{application}/commands");
        let current: Vec<Value> =
            api.get(&format!("{path}?with_localizations=true")).await.map_err(|error| error.text())?;
        let is_typed = |command: &&Value| command["type"].as_u64().unwrap_or(TYPED) == TYPED;
        let others: Vec<&Value> = current.iter().filter(|it| !is_typed(it)).collect();
        let mut wanted = converted(commands);
        let known: HashMap<&str, &Value> =
            current.iter().filter(is_typed).filter_map(|it| Some((it["name"].as_str()?, it))).collect();
        let is_same = |it: &Value| known.get(it["name"].as_str().unwrap_or_default()).is_some_and(|has| fits(has, it));
        let is_wanted = |name: &str| wanted.iter().any(|it| it["name"] == name);
        let foreign: Vec<&Value> = known.iter().filter(|(name, _)| !is_wanted(name)).map(|(_, it)| *it).collect();
        // As long as no agent offers commands, those that another program has registered are kept.
        let keeps_foreign = commands.iter().all(|command| OWN.contains(&command.name.as_str()));
        if (keeps_foreign || foreign.is_empty()) && wanted.iter().all(is_same) {
            return Ok(());
        }
        let is_new = |it: &&Value| !known.contains_key(it["name"].as_str().unwrap_or_default());
        let creates = wanted.iter().filter(is_new).count();
        self.command_budget.check(&application, creates, self.env.now_ms())?;
        let names = |list: &[&Value]| list.iter().filter_map(|it| it["name"].as_str()).collect::<Vec<_>>().join(", ");
        let removed = (!keeps_foreign && !foreign.is_empty()).then(|| names(&foreign));
        // Commands of menus, and the entry point of an activity, were registered by another program: they stay.
        let stay: Vec<Value> =
            others.into_iter().chain(foreign.into_iter().filter(|_| keeps_foreign)).cloned().collect();
        let list = |of_agents: &[Value]| Value::Array(of_agents.iter().chain(&stay).cloned().collect());
        let mut put = api.send::<Value>(HttpMethod::Put, &path, &list(&wanted)).await;
        if let Err(ApiError::Refused { status: 400, message, .. }) = &put {
            // One agent with an invalid command must not keep those of all others away.
            tracing::warn!(
                bot = bot.id.as_str(),
                message,
                "Discord refused a list of commands; retrying without options"
            );
            wanted.retain(|it| it["name"].as_str().is_some_and(str::is_ascii));
            wanted.iter_mut().filter_map(Value::as_object_mut).for_each(|it| drop(it.remove("options")));
            put = api.send::<Value>(HttpMethod::Put, &path, &list(&wanted)).await;
        }
        if !matches!(put, Err(ApiError::Refused { .. } | ApiError::Limited { .. })) {
            self.command_budget.note(&application, creates, self.env.now_ms());
        }
        put.map_err(|error| error.text())?;
        if let Some(names) = removed {
            tracing::warn!(bot = bot.id.as_str(), names, "removed commands from Discord that no agent offers");
        }
        Ok(())
    }
}

/// In the form of Discord. Commands that it would refuse are left out: one of them would make it refuse the whole list.
fn converted(commands: &[Command]) -> Vec<Value> {
    let mut made: BTreeMap<String, Value> = BTreeMap::new();
    let mut order = Vec::new();
    for command in commands {
        let Some(name) = name(&command.name) else {
            tracing::debug!(name = command.name, "a command was left out: Discord does not accept its name");
            continue;
        };
        if made.contains_key(&name) {
            continue;
        }
        let mut one = json!({ "name": name, "type": TYPED, "description": description(&command.description, &name) });
        let given: Value =
            command.options.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let options = options(&given, TOP);
        if !options.is_empty() {
            one["options"] = options.into();
        }
        if ONLY_DIRECT.contains(&name.as_str()) {
            one["contexts"] = json!([DIRECT_CONTEXT]);
        }
        order.push(name.clone());
        made.insert(name, one);
    }
    order.into_iter().take(COMMANDS_MAX).filter_map(|name| made.remove(&name)).collect()
}

fn name(given: &str) -> Option<String> {
    let name = given.to_lowercase();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    ((1..=NAME_MAX).contains(&name.chars().count()) && name.chars().all(plain)).then_some(name)
}

fn description(given: &str, name: &str) -> String {
    let text: String = given.trim().chars().take(DESCRIPTION_MAX).collect();
    if text.is_empty() { name.to_owned() } else { text }
}

/// Numbers of the kinds of options, or their names.
fn kind(given: &Value) -> Option<u64> {
    const NAMES: [&str; 11] = [
        "sub_command",
        "sub_command_group",
        "string",
        "integer",
        "boolean",
        "user",
        "channel",
        "role",
        "mentionable",
        "number",
        "attachment",
    ];
    let named = |text: &str| NAMES.iter().position(|name| *name == text).map(|at| at as u64 + 1);
    let number = given.as_u64().or_else(|| given.as_str().and_then(named));
    number.or(given.is_null().then_some(3)).filter(|number| (1..=NAMES.len() as u64).contains(number))
}

/// `parent` is the kind of option that they are in.
fn options(given: &Value, parent: u64) -> Vec<Value> {
    let mut names = HashSet::new();
    let given = given.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = given.iter().filter_map(|one| option(one, parent));
    let mut read: Vec<Value> = read.filter(|it| names.insert(it["name"].to_string())).collect();
    // Options and subcommands do not go together.
    let is_sub = |it: &Value| matches!(it["type"].as_u64(), Some(SUBCOMMAND | SUBCOMMAND_GROUP));
    if read.iter().any(is_sub) {
        read.retain(is_sub);
    }
    read.sort_by_key(|it| it["required"] != true); // those that must be given come first
    read.truncate(OPTIONS_MAX);
    read
}

fn option(given: &Value, parent: u64) -> Option<Value> {
    let name = name(given["name"].as_str()?)?;
    let kind = kind(&given["type"])?;
    let text = description(given["description"].as_str().unwrap_or_default(), &name);
    let mut made = Map::new();
    made.insert("name".into(), name.into());
    made.insert("description".into(), text.into());
    made.insert("type".into(), kind.into());
    let is_nested_too_deep = match kind {
        SUBCOMMAND => parent == SUBCOMMAND,
        SUBCOMMAND_GROUP => parent != TOP,
        _ => parent == SUBCOMMAND_GROUP,
    };
    if is_nested_too_deep {
        return None;
    }
    if matches!(kind, SUBCOMMAND | SUBCOMMAND_GROUP) {
        let inner = options(&given["options"], kind);
        if !inner.is_empty() {
            made.insert("options".into(), inner.into());
        }
        return Some(Value::Object(made));
    }
    if given["required"] == true {
        made.insert("required".into(), true.into());
    }
    let choices = choices(&given["choices"], kind);
    if !choices.is_empty() {
        made.insert("choices".into(), choices.into());
    }
    for (low, high) in [("min_value", "max_value"), ("min_length", "max_length")] {
        let number = |bound: &str| given[bound].as_f64().filter(|value| bound_fits(bound, kind, *value));
        let (least, most) = (number(low), number(high));
        if least.zip(most).is_some_and(|(least, most)| least > most) {
            continue;
        }
        for (bound, _) in [(low, least), (high, most)].into_iter().filter(|(_, value)| value.is_some()) {
            made.insert(bound.into(), given[bound].clone());
        }
    }
    let is_channel_type = |it: &Value| it.as_u64().is_some_and(|kind| CHANNEL_TYPES.contains(&kind));
    if kind == 7 && given["channel_types"].as_array().is_some_and(|types| types.iter().all(is_channel_type)) {
        made.insert("channel_types".into(), given["channel_types"].clone());
    }
    Some(Value::Object(made))
}

fn bound_fits(bound: &str, kind: u64, value: f64) -> bool {
    match bound {
        "min_length" => kind == 3 && (0.0..=LENGTH_MAX).contains(&value),
        "max_length" => kind == 3 && (1.0..=LENGTH_MAX).contains(&value),
        _ if kind == 4 => value.fract() == 0.0 && value.abs() <= INTEGER_MAX,
        _ => kind == 10 && value.abs() <= INTEGER_MAX,
    }
}

fn choices(given: &Value, kind: u64) -> Vec<Value> {
    let fits = |value: &Value| match kind {
        3 => value.as_str().is_some_and(|text| (1..=CHOICE_MAX).contains(&text.chars().count())),
        4 => (value.is_i64() || value.is_u64()) && value.as_f64().is_some_and(|it| it.abs() <= INTEGER_MAX),
        10 => value.as_f64().is_some_and(|it| it.abs() <= INTEGER_MAX),
        _ => false,
    };
    let one = |choice: &Value| {
        let value = Some(&choice["value"]).filter(|value| fits(value))?;
        let name: String = choice["name"].as_str()?.trim().chars().take(CHOICE_MAX).collect();
        (!name.is_empty()).then(|| json!({ "name": name, "value": value }))
    };
    let mut names = HashSet::new();
    let read = given.as_array().into_iter().flatten().filter_map(one);
    read.filter(|it| names.insert(it["name"].to_string())).take(CHOICES_MAX).collect()
}

/// Whether Discord's command equals the wanted one. Fields that Discord adds do not count: ids, versions, defaults.
fn fits(has: &Value, wanted: &Value) -> bool {
    let is_same = |name: &str| has[name] == wanted[name];
    let contexts = wanted.get("contexts").is_none_or(|contexts| has["contexts"] == *contexts);
    let as_ours = |value: &Value| options(value, TOP);
    is_same("name") && is_same("description") && contexts && as_ours(&has["options"]) == as_ours(&wanted["options"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, description: &str, options: Option<Value>) -> Command {
        Command { options: options.map(|it| it.to_string()), ..Command::new(name, description) }
    }

    #[test]
    fn commands_become_what_discord_takes() {
        let options = json!([
            { "name": "unit", "type": "string", "description": "", "choices": [{ "name": "C", "value": "c" }, { "name": "x" }] },
            { "name": "City", "type": 3, "description": "Where", "required": true, "max_length": 50, "min_value": 1 },
            { "name": "two words", "type": 3 }, { "name": "city", "type": 4 }, { "name": "x", "type": 99 }, "x", null,
        ]);
        let made = converted(&[
            command("Weather", "", Some(options)),
            command("weather", "again", None),
            command("link", &"d".repeat(300), None),
            command("no name!", "x", None),
        ]);
        assert_eq!(
            made[0],
            json!({ "name": "weather", "type": 1, "description": "weather", "options": [
                { "name": "city", "type": 3, "description": "Where", "required": true, "max_length": 50 },
                { "name": "unit", "type": 3, "description": "unit", "choices": [{ "name": "C", "value": "c" }] },
            ] })
        );
        assert_eq!((made.len(), &made[1]["contexts"]), (2, &json!([1])));
        assert_eq!(made[1]["description"].as_str().unwrap().chars().count(), 100);
        let many: Vec<Command> = (0..150).map(|at| command(&format!("c{at}"), "x", None)).collect();
        assert_eq!(converted(&many).len(), COMMANDS_MAX);
    }

    #[test]
    fn subcommands_keep_their_options_and_depth_is_bounded() {
        let inner = json!([{ "name": "q", "type": 3, "description": "d" }]);
        let sub = json!([{ "name": "s", "type": 1, "description": "d", "options": inner }]);
        let group =
            json!([{ "name": "g", "type": 2, "description": "d", "options": sub }, { "name": "loose", "type": 3 }]);
        let made = converted(&[command("a", "x", Some(group.clone()))]);
        assert_eq!(made[0]["options"], json!([group[0]]), "an option beside a subcommand is left out");
        let deep =
            (0..10).fold(inner, |inner, _| json!([{ "name": "g", "type": 2, "description": "d", "options": inner }]));
        assert!(converted(&[command("a", "x", Some(deep))])[0].to_string().matches("\"g\"").count() < 3);
    }

    #[test]
    fn what_discord_adds_makes_no_difference() {
        let wanted = converted(&[command(
            "ask",
            "Ask",
            Some(json!([{ "name": "q", "type": 3, "description": "What", "required": true }, { "name": "n", "type": 4 }])),
        )])
        .remove(0);
        let mut has = wanted.clone();
        for (name, value) in [
            ("id", json!("1")),
            ("version", json!("2")),
            ("dm_permission", json!(true)),
            ("contexts", json!([0, 1, 2])),
            ("nsfw", json!(false)),
            ("name_localizations", Value::Null),
        ] {
            has[name] = value;
        }
        has["options"][1]["required"] = json!(false);
        has["options"][0]["description_localizations"] = Value::Null;
        assert!(fits(&has, &wanted));
        for (name, value) in [("description", json!("other")), ("options", json!([]))] {
            let mut other = has.clone();
            other[name] = value;
            assert!(!fits(&other, &wanted), "{name}");
        }
        let own = converted(&[command("link", "x", None)]).remove(0);
        assert!(!fits(&json!({ "name": "link", "description": "x", "contexts": null }), &own));
    }

    #[test]
    fn the_budget_of_a_day_is_kept() {
        let budget = CommandBudget::default();
        let take = |application: &str, creates: usize, now_ms: u64| {
            budget.check(application, creates, now_ms).inspect(|()| budget.note(application, creates, now_ms))
        };
        assert_eq!(take("a", 100, 0), Ok(()));
        assert!(take("a", 51, 1).unwrap_err().contains("100 new commands"));
        assert_eq!((take("a", 50, 1), take("b", 51, 1)), (Ok(()), Ok(())));
        for _ in 0..WRITES_A_DAY - 2 {
            assert_eq!(take("a", 0, 2), Ok(()));
        }
        assert!(take("a", 0, 3).unwrap_err().contains("50 times"));
        assert_eq!(take("a", 100, DAY_MS + 3), Ok(()));
    }

    #[test]
    fn what_discord_refuses_is_left_out() {
        let option = |more: Value| {
            let mut one = json!({ "name": "o", "type": 4, "description": "d" });
            one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            converted(&[command("a", "x", Some(json!([one])))])[0]["options"][0].clone()
        };
        let twice = option(json!({ "choices": [{ "name": "A", "value": 1 }, { "name": "A", "value": 2 }] }));
        assert_eq!(twice["choices"], json!([{ "name": "A", "value": 1 }]));
        let large = option(json!({ "choices": [{ "name": "A", "value": 1u64 << 60 }] }));
        assert_eq!(large["choices"], Value::Null);
        let bounds = option(json!({ "min_value": 9, "max_value": 1 }));
        assert_eq!((&bounds["min_value"], &bounds["max_value"]), (&Value::Null, &Value::Null));
        let lengths = option(json!({ "type": 3, "min_length": -1, "max_length": 7_000 }));
        assert_eq!((&lengths["min_length"], &lengths["max_length"]), (&Value::Null, &Value::Null));
        assert_eq!(option(json!({ "type": 7, "channel_types": [99] }))["channel_types"], Value::Null);
        assert_eq!(option(json!({ "type": 7, "channel_types": [0, 5] }))["channel_types"], json!([0, 5]));
        let sub = |inner: Value| json!([{ "name": "s", "type": 1, "description": "d", "options": inner }]);
        let nested = converted(&[command("a", "x", Some(sub(sub(json!([])))))]);
        assert_eq!(nested[0]["options"], json!([{ "name": "s", "type": 1, "description": "d" }]));
    }
}
