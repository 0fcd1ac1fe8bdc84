//! Commands that use the admin API of a running server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::Target;
use super::agents::{self, AgentsVerb, InboxArgs, SayArgs};
use super::remote::{Remote, print_json, segment};
use crate::print::out_line;

#[derive(Subcommand)]
pub(super) enum RemoteVerb {
    /// Manage tenants; each has its own agents, users and chat
    #[command(subcommand)]
    Tenant(TenantVerb),
    /// Manage bearer tokens
    #[command(subcommand)]
    Token(TokenVerb),
    /// Create a one-time token with which a gateway joins a tenant
    EnrollToken {
        #[arg(long)]
        tenant: String,
        /// Lifetime: 90s, 10m, 1h, 30d
        #[arg(long, value_parser = seconds)]
        ttl: Option<u64>,
    },
    /// Manage platform bots
    #[command(subcommand)]
    Bot(BotVerb),
    /// Manage routes: which tenant a guild, chat or path belongs to
    #[command(subcommand)]
    Route(RouteVerb),
    /// Link a platform user to an agent
    Bind(BindArgs),
    /// Remove the link of a platform user to an agent
    Unbind(BindArgs),
    /// Manage channel grants: which agent holds which channel
    #[command(subcommand)]
    Grant(GrantVerb),
    /// Manage gateways
    #[command(subcommand)]
    Gateway(GatewayVerb),
    /// List agents with their connections and waiting messages
    Instances,
    /// List the servers that share the database, and what each of them does
    Desks,
    /// Manage agents that others can message by name
    #[command(subcommand)]
    Agents(AgentsVerb),
    /// Send a message to an agent
    Say(SayArgs),
    /// Show the inbox of an agent
    Inbox(InboxArgs),
    /// Manage stored deliveries of an agent
    #[command(subcommand)]
    Mail(MailVerb),
    /// Manage alarms: armed, finished and dead
    #[command(subcommand)]
    Alarms(AlarmsVerb),
    /// Rotate the key that signs alarm calls; the old key stays valid for one day
    RotateSigningKey,
    /// Show who received an event, and why others did not
    Explain { event_id: String },
    /// List actions that agents sent, with their results
    Journal {
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Follow server events live
    Tail {
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long)]
        instance: Option<String>,
    },
    /// Create a one-time link to the chat page of a tenant
    ChatLink { tenant: String },
    /// Write a consistent copy of the database while the server runs
    Backup { file: PathBuf },
    /// Check the server and report problems with their solutions
    Doctor {
        /// Repair the database in the data folder; the server must be stopped
        #[arg(long)]
        repair: bool,
    },
}

#[derive(Subcommand)]
pub(super) enum TenantVerb {
    /// Create a tenant
    Create { name: String },
    /// List tenants
    Ls,
}

#[derive(Subcommand)]
pub(super) enum TokenVerb {
    /// Create a token; it is shown once
    Create {
        #[arg(long)]
        tenant: String,
        #[arg(long, value_parser = ["identity", "agents", "operator", "chat"])]
        scope: String,
        #[arg(long)]
        instance: Option<String>,
        /// Lifetime: 90s, 10m, 1h, 30d; default: until revoked
        #[arg(long, value_parser = seconds)]
        ttl: Option<u64>,
    },
    /// List tokens
    Ls,
    /// Revoke a token
    Revoke { id: String },
}

#[derive(Subcommand)]
pub(super) enum BotVerb {
    /// Add or change a bot
    Add {
        platform: String,
        #[arg(long)]
        id: String,
        #[arg(long)]
        tenant: Option<String>,
        /// Setting as key=value
        #[arg(long = "set")]
        settings: Vec<String>,
        /// Secret as key=env:NAME or key=file:PATH, never on the command line
        #[arg(long = "secret")]
        secrets: Vec<String>,
    },
    /// List bots
    Ls,
    /// Check a bot with its vendor: its token, webhook and permissions
    Check {
        platform: String,
        #[arg(long)]
        id: String,
    },
    /// Remove a bot
    Rm {
        platform: String,
        #[arg(long)]
        id: String,
    },
}

#[derive(Subcommand)]
pub(super) enum RouteVerb {
    /// Route a guild, chat or path to a tenant
    Add {
        platform: String,
        key: String,
        #[arg(long)]
        tenant: String,
    },
    /// List routes
    Ls,
    /// Remove a route
    Rm { platform: String, key: String },
}

