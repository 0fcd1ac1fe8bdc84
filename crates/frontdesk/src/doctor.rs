//! `frontdesk doctor`: checks keys, store, agents and wake URLs, and reports problems with their solutions.

use frontdesk_core::cluster::FailingListener;
use frontdesk_core::delivery::window::STUCK_LIMITS;
use frontdesk_core::directory::{Bots, ListenerFailure};
use frontdesk_core::port::platform::{Bot, BotFinding, PlatformBot};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{BotId, InstanceId, InstanceNo, TenantId};
use serde_json::{Value, json};

use crate::edge::App;

fn finding(check: &str, ok: bool, text: impl Into<String>) -> Value {
    json!({ "check": check, "ok": ok, "text": text.into() })
}

pub(crate) async fn examine(app: &App) -> Value {
    let mut findings = vec![store_writes(app).await];
    findings.extend(store_is_whole(app).await);
    findings.extend(unreadable(app));
    findings.push(clock(app));
    findings.extend(shared_names(app));
    findings.extend(agents(app).await);
    findings.extend(inboxes(app));
    findings.extend(bots(app).await);
    findings.extend(desks(app).await);
    findings.extend(commands(app));
    let ok = findings.iter().all(|found| found["ok"] == true);
    json!({ "ok": ok, "findings": findings })
}

/// Listeners of bots that ended by themselves, at any server.
pub(crate) struct Failing<'a> {
    here: &'a Bots,
    elsewhere: Vec<(String, FailingListener)>,
}

impl<'a> Failing<'a> {
    pub(crate) async fn of(app: &'a App) -> Result<Self, StoreError> {
        let elsewhere = app.desk.cluster().failing_elsewhere().await?;
        Ok(Self { here: app.desk.directory().bots(), elsewhere })
    }

    /// Why the bot does not listen.
    pub(crate) fn listener(&self, platform: &str, id: &BotId) -> Option<ListenerFailure> {
        self.here.listener_failure(platform, id).or_else(|| {
            let (desk, it) = self.elsewhere.iter().find(|(_, it)| it.platform == platform && it.bot == *id)?;
            let why = format!("{} (at the server {desk:?})", it.why);
            Some(ListenerFailure { why, at_ms: it.at_ms, is_final: it.is_final })
        })
    }
}

/// Bots whose listener ended by itself.
async fn bots(app: &App) -> Vec<Value> {
    let failing = match Failing::of(app).await {
        Ok(failing) => failing,
        Err(error) => {
            return vec![finding("bot", false, format!("reading the state of bots at other servers failed: {error}"))];
        }
    };
    let all: Vec<PlatformBot> =
        app.desk.directory().read(|view| view.bots().map(|it| (it.platform.clone(), it.id.clone())).collect());
    let failing = all.into_iter().filter_map(|(platform, id)| {
        let failure = failing.listener(&platform, &id)?;
        let then = if failure.is_final { "it is not started again until it is changed" } else { "it is started again" };
        Some(finding("bot", false, format!("{platform} bot {id:?} does not listen: {}; {then}", failure.why)))
    });
    failing.collect()
}

/// Servers that share the store and are gone, cut off from the bus, behind with the directory, or of another version.
async fn desks(app: &App) -> Vec<Value> {
    let (cluster, lease) = (app.desk.cluster(), app.desk.lease());
    if !cluster.has_others() {
        return Vec::new();
    }
    let (live, behind, absent) = tokio::join!(cluster.reports(), cluster.unconfirmed(), lease.absent());
    let (live, behind, absent) = match (live, behind, absent) {
        (Ok(live), Ok(behind), Ok(absent)) => (live, behind, absent),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            return vec![finding(
                "desks",
                false,
                format!("reading the list of servers from the store failed: {error}"),
            )];
        }
    };
    let names: Vec<&str> = live.iter().map(|(desk, _)| desk.name.as_str()).collect();
    let mut findings = vec![finding("desks", true, format!("{} servers are live: {}", live.len(), names.join(", ")))];
    for (desk, report) in &live {
        let name = &desk.name;
        if report.is_cut_off {
            let text = format!("{name:?} gets nothing from the bus and relies on sweeps; check the database or Redis");
            findings.push(finding("desks", false, text));
        }
        if desk.is_leaving {
            findings.push(finding("desks", true, format!("{name:?} is stopping; its clients move to the others")));
        }
        if desk.version != env!("CARGO_PKG_VERSION") {
            let text = format!("{name:?} has version {}, this server {}", desk.version, env!("CARGO_PKG_VERSION"));
            findings.push(finding("desks", true, text));
        }
    }
    for name in behind {
        let text = format!("{name:?} has not read the last changes of the directory for 5 s; see its log");
        findings.push(finding("desks", false, text));
    }
    for (desk, ago_ms) in absent {
        let ago_s = ago_ms / 1000;
        let text = format!(
            "{:?} ended without a shutdown: its lease expired {ago_s} s ago; start it if it is not running",
            desk.name
        );
        findings.push(finding("desks", false, text));
    }
    findings
}

