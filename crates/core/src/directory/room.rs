//! How much a tenant may put into the directory, all of which is in memory.

use frontdesk_wire::TenantId;

use super::registry::Draft;
use super::view::View;
use crate::error::DeskError;

/// Called at the end of each decision that a tenant causes. A change that makes its records smaller is never refused.
/// `max_bytes` 0: no limit.
pub(crate) fn check_room(view: &View, draft: &Draft, tenant: &TenantId, max_bytes: usize) -> Result<(), DeskError> {
    let (now, then) = draft.bytes_of(view, tenant);
    if max_bytes == 0 || then <= max_bytes || then <= now {
        return Ok(());
    }
    Err(DeskError::Forbidden(format!(
        "this would make the tenant's records in the directory (gateways, policies, channels, agents) {then} bytes; remove \
         some, or ask the operator to raise relay.directory_per_tenant_kib ({})",
        max_bytes / 1024
    )))
}
