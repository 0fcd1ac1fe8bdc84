//! What may happen once, whichever server does it.

use frontdesk_wire::EventId;

use super::InboundPlane;
use crate::hash::short_hash;
use crate::port::store::{Acceptance, Delivery, StoreError};

impl InboundPlane {
    /// Whether nobody has claimed this name before. It is kept as the dedup key of an event that nobody receives, and
    /// forgotten with those: names are for things that end within hours.
    pub async fn claim_once(&self, tenant: &str, kind: &str, name: &str) -> Result<bool, StoreError> {
        let delivery = Delivery {
            event: EventId::default(),
            at_ms: self.env.now_ms(),
            passthrough: false,
            json: "{}".into(),
            platform: kind.into(),
            bot: String::new(),
            chat_id: "".into(),
            session_key: "".into(),
            message_id: String::new(),
        };
        let dedup = [b"once ".as_slice(), &short_hash(&[tenant, kind, name])].concat();
        let event = Acceptance::unreceived(tenant, dedup, delivery, r#"{"outcome":"claimed"}"#.into());
        let accepted = self.lease.accept(&*self.ledger, vec![event]).await?;
        Ok(accepted.first().is_some_and(|accepted| accepted.fresh))
    }
}
