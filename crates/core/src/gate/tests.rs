//! Truth tables per layer.

use frontdesk_wire::{InstanceNo, TenantId, UserId};

use crate::directory::{ChatLocation, tenant_of};
use frontdesk_wire::api::RelevancePolicy;

use super::*;
use crate::directory::facts::{DmDefault, Fact, Policy, Principal, Route, Tenant};

const TENANT: &str = "acme";
const PLATFORM: &str = "chat";

/// Users who do not see everything.
type Blind = &'static [(&'static str, Option<bool>)];

fn link(user: &str, instance: &str, at_ms: u64) -> Fact {
    let [platform, user_id] = [PLATFORM, user].map(str::to_owned);
    Fact::Binding(Binding {
        tenant: TENANT.into(),
        platform,
        user_id: user_id.into(),
        instance: instance.into(),
        at_ms,
        since_ms: at_ms,
    })
}

fn grant(scope: &str, channel: &str, instance: &str) -> Fact {
    let [platform, scope, channel] = [PLATFORM, scope, channel].map(str::to_owned);
    Fact::Grant(Grant {
        tenant: TENANT.into(),
        platform,
        scope,
        channel: channel.into(),
        instance: instance.into(),
        at_ms: 1,
    })
}

fn principal(instance: &str, policy: PrincipalPolicy, allow: &[&str]) -> Fact {
    let allow = allow.iter().map(|it| UserId::from(*it)).collect();
    Fact::Principal(Principal { tenant: TENANT.into(), instance: instance.into(), policy, allow })
}

fn policy(instance: &str, require_address: bool, free: &[&str], allow_other_bots: bool) -> Fact {
    let policy = RelevancePolicy {
        platform: PLATFORM.into(),
        require_address,
        free_response_scopes: free.iter().map(|it| (*it).to_owned()).collect(),
        allow_other_bots,
    };
    Fact::Policy(Policy { tenant: TENANT.into(), instance: instance.into(), policy })
}

/// Ann's agent is `a`, Bob's is `b`, the team's is `team`, which Tia set up.
fn world(more: impl IntoIterator<Item = Fact>) -> View {
    let mut view = View::default();
    view.apply(Fact::Tenant(Tenant { name: TENANT.into(), created_ms: 0, notices: true }), 1);
    for (no, name) in [(1, "a"), (2, "b"), (3, "team")] {
        let (tenant, name) = (TENANT.into(), name.into());
        view.apply(Fact::Instance(Instance { no: InstanceNo(no), tenant, name, wake_url: None, left_ms: None }), 1);
    }
    for fact in [link("ann", "a", 1), link("bob", "b", 2), link("tia", "team", 3)].into_iter().chain(more) {
        view.apply(fact, 1);
    }
    view
}

fn said_by(user: &str, chat_type: &str) -> Source {
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: "general".into(),
        chat_type: chat_type.into(),
        user_id: Some(user.into()),
        ..Source::default()
    };
    source.set_scope(Some("guild".into()));
    source
}

/// Decides like the server, where all users see everything except those named.
fn ruled(view: &View, source: &Source, addressed: bool, blind: &[(&str, Option<bool>)]) -> Verdict {
    let input = GateInput { tenant: &TenantId::from(TENANT), source, addressed, to_every_link: false };
    let mut known = KnownVisibility::default();
    loop {
        match evaluate(view, &input, &known) {
            Decision::Verdict(verdict) => return verdict,
            Decision::Ask(viewers) => {
                for viewer in viewers {
                    let sees = blind.iter().find(|(who, _)| *who == viewer).map_or(Some(true), |(_, sees)| *sees);
                    known.note(viewer, sees);
                }
            }
        }
    }
}

