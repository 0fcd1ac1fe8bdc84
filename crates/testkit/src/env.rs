//! A clock that tests set, and random numbers that depend only on the seed.

use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_core::Env;

pub struct TestEnv {
    now_ms: AtomicU64,
    steady_ms: AtomicU64,
    dice: AtomicU64,
}

impl TestEnv {
    /// Start of the clock, large enough to subtract ages from it.
    pub const START_MS: u64 = 1_700_000_000_000;

    pub fn new(seed: u64) -> Self {
        Self { now_ms: AtomicU64::new(Self::START_MS), steady_ms: AtomicU64::new(0), dice: AtomicU64::new(seed) }
    }

    /// Advances both clocks.
    pub fn advance_ms(&self, by_ms: u64) {
        self.steady_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the wall clock, also backwards. The monotonic clock does not change.
    pub fn set_ms(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// `SplitMix64`: each number depends on the seed and on how many were drawn before.
    fn throw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.dice.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Default for TestEnv {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Env for TestEnv {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }

    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let throw = self.throw().to_le_bytes();
            chunk.copy_from_slice(&throw[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_only_when_told() {
        let env = TestEnv::default();
        assert_eq!(env.now_ms(), TestEnv::START_MS);
        env.advance_ms(1_500);
        assert_eq!(env.now_ms(), TestEnv::START_MS + 1_500);
        env.set_ms(7);
        assert_eq!((env.now_ms(), env.steady_ms()), (7, 1_500));
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let throw = |seed: u64| {
            let env: &dyn Env = &TestEnv::new(seed);
            [env.random_hex(5), env.random_hex(16)]
        };
        assert_eq!(throw(3), throw(3));
        assert_ne!(throw(3), throw(4));
        assert_ne!(throw(3)[0], throw(3)[1][..10]);
    }
}
