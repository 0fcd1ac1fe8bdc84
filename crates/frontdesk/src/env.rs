//! Clock and randomness of the machine: the only place that uses them directly.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use frontdesk_core::Env;

pub struct SystemEnv;

impl Env for SystemEnv {
    #[allow(clippy::disallowed_methods)] // this is the Env that all other code uses
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts while the machine sleeps, where the system has such a clock: other servers have taken over meanwhile.
    #[allow(clippy::disallowed_methods)] // see above
    fn steady_ms(&self) -> u64 {
        #[cfg(target_os = "linux")]
        {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
            seconds.unwrap_or_default() * 1_000 + nanos.unwrap_or_default() / 1_000_000
        }
        #[cfg(not(target_os = "linux"))]
        {
            static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
            let elapsed = BEGAN.get_or_init(std::time::Instant::now).elapsed();
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        }
    }

    #[allow(clippy::disallowed_methods)] // see above
    fn fill(&self, bytes: &mut [u8]) {
        // Fails only before the system's generator is seeded; continuing without randomness would be worse.
        assert!(SystemRandom::new().fill(bytes).is_ok(), "the system's random number generator failed");
    }
}
