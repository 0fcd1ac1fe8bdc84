//! Ids and times of Discord. An id begins with the time at which it was made.

/// The first second of 2015.
const EPOCH_MS: u64 = 1_420_070_400_000;

/// When the id was made. Without one: 0.
pub(super) fn ms_of(id: u64) -> u64 {
    if id == 0 { 0 } else { (id >> 22) + EPOCH_MS }
}

/// The first id of this moment.
pub(super) fn first_at(ms: u64) -> u64 {
    ms.saturating_sub(EPOCH_MS) << 22
}

pub(super) fn number(id: &str) -> Option<u64> {
    id.parse().ok()
}

/// One that can be a part of a path.
pub(super) fn is_id(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The shard that receives the events of a guild. Direct messages come to shard 0.
pub(super) fn shard_of(guild_id: &str, count: u32) -> u32 {
    let of_guild = number(guild_id).map_or(0, |id| (id >> 22) % u64::from(count.max(1)));
    u32::try_from(of_guild).unwrap_or(0)
}

/// A time as the API writes it.
pub(super) fn time_ms(text: &str) -> Option<u64> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_time() {
        assert_eq!(ms_of(175_928_847_299_117_063), 1_462_015_105_796); // the example of the vendor's documents
        assert_eq!(ms_of(0), 0);
        assert_eq!(ms_of(first_at(1_462_015_105_796)), 1_462_015_105_796);
    }

    #[test]
    fn guilds_have_their_shard() {
        assert_eq!(shard_of("197038439483310086", 1), 0);
        assert_eq!(u64::from(shard_of("197038439483310086", 16)), (197_038_439_483_310_086_u64 >> 22) % 16);
        assert_eq!((shard_of("", 4), shard_of("x", 0)), (0, 0));
    }

    #[test]
    fn times_are_read() {
        assert_eq!(time_ms("2023-11-14T22:13:20.120000+00:00"), Some(1_700_000_000_120));
        assert_eq!((time_ms("2026"), time_ms("")), (None, None));
    }
}
