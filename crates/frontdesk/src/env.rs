//! Clock and randomness of the machine: the only place that uses them directly.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use frontdesk_core::Env;

pub struct SystemEnv;

impl Env for SystemEnv {
    #[allow(clippy::disallowed_methods)] // this is the Env that all other code uses
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods)] // see above
    fn steady_ms(&self) -> u64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods)] // see above
    fn fill(&self, bytes: &mut [u8]) {
        // Fails only before the system's generator is seeded; continuing without randomness would be worse.
        assert!(SystemRandom::new().fill(bytes).is_ok(), "the system's random number generator failed");
    }
}
