//! The stored form of a verdict, and its explanation.

use frontdesk_wire::api::{Considered, VerdictBrief};
use frontdesk_wire::{InstanceId, TenantId};
use serde::Serialize;
use serde::ser::{SerializeTuple as _, Serializer};

use super::{Layer, Verdict, VerdictLine};

/// Stored as the outcome of an event that stopped a turn.
pub(crate) const INTERRUPTED: &str = "interrupted";
/// Shown to the sender of such an event.
pub(crate) const STOPPED: &str = "interrupt sent";

impl Serialize for VerdictLine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut row = to.serialize_tuple(5)?;
        row.serialize_element(self.instance.as_ref().map_or("", |it| it.name.as_str()))?;
        row.serialize_element(&self.delivered)?;
        row.serialize_element(self.layer.name())?;
        row.serialize_element(self.rule)?;
        row.serialize_element(&*self.value)?;
        row.end()
    }
}

impl Verdict {
    /// The stored form.
    pub fn to_stored(&self, outcome: &str, platform: &str) -> String {
        serde_json::to_string(&(outcome, platform, &self.lines)).unwrap_or_default()
    }

    /// For the sender of the event: who got it, or why no agent did.
    pub fn brief(&self, tenant: &TenantId, platform: &str) -> VerdictBrief {
        let decisive = self.lines.iter().find(|line| line.delivered).or_else(|| self.lines.first());
        let nobody = InstanceId::default();
        let text = decisive.map_or_else(String::new, |line| {
            let instance = line.instance.as_ref().map_or(&nobody, |it| &it.name);
            explain(tenant, platform, instance, line.layer.name(), line.rule, &line.value)
        });
        VerdictBrief { outcome: self.outcome().into(), text, delivery: None }
    }
}

/// A verdict that was read back: the outcome, and an explanation of each line.
#[derive(Debug)]
pub struct StoredVerdict {
    pub outcome: String,
    /// It only stopped a running turn, and has no row in any ledger.
    pub interrupted: bool,
    pub instances: Vec<Considered>,
}

pub fn read_verdict(stored: &str, tenant: &TenantId) -> Option<StoredVerdict> {
    type Row = (InstanceId, bool, String, String, String);
    let (outcome, platform, rows): (String, String, Vec<Row>) = serde_json::from_str(stored).ok()?;
    let line = |(instance, delivered, layer, rule, value): Row| Considered {
        text: explain(tenant, &platform, &instance, &layer, &rule, &value),
        outcome: if delivered { "delivered".into() } else { "withheld".into() },
        instance,
        layer,
        rule,
        value,
    };
    let interrupted = outcome == INTERRUPTED;
    let outcome = if interrupted { "delivered".into() } else { outcome };
    Some(StoredVerdict { outcome, interrupted, instances: rows.into_iter().map(line).collect() })
}

impl StoredVerdict {
    /// The same brief that the sender of the event received.
    pub fn brief(self) -> VerdictBrief {
        let decisive_index = self.instances.iter().position(|line| line.outcome == "delivered").unwrap_or(0);
        let text = match self.interrupted {
            true => STOPPED.into(),
            false => self.instances.into_iter().nth(decisive_index).map(|line| line.text).unwrap_or_default(),
        };
        VerdictBrief { outcome: self.outcome, text, delivery: None }
    }

    /// What one instance may know: its own line, and nothing about others.
    pub fn for_instance(self, instance: &InstanceId) -> Considered {
        let mut own = self.instances.iter().find(|line| line.instance == *instance).cloned();
        let nobody = self.instances.iter().find(|line| line.instance.is_empty());
        if let Some(line) = own.as_mut().filter(|line| line.layer == Layer::Owner.name() && line.outcome == "withheld")
        {
            line.value.clear(); // the other agent of the user is not disclosed
            line.text = match line.rule.as_str() {
                "prompt" => "the button belongs to a prompt of another agent".into(),
                _ => {
                    "the author is linked to several agents, and another one receives the messages of this chat".into()
                }
            };
        }
        own.unwrap_or_else(|| Considered {
            instance: instance.clone(),
            outcome: "withheld".into(),
            layer: nobody.map_or_else(|| Layer::Scope.name().into(), |line| line.layer.clone()),
            rule: nobody.map_or_else(|| "granted".into(), |line| line.rule.clone()),
            value: String::new(),
            text: match nobody {
                Some(line) if line.rule == "linked" => "the author is not linked to any agent".into(),
                Some(_) => "no agent was eligible for it".into(),
                None => "the author is not linked to this agent, and this agent does not hold the channel".into(),
            },
        })
    }
}

/// Explains a line to a reader.
fn explain(tenant: &TenantId, platform: &str, instance: &InstanceId, layer: &str, rule: &str, value: &str) -> String {
    match (layer, rule) {
        ("tenant", "known") => format!("tenant {value:?} not found"),
        ("tenant", "route") => format!(
            "{value:?} on {platform} belongs to no tenant; assign it with \
             `frontdesk route add {platform} {value} --tenant NAME`"
        ),
        ("tenant", "unreadable") => format!(
            "a record that the decision needs ({value}) could not be read by the server that got the event; it was \
             probably written by a newer version: `frontdesk doctor` names it"
        ),
        ("tenant", "refused") => format!("the event was refused: {value}"),
        ("owner", "author") => "the event names no author".into(),
        ("owner", "desk") => format!("the server handles the command {value} itself; agents do not receive it"),
        ("owner", "sender") if instance.is_empty() => {
            format!("it reports on a message of {value:?}, which does not exist any more")
        }
        ("owner", "sender") => format!("it reports on a message that {instance:?} sent"),
        ("owner", "linked") if instance.is_empty() => format!(
            "{value:?} on {platform} is not linked to any agent of this tenant; link with /link CODE in a direct \
             message, or `frontdesk bind {platform} {value} --tenant {tenant} --instance NAME`"
        ),
        ("owner", "linked") => format!("{value:?} is linked to {instance:?}"),
        ("owner", "instance") => format!("the author is linked to {value:?}, which does not exist (yet)"),
        ("owner", "prompt") => format!("the button belongs to a prompt of another agent, not of {instance:?}"),
        ("owner", "granted") => format!("the author is linked to {instance:?} too, but {value:?} holds this channel"),
        ("owner", "dm-default") => format!("the author is linked to {instance:?} too, but chose {value:?}"),
        ("owner", "latest") => format!("the author is linked to {instance:?} too, but {value:?} is the latest link"),
        ("scope", "granted") => format!("{instance:?} holds the channel {value:?} and listens to this author"),
        ("principal", "policy") if value == "allow-list" => {
            format!("{instance:?} holds the channel, but the author is not on its allow-list")
        }
        ("principal", "policy") => {
            format!("{instance:?} holds the channel, but its principal policy is {value}: only its own users")
        }
        ("visibility", "owner") => {
            format!("no user is linked to {instance:?} on {platform}, so it has no owner who could see the channel")
        }
        ("visibility", "can_see") => format!("{value:?}, the owner of {instance:?}, cannot see this chat"),
        ("visibility", "unknown") => {
            format!("{platform} did not report whether {value:?}, the owner of {instance:?}, can see this chat")
        }
        ("relevance", "allowOtherBots") => format!("a bot wrote it, and {instance:?} does not listen to bots"),
        ("relevance", "requireAddress") => {
            format!("the bot was not addressed, and {instance:?} requires that here")
        }
        _ => format!("{layer}: {rule} ({value})"),
    }
}
