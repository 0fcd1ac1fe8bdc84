//! The gate against its reference: a million events in worlds that change under them, no difference.
//!
//! A failure names the seed of its world; `FRONTDESK_GATE_SEED=<seed>` runs that world alone.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use frontdesk_core::directory::View;
use frontdesk_core::directory::{ChatLocation, tenant_of};
use frontdesk_core::gate::{self, Decision, GateInput, KnownVisibility, Layer, Verdict, read_verdict};
use frontdesk_testkit::world::reference::{self, Found, Line};
use frontdesk_testkit::world::{Dice, Event, World};
use frontdesk_wire::{InstanceNo, TenantId, UserId};

const EVENTS: u64 = 1_000_000;
const EVENTS_PER_WORLD: u64 = 500;
const THREADS: u64 = 2;
/// The world changes a little after so many events.
const BATCH: u64 = 20;
const CHANGES: usize = 3;
/// These cost more than the judging, and say the same of most events: not every one is asked.
const KEPT_EACH: u64 = 4;
const NARROWED_EACH: u64 = 2;
/// Below this many of a million something has stopped being tried.
const OFTEN: u64 = 1_000;
const SEED_ENV: &str = "FRONTDESK_GATE_SEED";

/// Every way in which the gate decides: delivered, layer, rule.
const DECISIONS: [(bool, &str, &str); 16] = [
    (true, "owner", "linked"),
    (true, "scope", "granted"),
    (false, "tenant", "route"),
    (false, "tenant", "known"),
    (false, "owner", "author"),
    (false, "owner", "linked"),
    (false, "owner", "instance"),
    (false, "owner", "granted"),
    (false, "owner", "dm-default"),
    (false, "owner", "latest"),
    (false, "principal", "policy"),
    (false, "visibility", "owner"),
    (false, "visibility", "can_see"),
    (false, "visibility", "unknown"),
    (false, "relevance", "allowOtherBots"),
    (false, "relevance", "requireAddress"),
];

/// Ways that end in the same decision and must all be walked.
const WAYS: [&str; 19] = [
    "tenant by credential",
    "tenant by scope",
    "tenant by chat",
    "tenant by parent",
    "tenant by dm-default",
    "tenant by latest",
    "holder without principal",
    "holder owner-only",
    "holder allow-list",
    "holder any",
    "engaged without policy",
    "engaged, no address required",
    "engaged, addressed",
    "engaged, free everywhere",
    "engaged, free chat",
    "engaged, free channel",
    "engaged, a bot",
    "stored and read back",
    "narrowed by an answer less",
];

#[derive(Default)]
struct Tally {
    events: u64,
    decisions: BTreeMap<(bool, &'static str, &'static str), u64>,
    ways: BTreeMap<String, u64>,
}

impl Tally {
    fn way(&mut self, name: impl Into<String>) {
        *self.ways.entry(name.into()).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        self.events += other.events;
        for (key, count) in other.decisions {
            *self.decisions.entry(key).or_default() += count;
        }
        for (key, count) in other.ways {
            *self.ways.entry(key).or_default() += count;
        }
    }
}

#[test]
fn the_gate_agrees_with_its_reference_a_million_times() {
    if let Ok(seed) = std::env::var(SEED_ENV) {
        return drop(live_through(seed.parse().expect("a seed is a number")));
    }
    let worlds = EVENTS / EVENTS_PER_WORLD;
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let run = |from: u64| {
            let mut part = Tally::default();
            for seed in (from..worlds).step_by(usize::try_from(THREADS).unwrap()) {
                part.add(live_through(seed));
            }
            part
        };
        let threads: Vec<_> = (0..THREADS).map(|from| scope.spawn(move || run(from))).collect();
        for thread in threads {
            tally.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    println!("{} events in {worlds} worlds", tally.events);
    for ((delivered, layer, rule), count) in &tally.decisions {
        println!("{count:>9}  {} {layer}/{rule}", if *delivered { "delivered" } else { "withheld " });
    }
    for (way, count) in &tally.ways {
        println!("{count:>9}  {way}");
    }
    assert_eq!(tally.events, EVENTS);
    for decision in DECISIONS {
        let count = tally.decisions.get(&decision).copied().unwrap_or(0);
        assert!(count >= OFTEN, "{decision:?} only {count} times");
    }
    let unknown: Vec<_> = tally.decisions.keys().filter(|key| !DECISIONS.contains(key)).collect();
    assert!(unknown.is_empty(), "decisions that nobody expects: {unknown:?}");
    for way in WAYS {
        let count = tally.ways.get(way).copied().unwrap_or(0);
        assert!(count >= OFTEN, "{way:?} only {count} times");
    }
}

/// One world from its making through all its changes.
fn live_through(seed: u64) -> Tally {
    let mut world = World::generate(seed);
    let mut dice = Dice::new(!seed);
    let mut view = View::default();
    let mut facts = world.facts();
    dice.shuffle(&mut facts);
    let mut version = 0;
    for fact in facts {
        version += 1;
        view.apply(fact, version);
    }
    let mut tally = Tally::default();
    for number in 0..EVENTS_PER_WORLD {
        if number % BATCH == BATCH - 1 {
            for change in (0..CHANGES).filter_map(|_| world.change(&mut dice)) {
                version += 1;
                change.tell(&mut view, version);
            }
        }
        let event = world.event(&mut dice);
        Trial { world: &world, view: &view, event: &event, number }.hold(&mut tally);
    }
    tally
}

/// One event before both.
struct Trial<'a> {
    world: &'a World,
    view: &'a View,
    event: &'a Event,
    number: u64,
}

