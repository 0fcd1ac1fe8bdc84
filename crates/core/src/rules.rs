//! The settings that the rules of the planes depend on.

use frontdesk_wire::cron::SigningAlg;

use crate::port::store::Retention;

#[derive(Debug, Clone, Copy)]
pub struct WakeRules {
    pub cooldown_ms: u64,
    pub retry_max_ms: u64,
    pub notice_after_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Rules {
    pub window: usize,
    pub ack_limit_ms: u64,
    pub settle_ms: u64,
    pub frame_max_bytes: usize,
    /// Bytes that the sessions of one tenant have in memory. 0: no limit.
    pub flight_tenant_bytes: usize,
    pub wake: WakeRules,
    pub vault_ttl_ms: u64,
    pub media_ttl_ms: u64,
    pub media_max_bytes: usize,
    pub rotation_overlap_ms: u64,
    /// How long a code for `/link` is valid.
    pub link_ttl_ms: u64,
    /// How long a platform's answer on who can see a chat is cached.
    pub visibility_ttl_ms: u64,
    /// How long a refused fire is retried, unless its job says otherwise.
    pub misfire_grace_ms: u64,
    /// Fires are spread over this much time after their moment, so that not all are made at a full hour.
    pub fire_jitter_ms: u64,
    pub fire_alg: SigningAlg,
    /// The name of this server among others that share its store.
    pub desk_name: String,
    /// Our base URL as agents know it: the issuer of the tokens of fires.
    pub issuer: String,
    /// Registered agents of one tenant; they are held in memory. 0: no limit.
    pub agents_max: usize,
    /// Instances and gateways of one tenant, held in memory as well. 0: no limit.
    pub instances_max: usize,
    pub gateways_max: usize,
    /// Bytes of all records of one tenant in the directory. 0: no limit.
    pub directory_max_bytes: usize,
    /// Alarms that one tenant may have armed. 0: no limit.
    pub armed_max: u64,
    /// Bytes of files that are kept for one tenant. 0: no limit.
    pub media_tenant_bytes: u64,
    pub media_tenant_files: u64,
    /// Approved skills must be signed, unless a tenant has its own rule.
    pub skills_secured: bool,
    /// The public key for signatures of skills: Ed25519, PEM. Empty: no signature is valid.
    pub skills_public_key: String,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            window: 32,
            ack_limit_ms: 5_000,
            settle_ms: 3_000,
            frame_max_bytes: 1 << 20,
            flight_tenant_bytes: 256 << 20,
            wake: WakeRules { cooldown_ms: 30_000, retry_max_ms: 300_000, notice_after_ms: 120_000 },
            vault_ttl_ms: 900_000,
            media_ttl_ms: 3_600_000,
            media_max_bytes: 25 << 20,
            rotation_overlap_ms: 86_400_000,
            link_ttl_ms: 600_000,
            visibility_ttl_ms: 30_000,
            misfire_grace_ms: 86_400_000,
            fire_jitter_ms: 0,
            fire_alg: SigningAlg::ES256,
            desk_name: "desk".into(),
            issuer: String::new(),
            agents_max: 10_000,
            instances_max: 10_000,
            gateways_max: 10_000,
            directory_max_bytes: 32 << 20,
            armed_max: 100_000,
            media_tenant_bytes: 2 << 30,
            media_tenant_files: 100_000,
            skills_secured: false,
            skills_public_key: String::new(),
        }
    }
}

const DAY_MS: u64 = 86_400_000;

/// For how many days things are kept.
#[derive(Debug, Clone, Copy)]
pub struct RetentionDays {
    pub dedup: u64,
    pub explain: u64,
    /// For this and the following ones 0 means forever.
    pub inbox: u64,
    pub journal: u64,
    pub chat: u64,
    pub reach: u64,
}

impl RetentionDays {
    /// What may be deleted at this time.
    pub fn at(&self, now_ms: u64, media_ttl_ms: u64) -> Retention {
        let before = |days: u64| now_ms.saturating_sub(days.saturating_mul(DAY_MS));
        let or_never = |days: u64| if days == 0 { 0 } else { before(days) };
        Retention {
            now_ms,
            events_before_ms: before(self.dedup),
            verdicts_before_ms: before(self.explain),
            inbox_before_ms: or_never(self.inbox),
            journal_before_ms: or_never(self.journal),
            chat_before_ms: or_never(self.chat),
            reach_before_ms: or_never(self.reach),
            media_ttl_ms,
        }
    }
}
