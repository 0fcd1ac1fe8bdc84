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

    /// The server that tries alarms for this host first.
    pub(super) fn owner(&self, host: &str) -> DeskNo {
        let bucket = usize::from(short_hash(&["alarm bucket", host])[0]) % BUCKETS;
        self.live[bucket % self.live.len()] // this server is always in the list
    }

    pub(super) fn is_mine(&self, host: &str) -> bool {
        self.live.len() == 1 || self.owner(host) == self.me
    }

    /// When this server tries an alarm that is due at this time.
    pub(super) fn tried_ms(&self, host: &str, next_ms: u64) -> u64 {
        if self.is_mine(host) { next_ms } else { next_ms.saturating_add(OTHERS_MS) }
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
            let owners: Vec<usize> = (0..3).filter(|at| views[*at].is_mine(&host)).collect();
            assert_eq!(owners.len(), 1, "{host}");
            owned[owners[0]] += 1;
            let late = views[(owners[0] + 1) % 3].tried_ms(&host, 100);
            assert_eq!((views[owners[0]].tried_ms(&host, 100), late), (100, 100 + OTHERS_MS));
        }
        assert!(owned.iter().all(|count| *count > 50), "{owned:?}");
        let alone = Buckets { me: DeskNo(4), live: vec![DeskNo(4)] };
        assert!(alone.is_mine("a") && alone.is_mine("b"));
    }
}