/// What a platform said about one person.
type Answer = (UserId, Option<bool>);

impl Trial<'_> {
    fn hold(&self, tally: &mut Tally) {
        let found = reference::tenant_of(self.world, self.event);
        let tenant = found.as_ref().map(|found| found.tenant.as_str());
        self.same_tenant(tenant);
        let (verdict, answers) = match tenant {
            Some(tenant) => self.ruled(tenant),
            // The desk says this itself, before there is anything to ask the gate.
            None => (Verdict::withheld(Layer::Tenant, "route", self.place()), Vec::new()),
        };
        let expected = reference::evaluate(self.world, self.event);
        self.same_lines(&verdict, expected.clone());
        if let Some(tenant) = tenant {
            self.stays_in_the_tenant(&verdict, tenant);
        }
        if self.number.is_multiple_of(KEPT_EACH) {
            self.same_when_stored(&verdict, tenant.unwrap_or_default());
            tally.way("stored and read back");
        }
        if let Some(tenant) = tenant.filter(|_| self.number.is_multiple_of(NARROWED_EACH)) {
            let narrowed = self.narrows(&verdict, &answers, tenant);
            (0..narrowed).for_each(|_| tally.way("narrowed by an answer less"));
        }
        self.count(tally, found.as_ref(), &expected);
    }

    fn fail(&self, what: &str) -> ! {
        let (seed, number, event) = (self.world.seed, self.number, self.event);
        panic!("{what}\nevent {number} of the world of seed {seed} ({SEED_ENV}={seed} runs it alone): {event:#?}")
    }

    fn place(&self) -> String {
        let source = &self.event.source;
        source.scope_id.clone().unwrap_or_else(|| source.channel().to_string())
    }

    fn same_tenant(&self, expected: Option<&str>) {
        let source = &self.event.source;
        if self.event.tenant.is_some() {
            return;
        }
        let found = tenant_of(self.view, &source.platform, &ChatLocation::of(source)).map(TenantId::as_str);
        if found != expected {
            self.fail(&format!("the gate finds the tenant {found:?}, the reference {expected:?}"));
        }
    }

    fn evaluate(&self, tenant: &str, known: &KnownVisibility<'_>) -> Decision {
        gate::evaluate(
            self.view,
            &GateInput {
                tenant: &TenantId::from(tenant),
                source: &self.event.source,
                addressed: self.event.addressed,
                to_every_link: false,
            },
            known,
        )
    }

    /// As the desk asks: first without knowing anything, then with what the platform said.
    fn ruled(&self, tenant: &str) -> (Verdict, Vec<Answer>) {
        let source = &self.event.source;
        let viewers = match self.evaluate(tenant, &KnownVisibility::default()) {
            Decision::Verdict(verdict) => return (verdict, Vec::new()),
            Decision::Ask(viewers) => viewers,
        };
        let look = |viewer: UserId| {
            let sees = self.world.sees(tenant, &source.platform, &source.chat_id, &viewer);
            (viewer, sees)
        };
        let answers: Vec<Answer> = viewers.into_iter().map(look).collect();
        match self.evaluate(tenant, &known_of(&answers)) {
            Decision::Verdict(verdict) => (verdict, answers),
            Decision::Ask(viewers) => self.fail(&format!("asked {answers:?}, the gate still asks about {viewers:?}")),
        }
    }

    fn same_lines(&self, verdict: &Verdict, mut expected: Vec<Line>) {
        let mut lines: Vec<Line> = verdict.lines.iter().map(line).collect();
        lines.sort();
        expected.sort();
        if lines != expected {
            self.fail(&format!("the gate says {lines:#?}\nthe reference {expected:#?}"));
        }
    }

    /// Every tenant uses the same instance names; instance numbers are unique.
    fn stays_in_the_tenant(&self, verdict: &Verdict, tenant: &str) {
        for found in verdict.lines.iter().filter_map(|line| line.instance.as_ref()) {
            let own = self.world.instance(tenant, &found.name).is_some_and(|own| own.no == found.no);
            if !own || found.tenant != tenant {
                self.fail(&format!("an event of {tenant:?} is a matter of {found:?}"));
            }
        }
    }

    fn same_when_stored(&self, verdict: &Verdict, tenant: &str) {
        let stored = verdict.to_stored(verdict.outcome(), &self.event.source.platform);
        let read = read_verdict(&stored, &TenantId::from(tenant))
            .unwrap_or_else(|| self.fail(&format!("{stored} does not read back")));
        let delivered = verdict.receivers().next().is_some();
        let outcome = |delivered| if delivered { "delivered" } else { "withheld" };
        let same = read.instances.len() == verdict.lines.len()
            && read.outcome == outcome(delivered)
            && read.instances.iter().zip(&verdict.lines).all(|(read, line)| {
                let name = line.instance.as_ref().map_or("", |it| it.name.as_str());
                // What has no words of its own is told as its bare rule.
                let is_explained =
                    !read.text.is_empty() && !read.text.starts_with(&format!("{}: {}", read.layer, read.rule));
                let decided = (read.layer.as_str(), read.rule.as_str(), read.value.as_str());
                is_explained
                    && read.instance == name
                    && read.outcome == outcome(line.delivered)
                    && decided == (line.layer.name(), line.rule, &*line.value)
            });
        if !same {
            self.fail(&format!("stored as {stored}, it reads back as {read:#?}"));
        }
    }

    /// Less knowledge delivers to no more instances: each answer is taken away, then all; no instance gets an event
    /// that it would not get if all users saw everything. Returns how often an instance did not get it any more.
    fn narrows(&self, verdict: &Verdict, answers: &[Answer], tenant: &str) -> usize {
        let before = receivers(verdict);
        let ask = |known: &KnownVisibility<'_>| match self.evaluate(tenant, known) {
            Decision::Verdict(verdict) => receivers(&verdict),
            Decision::Ask(viewers) => self.fail(&format!("with the same people known the gate asks for {viewers:?}")),
        };
        let mut narrowed = 0;
        for at in (0..answers.len()).filter(|at| answers[*at].1.is_some()) {
            let mut less = answers.to_vec();
            less[at].1 = None;
            let after = ask(&known_of(&less));
            if !after.is_subset(&before) {
                self.fail(&format!("{after:?} get it with {less:?}, but {before:?} with {answers:?}"));
            }
            narrowed += usize::from(after != before);
        }
        let blind: Vec<Answer> = answers.iter().map(|(viewer, _)| (viewer.clone(), None)).collect();
        if !ask(&known_of(&blind)).is_empty() {
            self.fail("somebody gets it although nobody is known to see the chat");
        }
        let seeing: Vec<Answer> = answers.iter().map(|(viewer, _)| (viewer.clone(), Some(true))).collect();
        if !before.is_subset(&ask(&known_of(&seeing))) {
            self.fail("somebody gets it who would not if everybody saw the chat");
        }
        narrowed
    }

    fn count(&self, tally: &mut Tally, found: Option<&Found>, lines: &[Line]) {
        tally.events += 1;
        for line in lines {
            *tally.decisions.entry((line.delivered, line.layer, line.rule)).or_default() += 1;
        }
        let Some(Found { tenant, by }) = found else { return };
        tally.way(format!("tenant by {by}"));
        let Some(holder) = lines.iter().find(|line| matches!(line.layer, "principal" | "scope")) else { return };
        let is_it = |of: &str, name: &str| of == tenant && Some(name) == holder.instance.as_deref();
        let principal = self.world.principals.iter().find(|it| is_it(&it.tenant, &it.instance));
        tally.way(principal.map_or("holder without principal".into(), |it| format!("holder {}", it.policy.name())));
        if !holder.delivered {
            return;
        }
        let source = &self.event.source;
        if source.is_bot {
            tally.way("engaged, a bot");
        }
        let policies = self.world.policies.iter().filter(|it| is_it(&it.tenant, &it.instance));
        let policy = policies.map(|it| &it.policy).find(|it| it.platform == source.platform);
        tally.way(match policy {
            None => "engaged without policy",
            Some(it) if !it.require_address => "engaged, no address required",
            Some(_) if self.event.addressed => "engaged, addressed",
            Some(it) if it.free_response_scopes.iter().any(|free| free == "*") => "engaged, free everywhere",
            Some(it) if it.free_response_scopes.contains(&source.chat_id.to_string()) => "engaged, free chat",
            Some(_) => "engaged, free channel",
        });
    }
}

fn known_of(answers: &[Answer]) -> KnownVisibility<'static> {
    let mut known = KnownVisibility::default();
    for (viewer, sees) in answers {
        known.note(viewer.clone(), *sees);
    }
    known
}

fn receivers(verdict: &Verdict) -> BTreeSet<InstanceNo> {
    verdict.receivers().map(|instance| instance.no).collect()
}

fn line(line: &gate::VerdictLine) -> Line {
    Line {
        instance: line.instance.as_ref().map(|it| it.name.to_string()),
        delivered: line.delivered,
        layer: line.layer.name(),
        rule: line.rule,
        value: line.value.clone().into_owned(),
    }
}
