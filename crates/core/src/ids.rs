//! Ids of rows, as they are written for people and on the wire.

use frontdesk_wire::{InstanceNo, Seq};

/// The name under which a row is acked: made of the store's epoch, the instance and the row.
pub fn buffer_id(epoch: u32, instance: InstanceNo, seq: Seq) -> String {
    format!("{epoch:08x}-{:x}-{:x}", instance.0, seq.0)
}

/// The row, if the id is one of this store and this instance.
pub fn parse_buffer_id(text: &str, epoch: u32, instance: InstanceNo) -> Option<Seq> {
    // A number of ours has no sign, though Rust would read one.
    let number = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'));
    let mut parts = text.splitn(3, '-').map(number);
    let (store, owner, seq) = (parts.next()??, parts.next()??, parts.next()??);
    (store == u64::from(epoch) && owner == instance.0).then_some(Seq(seq))
}

/// Mail ids as people see them: the ledger and the row.
pub fn mail_id(instance: InstanceNo, seq: Seq) -> String {
    format!("{instance}.{seq}")
}

pub(crate) fn parse_mail_id(text: &str) -> Option<(InstanceNo, Seq)> {
    let (instance, seq) = text.split_once('.')?;
    Some((InstanceNo(instance.parse().ok()?), Seq(seq.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_id_is_read_back_only_by_its_owner() {
        let id = buffer_id(7, InstanceNo(12), Seq(300));
        assert_eq!(id, "00000007-c-12c");
        assert_eq!(parse_buffer_id(&id, 7, InstanceNo(12)), Some(Seq(300)));
        assert_eq!(parse_buffer_id(&id, 8, InstanceNo(12)), None);
        assert_eq!(parse_buffer_id(&id, 7, InstanceNo(13)), None);
        for bad in ["", "-", "7", "7-c", "7-c-zz", "7-c-1-2", "+7-c-1"] {
            assert_eq!(parse_buffer_id(bad, 7, InstanceNo(12)), None, "{bad}");
        }
    }
}