/// `a+ b-principal/policy`: which instances were considered, and which rule decided.
fn summary(verdict: &Verdict) -> String {
    let line = |line: &VerdictLine| {
        let name = line.instance.as_ref().map_or("nobody", |it| it.name.as_str());
        match line.delivered {
            true => format!("{name}+"),
            false => format!("{name}-{}/{}", line.layer.name(), line.rule),
        }
    };
    verdict.lines.iter().map(line).collect::<Vec<_>>().join(" ")
}

fn decision(view: &View, source: &Source) -> String {
    summary(&ruled(view, source, false, &[]))
}

#[test]
fn users_reach_their_own_agent_and_strangers_none() {
    let view = world([]);
    for chat_type in ["dm", "group", "channel", "thread", "forum"] {
        assert_eq!(decision(&view, &said_by("ann", chat_type)), "a+");
        assert_eq!(decision(&view, &said_by("bob", chat_type)), "b+");
        assert_eq!(decision(&view, &said_by("eve", chat_type)), "nobody-owner/linked");
    }
    assert_eq!(decision(&view, &Source { user_id: None, ..said_by("", "dm") }), "nobody-owner/author");
    assert_eq!(decision(&view, &said_by("", "dm")), "nobody-owner/author");
    assert_eq!(decision(&view, &Source { platform: "other".into(), ..said_by("ann", "dm") }), "nobody-owner/linked");
    let source = said_by("ann", "dm");
    let Decision::Verdict(verdict) = evaluate(
        &view,
        &GateInput { tenant: &"other".into(), source: &source, addressed: true, to_every_link: false },
        &KnownVisibility::default(),
    ) else {
        panic!("an unknown tenant needs nobody's eyes")
    };
    assert_eq!(summary(&verdict), "nobody-tenant/known");
    let view = world([link("gus", "ghost", 9)]);
    assert_eq!(decision(&view, &said_by("gus", "dm")), "nobody-owner/instance");
}

#[test]
fn an_instance_open_to_any_gets_nothing_of_unlinked_authors() {
    let view = world([grant("guild", "general", "team"), principal("team", PrincipalPolicy::Any, &[])]);
    assert_eq!(decision(&view, &said_by("eve", "group")), "nobody-owner/linked");
}

#[test]
fn several_links_the_channels_holder_then_the_dm_default_then_the_latest() {
    let dm_default = |to: &str| {
        let [platform, user_id] = [PLATFORM, "ann"].map(str::to_owned);
        Fact::DmDefault(DmDefault {
            tenant: TENANT.into(),
            platform,
            user_id: user_id.into(),
            instance: to.into(),
            at_ms: 9,
        })
    };
    let (dm, group) = (said_by("ann", "dm"), said_by("ann", "group"));
    let view = world([link("ann", "b", 5)]);
    assert_eq!(
        (decision(&view, &dm), decision(&view, &group)),
        ("b+ a-owner/latest".into(), "b+ a-owner/latest".into())
    );
    let view = world([link("ann", "b", 5), dm_default("a")]);
    assert_eq!(
        (decision(&view, &dm), decision(&view, &group)),
        ("a+ b-owner/dm-default".into(), "a+ b-owner/dm-default".into())
    );
    let view = world([link("ann", "b", 5), dm_default("a"), grant("guild", "general", "b")]);
    assert_eq!(
        (decision(&view, &dm), decision(&view, &group)),
        ("a+ b-owner/dm-default".into(), "b+ a-owner/granted".into())
    );
    // A DM default for an instance to which they are no longer linked is ignored.
    let view = world([link("ann", "b", 5), dm_default("team")]);
    assert_eq!(decision(&view, &dm), "b+ a-owner/latest");
}

