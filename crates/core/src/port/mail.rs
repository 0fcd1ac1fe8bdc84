//! Single rows of the ledger: listed, ended and put in again by operators, and ended where a row is never acked.

use std::sync::Arc;

use frontdesk_wire::{InstanceNo, Seq, SessionNo};
use serde::{Deserialize, Serialize};

use super::ledger::Delivery;
use super::stored::Stored;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailState {
    Accepted,
    Sent,
    Acked,
    Dead,
}

/// One row as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub instance: InstanceNo,
    pub seq: Seq,
    pub state: MailState,
    pub reason: Option<String>,
    pub delivery: Arc<Delivery>,
}

pub trait MailLog: Send + Sync {
    /// Newest first, rows below `before` (0 = from the top).
    fn mail(&self, instance: InstanceNo, state: Option<MailState>, before: Seq, limit: usize) -> Stored<'_, Vec<Mail>>;
    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>>;
    /// Ends an unsettled row. False: it was settled already, or is not there. With a session: `Conflict` unless that one
    /// serves the instance.
    fn drop_mail(&self, instance: InstanceNo, seq: Seq, session: Option<SessionNo>, reason: String)
    -> Stored<'_, bool>;
    /// Puts the same delivery at the end of the ledger again. The listeners of the ledger get the new row, in the order of
    /// commits.
    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>>;
}