#[derive(clap::Args)]
pub(super) struct BindArgs {
    platform: String,
    user_id: String,
    #[arg(long)]
    tenant: String,
    #[arg(long)]
    instance: String,
}

#[derive(Subcommand)]
pub(super) enum GrantVerb {
    /// List channel grants
    Ls,
    /// Remove a channel from the agent that holds it
    Rm {
        platform: String,
        channel_id: String,
        #[arg(long)]
        tenant: String,
        /// Guild, workspace or server id, if the platform has them
        #[arg(long, default_value = "")]
        scope: String,
    },
}

#[derive(Subcommand)]
pub(super) enum GatewayVerb {
    /// Create a gateway; its secret is shown once
    Add {
        id: String,
        #[arg(long)]
        tenant: String,
        /// Name of the agent; default: the id
        #[arg(long)]
        instance: Option<String>,
        /// URL to call when messages wait and the agent is not connected
        #[arg(long)]
        wake_url: Option<String>,
    },
    /// List gateways
    Ls,
    /// Show a gateway
    Show { id: String },
    /// Create a new secret; the old one stays valid for the overlap time
    Rotate { id: String },
    /// Revoke the gateway and close its connections
    Revoke { id: String },
}

#[derive(Subcommand)]
pub(super) enum MailVerb {
    /// List deliveries of an agent
    Ls {
        #[arg(long)]
        instance: String,
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long, value_parser = ["accepted", "sent", "acked", "dead"])]
        state: Option<String>,
    },
    /// Show a delivery with its content
    Show { id: String },
    /// Send a delivery again, as a new row at the end of the queue
    Replay { id: String },
    /// Mark a waiting delivery as dead
    Drop {
        id: String,
        #[arg(long)]
        reason: String,
    },
}

#[derive(Subcommand)]
pub(super) enum AlarmsVerb {
    /// List armed alarms
    Ls(AlarmsOf),
    /// List finished alarms with their results
    History(AlarmsOf),
    /// List alarms that failed for good
    Dead,
    /// Retry a dead alarm now
    Replay { id: u64 },
}

#[derive(clap::Args)]
pub(super) struct AlarmsOf {
    #[arg(long)]
    instance: String,
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) async fn run(target: &Target, verb: RemoteVerb) -> anyhow::Result<()> {
    let desk = Remote::find(target)?;
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    match verb {
        RemoteVerb::Tenant(TenantVerb::Create { name }) => {
            desk.show(&desk.call(post, "/tenants", Some(json!({ "name": name }))).await?)
        }
        RemoteVerb::Tenant(TenantVerb::Ls) => {
            desk.show_list(&desk.call(get, "/tenants", None).await?, "tenants", &["name", "created_at"])
        }
        RemoteVerb::Token(verb) => token(&desk, verb).await,
        RemoteVerb::EnrollToken { tenant, ttl } => {
            let body = json!({ "tenant": tenant, "ttl_s": ttl });
            desk.show(&desk.call(post, "/enrollment-tokens", Some(body)).await?)
        }
        RemoteVerb::Bot(verb) => bot(&desk, verb).await,
        RemoteVerb::Route(verb) => route(&desk, verb).await,
        RemoteVerb::Bind(args) => desk.show(&desk.call(post, "/bindings", Some(binding(args))).await?),
        RemoteVerb::Unbind(args) => desk.show(&desk.call(delete, "/bindings", Some(binding(args))).await?),
        RemoteVerb::Grant(GrantVerb::Ls) => {
            let columns = ["tenant", "platform", "scope_id", "channel_id", "instance", "at"];
            desk.show_list(&desk.call(get, "/grants", None).await?, "grants", &columns)
        }
        RemoteVerb::Grant(GrantVerb::Rm { platform, channel_id, tenant, scope }) => {
            let body = json!({ "tenant": tenant, "platform": platform, "scope_id": scope, "channel_id": channel_id });
            desk.show(&desk.call(delete, "/grants", Some(body)).await?)
        }
        RemoteVerb::Gateway(verb) => gateway(&desk, verb).await,
        RemoteVerb::Instances => {
            let columns =
                ["kind", "tenant", "instance", "connected", "idle", "seen_at", "wake_url", "waiting", "waiting_since"];
            let mut answer = desk.call(get, "/instances", None).await?;
            if !desk.json {
                // One table: agents without a gateway of the same name have an inbox instead of ledger rows.
                let agents = answer["agents"].as_array().cloned().unwrap_or_default().into_iter().map(agent_row);
                answer["instances"] =
                    answer["instances"].as_array().cloned().unwrap_or_default().into_iter().chain(agents).collect();
            }
            desk.show_list(&answer, "instances", &columns)
        }
        RemoteVerb::Desks => {
            let columns = ["number", "name", "version", "live", "leaving", "sockets", "duties"];
            let mut answer = desk.call(get, "/desks", None).await?;
            if !desk.json {
                for it in answer["desks"].as_array_mut().into_iter().flatten() {
                    // Many: one line each would hide the servers.
                    it["duties"] = it["duties"].as_array().map_or(0, Vec::len).into();
                }
            }
            desk.show_list(&answer, "desks", &columns)
        }
        RemoteVerb::Agents(verb) => agents::agents(&desk, verb).await,
        RemoteVerb::Say(args) => agents::say(&desk, args).await,
        RemoteVerb::Inbox(args) => agents::inbox(&desk, args).await,
        RemoteVerb::Mail(verb) => mail(&desk, verb).await,
        RemoteVerb::Alarms(verb) => alarms(&desk, verb).await,
        RemoteVerb::RotateSigningKey => desk.show(&desk.call(post, "/signing-keys/rotate", None).await?),
        RemoteVerb::Explain { event_id } => explain(&desk, &event_id).await,
        RemoteVerb::Journal { tenant } => {
            let path = tenant.map_or_else(|| "/journal".into(), |t| format!("/journal?tenant={}", segment(&t)));
            let columns = ["id", "at_ms", "tenant", "instance", "op", "platform", "chat_id", "outcome", "note"];
            desk.show_list(&desk.call(get, &path, None).await?, "actions", &columns)
        }
        RemoteVerb::Tail { tenant, instance } => tail(&desk, tenant, instance).await,
        RemoteVerb::ChatLink { tenant } => {
            desk.show(&desk.call(post, "/chat-link", Some(json!({ "name": tenant }))).await?)
        }
        RemoteVerb::Backup { file } => {
            let file = std::path::absolute(file)?;
            desk.show(&desk.call(post, "/backup", Some(json!({ "file": file }))).await?)
        }
        RemoteVerb::Doctor { .. } => doctor(&desk).await,
    }
}

