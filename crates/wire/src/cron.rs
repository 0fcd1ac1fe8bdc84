//! Bodies of the cron API: an agent arms one alarm per job, and the server calls the agent.

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceId, JobId};

/// `agent_callback_url` of an agent without an address: it is called through its own relay socket.
pub const BY_RELAY: &str = "relay:";
/// Value of the `purpose` claim in the token of an alarm call.
pub const PURPOSE: &str = "cron_fire";

/// Signature algorithm of the tokens in alarm calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlg {
    ES256,
    RS256,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ProvisionAlarm {
    pub job_id: JobId,
    /// ISO 8601 with an offset; stored and returned unchanged.
    pub fire_at: String,
    pub agent_callback_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<Misfire>,
}

/// What happens to an alarm that could not be fired in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Misfire {
    /// How long a refused call is retried, and how late a first call may be before it counts as missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u64>,
    #[serde(default)]
    pub on_miss: OnMiss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMiss {
    /// Late calls are made.
    #[default]
    Fire,
    /// Calls that are too late are skipped and recorded.
    Skip,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Provisioned {
    pub schedule_id: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct CancelAlarm {
    pub job_id: JobId,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ArmedAlarms {
    pub armed: Vec<ArmedAlarm>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ArmedAlarm {
    pub job_id: JobId,
    pub fire_at: String,
    pub schedule_id: String,
}

/// The body of `/api/cron/fire`; the token is in a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct FireBody {
    pub job_id: JobId,
    #[serde(default)]
    pub fire_at: String,
}

/// Call of an external scheduler: an alarm is due.
#[derive(Debug, Deserialize, Serialize)]
pub struct RelayBody {
    pub agent_id: InstanceId,
    pub job_id: JobId,
    pub fire_at: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct AlarmHistory {
    pub history: Vec<PastAlarm>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct PastAlarm {
    pub id: u64,
    pub job_id: JobId,
    pub fire_at: String,
    pub schedule_id: String,
    /// fired, dead, skipped, cancelled, replaced
    pub outcome: String,
    pub attempts: u32,
    pub at: u64,
    pub note: String,
}
