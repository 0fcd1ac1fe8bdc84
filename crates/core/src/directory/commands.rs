//! Commands that agents offer to people. A gateway names them in its hello. They are kept: the list of a bot must not
//! shrink while agents sleep, nor when the server restarts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{BotId, TenantId};
use serde_json::Value;

use super::Caller;
use super::bots::Bots;
use super::facts::{Fact, OfferedCommands, key};
use super::links::{OWN_COMMANDS, OwnCommand};
use super::registry::{AmendError, Draft, Registry};
use super::view::View;
use crate::port::platform::{Bot, Command, PlatformBot, Platforms};
use crate::port::store::StoreError;

/// Commands of one agent, and of one bot: vendors take no more.
const COMMANDS_MAX: usize = 100;
const NAME_MAX_CHARS: usize = 32;
const DESCRIPTION_MAX_CHARS: usize = 256;
const OPTIONS_MAX_BYTES: usize = 4 << 10;
/// Stored size of one agent's list.
const LIST_MAX_BYTES: usize = 32 << 10;
/// All lists of one tenant in the directory.
const TENANT_MAX_BYTES: usize = 1 << 20;
/// Lists that wait to be stored. Further ones are dropped; the next hello repeats them.
const WAITING_MAX: usize = 10_000;
const WAITING_MAX_BYTES: usize = 16 << 20;

/// The commands of all agents. Lists from gateways are buffered here until they are stored. Only the latest list of an
/// agent counts, so that a gateway that reconnects in a loop causes at most one write a second.
pub struct Offers {
    registry: Registry,
    platforms: Arc<Platforms>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    lists: BTreeMap<String, OfferedCommands>,
    bytes: usize,
}

impl Offers {
    pub(super) fn new(registry: Registry, platforms: &Arc<Platforms>) -> Self {
        Self { registry, platforms: platforms.clone(), waiting: Mutex::default() }
    }

    /// Takes the command list of a gateway. Ignored for platforms without command lists.
    pub(crate) fn note(&self, who: &Caller, platform: &str, bot: &BotId, manifest: &Value) {
        if !self.platforms.get(platform).is_some_and(|found| found.declares_commands()) {
            return;
        }
        let commands = read(manifest);
        // Only an empty list takes back what was offered before.
        if commands.is_empty() && manifest.as_array().is_none_or(|list| !list.is_empty()) {
            let instance = who.instance.name.as_str();
            tracing::warn!(
                tenant = who.tenant.as_str(),
                instance,
                platform,
                "a malformed list of commands was ignored"
            );
            return;
        }
        let (tenant, instance) = (who.tenant.clone(), who.instance.name.clone());
        let list = OfferedCommands { platform: platform.into(), bot: bot.clone(), tenant, instance, commands };
        let (name, bytes) = (Fact::Commands(list.clone()).key(), list.bytes());
        let mut waiting = self.waiting();
        let before = waiting.lists.get(&name).map_or(0, OfferedCommands::bytes);
        let is_new = before == 0;
        let is_full =
            waiting.bytes - before + bytes > WAITING_MAX_BYTES || (is_new && waiting.lists.len() >= WAITING_MAX);
        if is_full {
            tracing::warn!(
                tenant = list.tenant.as_str(),
                instance = list.instance.as_str(),
                "too many command lists wait to be stored; one was dropped"
            );
            return;
        }
        waiting.bytes = waiting.bytes - before + bytes;
        waiting.lists.insert(name, list);
    }

