//! `bench ingest --gate`: events per second of one core, with the verdict built and serialized.
//!
//! Events of one tenant with 1,000 instances and 10,000 links, beside 0, 99 and 9,999 other tenants. Half of its
//! channels are held by an instance with the principal policy `any`; a quarter of the events are direct messages; the
//! visibility cache is warm.

use std::hint::black_box;
use std::sync::RwLock;

use frontdesk_core::directory::View;
use frontdesk_core::directory::facts::{Binding, Fact, Grant, Instance, Policy, Principal, Tenant};
use frontdesk_core::gate::visibility::{Spot, VisibilityCache};
use frontdesk_core::gate::{self, Decision, GateInput, KnownVisibility, Sees};
use frontdesk_wire::api::{PrincipalPolicy, RelevancePolicy};
use frontdesk_wire::{BotId, InstanceId, InstanceNo, Source, TenantId, UserId};
use serde_json::{Value, json};

use super::report::{machine, median};

const PLATFORM: &str = "shared";
const INSTANCES: usize = 1_000;
const PEOPLE: usize = 10_000;
const CHANNELS: usize = 1_000;
/// Of each other tenant.
const OTHER_INSTANCES: usize = 2;
const OTHER_PEOPLE: usize = 20;
/// Different events, decided in turn.
const CASES: usize = 8_192;

pub(super) fn run(decisions: u64, rounds: usize) -> Value {
    let mut by_tenants = Vec::new();
    for tenants in [1, 100, 10_000] {
        let view = RwLock::new(world(tenants));
        let cases = cases();
        let cache = VisibilityCache::default();
        for (source, _) in &cases {
            remember(&cache, source);
        }
        let mut per_second = Vec::new();
        let mut delivered = 0;
        for round in 1..=rounds {
            #[allow(clippy::disallowed_methods)] // a bench measures by the steady clock
            let began = std::time::Instant::now();
            delivered = judge_all(&view, &cache, &cases, decisions);
            per_second.push((decisions as f64 / began.elapsed().as_secs_f64()).round());
            eprintln!("{tenants} tenants, round {round} of {rounds}: {} decisions/s", per_second[round - 1]);
        }
        by_tenants.push(json!({
            "tenants": tenants, "median": median(&per_second), "rounds": per_second,
            "delivered_per_decision": delivered as f64 / decisions as f64,
        }));
    }
    json!({
        "bench": "ingest --gate",
        "machine": machine(),
        "settings": { "instances": INSTANCES, "links": PEOPLE, "channels": CHANNELS, "decisions": decisions,
                      "rounds": rounds, "cores": 1, "verdict": "kept as JSON" },
        "decisions_per_s": by_tenants,
    })
}

/// As in the server: reads the directory, uses the visibility cache, and builds the stored verdict.
fn judge_all(view: &RwLock<View>, cache: &VisibilityCache, cases: &[(Source, bool)], decisions: u64) -> u64 {
    let (tenant, bot) = (TenantId::from("t0"), BotId::from("bot"));
    let mut delivered = 0;
    for (source, addressed) in cases.iter().cycle().take(decisions as usize) {
        let input = GateInput { tenant: &tenant, source, addressed: *addressed, to_every_link: false };
        let spot = Spot::new(&tenant, PLATFORM, &bot, &source.chat_id);
        let known = KnownVisibility::remembered(cache, spot, 0);
        let ruling = match view.read() {
            Ok(view) => gate::evaluate(&view, &input, &known),
            Err(_) => continue,
        };
        if let Decision::Verdict(verdict) = ruling {
            delivered += verdict.receivers().count() as u64;
            black_box(verdict.to_stored(verdict.outcome(), PLATFORM));
        }
    }
    delivered
}

fn remember(cache: &VisibilityCache, source: &Source) {
    let (tenant, bot) = (TenantId::from("t0"), BotId::from("bot"));
    let asked = cache.asked(Spot::new(&tenant, PLATFORM, &bot, &source.chat_id));
    let author = source.user_id.clone().unwrap_or_default();
    cache.keep(asked, &author, Sees::Yes, 0, u64::MAX);
    let channel: usize = source.channel().trim_start_matches('c').parse().unwrap_or(0);
    cache.keep(asked, &UserId::from(&owner_of(channel % INSTANCES)), Sees::Yes, 0, u64::MAX);
}

/// The first person linked to an instance.
fn owner_of(instance: usize) -> String {
    format!("u{instance}")
}

fn cases() -> Vec<(Source, bool)> {
    let mut dice: u64 = 1;
    let mut throw = |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % sides
    };
    let one = |_| {
        let (person, direct) = (throw(PEOPLE), throw(4) == 0);
        let chat_id = if direct { format!("dm{person}") } else { format!("c{}", throw(CHANNELS)) };
        let mut source = Source {
            platform: PLATFORM.into(),
            chat_id: chat_id.into(),
            chat_type: if direct { "dm".into() } else { "group".into() },
            user_id: Some(format!("u{person}").into()),
            ..Source::default()
        };
        source.set_scope(Some("g0".into()));
        (source, throw(2) == 0)
    };
    (0..CASES).map(one).collect()
}

fn world(tenants: usize) -> View {
    let mut view = View::default();
    let mut next_no = 0;
    for number in 0..tenants {
        let tenant = TenantId::from(format!("t{number}"));
        let (instances, people) = if number == 0 { (INSTANCES, PEOPLE) } else { (OTHER_INSTANCES, OTHER_PEOPLE) };
        let mut put = |fact| view.apply(fact, 1);
        put(Fact::Tenant(Tenant { name: tenant.clone(), created_ms: 0, notices: true }));
        for instance in 0..instances {
            next_no += 1;
            let name = InstanceId::from(format!("a{instance}"));
            put(Fact::Instance(Instance {
                no: InstanceNo(next_no),
                tenant: tenant.clone(),
                name: name.clone(),
                wake_url: None,
                left_ms: None,
            }));
            let any = PrincipalPolicy::Any;
            let (tenant, instance, allow) = (tenant.clone(), name.clone(), std::collections::BTreeSet::default());
            put(Fact::Principal(Principal { tenant: tenant.clone(), instance, policy: any, allow }));
            let policy =
                RelevancePolicy { platform: PLATFORM.into(), require_address: true, ..RelevancePolicy::default() };
            put(Fact::Policy(Policy { tenant, instance: name, policy }));
        }
        for person in 0..people {
            let (tenant, platform, user_id) = (tenant.clone(), PLATFORM.into(), format!("u{person}"));
            let (instance, at_ms) = (format!("a{}", person % instances), person as u64 + 1);
            put(Fact::Binding(Binding {
                tenant,
                platform,
                user_id: user_id.into(),
                instance: instance.into(),
                at_ms,
                since_ms: at_ms,
            }));
        }
        for channel in (0..CHANNELS.min(instances)).step_by(2) {
            let [platform, scope] = [PLATFORM, "g0"].map(str::to_owned);
            let (channel, instance) = (format!("c{channel}"), format!("a{}", channel % instances));
            put(Fact::Grant(Grant {
                tenant: tenant.clone(),
                platform,
                scope,
                channel: channel.into(),
                instance: instance.into(),
                at_ms: 1,
            }));
        }
    }
    view
}
