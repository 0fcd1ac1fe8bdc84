//! Bodies of the time plane: an agent arms one shot per job, the desk fires it.

use serde::{Deserialize, Serialize};

/// `agent_callback_url` of an agent that has no address: the fire goes down its own relay socket.
pub const BY_RELAY: &str = "relay:";
/// What the fire's token says it is for.
pub const PURPOSE: &str = "cron_fire";

/// How the tokens of fires are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlg {
    ES256,
    RS256,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ProvisionShot {
    pub job_id: String,
    /// ISO 8601 with an offset; kept and returned byte for byte.
    pub fire_at: String,
    pub agent_callback_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<Misfire>,
}

/// What becomes of a shot that could not be fired in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Misfire {
    /// How long a refused fire is tried again, and how late a first try may be before it counts as missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u64>,
    #[serde(default)]
    pub on_miss: OnMiss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMiss {
    /// Late is better than never.
    #[default]
    Fire,
    /// Too late is noted and left out.
    Skip,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Provisioned {
    pub schedule_id: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct CancelShot {
    pub job_id: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ArmedShots {
    pub armed: Vec<ArmedShot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ArmedShot {
    pub job_id: String,
    pub fire_at: String,
    pub schedule_id: String,
}

/// What the agent gets at `/api/cron/fire`, beside the token.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct FireBody {
    pub job_id: String,
    #[serde(default)]
    pub fire_at: String,
}

/// An outside scheduler's word that a shot is due.
#[derive(Debug, Deserialize, Serialize)]
pub struct RelayBody {
    pub agent_id: String,
    pub job_id: String,
    pub fire_at: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ShotHistory {
    pub history: Vec<PastShot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct PastShot {
    pub id: u64,
    pub job_id: String,
    pub fire_at: String,
    pub schedule_id: String,
    /// fired, dead, skipped, cancelled, replaced
    pub outcome: String,
    pub attempts: u32,
    pub at: u64,
    pub note: String,
}
