//! Ids as they are written for people and on the wire.

/// Event ids as people see them.
pub fn event_id(event: u64) -> String {
    format!("ev-{event}")
}

pub fn parse_event_id(text: &str) -> Option<u64> {
    text.strip_prefix("ev-").unwrap_or(text).parse().ok()
}

/// The name under which a row is acked: made of the store's epoch, the instance and the row.
pub fn buffer_id(epoch: u32, instance: u64, seq: u64) -> String {
    format!("{epoch:08x}-{instance:x}-{seq:x}")
}

/// The row, if the id is one of this store and this instance.
pub fn parse_buffer_id(text: &str, epoch: u32, instance: u64) -> Option<u64> {
    // A number of ours has no sign, though Rust would read one.
    let number = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'));
    let mut parts = text.splitn(3, '-').map(number);
    let (store, owner, seq) = (parts.next()??, parts.next()??, parts.next()??);
    (store == u64::from(epoch) && owner == instance).then_some(seq)
}

/// Mail ids as people see them: the ledger and the row.
pub fn mail_id(instance: u64, seq: u64) -> String {
    format!("{instance}.{seq}")
}

pub(crate) fn parse_mail_id(text: &str) -> Option<(u64, u64)> {
    let (instance, seq) = text.split_once('.')?;
    Some((instance.parse().ok()?, seq.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_id_is_read_back_only_by_its_owner() {
        let id = buffer_id(7, 12, 300);
        assert_eq!(id, "00000007-c-12c");
        assert_eq!(parse_buffer_id(&id, 7, 12), Some(300));
        assert_eq!(parse_buffer_id(&id, 8, 12), None);
        assert_eq!(parse_buffer_id(&id, 7, 13), None);
        for bad in ["", "-", "7", "7-c", "7-c-zz", "7-c-1-2", "+7-c-1"] {
            assert_eq!(parse_buffer_id(bad, 7, 12), None, "{bad}");
        }
    }
}
