//! All metrics, in one place so that each has one name.

use frontdesk_wire::BotId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::port::platform::Part;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Why {
    pub(crate) why: &'static str,
}

/// A connection of a bot, as `2/4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    platform: String,
    bot: String,
    connection: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct VerdictLabels {
    pub(crate) verdict: &'static str,
    pub(crate) layer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ActionLabels {
    pub(crate) op: &'static str,
    pub(crate) outcome: &'static str,
}

/// Buckets for the lateness of alarms, from a millisecond to an hour.
const LATENESS_S: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0, 600.0, 3600.0];

pub(crate) struct Lateness(Histogram);

impl Default for Lateness {
    fn default() -> Self {
        Self(Histogram::new(LATENESS_S))
    }
}

impl Lateness {
    pub(crate) fn note_ms(&self, late_ms: u64) {
        #[allow(clippy::cast_precision_loss)] // a measure for people
        self.0.observe(late_ms as f64 / 1000.0);
    }
}

/// The planes count in the fields; the server calls the methods.
#[derive(Default)]
pub struct Meters {
    pub(crate) events_accepted: Counter,
    pub(crate) events_duplicate: Counter,
    pub(crate) events_withheld: Family<Why, Counter>,
    pub(crate) verdicts: Family<VerdictLabels, Counter>,
    pub(crate) links: Family<Why, Counter>,
    pub(crate) context_failed: Counter,
    pub(crate) mail_rows: Counter,
    pub(crate) agent_messages: Family<Why, Counter>,
    /// 1 while the bus does not deliver this server's own echo.
    pub(crate) bus_cut_off: Gauge,
    pub(crate) bus_sweeps: Counter,
    directory_unreadable: Gauge,
    desks_live: Gauge,
    pub(crate) frames_pushed: Counter,
    pub(crate) acks: Counter,
    pub(crate) acks_unknown: Counter,
    pub(crate) rows_settled_without_ack: Counter,
    pub(crate) rows_resent: Counter,
    pub(crate) rows_given_up: Counter,
    pub(crate) frames_bad: Family<Why, Counter>,
    pub(crate) reads_paused: Counter,
    pub(crate) outbox_bytes: Gauge,
    pub(crate) refusals_unnoted: Counter,
    pub(crate) clock_steps: Family<Why, Counter>,
    sockets_open: Gauge,
    sockets_refused: Family<Why, Counter>,
    pub(crate) sockets_closed: Family<Why, Counter>,
    pub(crate) actions: Family<ActionLabels, Counter>,
    pub(crate) actions_delayed: Counter,
    pub(crate) actions_superseded: Counter,
    pub(crate) wakes: Family<Why, Counter>,
    pub(crate) notices: Counter,
    pub(crate) interrupts: Counter,
    pub(crate) interrupts_dropped: Family<Why, Counter>,
    requests_refused: Family<Why, Counter>,
    /// Their handlers ran to the end without a client.
    requests_abandoned: Counter,
    connections_refused: Family<Why, Counter>,
    pub(crate) store_faults: Counter,
    pub(crate) media_fetches: Family<Why, Counter>,
    command_lists: Family<Why, Counter>,
    pub(crate) listener_gaps: Counter,
    pub(crate) fragments_refused: Counter,
    listener_ends: Family<Why, Counter>,
    /// Only of those that fail now.
    listeners_failing: Family<ListenerLabels, Gauge>,
    pub(crate) alarms_armed: Gauge,
    pub(crate) alarm_lateness: Lateness,
    pub(crate) alarm_tries: Family<Why, Counter>,
    pub(crate) alarms_ended: Family<Why, Counter>,
}

/// What is counted when the metrics are read.
pub struct Levels {
    /// Relay sockets that serve an instance.
    pub sockets_open: usize,
    /// Live servers on the store, this one included.
    pub desks_live: usize,
    /// Records of the directory that this version cannot read.
    pub directory_unreadable: usize,
}

