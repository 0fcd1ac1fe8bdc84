//! Which server fires which alarms. Hosts are divided into buckets, and buckets among the live servers, so that the limit of
//! calls per host holds over all of them. Who fires is decided by the claim of the row; this only says who tries first.

use frontdesk_wire::DeskNo;

use crate::hash::short_hash;
use crate::lease::Lease;

const BUCKETS: usize = 16;
/// A server tries alarms of another one this much later: that one may be gone, or may not know of an alarm that was just armed.
pub(super) const OTHERS_MS: u64 = 5_000;

/// The live servers, as of the last renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buckets {
    me: DeskNo,
    live: Vec<DeskNo>,
}

impl Buckets {
    pub(super) fn of(lease: &Lease) -> Self {
        let mut live = lease.live();
        live.sort_unstable();
        Self { me: lease.me(), live }
    }

    fn owner(&self, host: &str) -> DeskNo {
        let bucket = usize::from(short_hash(&["alarm bucket", host])[0]) % BUCKETS;
        self.live[bucket % self.live.len()] // this server is always in the list
    }

    /// The server that tries alarms for this host first, if it is not this one.
    pub(super) fn other_owner(&self, host: &str) -> Option<DeskNo> {
        if self.live.len() == 1 {
            return None; // most servers are alone, and each arming asks
        }
        Some(self.owner(host)).filter(|owner| *owner != self.me)
    }

    /// When this server tries an alarm that is due at this time.
    pub(super) fn tried_ms(&self, host: &str, next_ms: u64) -> u64 {
        if self.other_owner(host).is_some() { next_ms.saturating_add(OTHERS_MS) } else { next_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_one_owner_and_all_servers_agree() {
        let live = vec![DeskNo(3), DeskNo(5), DeskNo(9)];
        let views: Vec<Buckets> = live.iter().map(|me| Buckets { me: *me, live: live.clone() }).collect();
        let mut owned = [0; 3];
        for number in 0..300 {
            let host = format!("agent-{number}.example");
            let owners: Vec<usize> = (0..3).filter(|at| views[*at].other_owner(&host).is_none()).collect();
            assert_eq!(owners.len(), 1, "{host}");
            owned[owners[0]] += 1;
            let seen_by_next = views[(owners[0] + 1) % 3].other_owner(&host);
            assert_eq!(seen_by_next, Some(live[owners[0]]), "{host}");
            let late = views[(owners[0] + 1) % 3].tried_ms(&host, 100);
            assert_eq!((views[owners[0]].tried_ms(&host, 100), late), (100, 100 + OTHERS_MS));
        }
        assert!(owned.iter().all(|count| *count > 50), "{owned:?}");
        let alone = Buckets { me: DeskNo(4), live: vec![DeskNo(4)] };
        assert_eq!((alone.other_owner("a"), alone.tried_ms("b", 100)), (None, 100));
    }
}
