//! All metrics, in one place so that each has one name.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Why {
    pub why: &'static str,
}

/// A connection of a bot, as `2/4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabels {
    pub platform: String,
    pub bot: String,
    pub connection: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerdictLabels {
    pub verdict: &'static str,
    pub layer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabels {
    pub op: &'static str,
    pub outcome: &'static str,
}

/// Buckets for the lateness of alarms, from a millisecond to an hour.
const LATENESS_S: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0, 600.0, 3600.0];

pub struct Lateness(Histogram);

impl Default for Lateness {
    fn default() -> Self {
        Self(Histogram::new(LATENESS_S))
    }
}

impl Lateness {
    pub fn note_ms(&self, late_ms: u64) {
        #[allow(clippy::cast_precision_loss)] // a measure for people
        self.0.observe(late_ms as f64 / 1000.0);
    }
}

#[derive(Default)]
pub struct Meters {
    pub events_accepted: Counter,
    pub events_duplicate: Counter,
    pub events_withheld: Family<Why, Counter>,
    pub verdicts: Family<VerdictLabels, Counter>,
    pub links: Family<Why, Counter>,
    pub context_failed: Counter,
    pub mail_rows: Counter,
    pub agent_messages: Family<Why, Counter>,
    /// 1 while the bus does not deliver this server's own echo.
    pub bus_cut_off: Gauge,
    pub bus_sweeps: Counter,
    pub directory_unreadable: Gauge,
    pub desks_live: Gauge,
    pub frames_pushed: Counter,
    pub acks: Counter,
    pub acks_unknown: Counter,
    pub rows_settled_without_ack: Counter,
    pub rows_resent: Counter,
    pub rows_given_up: Counter,
    pub frames_bad: Family<Why, Counter>,
    pub reads_paused: Counter,
    pub outbox_bytes: Gauge,
    pub refusals_unnoted: Counter,
    pub clock_steps: Family<Why, Counter>,
    pub sockets_open: Gauge,
    pub sockets_refused: Family<Why, Counter>,
    pub sockets_closed: Family<Why, Counter>,
    pub actions: Family<ActionLabels, Counter>,
    pub actions_delayed: Counter,
    pub actions_superseded: Counter,
    pub wakes: Family<Why, Counter>,
    pub notices: Counter,
    pub interrupts: Counter,
    pub interrupts_dropped: Family<Why, Counter>,
    pub requests_refused: Family<Why, Counter>,
    /// Their handlers ran to the end without a client.
    pub requests_abandoned: Counter,
    pub connections_refused: Family<Why, Counter>,
    pub store_faults: Counter,
    pub media_fetches: Family<Why, Counter>,
    pub command_lists: Family<Why, Counter>,
    pub listener_gaps: Counter,
    pub fragments_refused: Counter,
    pub listener_ends: Family<Why, Counter>,
    /// Only of those that fail now.
    pub listeners_failing: Family<ListenerLabels, Gauge>,
    pub alarms_armed: Gauge,
    pub alarm_lateness: Lateness,
    pub alarm_tries: Family<Why, Counter>,
    pub alarms_ended: Family<Why, Counter>,
}

impl Meters {
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
