//! The list of commands that Discord shows: made from what agents offer, and written only if it is another one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Bot, Command};
use serde_json::{Map, Value, json};

use super::Discord;
use super::interactions::is_id;

const COMMANDS_MAX: usize = 100;
const NAME_MAX: usize = 32;
const DESCRIPTION_MAX: usize = 100;
const OPTIONS_MAX: usize = 25;
const CHOICES_MAX: usize = 25;
const CHOICE_MAX: usize = 100;
/// Of options in subcommands in groups.
const DEPTH_MAX: usize = 3;
const TYPED: u64 = 1;
const SUBCOMMAND: u64 = 1;
const SUBCOMMAND_GROUP: u64 = 2;
/// Where commands of the server itself are of use: it takes them in direct chats.
const ONLY_DIRECT: [&str; 3] = ["link", "unlink", "whoami"];
const DIRECT_CONTEXT: u8 = 1;

/// Discord permits 200 new commands a day, and locks the application out for the rest of it.
const CREATES_A_DAY: usize = 150;
const WRITES_A_DAY: usize = 50;
const DAY_MS: u64 = 86_400_000;

/// What was written by each application in the last day: when, and how many new names.
#[derive(Default)]
pub(super) struct CommandBudget(Mutex<HashMap<String, VecDeque<(u64, usize)>>>);

impl CommandBudget {
    fn take(&self, application: &str, creates: usize, now_ms: u64) -> Result<(), String> {
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
        written.push_back((now_ms, creates));
        Ok(())
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
        let id = found["id"].as_str().filter(|id| is_id(id)).ok_or("Discord did not tell the id of the application")?;
        known().insert(bot.id.clone(), (bot.account().to_owned(), id.to_owned()));
        Ok(id.to_owned())
    }

    pub(super) async fn declare(&self, bot: &Bot, commands: &[Command]) -> Result<(), String> {
        let application = self.application(bot).await?;
        let api = self.api(bot).ok_or("the bot has no token")?;
        let path = format!("/applications/{application}/commands");
        let current: Vec<Value> = api.get(&path).await.map_err(|error| error.text())?;
        let is_typed = |command: &&Value| command["type"].as_u64().unwrap_or(TYPED) == TYPED;
        let others: Vec<&Value> = current.iter().filter(|it| !is_typed(it)).collect();
        let mut wanted = converted(commands);
        wanted.truncate(COMMANDS_MAX - others.len().min(COMMANDS_MAX));
        let known: HashMap<&str, &Value> =
            current.iter().filter(is_typed).filter_map(|it| Some((it["name"].as_str()?, it))).collect();
        let is_same = |it: &Value| known.get(it["name"].as_str().unwrap_or_default()).is_some_and(|has| fits(has, it));
        if known.len() == wanted.len() && wanted.iter().all(is_same) {
            return Ok(());
        }
        let is_new = |it: &&Value| !known.contains_key(it["name"].as_str().unwrap_or_default());
        let creates = wanted.iter().filter(is_new).count();
        self.command_budget.take(&application, creates, self.env.now_ms())?;
        // Commands of menus, and the entry point of an activity, were made by somebody else: they stay.
        wanted.extend(others.into_iter().cloned());
        let put = api.send::<Value>(HttpMethod::Put, &path, &Value::Array(wanted)).await;
        put.map(drop).map_err(|error| error.text())
    }
}

/// As Discord takes them. What it would refuse is left out: one bad command would be the end of all.
fn converted(commands: &[Command]) -> Vec<Value> {
    let mut made: BTreeMap<String, Value> = BTreeMap::new();
    let mut order = Vec::new();
    for command in commands {
        let Some(name) = name(&command.name) else {
            tracing::debug!(name = command.name, "a command has no name that Discord takes");
            continue;
        };
        if made.contains_key(&name) {
            continue;
        }
        let mut one = json!({ "name": name, "type": TYPED, "description": description(&command.description, &name) });
        let given: Value =
            command.options.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let options = options(&given, DEPTH_MAX);
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

fn options(given: &Value, depth: usize) -> Vec<Value> {
    let mut names = HashSet::new();
    let given = given.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = given.iter().filter_map(|one| option(one, depth));
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

fn option(given: &Value, depth: usize) -> Option<Value> {
    let name = name(given["name"].as_str()?)?;
    let kind = kind(&given["type"])?;
    let text = description(given["description"].as_str().unwrap_or_default(), &name);
    let mut made = Map::new();
    made.insert("name".into(), name.into());
    made.insert("description".into(), text.into());
    made.insert("type".into(), kind.into());
    if matches!(kind, SUBCOMMAND | SUBCOMMAND_GROUP) {
        let inner = options(&given["options"], depth.checked_sub(1).filter(|depth| *depth > 0)?);
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
    let bounds = ["min_value", "max_value", "min_length", "max_length"];
    for bound in bounds.into_iter().filter(|bound| given[*bound].is_number() && bound_fits(bound, kind)) {
        made.insert(bound.into(), given[bound].clone());
    }
    if kind == 7 && given["channel_types"].as_array().is_some_and(|types| types.iter().all(Value::is_u64)) {
        made.insert("channel_types".into(), given["channel_types"].clone());
    }
    Some(Value::Object(made))
}

fn bound_fits(bound: &str, kind: u64) -> bool {
    if bound.ends_with("_value") { matches!(kind, 4 | 10) } else { kind == 3 }
}

fn choices(given: &Value, kind: u64) -> Vec<Value> {
    let fits = |value: &Value| match kind {
        3 => value.as_str().is_some_and(|text| (1..=CHOICE_MAX).contains(&text.chars().count())),
        4 => value.is_i64() || value.is_u64(),
        10 => value.is_number(),
        _ => false,
    };
    let one = |choice: &Value| {
        let value = Some(&choice["value"]).filter(|value| fits(value))?;
        let name: String = choice["name"].as_str()?.trim().chars().take(CHOICE_MAX).collect();
        (!name.is_empty()).then(|| json!({ "name": name, "value": value }))
    };
    given.as_array().into_iter().flatten().filter_map(one).take(CHOICES_MAX).collect()
}

/// Whether Discord has it as it is wanted. What Discord adds by itself does not count: ids, versions, defaults.
fn fits(has: &Value, wanted: &Value) -> bool {
    let is_same = |name: &str| has[name] == wanted[name];
    let contexts = wanted.get("contexts").is_none_or(|contexts| has["contexts"] == *contexts);
    let as_ours = |value: &Value| options(value, DEPTH_MAX);
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
        assert!(converted(&[command("a", "x", Some(deep))])[0].to_string().matches("\"g\"").count() < DEPTH_MAX);
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
        assert_eq!(budget.take("a", 100, 0), Ok(()));
        assert!(budget.take("a", 51, 1).unwrap_err().contains("100 new commands"));
        assert_eq!((budget.take("a", 50, 1), budget.take("b", 51, 1)), (Ok(()), Ok(())));
        for _ in 0..WRITES_A_DAY - 2 {
            assert_eq!(budget.take("a", 0, 2), Ok(()));
        }
        assert!(budget.take("a", 0, 3).unwrap_err().contains("50 times"));
        assert_eq!(budget.take("a", 100, DAY_MS + 3), Ok(()));
    }
}