    /// Stores the buffered lists in one commit. After an error they stay buffered for the next call.
    pub async fn store(&self) -> Result<(), StoreError> {
        let lists: Vec<(String, OfferedCommands)> =
            self.waiting().lists.iter().map(|(name, list)| (name.clone(), list.clone())).collect();
        if lists.is_empty() {
            return Ok(());
        }
        let decide = |view: &View, draft: &mut Draft| {
            let mut used: HashMap<&str, usize> = HashMap::new();
            for list in view.commands.values() {
                *used.entry(&list.tenant).or_default() += list.bytes();
            }
            for (name, list) in &lists {
                let is_here = view.instance(&list.tenant, &list.instance).is_some_and(|it| it.left_ms.is_none());
                match view.commands.get(name) {
                    Some(known) if **known == *list => {}
                    known if list.commands.is_empty() || !is_here => {
                        if let Some(known) = known {
                            draft.remove(&Fact::Commands((**known).clone()));
                        }
                    }
                    known => {
                        let used = used.entry(&list.tenant).or_default();
                        let then = *used - known.map_or(0, |known| known.bytes()) + list.bytes();
                        if then <= TENANT_MAX_BYTES {
                            *used = then;
                            draft.put(Fact::Commands(list.clone()));
                        } else {
                            let max = TENANT_MAX_BYTES;
                            tracing::warn!(
                                tenant = list.tenant.as_str(),
                                instance = list.instance.as_str(),
                                max,
                                "an agent's commands were not stored: its tenant has too many"
                            );
                        }
                    }
                }
            }
            Ok::<_, std::convert::Infallible>(())
        };
        match self.registry.write(decide).await {
            Ok(()) => {}
            Err(AmendError::Store(error)) => return Err(error),
        }
        let mut waiting = self.waiting();
        for (name, list) in lists {
            // Lists that changed in the meantime are stored by the next call.
            if waiting.lists.get(&name) == Some(&list) {
                waiting.lists.remove(&name);
                waiting.bytes -= list.bytes();
            }
        }
        Ok(())
    }

    /// All bots whose platform has lists of commands, each with the list that it should have.
    pub fn lists(&self, bots: &Bots) -> Vec<(PlatformBot, Arc<Bot>, Vec<Command>)> {
        let platforms = self.platforms.all().filter(|platform| platform.declares_commands());
        let names = platforms.map(|platform| &platform.descriptor().platform);
        let bots = names.flat_map(|name| bots.all(name).into_iter().map(move |bot| (name, bot)));
        bots.map(|(name, bot)| ((name.clone(), bot.id.clone()), bot.clone(), self.of_bot(name, &bot))).collect()
    }

    /// The commands of a bot: the server's own, then those of the agents of all its tenants, by name. Where there are too
    /// many, tenants take turns; of several with one name, the one counts whose turn came first.
    fn of_bot(&self, platform: &str, bot: &Bot) -> Vec<Command> {
        let mut all: Vec<Command> = OWN_COMMANDS.iter().map(OwnCommand::offered).collect();
        let by_tenant: BTreeMap<TenantId, Vec<Command>> = self.registry.read(|view| {
            let mut by_tenant: BTreeMap<TenantId, Vec<Command>> = BTreeMap::new();
            for list in view.commands_on(platform, &bot.id) {
                if bot.tenant.as_ref().is_none_or(|tenant| *tenant == list.tenant) {
                    by_tenant.entry(list.tenant.clone()).or_default().extend(list.commands.iter().cloned());
                }
            }
            by_tenant
        });
        // Tenants in turn, so that one of them cannot fill the list of a shared bot.
        let longest = by_tenant.values().map(Vec::len).max().unwrap_or(0);
        let in_turn = (0..longest).flat_map(|at| by_tenant.values().filter_map(move |list| list.get(at)));
        let mut offered: BTreeMap<&str, &Command> = BTreeMap::new();
        for command in in_turn.filter(|it| !OWN_COMMANDS.iter().any(|own| own.name == it.name)) {
            if all.len() + offered.len() < COMMANDS_MAX {
                offered.entry(&command.name).or_insert(command);
            } else if !offered.contains_key(command.name.as_str()) {
                tracing::debug!(
                    platform,
                    bot = bot.id.as_str(),
                    "commands were left out: the agents of a bot offer too many"
                );
                break;
            }
        }
        all.extend(offered.into_values().cloned());
        all
    }

