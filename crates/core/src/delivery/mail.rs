//! Operator requests to the ledger: list, show, replay, drop.

use frontdesk_wire::{InstanceNo, Seq};

use super::DeliveryPlane;
use crate::error::DeskError;
use crate::ids::{mail_id, parse_mail_id};
use crate::port::store::{Mail, MailState, StoreError};

/// Rows per page of a listing.
const PAGE: usize = 200;

impl DeliveryPlane {
    pub async fn mail(
        &self,
        instance: InstanceNo,
        state: Option<MailState>,
        before: Seq,
    ) -> Result<Vec<Mail>, DeskError> {
        Ok(self.mail.mail(instance, state, before, PAGE).await?)
    }

    pub async fn mail_row(&self, id: &str) -> Result<Mail, DeskError> {
        let (instance, seq) = parse_id(id)?;
        let found = self.mail.mail_row(instance, seq).await?;
        found.ok_or_else(|| DeskError::NotFound(format!("mail {id:?} not found")))
    }

    pub async fn drop_mail(&self, id: &str, reason: &str) -> Result<(), DeskError> {
        let (instance, seq) = parse_id(id)?;
        if reason.trim().is_empty() {
            return Err(DeskError::BadRequest("reason is required to drop mail".into()));
        }
        self.mail_row(id).await?;
        if !self.mail.drop_mail(instance, seq, None, reason.into()).await? {
            return Err(DeskError::Conflict(format!("mail {id:?} was already delivered or dropped")));
        }
        self.served.row_dropped(instance, seq);
        Ok(())
    }

    /// Queues the same delivery again as a new row. Returns its id.
    pub async fn replay_mail(&self, id: &str) -> Result<String, DeskError> {
        let (instance, seq) = parse_id(id)?;
        let made = self.mail.replay_mail(instance, seq).await;
        if let Err(StoreError::Unknown(_)) = made {
            self.lease.note_unknown_rows();
        }
        let made = made?;
        let made = made.ok_or_else(|| DeskError::NotFound(format!("mail {id:?} not found")))?;
        Ok(mail_id(instance, made))
    }
}

fn parse_id(text: &str) -> Result<(InstanceNo, Seq), DeskError> {
    parse_mail_id(text).ok_or_else(|| DeskError::BadRequest(format!("{text:?} is not a mail id (example: 3.17)")))
}
