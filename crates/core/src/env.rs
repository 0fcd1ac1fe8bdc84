//! The clock and randomness. Everything that needs either takes an `Env`, so tests can move time.

/// Clock and entropy of the machine, or of a test.
pub trait Env: Send + Sync {
    /// Unix milliseconds. The clock may be set, backwards too: for times that are stored and shown.
    fn now_ms(&self) -> u64;
    /// Milliseconds of a clock that is never set: for durations and time limits.
    fn steady_ms(&self) -> u64 {
        self.now_ms()
    }
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

    /// A random UUID of version 4.
    pub fn uuid_v4(&self) -> String {
        let mut raw = [0; 16];
        self.fill(&mut raw);
        raw[6] = (raw[6] & 0x0f) | 0x40;
        raw[8] = (raw[8] & 0x3f) | 0x80;
        let hex = hex::encode(raw);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}