    /// Commands of one name that agents of a bot offer in several forms: people see one of them only. Each with the
    /// agents that offer it, as `tenant/instance`.
    pub fn conflicts(&self, platform: &str, bot: &Bot) -> Vec<(String, Vec<String>)> {
        let mut forms: BTreeMap<String, (HashSet<Command>, Vec<String>)> = BTreeMap::new();
        self.registry.read(|view| {
            for list in view.commands_on(platform, &bot.id) {
                if bot.tenant.as_ref().is_some_and(|tenant| *tenant != list.tenant) {
                    continue;
                }
                for command in &list.commands {
                    let (found, agents) = forms.entry(command.name.clone()).or_default();
                    found.insert(command.clone());
                    agents.push(format!("{}/{}", list.tenant, list.instance));
                }
            }
        });
        let several = forms.into_iter().filter(|(_, (found, _))| found.len() > 1);
        several.map(|(name, (_, agents))| (name, agents)).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfferedCommands {
    fn bytes(&self) -> usize {
        let texts = self.commands.iter().map(Command::bytes).sum::<usize>();
        texts + self.tenant.len() + self.instance.len() + self.platform.len() + self.bot.len()
    }
}

impl View {
    fn commands_on<'a>(&'a self, platform: &str, bot: &BotId) -> impl Iterator<Item = &'a Arc<OfferedCommands>> {
        let prefix = key(&[platform, bot, ""]);
        let from = self.commands.range(prefix.clone()..);
        from.take_while(move |(name, _)| name.starts_with(&prefix)).map(|(_, list)| list)
    }
}

/// `[{"name", "description", "options"?}]`, as far as it is usable; sorted, each name once.
fn read(manifest: &Value) -> Vec<Command> {
    let mut found: BTreeMap<String, Command> = BTreeMap::new();
    let (mut bytes, mut left_out) = (0, 0);
    for one in manifest.as_array().map(Vec::as_slice).unwrap_or_default() {
        match read_one(one).filter(|command| bytes + command.bytes() <= LIST_MAX_BYTES && found.len() < COMMANDS_MAX) {
            Some(command) => {
                bytes += command.bytes();
                found.entry(command.name.clone()).or_insert(command);
            }
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        tracing::debug!(left_out, "commands of a hello were left out: malformed, or too many");
    }
    found.into_values().collect()
}

fn read_one(one: &Value) -> Option<Command> {
    let name = one.get("name")?.as_str()?.trim_start_matches('/');
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    if name.is_empty() || name.chars().count() > NAME_MAX_CHARS || !is_plain {
        return None;
    }
    let description = one.get("description").and_then(Value::as_str).unwrap_or_default();
    let description: String = description.chars().filter(|c| !c.is_control()).take(DESCRIPTION_MAX_CHARS).collect();
    let options = one.get("options").filter(|options| options.as_array().is_some_and(|list| !list.is_empty()));
    let options = options.map(Value::to_string);
    if options.as_ref().is_some_and(|options| options.len() > OPTIONS_MAX_BYTES) {
        return None;
    }
    Some(Command { options, ..Command::new(name, description) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_is_read_as_far_as_it_is_usable() {
        let manifest = json!([
            { "name": "/weather", "description": "The\nweather", "options": [{ "name": "city", "type": 3 }] },
            { "name": "ask", "options": [] },
            { "name": "ask", "description": "again" },
            { "name": "two words" }, { "name": "" }, { "name": 7 }, {}, "text", null,
            { "name": "x".repeat(33) },
            { "name": "huge", "options": ["x".repeat(5_000)] },
        ]);
        let read = read(&manifest);
        let names: Vec<&str> = read.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(names, ["ask", "weather"]);
        assert_eq!((read[0].description.as_str(), &read[0].options), ("", &None), "the first one counts");
        assert_eq!(read[1].description, "Theweather");
        assert_eq!(read[1].options.as_deref(), Some(r#"[{"name":"city","type":3}]"#));
        for strange in [json!({}), json!("x"), json!(null), json!(7)] {
            assert!(super::read(&strange).is_empty(), "{strange}");
        }
    }

    #[test]
    fn a_manifest_is_bounded_in_count_and_bytes() {
        let many = |count: usize, text: &str| {
            let one = |number: usize| json!({ "name": format!("c{number}"), "description": text, "options": [text] });
            read(&Value::Array((0..count).map(one).collect()))
        };
        assert_eq!(many(101, "").len(), COMMANDS_MAX);
        let large = many(100, &"x".repeat(2_000));
        assert!(large.iter().map(Command::bytes).sum::<usize>() <= LIST_MAX_BYTES && large.len() > 5);
    }
}
