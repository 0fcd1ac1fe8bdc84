//! Random numbers that depend only on the seed, on every machine: the seed in a failure message is enough to reproduce
//! it.

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..sides`.
    pub fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.throw() % u64::try_from(sides).unwrap()).unwrap()
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.throw() % 100 < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Each element with this probability.
    pub fn sift<T: Clone>(&mut self, from: &[T], percent: u64) -> Vec<T> {
        from.iter().filter(|_| self.chance(percent)).cloned().collect()
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}
