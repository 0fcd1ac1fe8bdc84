//! What an operator asks of the ledger: list, show, replay, drop, explain.

use frontdesk_wire::api::Explanation;

use super::{Desk, DeskError, event_id, parse_event_id};
use crate::gate;
use crate::port::store::{Mail, MailState};
use crate::registry::View;
use crate::registry::facts::Instance;
use crate::switchboard::Order;

/// Rows per page of a listing.
const PAGE: usize = 200;

impl Desk {
    /// An instance by name; the tenant is needed only where two tenants use the same name.
    pub fn find_instance(&self, name: &str, tenant: Option<&str>) -> Result<std::sync::Arc<Instance>, DeskError> {
        self.registry.read(|view| {
            let of_tenant = |it: &&std::sync::Arc<Instance>| tenant.is_none_or(|t| it.tenant == t);
            let mut found = view.instances_named(name).iter().filter(of_tenant);
            match (found.next(), found.next()) {
                (Some(one), None) => Ok(one.clone()),
                (None, _) => Err(DeskError::NotFound(no_instance(view, name, tenant))),
                (Some(_), Some(_)) => {
                    Err(DeskError::BadRequest(format!("several tenants have an instance {name:?}; say which tenant")))
                }
            }
        })
    }

    pub async fn mail(&self, instance: u64, state: Option<MailState>, before: u64) -> Result<Vec<Mail>, DeskError> {
        Ok(self.store.mail(instance, state, before, PAGE).await?)
    }

    pub async fn mail_row(&self, id: &str) -> Result<Mail, DeskError> {
        let (instance, seq) = parse_mail_id(id)?;
        let found = self.store.mail_row(instance, seq).await?;
        found.ok_or_else(|| DeskError::NotFound(format!("there is no mail {id:?}")))
    }

    pub async fn drop_mail(&self, id: &str, reason: &str) -> Result<(), DeskError> {
        let (instance, seq) = parse_mail_id(id)?;
        if reason.trim().is_empty() {
            return Err(DeskError::BadRequest("say why: a drop needs a reason".into()));
        }
        self.mail_row(id).await?;
        if !self.store.drop_mail(instance, seq, reason.into()).await? {
            return Err(DeskError::Conflict(format!("mail {id:?} is settled already")));
        }
        if let Some(mailbox) = self.switchboard.socket(instance) {
            mailbox.order(Order::Dropped(seq));
        }
        Ok(())
    }

    /// The same delivery again, as a new row at the end. Returns its id.
    pub async fn replay_mail(&self, id: &str) -> Result<String, DeskError> {
        let (instance, seq) = parse_mail_id(id)?;
        let made = self.store.replay_mail(instance, seq).await?;
        let made = made.ok_or_else(|| DeskError::NotFound(format!("there is no mail {id:?}")))?;
        Ok(mail_id(instance, made))
    }

    pub async fn explain(&self, id: &str) -> Result<Explanation, DeskError> {
        let absent = || DeskError::NotFound(format!("no event {id:?} is kept"));
        let event = parse_event_id(id).ok_or_else(absent)?;
        let kept = self.store.event(event).await?.ok_or_else(absent)?;
        let read = gate::read_kept(&kept.verdict, &kept.tenant).ok_or_else(absent)?;
        let (outcome, instances) = (read.outcome, read.instances);
        Ok(Explanation { event_id: event_id(event), tenant: kept.tenant, outcome, instances })
    }
}

/// An agent without a socket of its own has an inbox and no ledger.
fn no_instance(view: &View, name: &str, tenant: Option<&str>) -> String {
    let mut tenants = view.tenants.keys().filter(|it| tenant.is_none_or(|tenant| tenant == it.as_str()));
    match tenants.find(|it| view.agent(it, name).is_some()) {
        Some(tenant) => format!(
            "no instance is called {name:?}, but a registered agent is: see `frontdesk inbox {name} --tenant {tenant}`"
        ),
        None => format!("no instance is called {name:?}"),
    }
}

/// Mail ids as people see them: the ledger and the row.
pub fn mail_id(instance: u64, seq: u64) -> String {
    format!("{instance}.{seq}")
}

fn parse_mail_id(text: &str) -> Result<(u64, u64), DeskError> {
    let parsed = text.split_once('.').and_then(|(instance, seq)| Some((instance.parse().ok()?, seq.parse().ok()?)));
    parsed.ok_or_else(|| DeskError::BadRequest(format!("{text:?} is no mail id; they look like 3.17")))
}
