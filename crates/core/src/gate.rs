//! The gate: which instances may have an event, and for everyone considered, why or why not.
//!
//! It only ever narrows and it fails closed. Today it knows the owner layer: an author's own
//! instance gets the event, and an author whom nobody linked reaches nobody.

use std::sync::Arc;

use frontdesk_wire::Source;
use frontdesk_wire::api::{Considered, VerdictBrief};

use crate::registry::View;
use crate::registry::facts::Instance;

#[derive(Debug, Default)]
pub struct Verdict {
    pub receivers: Vec<Arc<Instance>>,
    pub lines: Vec<Line>,
}

/// One instance that was considered (or nobody, with an empty name) and the rule that decided.
/// Kept with every event, so it is short; the words are made when somebody asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub instance: String,
    pub delivered: bool,
    pub layer: &'static str,
    pub rule: &'static str,
    pub value: String,
}

impl Verdict {
    pub fn outcome(&self) -> &'static str {
        if self.receivers.is_empty() { "withheld" } else { "delivered" }
    }

    pub fn brief(&self, tenant: &str, platform: &str) -> VerdictBrief {
        let text = self.lines.first().map_or_else(String::new, |line| {
            words(tenant, platform, &line.instance, line.layer, line.rule, &line.value)
        });
        VerdictBrief { outcome: self.outcome().into(), text }
    }

    /// The form in which it is kept.
    pub fn kept(&self, outcome: &str, platform: &str) -> String {
        let row = |line: &Line| (line.instance.clone(), line.delivered, line.layer, line.rule, line.value.clone());
        let rows: Vec<_> = self.lines.iter().map(row).collect();
        serde_json::to_string(&(outcome, platform, rows)).unwrap_or_default()
    }

    fn withhold(layer: &'static str, rule: &'static str, value: &str) -> Self {
        let line = Line { instance: String::new(), delivered: false, layer, rule, value: value.into() };
        Self { receivers: Vec::new(), lines: vec![line] }
    }
}

/// Reads back what was kept: the outcome, and every line in words.
pub fn read_kept(kept: &str, tenant: &str) -> Option<(String, Vec<Considered>)> {
    type Row = (String, bool, String, String, String);
    let (outcome, platform, rows): (String, String, Vec<Row>) = serde_json::from_str(kept).ok()?;
    let line = |(instance, delivered, layer, rule, value): Row| Considered {
        text: words(tenant, &platform, &instance, &layer, &rule, &value),
        outcome: if delivered { "delivered".into() } else { "withheld".into() },
        instance,
        layer,
        rule,
        value,
    };
    Some((outcome, rows.into_iter().map(line).collect()))
}

/// Why, for people.
fn words(tenant: &str, platform: &str, instance: &str, layer: &str, rule: &str, value: &str) -> String {
    match (layer, rule) {
        ("tenant", "known") => format!("no tenant is called {value:?}"),
        ("owner", "author") => "the event names no author".into(),
        ("owner", "linked") if instance.is_empty() => format!(
            "{value:?} on {platform} is not linked to any agent of this tenant; link with \
             `frontdesk bind {platform} {value} --tenant {tenant} --instance NAME`"
        ),
        ("owner", "linked") => format!("{value:?} is linked to {instance:?}"),
        ("owner", "instance") => format!("the author is linked to {value:?}, which does not exist (yet)"),
        _ => format!("{layer}: {rule} ({value})"),
    }
}

pub fn judge(view: &View, tenant: &str, source: &Source) -> Verdict {
    if !view.tenants.contains_key(tenant) {
        return Verdict::withhold("tenant", "known", tenant);
    }
    let Some(user_id) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
        return Verdict::withhold("owner", "author", "");
    };
    // Several links of one person: the latest. (`dm-default` and scope grants refine this.)
    let Some(link) = view.links(tenant, &source.platform, user_id).last() else {
        return Verdict::withhold("owner", "linked", user_id);
    };
    let Some(instance) = view.instance(tenant, &link.instance) else {
        return Verdict::withhold("owner", "instance", &link.instance);
    };
    let line = Line {
        instance: instance.name.clone(),
        delivered: true,
        layer: "owner",
        rule: "linked",
        value: user_id.into(),
    };
    Verdict { receivers: vec![instance.clone()], lines: vec![line] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::facts::{Binding, Fact, Tenant};

    fn view() -> View {
        let mut view = View::default();
        view.apply(Fact::Tenant(Tenant { name: "acme".into(), created_ms: 0, notices: true }), 1);
        let instance = |no, name: &str| Instance { no, tenant: "acme".into(), name: name.into(), wake_url: None };
        view.apply(Fact::Instance(instance(1, "old")), 1);
        view.apply(Fact::Instance(instance(2, "new")), 1);
        let link = |user: &str, to: &str, at_ms| {
            Fact::Binding(Binding {
                tenant: "acme".into(),
                platform: "relay".into(),
                user_id: user.into(),
                instance: to.into(),
                at_ms,
            })
        };
        view.apply(link("ann", "new", 2), 1);
        view.apply(link("ann", "old", 1), 1);
        view.apply(link("bob", "ghost", 1), 1);
        view
    }

    fn source(user: Option<&str>) -> Source {
        Source { platform: "relay".into(), user_id: user.map(str::to_owned), ..Source::default() }
    }

    #[test]
    fn the_latest_link_of_the_author_gets_it() {
        let verdict = judge(&view(), "acme", &source(Some("ann")));
        assert_eq!(verdict.receivers.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["new"]);
        assert_eq!(verdict.brief("acme", "relay").text, "\"ann\" is linked to \"new\"");
    }

    #[test]
    fn everyone_else_is_withheld_with_a_reason_that_can_be_read_back() {
        for (tenant, user, layer, rule) in [
            ("nobody", Some("ann"), "tenant", "known"),
            ("acme", None, "owner", "author"),
            ("acme", Some(""), "owner", "author"),
            ("acme", Some("eve"), "owner", "linked"),
            ("acme", Some("bob"), "owner", "instance"),
        ] {
            let verdict = judge(&view(), tenant, &source(user));
            assert!(verdict.receivers.is_empty());
            let (outcome, lines) = read_kept(&verdict.kept(verdict.outcome(), "relay"), tenant).expect("readable");
            assert_eq!((outcome.as_str(), lines[0].layer.as_str(), lines[0].rule.as_str()), ("withheld", layer, rule));
            assert_eq!(lines[0].text, verdict.brief(tenant, "relay").text);
            assert!(!lines[0].text.is_empty());
        }
    }

    #[test]
    fn a_link_on_another_platform_or_tenant_does_not_count() {
        let elsewhere = Source { platform: "other".into(), ..source(Some("ann")) };
        assert!(judge(&view(), "acme", &elsewhere).receivers.is_empty());
    }
}
