//! Commands for agents: list, message, inbox.

use anyhow::Context as _;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::remote::{Remote, segment};
use crate::print::{err_line, out_line};

#[derive(Subcommand)]
pub(super) enum AgentsVerb {
    /// List agents
    Ls {
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show an agent
    Show(AgentOf),
    /// Delete an agent, its inbox and its scheduled wakes
    Rm(AgentOf),
}

#[derive(clap::Args)]
pub(super) struct AgentOf {
    id: String,
    #[arg(long)]
    tenant: String,
}

#[derive(clap::Args)]
pub(super) struct SayArgs {
    agent: String,
    text: String,
    #[arg(long)]
    tenant: String,
    /// Sender; default: the server
    #[arg(long)]
    from: Option<String>,
    /// Wake the agent in addition to storing the message in its inbox
    #[arg(long)]
    wake: bool,
}

#[derive(clap::Args)]
pub(super) struct InboxArgs {
    agent: String,
    #[arg(long)]
    tenant: String,
    /// Only messages after this sequence number
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// Keep running and print new messages
    #[arg(long)]
    follow: bool,
}

fn path(agent: &str, what: &str, tenant: &str) -> String {
    format!("/agents/{}{what}?tenant={}", segment(agent), segment(tenant))
}

pub(super) async fn agents(desk: &Remote, verb: AgentsVerb) -> anyhow::Result<()> {
    match verb {
        AgentsVerb::Ls { tenant } => {
            let which = tenant.map(|tenant| format!("?tenant={}", segment(&tenant))).unwrap_or_default();
            let columns = [
                "tenant",
                "agent_id",
                "agent_name",
                "kind",
                "status",
                "connectors",
                "wake_url",
                "wake_waits",
                "seen_at",
            ];
            desk.show_list(&desk.call(Method::GET, &format!("/agents{which}"), None).await?, "agents", &columns)
        }
        AgentsVerb::Show(of) => desk.show(&desk.call(Method::GET, &path(&of.id, "", &of.tenant), None).await?),
        AgentsVerb::Rm(of) => desk.show(&desk.call(Method::DELETE, &path(&of.id, "", &of.tenant), None).await?),
    }
}

pub(super) async fn say(desk: &Remote, args: SayArgs) -> anyhow::Result<()> {
    let body = json!({ "tenant": args.tenant, "text": args.text, "from": args.from, "wake": args.wake });
    desk.show(&desk.call(Method::POST, &format!("/agents/{}/say", segment(&args.agent)), Some(body)).await?)
}

pub(super) async fn inbox(desk: &Remote, args: InboxArgs) -> anyhow::Result<()> {
    if args.follow {
        return follow(desk, args).await;
    }
    let mut rows = Vec::new();
    let (mut after, mut newest) = (args.after, 0);
    loop {
        let page = page(desk, &args, after).await?;
        newest = page["newest"].as_u64().unwrap_or(newest);
        let Some(last) = page["messages"].as_array().and_then(|messages| messages.last()) else { break };
        after = last["seq"].as_u64().context("the server's response has a message without a seq")?;
        rows.extend(page["messages"].as_array().into_iter().flatten().cloned());
    }
    warn_if_beyond_end(args.after, newest);
    if desk.json {
        return desk.show(&json!({ "messages": rows, "newest": newest }));
    }
    for row in &mut rows {
        row["from"] = row["meta"]["origin"]["caller_agent_id"].clone();
    }
    desk.show_list(&json!({ "messages": rows }), "messages", &["seq", "at", "type", "from", "text"])
}

async fn page(desk: &Remote, args: &InboxArgs, after: u64) -> anyhow::Result<Value> {
    let path = format!("{}&after={after}", path(&args.agent, "/inbox", &args.tenant));
    desk.call(Method::GET, &path, None).await
}

fn warn_if_beyond_end(after: u64, newest: u64) {
    if after > newest {
        err_line!("frontdesk: the newest message is {newest}: --after {after} is beyond the end of this inbox");
    }
}

/// Prints the stored messages, then reads the inbox again at each event of this agent.
async fn follow(desk: &Remote, args: InboxArgs) -> anyhow::Result<()> {
    let watched = format!("/events/stream?tenant={}&instance={}", segment(&args.tenant), segment(&args.agent));
    // Opened before the first read, so that no message in between is missed.
    let mut events = desk.send(Method::GET, &watched, None).await?;
    let mut after = args.after;
    loop {
        loop {
            let page = page(desk, &args, after).await?;
            let newest = page["newest"].as_u64().unwrap_or(after);
            warn_if_beyond_end(after, newest);
            after = after.min(newest);
            let messages = page["messages"].as_array().cloned().unwrap_or_default();
            let Some(last) = messages.last() else { break };
            after = last["seq"].as_u64().context("the server's response has a message without a seq")?;
            for message in &messages {
                print_message(desk, message)?;
            }
        }
        // Comments are keep-alives; only data is an event.
        let mut held: Vec<u8> = Vec::new();
        while !held.windows(5).any(|it| it == b"data:") {
            held.drain(..held.len().saturating_sub(4)); // it may be cut between two chunks
            let chunk = events.chunk().await.context("the server closed the connection")?;
            held.extend_from_slice(&chunk.context("the server ended the event stream")?);
        }
    }
}

fn print_message(desk: &Remote, message: &Value) -> anyhow::Result<()> {
    if desk.json {
        out_line!("{}", serde_json::to_string(message)?);
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let at = message["at"].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.map(|at| at.strftime("%H:%M:%S%.3f").to_string()).unwrap_or_default();
    let from = text(&message["meta"]["origin"]["caller_agent_id"]);
    out_line!("{} {at} {} {from}: {}", message["seq"], text(&message["type"]), text(&message["text"]));
    Ok(())
}