fn agent_row(it: Value) -> Value {
    let connected = matches!(it["status"].as_str(), Some("active" | "idle"));
    json!({ "kind": it["kind"], "tenant": it["tenant"], "instance": it["agent_id"], "connected": connected,
        "seen_at": it["seen_at"], "wake_url": it["wake_url"] })
}

async fn token(desk: &Remote, verb: TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::Create { tenant, scope, instance, ttl } => {
            let body = json!({ "tenant": tenant, "scope": scope, "instance": instance, "ttl_s": ttl });
            desk.show(&desk.call(Method::POST, "/tokens", Some(body)).await?)
        }
        TokenVerb::Ls => {
            let columns = ["id", "tenant", "scope", "instance", "created_at", "expires_at"];
            desk.show_list(&desk.call(Method::GET, "/tokens", None).await?, "tokens", &columns)
        }
        TokenVerb::Revoke { id } => {
            desk.show(&desk.call(Method::DELETE, &format!("/tokens/{}", segment(&id)), None).await?)
        }
    }
}

async fn bot(desk: &Remote, verb: BotVerb) -> anyhow::Result<()> {
    match verb {
        BotVerb::Add { platform, id, tenant, settings, secrets } => {
            let settings = settings.iter().map(|pair| split_pair(pair)).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
            let mut opened = BTreeMap::new();
            for pair in &secrets {
                let (key, from) = split_pair(pair)?;
                opened.insert(key, read_secret(&from)?);
            }
            let body =
                json!({ "platform": platform, "id": id, "tenant": tenant, "settings": settings, "secrets": opened });
            desk.show(&desk.call(Method::POST, "/bots", Some(body)).await?)
        }
        BotVerb::Ls => {
            let columns = ["platform", "id", "tenant", "settings", "secrets", "problem"];
            desk.show_list(&desk.call(Method::GET, "/bots", None).await?, "bots", &columns)
        }
        BotVerb::Check { platform, id } => {
            let path = format!("/bots/{}/{}/check", segment(&platform), segment(&id));
            let answer = desk.call(Method::GET, &path, None).await?;
            desk.show_list(&answer, "findings", &["check", "ok", "text"])?;
            anyhow::ensure!(answer["ok"] == true, "the bot has problems");
            Ok(())
        }
        BotVerb::Rm { platform, id } => {
            let path = format!("/bots/{}/{}", segment(&platform), segment(&id));
            desk.show(&desk.call(Method::DELETE, &path, None).await?)
        }
    }
}