/// Commands that several agents offer under one name in different forms.
pub(crate) fn command_conflicts(app: &App, platform: &str, bot: &Bot) -> Vec<BotFinding> {
    /// Agents that are named.
    const NAMED_MAX: usize = 5;
    let conflicts = app.desk.directory().offers().conflicts(platform, bot);
    let findings = conflicts.into_iter().map(|(name, agents)| {
        let (count, named) = (agents.len(), agents[..agents.len().min(NAMED_MAX)].join(", "));
        let text = format!(
            "{count} agents offer the command {name:?} with different descriptions or options, and people see one of \
             them: {named}; give it the same form everywhere, or other names"
        );
        BotFinding::new("commands", false, text)
    });
    findings.collect()
}

/// Of all bots.
fn commands(app: &App) -> Vec<Value> {
    let directory = app.desk.directory();
    let all: Vec<PlatformBot> =
        directory.read(|view| view.bots().map(|it| (it.platform.clone(), it.id.clone())).collect());
    let of_bot = |(platform, id): PlatformBot| {
        let conflicts = command_conflicts(app, &platform, &directory.bots().bot(&platform, &id));
        conflicts.into_iter().map(move |it| finding("commands", it.ok, format!("{platform} bot {id:?}: {}", it.text)))
    };
    all.into_iter().flat_map(of_bot).collect()
}

async fn store_writes(app: &App) -> Value {
    match app.desk.upkeep().health().await {
        Ok(()) => finding("store", true, "writes are durable"),
        Err(StoreError::Corrupt(text)) => {
            finding("store", false, format!("the database is corrupt ({text}); restore it from a backup"))
        }
        Err(error) => finding("store", false, format!("{error}; check disk space and permissions of the data folder")),
    }
}

async fn store_is_whole(app: &App) -> Vec<Value> {
    let report = match app.desk.upkeep().report().await {
        Ok(report) => report,
        Err(error) => return vec![finding("integrity", false, error.to_string())],
    };
    let fault = |fault| finding("integrity", false, format!("{fault}; restore the database from a backup"));
    let mut findings: Vec<Value> = report.faults.iter().map(fault).collect();
    if findings.is_empty() {
        let text = format!(
            "{}: consistent, {} bytes including the write-ahead log, {} rows waiting",
            report.backend, report.bytes, report.rows_waiting
        );
        findings.push(finding("integrity", true, text));
    }
    findings.extend(report.risks.into_iter().map(|risk| finding("durability", false, risk)));
    findings
}

/// Records of the directory that this version cannot read. They are not used, and not changed.
fn unreadable(app: &App) -> Option<Value> {
    /// Records that are named.
    const NAMED_MAX: usize = 10;
    let (count, named) = app.desk.directory().read(|view| {
        let named = view.unreadable().names().take(NAMED_MAX).map(|(kind, key)| format!("{kind} {key:?}"));
        (view.unreadable().len(), named.collect::<Vec<_>>().join(", "))
    });
    let text = format!(
        "{count} records of the directory cannot be read by this server and are not used here: {named}; they were probably \
         written by a newer version: upgrade this server"
    );
    (count > 0).then(|| finding("directory", false, text))
}

/// With a clock far in the past all signed tokens are refused; with one far ahead all have expired.
fn clock(app: &App) -> Value {
    let now_s = app.desk.env().now_ms() / 1000;
    let built_s = 1_760_000_000; // October 2025: a correct clock is later
    finding("clock", now_s > built_s, format!("unix time {now_s}"))
}

/// Instance names are audiences of signed tokens. New names are unique, but a database of the first release may have
/// the same name in several tenants.
fn shared_names(app: &App) -> Vec<Value> {
    let mut shared: Vec<(InstanceId, Vec<TenantId>)> = app.desk.directory().read(|view| {
        let names = view.instances().map(|it| it.name.clone());
        let owners = |name: InstanceId| {
            let owners: Vec<TenantId> = view.live_instances_named(&name).map(|it| it.tenant.clone()).collect();
            (name, owners)
        };
        names.map(owners).filter(|(_, owners)| owners.len() > 1).collect()
    });
    shared.sort();
    shared.dedup();
    let text = |(name, owners): (InstanceId, Vec<TenantId>)| {
        format!(
            "instance name {name:?} exists in the tenants {}. Management tokens for it are refused, and alarms with an HTTP \
             callback are not called. Deprovision all but one, and provision the others under new names",
            owners.join(", ")
        )
    };
    shared.into_iter().map(|it| finding("names", false, text(it))).collect()
}

