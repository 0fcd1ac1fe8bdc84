//! How rows of data are ranked and marked, for every backend.
//!
//! Ranking must not depend on how rare a word is: the index holds all tenants, so such a weight would disclose what other
//! tenants write.

use frontdesk_core::port::data::FILTERS;
use frontdesk_core::short_hash;
use frontdesk_wire::agents::PortableData;
use serde_json::Value;

/// Number of newest matches that are ranked.
pub(crate) const CANDIDATES: usize = 256;
/// Hits are counted in texts up to this size; longer texts count every phrase once.
pub(crate) const COUNTED_BYTES: i64 = 1_024;
/// Approximate size of a word, with its space.
const WORD_BYTES: f64 = 6.0;

/// A row that matches a query.
pub(crate) struct Match {
    pub(crate) no: i64,
    /// Of its text.
    pub(crate) bytes: i64,
    /// `None`: they were not counted.
    pub(crate) hits: Option<i64>,
}

impl Match {
    /// Half for the number of hits, half for their density. Depends on this row alone.
    #[allow(clippy::cast_precision_loss, reason = "sizes of one text")]
    pub(crate) fn score(&self, phrases: usize) -> f64 {
        let once = phrases as f64;
        // The counted hits may be too few; a match contains every phrase at least once.
        let hits = self.hits.map_or(once, |hits| once.max(hits as f64));
        let often = hits / (hits + once);
        let dense = (hits * WORD_BYTES / (self.bytes as f64).max(1.0)).min(1.0);
        f64::midpoint(often, dense)
    }
}

/// Best first, and no more than this many. Among equal scores the newer row stays first.
pub(crate) fn rank(found: &mut Vec<Match>, phrases: usize, limit: usize) {
    found.sort_by(|a, b| b.score(phrases).total_cmp(&a.score(phrases)));
    found.truncate(limit);
}

/// One index word per value that a filter may name.
pub(crate) fn marks(row: &PortableData) -> Vec<String> {
    let tags = row.domain_tags.iter().flatten().map(|tag| mark("domain_tags", &Value::from(tag.as_str())));
    let others = FILTERS.iter().filter_map(|key| row.curated.get(*key).map(|value| mark(key, value)));
    tags.chain(others).collect()
}

/// Begins with a letter, so that it is never taken for a number.
pub(crate) fn mark(key: &str, value: &Value) -> String {
    let hash = u128::from_be_bytes(short_hash(&[key, &value.to_string()]));
    format!("m{hash:032x}")
}