async fn route(desk: &Remote, verb: RouteVerb) -> anyhow::Result<()> {
    match verb {
        RouteVerb::Add { platform, key, tenant } => {
            let body = json!({ "platform": platform, "key": key, "tenant": tenant });
            desk.show(&desk.call(Method::POST, "/routes", Some(body)).await?)
        }
        RouteVerb::Ls => {
            desk.show_list(&desk.call(Method::GET, "/routes", None).await?, "routes", &["platform", "key", "tenant"])
        }
        RouteVerb::Rm { platform, key } => {
            let path = format!("/routes/{}/{}", segment(&platform), segment(&key));
            desk.show(&desk.call(Method::DELETE, &path, None).await?)
        }
    }
}

async fn gateway(desk: &Remote, verb: GatewayVerb) -> anyhow::Result<()> {
    let at = |id: &str, what: &str| format!("/gateways/{}{what}", segment(id));
    match verb {
        GatewayVerb::Add { id, tenant, instance, wake_url } => {
            let body = json!({ "id": id, "tenant": tenant, "instance": instance, "wake_url": wake_url });
            desk.show(&desk.call(Method::POST, "/gateways", Some(body)).await?)
        }
        GatewayVerb::Ls => {
            let columns = ["id", "tenant", "instance", "connected", "created_at", "revoked_at"];
            desk.show_list(&desk.call(Method::GET, "/gateways", None).await?, "gateways", &columns)
        }
        GatewayVerb::Show { id } => desk.show(&desk.call(Method::GET, &at(&id, ""), None).await?),
        GatewayVerb::Rotate { id } => desk.show(&desk.call(Method::POST, &at(&id, "/rotate"), None).await?),
        GatewayVerb::Revoke { id } => desk.show(&desk.call(Method::POST, &at(&id, "/revoke"), None).await?),
    }
}

async fn alarms(desk: &Remote, verb: AlarmsVerb) -> anyhow::Result<()> {
    let of = |of: &AlarmsOf, what: &str| {
        let tenant = of.tenant.as_ref().map_or_else(String::new, |tenant| format!("?tenant={}", segment(tenant)));
        format!("/instances/{}/alarms{what}{tenant}", segment(&of.instance))
    };
    match verb {
        AlarmsVerb::Ls(which) => {
            let columns = ["id", "job_id", "fire_at", "attempts", "callback", "note"];
            desk.show_list(&desk.call(Method::GET, &of(&which, ""), None).await?, "alarms", &columns)
        }
        AlarmsVerb::History(which) => {
            let columns = ["at", "job_id", "fire_at", "outcome", "attempts", "note"];
            desk.show_list(&desk.call(Method::GET, &of(&which, "/history"), None).await?, "history", &columns)
        }
        AlarmsVerb::Dead => {
            let columns = ["id", "tenant", "instance", "job_id", "fire_at", "attempts", "note"];
            desk.show_list(&desk.call(Method::GET, "/alarms/dead", None).await?, "alarms", &columns)
        }
        AlarmsVerb::Replay { id } => desk.show(&desk.call(Method::POST, &format!("/alarms/{id}/replay"), None).await?),
    }
}

async fn mail(desk: &Remote, verb: MailVerb) -> anyhow::Result<()> {
    let at = |id: &str, what: &str| format!("/mail/{}{what}", segment(id));
    match verb {
        MailVerb::Ls { instance, tenant, state } => {
            let mut path = format!("/instances/{}/mail?before=0", segment(&instance));
            for (name, value) in [("tenant", tenant), ("state", state)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", segment(&value)));
                }
            }
            let columns = ["id", "at", "state", "platform", "chat_id", "message_id", "event_id", "reason"];
            desk.show_list(&desk.call(Method::GET, &path, None).await?, "mail", &columns)
        }
        MailVerb::Show { id } => print_json(&desk.call(Method::GET, &at(&id, ""), None).await?),
        MailVerb::Replay { id } => desk.show(&desk.call(Method::POST, &at(&id, "/replay"), None).await?),
        MailVerb::Drop { id, reason } => {
            desk.show(&desk.call(Method::POST, &at(&id, "/drop"), Some(json!({ "reason": reason }))).await?)
        }
    }
}