impl Meters {
    pub fn set_levels(&self, levels: Levels) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.sockets_open.set(count(levels.sockets_open));
        self.desks_live.set(count(levels.desks_live));
        self.directory_unreadable.set(count(levels.directory_unreadable));
    }

    pub fn request_refused(&self, why: &'static str) {
        self.requests_refused.get_or_create(&Why { why }).inc();
    }

    /// Counter of the requests whose handlers run to the end without a client.
    pub fn requests_abandoned(&self) -> Counter {
        self.requests_abandoned.clone()
    }

    /// Returns how many were refused for this reason, this one included.
    pub fn connection_refused(&self, why: &'static str) -> u64 {
        self.connections_refused.get_or_create(&Why { why }).inc() + 1
    }

    pub fn socket_refused(&self, why: &'static str) {
        self.sockets_refused.get_or_create(&Why { why }).inc();
    }

    /// A list of commands was declared at a platform, or could not be.
    pub fn commands_declared(&self, outcome: &'static str) {
        self.command_lists.get_or_create(&Why { why: outcome }).inc();
    }

    pub fn listener_ended(&self, why: &'static str) {
        self.listener_ends.get_or_create(&Why { why }).inc();
    }

    /// Whether this connection of a bot fails now.
    pub fn set_listener_failing(&self, platform: &str, bot: &BotId, part: Part, is_failing: bool) {
        let labels =
            ListenerLabels { platform: platform.to_owned(), bot: bot.to_string(), connection: part.to_string() };
        if is_failing {
            self.listeners_failing.get_or_create(&labels).set(1);
        } else {
            self.listeners_failing.remove(&labels);
        }
    }

    pub fn mail_rows(&self) -> u64 {
        self.mail_rows.get()
    }

    pub fn frames_pushed(&self) -> u64 {
        self.frames_pushed.get()
    }

    pub fn acks(&self) -> u64 {
        self.acks.get()
    }

    /// Series that alerts compare with earlier values exist from the start: one that appears with its first failure has
    /// not risen.
    fn begin_at_zero(&self) {
        let series: [(&Family<Why, Counter>, &[&'static str]); 4] = [
            (&self.wakes, &["answered", "bad_status", "refused", "failed", "no_wake_url"]),
            (&self.alarms_ended, &["fired", "dead", "skipped", "cancelled"]),
            (&self.alarm_tries, &["taken", "refused", "failed"]),
            (&self.listener_ends, &["lost", "misconfigured", "panicked"]),
        ];
        for (family, reasons) in series {
            for why in reasons {
                drop(family.get_or_create(&Why { why }));
            }
        }
        for outcome in ["delivered", "rejected", "unknown"] {
            drop(self.actions.get_or_create(&ActionLabels { op: "send", outcome }));
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        self.begin_at_zero();
        let r = registry;
        r.register("events_accepted", "Events stored", self.events_accepted.clone());
        r.register("events_duplicate", "Events that were received before", self.events_duplicate.clone());
        r.register("events_withheld", "Events delivered to no agent, by deciding layer", self.events_withheld.clone());
        let text = "Decisions of the gate, one per instance considered, by verdict and deciding layer";
        r.register("verdicts", text, self.verdicts.clone());
        r.register("links", "Link and unlink commands of users, by outcome", self.links.clone());
        r.register(
            "context_failed",
            "Events delivered without context because reading it failed",
            self.context_failed.clone(),
        );
        r.register("mail_rows", "Rows written to the ledgers of agents", self.mail_rows.clone());
        r.register("agent_messages", "Messages between agents, by result", self.agent_messages.clone());
        r.register(
            "frames_pushed",
            "Deliveries written to sockets, including repeated ones",
            self.frames_pushed.clone(),
        );
        let text = "1 while the bus does not deliver and this server relies on periodic sweeps of the store";
        r.register("bus_deaf", text, self.bus_cut_off.clone());
        r.register(
            "bus_sweeps",
            "Sweeps of the store for changes that the bus did not announce",
            self.bus_sweeps.clone(),
        );
        let text = "Records of the directory that this version cannot read, and does not use";
        r.register("directory_unreadable", text, self.directory_unreadable.clone());
        r.register("desks_live", "Live servers on the store, this one included", self.desks_live.clone());
        r.register("acks", "Rows acked by agents", self.acks.clone());
        r.register("acks_unknown", "Acks of unknown or foreign buffer ids", self.acks_unknown.clone());
        let text = "Rows settled without an ack because the gateway never acks";
        r.register("rows_settled_without_ack", text, self.rows_settled_without_ack.clone());
        r.register("frames_bad", "Invalid frames that were skipped, by reason", self.frames_bad.clone());
        r.register(
            "rows_resent",
            "Rows sent again on a live socket because they were not acked",
            self.rows_resent.clone(),
        );
        let text = "Rows given up because a live socket did not ack them after several attempts";
        r.register("rows_given_up", text, self.rows_given_up.clone());
        let text = "Times that reading from a socket was paused because its peer did not read";
        r.register("reads_paused", text, self.reads_paused.clone());
        r.register("outbox_bytes", "Bytes waiting to be written to relay sockets", self.outbox_bytes.clone());
        let text = "Refused actions left out of the journal because there were too many";
        r.register("refusals_unnoted", text, self.refusals_unnoted.clone());
        r.register("clock_steps", "Jumps of the wall clock, by direction", self.clock_steps.clone());
        r.register("sockets_open", "Relay sockets that serve an instance", self.sockets_open.clone());
        r.register("sockets_refused", "Relay upgrades refused, by reason", self.sockets_refused.clone());
        r.register("sockets_closed", "Relay sockets closed by the server, by reason", self.sockets_closed.clone());
        r.register("actions", "Actions of agents, by op and outcome", self.actions.clone());
        let text = "Actions that waited for the rate limit of their bot or for an earlier action in their chat";
        r.register("actions_delayed", text, self.actions_delayed.clone());
        let text = "Edits replaced by a later edit of the same message before they were sent";
        r.register("actions_superseded", text, self.actions_superseded.clone());
        r.register("wakes", "Calls of wake URLs, by result", self.wakes.clone());
        r.register("notices", "Notices to users that their agent cannot be woken", self.notices.clone());
        r.register("interrupts", "Interrupts sent to agents", self.interrupts.clone());
        r.register(
            "interrupts_dropped",
            "Interrupts of agents that were not passed on, by reason",
            self.interrupts_dropped.clone(),
        );
        r.register("requests_refused", "HTTP requests refused, by code", self.requests_refused.clone());
        let text = "HTTP requests that can change something and whose client disconnected before the response";
        r.register("requests_abandoned", text, self.requests_abandoned.clone());
        let text = "Connections refused because too many were open, by limit";
        r.register("connections_refused", text, self.connections_refused.clone());
        r.register("alarms_armed", "Armed alarms, counted periodically", self.alarms_armed.clone());
        let text = "Delay between the time of an alarm and its first attempt, in seconds";
        r.register("alarm_lateness_seconds", text, self.alarm_lateness.0.clone());
        r.register("alarm_tries", "Attempts to fire alarms, by response", self.alarm_tries.clone());
        r.register("alarms_ended", "Finished alarms, by outcome", self.alarms_ended.clone());
        let text = "Times that a platform could not return missed events";
        r.register("listener_gaps", text, self.listener_gaps.clone());
        let text = "Fragments of events that became events of their own, because a bot had too many";
        r.register("fragments_refused", text, self.fragments_refused.clone());
        let text = "Bot listeners that ended unexpectedly, by reason";
        r.register("listener_ends", text, self.listener_ends.clone());
        let text = "1 while the listener of a bot fails, by its connection";
        r.register("listeners_failing", text, self.listeners_failing.clone());
        let text = "Lists of commands declared at platforms, by result";
        r.register("command_lists", text, self.command_lists.clone());
        let text = "Files fetched from their platforms, by result";
        r.register("media_fetches", text, self.media_fetches.clone());
        r.register("store_faults", "Batches of events that the store failed to accept", self.store_faults.clone());
    }
}
