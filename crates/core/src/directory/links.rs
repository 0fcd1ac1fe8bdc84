//! `/link CODE`, `/unlink` and `/whoami`, sent to the bot as a direct message. The server handles them itself and
//! answers in the chat; agents never see them.

use std::sync::Arc;

use frontdesk_wire::api::BindingNew;
use frontdesk_wire::{MessageEvent, Source, TenantId, UserId};

use super::admin::{link, unlink};
use super::facts::{Binding, Fact, LinkCode};
use super::link_codes::{TRIES_MAX, TRIES_WINDOW_MS};
use super::location::{ChatLocation, tenant_of};
use super::{Draft, Management, View};
use crate::error::DeskError;
use crate::hash::short_hash;
use crate::meters::Why;
use crate::port::platform::Command;

/// What the server itself offers in every chat with a bot, for the lists of platforms.
pub(super) const OWN_COMMANDS: [OwnCommand; 4] = [
    OwnCommand {
        name: "link",
        description: "Link yourself to an agent with a code",
        options: Some(
            r#"[{"name":"code","description":"The code that your agent gave you","type":3,"required":true}]"#,
        ),
    },
    OwnCommand { name: "stop", description: "Stop what the agent is doing", options: None },
    OwnCommand {
        name: "unlink",
        description: "Unlink yourself from an agent",
        options: Some(r#"[{"name":"agent","description":"Its name, if you are linked to several","type":3}]"#),
    },
    OwnCommand { name: "whoami", description: "Show which agents you are linked to", options: None },
];

pub(super) struct OwnCommand {
    pub(super) name: &'static str,
    description: &'static str,
    /// As in the manifests of agents.
    options: Option<&'static str>,
}

impl OwnCommand {
    pub(super) fn offered(&self) -> Command {
        Command { options: self.options.map(str::to_owned), ..Command::new(self.name, self.description) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeskCommand {
    Link(String),
    Unlink(String),
    WhoAmI,
}

impl DeskCommand {
    /// Parses only what a person types into a direct message.
    pub(crate) fn parse(event: &MessageEvent) -> Option<Self> {
        let source = &event.source;
        if !source.is_direct() || source.is_bot || source.message_is_edit || event.prompt_response.is_some() {
            return None;
        }
        source.user_id.as_deref().filter(|id| !id.is_empty())?;
        let text = event.text.trim();
        if !text.starts_with('/') {
            return None; // nearly every message
        }
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match name.to_ascii_lowercase().as_str() {
            "/link" => Some(Self::Link(rest.trim().into())),
            "/unlink" => Some(Self::Unlink(rest.trim().into())),
            "/whoami" => Some(Self::WhoAmI),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Link(_) => "/link",
            Self::Unlink(_) => "/unlink",
            Self::WhoAmI => "/whoami",
        }
    }
}

/// Result of `/link`; counted under these names.
enum Linked {
    Done(String),
    Again(String),
    Used,
    Expired,
    Wrong,
}

impl Management {
    /// Carries out a command and returns the answer. `tenant` is set if the platform separates tenants.
    pub(crate) async fn obey(&self, command: &DeskCommand, source: &Source, tenant: Option<&TenantId>) -> String {
        let done = match command {
            DeskCommand::Link(code) => self.link_by_code(code, source, tenant).await,
            DeskCommand::Unlink(name) => self.unlink_author(name, source, tenant).await,
            DeskCommand::WhoAmI => Ok(self.who_is(source, tenant)),
        };
        done.unwrap_or_else(|error| {
            tracing::error!(%error, command = command.name(), "a chat command failed");
            "This could not be saved. Nothing was changed; please try again.".into()
        })
    }

    async fn link_by_code(&self, typed: &str, source: &Source, tenant: Option<&TenantId>) -> Result<String, DeskError> {
        let author = source.user_id.clone().unwrap_or_default();
        if typed.is_empty() {
            return Ok(
                "Send /link followed by your code, like this: /link ABCD-EFGH. Your agent gives you the code.".into()
            );
        }
        let tries = short_hash(&["link tries", tenant.map_or("", TenantId::as_str), &source.platform, &author]);
        let now_ms = self.env.now_ms();
        if self.claims.tries(tries, now_ms).await? >= TRIES_MAX {
            self.count_link("limited", &author, source);
            return Ok("Too many wrong codes. Wait ten minutes, then try again with a new code.".into());
        }
        let hash = self.hash_code(typed);
        let decide = |view: &View, draft: &mut Draft| {
            let known = view.link_codes.get(&hash).filter(|it| it.platform == source.platform);
            let Some(code) = known.filter(|it| tenant.is_none_or(|tenant| it.tenant == *tenant)) else {
                return Ok::<_, DeskError>(Linked::Wrong);
            };
            match &code.used_by {
                Some(by) if *by == author => return Ok(Linked::Again(code.instance.to_string())),
                Some(_) => return Ok(Linked::Used),
                None if code.expires_ms <= now_ms => return Ok(Linked::Expired),
                None => {}
            }
            draft.put(Fact::LinkCode(LinkCode { used_by: Some(author.clone()), ..(**code).clone() }));
            let ask = BindingNew {
                platform: source.platform.clone(),
                user_id: author.clone(),
                tenant: code.tenant.clone(),
                instance: code.instance.clone(),
            };
            link(view, draft, ask, now_ms);
            Ok(Linked::Done(code.instance.to_string()))
        };
        let outcome = self.directory.write(decide).await.map_err(DeskError::from)?;
        if !matches!(outcome, Linked::Done(_) | Linked::Again(_)) {
            self.claims.note_try(tries, TRIES_WINDOW_MS, now_ms).await?;
        }
        let (counted, answer) = match outcome {
            Linked::Done(name) => (
                "linked",
                format!("You are linked to {name}. What you write to me now reaches it. /unlink undoes this."),
            ),
            Linked::Again(name) => ("again", format!("You are already linked to {name}.")),
            Linked::Used => ("used", "This code was already used. Ask for a new one.".into()),
            Linked::Expired => ("expired", "This code has expired. Ask for a new one.".into()),
            Linked::Wrong => ("wrong", "I do not know this code. Check it, or ask for a new one.".into()),
        };
        self.count_link(counted, &author, source);
        Ok(answer)
    }

    async fn unlink_author(&self, name: &str, source: &Source, tenant: Option<&TenantId>) -> Result<String, DeskError> {
        let author = source.user_id.clone().unwrap_or_default();
        let decide = |view: &View, draft: &mut Draft| {
            let links = links_of(view, source, tenant);
            let named: Vec<&Arc<Binding>> =
                links.iter().filter(|link| name.is_empty() || link.instance == name).collect();
            let answer = match named.as_slice() {
                [] if links.is_empty() => "You are not linked to any agent.".to_owned(),
                [] => format!("You are not linked to {name:?}. {}", list(&links)),
                [one] => {
                    unlink(view, draft, one);
                    format!("You are no longer linked to {}.", one.instance)
                }
                _ => format!("{} Say which one: /unlink NAME", list(&links)),
            };
            Ok::<_, DeskError>((answer, named.len() == 1))
        };
        let (answer, gone) = self.directory.write(decide).await.map_err(DeskError::from)?;
        if gone {
            self.count_link("unlinked", &author, source);
        }
        Ok(answer)
    }

    fn who_is(&self, source: &Source, tenant: Option<&TenantId>) -> String {
        let author = source.user_id.clone().unwrap_or_default();
        self.directory.read(|view| {
            let links = links_of(view, source, tenant);
            let here = format!("You are {author} on {}.", source.platform);
            if links.is_empty() {
                return format!("{here} You are not linked to any agent; /link CODE links you.");
            }
            let tenant = tenant.or_else(|| tenant_of(view, &source.platform, &ChatLocation::of(source)));
            let preferred = tenant.and_then(|tenant| {
                let there = view.tenant_index(tenant)?.on_platform(&source.platform)?;
                there.person(&author)?.preferred().map(|(link, _)| link.instance.clone())
            });
            match (links.as_slice(), preferred) {
                ([_, _, ..], Some(name)) => format!("{here} {} Direct messages go to {name}.", list(&links)),
                _ => format!("{here} {}", list(&links)),
            }
        })
    }

    fn count_link(&self, why: &'static str, author: &UserId, source: &Source) {
        self.meters.links.get_or_create(&Why { why }).inc();
        tracing::info!(outcome = why, author = author.as_str(), platform = source.platform, "a link code was handled");
    }

    pub(super) fn hash_code(&self, typed: &str) -> String {
        let plain: String = typed.chars().filter(char::is_ascii_alphanumeric).collect();
        self.sealer.derive(&["link code", &plain.to_ascii_uppercase()])
    }
}

/// Links of the author: of one tenant if the platform separates tenants, otherwise all.
fn links_of(view: &View, source: &Source, tenant: Option<&TenantId>) -> Vec<Arc<Binding>> {
    let author = source.user_id.clone().unwrap_or_default();
    match tenant {
        Some(tenant) => view.links(tenant, &source.platform, &author).to_vec(),
        None => view.links_anywhere(&source.platform, &author).to_vec(),
    }
}

fn list(links: &[Arc<Binding>]) -> String {
    let names: Vec<&str> = links.iter().map(|link| link.instance.as_str()).collect();
    format!("You are linked to {}.", names.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> MessageEvent {
        let source = Source { chat_type: "dm".into(), user_id: Some("ann".into()), ..Source::default() };
        MessageEvent { text: text.into(), source, ..MessageEvent::default() }
    }

    #[test]
    fn commands_are_parsed() {
        assert_eq!(DeskCommand::parse(&typed(" /link  ab-cd ")), Some(DeskCommand::Link("ab-cd".into())));
        assert_eq!(DeskCommand::parse(&typed("/LINK")), Some(DeskCommand::Link(String::new())));
        assert_eq!(DeskCommand::parse(&typed("/unlink home")), Some(DeskCommand::Unlink("home".into())));
        assert_eq!(DeskCommand::parse(&typed("/whoami")), Some(DeskCommand::WhoAmI));
        for text in ["", "/", "link x", "/links x", "/linkx", "see /link x", "/stop"] {
            assert_eq!(DeskCommand::parse(&typed(text)), None, "{text}");
        }
        let mut group = typed("/link x");
        group.source.chat_type = "group".into();
        assert_eq!(DeskCommand::parse(&group), None);
        let mut bot = typed("/link x");
        bot.source.is_bot = true;
        assert_eq!(DeskCommand::parse(&bot), None);
        let mut edit = typed("/link x");
        edit.source.message_is_edit = true;
        assert_eq!(DeskCommand::parse(&edit), None);
        let mut nobody = typed("/link x");
        nobody.source.user_id = None;
        assert_eq!(DeskCommand::parse(&nobody), None);
    }
}