async fn explain(desk: &Remote, event_id: &str) -> anyhow::Result<()> {
    let answer = desk.call(Method::GET, &format!("/events/{}/explain", segment(event_id)), None).await?;
    if desk.json {
        return print_json(&answer);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    out_line!("{} of tenant {}: {}", text(&answer["event_id"]), text(&answer["tenant"]), text(&answer["outcome"]));
    for line in answer["instances"].as_array().into_iter().flatten() {
        let who = line["instance"].as_str().filter(|name| !name.is_empty()).unwrap_or("nobody");
        out_line!(
            "  {who}: {} at {} ({}): {}",
            text(&line["outcome"]),
            text(&line["layer"]),
            text(&line["rule"]),
            text(&line["text"])
        );
    }
    Ok(())
}

async fn tail(desk: &Remote, tenant: Option<String>, instance: Option<String>) -> anyhow::Result<()> {
    let mut path = "/events/stream?".to_owned();
    for (name, value) in [("tenant", tenant), ("instance", instance)] {
        if let Some(value) = value {
            path.push_str(&format!("{name}={}&", segment(&value)));
        }
    }
    let mut response = desk.send(Method::GET, &path, None).await?;
    let mut held = String::new();
    while let Some(chunk) = response.chunk().await.context("the server closed the connection")? {
        held.push_str(&String::from_utf8_lossy(&chunk));
        while let Some(end) = held.find('\n') {
            let line: String = held.drain(..=end).collect();
            if let Some(data) = line.strip_prefix("data:") {
                print_notice(desk, data.trim())?;
            }
        }
    }
    bail!("the server ended the event stream")
}

fn print_notice(desk: &Remote, data: &str) -> anyhow::Result<()> {
    if desk.json {
        out_line!("{data}");
        return Ok(());
    }
    let notice: Value = serde_json::from_str(data)?;
    let text = |name: &str| notice[name].as_str().unwrap_or_default().to_owned();
    let at = notice["at"].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.map(|at| at.strftime("%H:%M:%S%.3f").to_string()).unwrap_or_default();
    let desk = Some(text("desk")).filter(|desk| !desk.is_empty()).map(|desk| format!("{desk} ")).unwrap_or_default();
    out_line!(
        "{at} {desk}{:<11} {}/{} {} {} {}",
        text("step"),
        text("tenant"),
        text("instance"),
        text("event_id"),
        text("chat_id"),
        text("text")
    );
    Ok(())
}

async fn doctor(desk: &Remote) -> anyhow::Result<()> {
    let answer = desk.call(Method::GET, "/doctor", None).await?;
    if desk.json {
        print_json(&answer)?;
    } else {
        for found in answer["findings"].as_array().into_iter().flatten() {
            let mark = if found["ok"] == true { "ok   " } else { "WRONG" };
            out_line!("{mark} {}: {}", found["check"].as_str().unwrap_or("-"), found["text"].as_str().unwrap_or("-"));
        }
    }
    if answer["ok"] == true { Ok(()) } else { bail!("some checks failed; see above") }
}

fn binding(args: BindArgs) -> Value {
    json!({ "platform": args.platform, "user_id": args.user_id, "tenant": args.tenant, "instance": args.instance })
}

fn split_pair(pair: &str) -> anyhow::Result<(String, String)> {
    let (key, value) = pair.split_once('=').with_context(|| format!("{pair:?} is not key=value"))?;
    Ok((key.into(), value.into()))
}

fn read_secret(from: &str) -> anyhow::Result<String> {
    if let Some(name) = from.strip_prefix("env:") {
        return std::env::var(name).with_context(|| format!("environment variable {name} is not set"));
    }
    if let Some(path) = from.strip_prefix("file:") {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        return Ok(text.trim_end_matches('\n').to_owned());
    }
    bail!("pass a secret as env:NAME or file:PATH, not on the command line")
}

/// Parses `90s`, `10m`, `1h` or `30d`.
fn seconds(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} is not a duration; use for example 90s, 10m, 1h or 30d"))?;
    let each = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(format!("{text:?} is not a duration; use for example 90s, 10m, 1h or 30d")),
    };
    Ok(number.saturating_mul(each))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn durations_are_parsed_with_their_unit() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("30d"), Ok(2_592_000));
        assert_eq!(seconds("5"), Ok(5));
        assert!(seconds("h").is_err() && seconds("1w").is_err() && seconds("").is_err());
    }
}