#[test]
fn the_grant_is_of_one_scope_and_channel_and_a_thread_inherits_it() {
    let any = || principal("team", PrincipalPolicy::Any, &[]);
    let view = world([grant("guild", "general", "team"), any()]);
    let here = said_by("ann", "group");
    assert_eq!(decision(&view, &here), "a+ team+");
    assert_eq!(decision(&view, &Source { chat_id: "other".into(), ..here.clone() }), "a+");
    let mut elsewhere = here.clone();
    elsewhere.set_scope(Some("guild2".into()));
    assert_eq!(decision(&view, &elsewhere), "a+");
    elsewhere.set_scope(None);
    assert_eq!(decision(&view, &elsewhere), "a+");
    let thread = Source {
        chat_id: "t1".into(),
        chat_type: "thread".into(),
        parent_chat_id: Some("general".into()),
        ..here.clone()
    };
    assert_eq!(decision(&view, &thread), "a+ team+");
    assert_eq!(decision(&view, &Source { thread_id: Some("t2".into()), ..here.clone() }), "a+ team+");
    assert_eq!(decision(&view, &Source { parent_chat_id: Some("other".into()), ..thread }), "a+");
    // Grants do not apply to direct messages, whatever the id.
    assert_eq!(decision(&view, &said_by("ann", "dm")), "a+");
    // A platform without scopes.
    let view = world([grant("", "general", "team"), any()]);
    assert_eq!(decision(&view, &elsewhere), "a+ team+");
}

#[test]
fn the_principal_policy_filters_authors() {
    type Set = Option<(PrincipalPolicy, &'static [&'static str])>;
    let table: [(Set, &str, &str); 7] = [
        (None, "ann", "a+ team-principal/policy"),
        (None, "tia", "team+"),
        (Some((PrincipalPolicy::OwnerOnly, &["ann"])), "ann", "a+ team-principal/policy"),
        (Some((PrincipalPolicy::AllowList, &["ann"])), "ann", "a+ team+"),
        (Some((PrincipalPolicy::AllowList, &["ann"])), "bob", "b+ team-principal/policy"),
        (Some((PrincipalPolicy::AllowList, &[])), "tia", "team+"),
        (Some((PrincipalPolicy::Any, &[])), "bob", "b+ team+"),
    ];
    for (set, author, expected) in table {
        let set = set.map(|(policy, allow)| principal("team", policy, allow));
        let view = world([grant("guild", "general", "team")].into_iter().chain(set));
        assert_eq!(decision(&view, &said_by(author, "group")), expected, "{author}");
    }
}

#[test]
fn visibility_applies_to_the_owner_too_and_unknown_is_no() {
    let view = world([grant("guild", "general", "team"), principal("team", PrincipalPolicy::Any, &[])]);
    let source = said_by("ann", "group");
    let table: [(Blind, &str); 5] = [
        (&[], "a+ team+"),
        (&[("tia", Some(false))], "a+ team-visibility/can_see"),
        (&[("tia", None)], "a+ team-visibility/unknown"),
        (&[("ann", Some(false))], "a-visibility/can_see team+"),
        (&[("ann", None), ("tia", None)], "a-visibility/unknown team-visibility/unknown"),
    ];
    for (blind, expected) in table {
        assert_eq!(summary(&ruled(&view, &source, true, blind)), expected);
    }
    // The owner is the user who was linked first; later links of others change nothing.
    let later = [link("una", "team", 1000)];
    let view = world(
        [grant("guild", "general", "team"), principal("team", PrincipalPolicy::Any, &[])].into_iter().chain(later),
    );
    assert_eq!(summary(&ruled(&view, &source, true, &[("una", Some(false))])), "a+ team+");
    // An instance without linked users has no owner whose visibility counts.
    let mut view = world([grant("guild", "general", "team"), principal("team", PrincipalPolicy::Any, &[])]);
    view.forget("binding", &link("tia", "team", 3).key());
    assert_eq!(summary(&ruled(&view, &source, true, &[])), "a+ team-visibility/owner");
}

