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
    pub considered: Vec<Considered>,
}

impl Verdict {
    pub fn outcome(&self) -> &'static str {
        if self.receivers.is_empty() { "withheld" } else { "delivered" }
    }

    pub fn brief(&self) -> VerdictBrief {
        let text = self.considered.first().map_or("nobody was considered", |first| first.text.as_str());
        VerdictBrief { outcome: self.outcome().into(), text: text.into() }
    }

    fn withhold(layer: &str, rule: &str, value: &str, text: String) -> Self {
        let line = Considered {
            instance: String::new(),
            outcome: "withheld".into(),
            layer: layer.into(),
            rule: rule.into(),
            value: value.into(),
            text,
        };
        Self { receivers: Vec::new(), considered: vec![line] }
    }
}

pub fn judge(view: &View, tenant: &str, source: &Source) -> Verdict {
    if !view.tenants.contains_key(tenant) {
        return Verdict::withhold("tenant", "known", tenant, format!("no tenant is called {tenant:?}"));
    }
    let Some(user_id) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
        return Verdict::withhold("owner", "author", "", "the event names no author".into());
    };
    let platform = source.platform.as_str();
    // Several links of one person: the latest. (`dm-default` and scope grants refine this.)
    let Some(link) = view.links(tenant, platform, user_id).last() else {
        let text = format!(
            "{user_id:?} on {platform} is not linked to any agent of this tenant; link with \
             `frontdesk bind {platform} {user_id} --tenant {tenant} --instance NAME`"
        );
        return Verdict::withhold("owner", "linked", user_id, text);
    };
    let Some(instance) = view.instance(tenant, &link.instance) else {
        let text = format!("{user_id:?} is linked to {:?}, which does not exist (yet)", link.instance);
        return Verdict::withhold("owner", "instance", &link.instance, text);
    };
    let line = Considered {
        instance: instance.name.clone(),
        outcome: "delivered".into(),
        layer: "owner".into(),
        rule: "linked".into(),
        value: user_id.into(),
        text: format!("{user_id:?} is linked to {:?}", instance.name),
    };
    Verdict { receivers: vec![instance.clone()], considered: vec![line] }
}