async fn agents(app: &App) -> Vec<Value> {
    let desk = &app.desk;
    let instances: Vec<_> = desk.directory().read(|view| view.instances().cloned().collect());
    let waiting = desk.delivery().waiting().await.unwrap_or_default();
    let presences = desk.delivery().served().presences().await.unwrap_or_default();
    let mut findings = Vec::new();
    for instance in instances {
        let name = format!("{}/{}", instance.tenant, instance.name);
        let owed = waiting.iter().find(|row| row.instance == instance.no).map_or(0, |row| row.count);
        if let Some(url) = &instance.wake_url
            && let Err(error) = desk.outcall().check(url)
        {
            let text = format!("{name}: the wake URL is refused ({error}); allow it in [outcall] allow, or change it");
            findings.push(finding("wake", false, text));
            continue;
        }
        if let Some(problem) = desk.delivery().reports().problem(instance.no) {
            findings.push(finding("agent", false, format!("{name} reports: {problem}")));
        }
        // Older than the resend limit, so the row was sent again at least once.
        let long_ms = desk.rules().ack_limit_ms * (STUCK_LIMITS + 1);
        let unacked_ms = desk.delivery().unacked_ms(instance.no).filter(|age_ms| *age_ms >= long_ms);
        if let Some(age_ms) = unacked_ms {
            let text = format!(
                "{name}: connected, but a message is unacked for {} s ({owed} wait). It answers pings, so the socket stays open: check \
                 the agent's log, or restart it. A 0.17 gateway never acks and may still be working",
                age_ms / 1000
            );
            findings.push(finding("agent", false, text));
        }
        let presence = presences.get(&instance.no).cloned().unwrap_or_default();
        if desk.delivery().served().is_connected(instance.no, &presence) || owed == 0 {
            continue;
        }
        let failure = desk.delivery().wake_failure(instance.no);
        let text = match (&instance.wake_url, &failure) {
            (Some(_), Some(why)) => format!(
                "{name}: {owed} messages waiting, the wake URL keeps failing ({why}); start the agent, or provision it \
                 with another wakeUrl"
            ),
            (Some(_), None) => {
                format!("{name}: {owed} messages waiting; the wake URL responds, but the agent has not connected")
            }
            (None, _) => format!(
                "{name}: {owed} messages waiting, no wake URL: start the agent by hand, or provision it with a wakeUrl"
            ),
        };
        findings.push(finding("agent", instance.wake_url.is_some() && failure.is_none(), text));
    }
    findings.extend(given_up(app));
    findings
}

/// Messages that an agent received several times on a live connection and never acked.
fn given_up(app: &App) -> Vec<Value> {
    let desk = &app.desk;
    let show = |(no, rows): (InstanceNo, Vec<_>)| {
        let instance = desk.directory().read(|view| view.instance_no(no).cloned())?;
        let text = format!(
            "{0}/{1}: {2} messages were sent several times and never acked on an open connection; they are now dead: \
             frontdesk mail ls --instance {1} --state dead (replay sends one again)",
            instance.tenant,
            instance.name,
            rows.len()
        );
        Some(finding("acks", false, text))
    };
    desk.delivery().sockets().given_up().into_iter().filter_map(show).collect()
}

/// Agents with an inbox: pending wakes, and wake URLs that fail.
fn inboxes(app: &App) -> Vec<Value> {
    let desk = &app.desk;
    let agents: Vec<_> = desk.directory().read(|view| {
        let agents = view.agent_nos().filter_map(|no| view.agent_no(no).cloned());
        agents.filter(|it| it.wake_url.is_some()).collect()
    });
    let mut findings = Vec::new();
    for agent in agents {
        let name = format!("{}/{}", agent.tenant, agent.id);
        let waits = desk.delivery().sockets().presence(agent.no).idle;
        let refused = agent.wake_url.as_deref().and_then(|url| desk.outcall().check(url).err());
        let (ok, text) = match (refused, waits, desk.delivery().wake_failure(agent.no)) {
            (Some(error), ..) => {
                (false, format!("the wake URL is refused ({error}); allow it in [outcall] allow, or change it"))
            }
            (None, true, Some(why)) => (
                false,
                format!(
                    "a wake is pending, and the wake URL fails ({why}); start the agent, or correct the URL with PUT \
                     /v1/agents/{}",
                    agent.id
                ),
            ),
            (None, true, None) => {
                (true, "a wake is pending; the wake URL is being called, the agent has not connected yet".into())
            }
            (None, false, _) => continue,
        };
        findings.push(finding("agent", ok, format!("{name}: {text}")));
    }
    findings
}