#[test]
fn relevance_applies_to_others_and_never_to_the_owner() {
    // require, free, bots; author is a bot, addressed; expected of the holder
    let table = [
        (None, false, false, "team+"),
        (None, true, false, "team-relevance/allowOtherBots"),
        (None, true, true, "team-relevance/allowOtherBots"),
        (Some((false, "", false)), false, false, "team+"),
        (Some((true, "", false)), false, false, "team-relevance/requireAddress"),
        (Some((true, "", false)), false, true, "team+"),
        (Some((true, "general", false)), false, false, "team+"),
        (Some((true, "*", false)), false, false, "team+"),
        (Some((true, "other", false)), false, false, "team-relevance/requireAddress"),
        (Some((true, "guild", false)), false, false, "team-relevance/requireAddress"),
        (Some((false, "", true)), true, false, "team+"),
        (Some((true, "", true)), true, false, "team-relevance/requireAddress"),
        (Some((true, "", true)), true, true, "team+"),
        (Some((true, "", false)), true, true, "team-relevance/allowOtherBots"),
    ];
    for (set, is_bot, addressed, expected) in table {
        let set = set.map(|(require, free, bots)| {
            let free: &[&str] = if free.is_empty() { &[] } else { &[free] };
            policy("team", require, free, bots)
        });
        let any = principal("team", PrincipalPolicy::Any, &[]);
        // Ann's own agent has the strictest policy and still gets her messages.
        let strict = policy("a", true, &[], false);
        let view = world([grant("guild", "general", "team"), any, strict].into_iter().chain(set));
        let source = Source { is_bot, ..said_by("ann", "group") };
        assert_eq!(summary(&ruled(&view, &source, addressed, &[])), format!("a+ {expected}"));
    }
}

#[test]
fn a_free_scope_counts_for_the_threads_in_it_and_for_one_thread_alone() {
    let thread = Source {
        chat_id: "t1".into(),
        chat_type: "thread".into(),
        parent_chat_id: Some("general".into()),
        ..said_by("ann", "thread")
    };
    for (free, expected) in [("general", "a+ team+"), ("t1", "a+ team+"), ("t2", "a+ team-relevance/requireAddress")] {
        let any = principal("team", PrincipalPolicy::Any, &[]);
        let view = world([grant("guild", "general", "team"), any, policy("team", true, &[free], false)]);
        assert_eq!(decision(&view, &thread), expected, "{free}");
    }
}

#[test]
fn an_edit_is_decided_like_the_message() {
    let any = principal("team", PrincipalPolicy::Any, &[]);
    let view = world([grant("guild", "general", "team"), any, policy("team", true, &[], false)]);
    let edit = Source { message_is_edit: true, ..said_by("ann", "group") };
    assert_eq!(summary(&ruled(&view, &edit, false, &[])), "a+ team-relevance/requireAddress");
    assert_eq!(summary(&ruled(&view, &edit, true, &[])), "a+ team+");
}

