//! The clock and the dice. Everything that needs either takes an `Env`, so tests can move time.

/// Clock and entropy of the machine, or of a test.
pub trait Env: Send + Sync {
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Env + '_ {
    pub fn now_s(&self) -> u64 {
        self.now_ms() / 1000
    }

    /// `bytes` random bytes as lowercase hex.
    pub fn random_hex(&self, bytes: usize) -> String {
        let mut raw = vec![0; bytes];
        self.fill(&mut raw);
        hex::encode(raw)
    }
}