#[test]
fn the_tenant_comes_from_the_place_of_the_event() {
    let mut view = world([]);
    let route = |key: &str, tenant: &str| {
        Fact::Route(Route { platform: PLATFORM.into(), key: key.into(), tenant: tenant.into() })
    };
    view.apply(route("guild", "acme"), 1);
    view.apply(route("chat9", "other"), 1);
    let tenant = |view: &View, source: &Source| tenant_of(view, PLATFORM, &ChatLocation::of(source)).cloned();
    let mut source = said_by("eve", "group");
    assert_eq!(tenant(&view, &source).as_deref(), Some("acme"));
    source.set_scope(Some("guild2".into()));
    assert_eq!(tenant(&view, &source), None, "a guild of no tenant");
    source.chat_id = "chat9".into();
    assert_eq!(tenant(&view, &source).as_deref(), Some("other"));
    let thread = Source { chat_id: "t".into(), parent_chat_id: Some("chat9".into()), ..source.clone() };
    assert_eq!(tenant(&view, &thread).as_deref(), Some("other"));
    // A direct message belongs to the tenant in which the user is linked.
    let dm = |user: &str| Source { scope_id: None, guild_id: None, ..said_by(user, "dm") };
    assert_eq!(tenant(&view, &dm("ann")).as_deref(), Some("acme"));
    assert_eq!(tenant(&view, &dm("eve")), None);
    let group = Source { chat_type: "group".into(), ..dm("ann") };
    assert_eq!(tenant(&view, &group), None, "in groups the author does not determine the tenant");
    // Linked in two tenants: the newest link, unless they chose.
    let linked = |tenant: &str, at_ms| {
        let [platform, user_id] = [PLATFORM, "ann"].map(str::to_owned);
        Fact::Binding(Binding {
            tenant: tenant.into(),
            platform,
            user_id: user_id.into(),
            instance: "x".into(),
            at_ms,
            since_ms: at_ms,
        })
    };
    view.apply(linked("other", 50), 1);
    assert_eq!(tenant(&view, &dm("ann")).as_deref(), Some("other"));
    let [platform, user_id] = [PLATFORM, "ann"].map(str::to_owned);
    view.apply(
        Fact::DmDefault(DmDefault {
            tenant: TENANT.into(),
            platform,
            user_id: user_id.into(),
            instance: "a".into(),
            at_ms: 9,
        }),
        1,
    );
    assert_eq!(tenant(&view, &dm("ann")).as_deref(), Some("acme"));
}

#[test]
fn stored_lines_are_explained_in_words() {
    let any = principal("team", PrincipalPolicy::Any, &[]);
    let view = world([grant("guild", "general", "team"), any, policy("team", true, &[], false), link("ann", "b", 0)]);
    let verdict = ruled(&view, &said_by("ann", "group"), false, &[]);
    let read =
        read_verdict(&verdict.to_stored(verdict.outcome(), PLATFORM), &TenantId::from(TENANT)).expect("readable");
    assert_eq!(read.outcome, "delivered");
    let texts: Vec<&str> = read.instances.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "\"ann\" is linked to \"a\"",
            "the author is linked to \"b\" too, but \"a\" is the latest link",
            "the bot was not addressed, and \"team\" requires that here",
        ]
    );
    assert_eq!(verdict.brief(&TenantId::from(TENANT), PLATFORM).text, texts[0]);
    for layer in ["tenant", "owner", "scope", "principal", "visibility", "relevance"] {
        let all = [Layer::Tenant, Layer::Owner, Layer::Scope, Layer::Principal, Layer::Visibility, Layer::Relevance];
        assert!(all.iter().any(|known| known.name() == layer));
    }
}

#[test]
fn an_instance_sees_only_its_own_line() {
    let view = world([link("ann", "b", 0)]);
    let verdict = ruled(&view, &said_by("ann", "group"), false, &[]);
    let read =
        || read_verdict(&verdict.to_stored(verdict.outcome(), PLATFORM), &TenantId::from(TENANT)).expect("readable");
    let own = read().for_instance(&"a".into());
    assert_eq!((own.outcome.as_str(), own.layer.as_str()), ("delivered", "owner"));
    let other = read().for_instance(&"b".into());
    assert_eq!((other.outcome.as_str(), other.rule.as_str(), other.value.as_str()), ("withheld", "latest", ""));
    assert!(!other.text.contains("\"a\""), "{}", other.text);
    let third = read().for_instance(&"team".into());
    assert_eq!((third.layer.as_str(), third.rule.as_str(), third.value.as_str()), ("scope", "granted", ""));
    assert!(!third.text.contains("\"ann\""));
    let nobody = ruled(&view, &said_by("eve", "group"), false, &[]);
    let nobody = read_verdict(&nobody.to_stored("withheld", PLATFORM), &TenantId::from(TENANT))
        .expect("readable")
        .for_instance(&"team".into());
    assert_eq!((nobody.layer.as_str(), nobody.rule.as_str(), nobody.value.as_str()), ("owner", "linked", ""));
    assert!(!nobody.text.contains("\"eve\""));
}
