//! Data of a tenant: which fields of an entry are stored, and how queries are parsed.

use std::collections::HashSet;
use std::sync::Arc;

use frontdesk_wire::agents::{
    CURATED, Class, DataStore, DataWrite, DataWritten, Fault, ManifestInfo, PortableData, Promise, QueryFilters,
};
use serde_json::{Map, Value, json};

use super::caller::{AgentsCaller, StoreCaller};
use super::stores::{ASIDE_MAX_BYTES, TEXT_MAX_BYTES, TenantStores, check_size};
use crate::port::data::{ANSWER_MAX_BYTES, DataQuery, FILTERS};

const MODE: &str = "fts";
const LIMIT: u64 = 10;
const LIMIT_MAX: u64 = 200;
const QUERY_MAX_BYTES: usize = 4 << 10;
/// Repeated words per query. The full-text index scans all positions of a word once per repetition: a query with
/// 2,000 repetitions against a 1 MB row of that word took 30 s and 1 GB.
const AGAIN_MAX: usize = 32;
/// Non-ASCII bytes per query. Only the index knows which non-ASCII words are equal, so repetitions cannot be counted.
const WIDE_MAX_BYTES: usize = 1 << 10;
/// Values per filter.
const VALUES_MAX: usize = 256;
/// In UTF-16 code units, as other implementations count.
const SUMMARY_MAX: usize = 200;
const ELLIPSIS: &str = "...";

/// The data of one tenant.
#[derive(Clone)]
pub struct TenantData {
    stores: Arc<TenantStores>,
    who: StoreCaller,
}

impl TenantStores {
    /// The data of the caller's tenant as a `DataStore`. Entries without an `agent_id` get the name of the caller.
    pub fn data(self: &Arc<Self>, who: AgentsCaller<'_>) -> TenantData {
        TenantData { stores: self.clone(), who: StoreCaller::new(who) }
    }
}

impl TenantData {
    async fn put(&self, entry: &DataWrite) -> Result<DataWritten, Fault> {
        self.check_agent(entry)?;
        let now_s = self.stores.env.now_s();
        let mut row = row(entry)?;
        if let Some(caller) = &self.who.name {
            row.curated.entry("agent_id").or_insert_with(|| caller.as_str().into());
        }
        (row.id, row.created_at) = (self.stores.env.uuid_v4(), Some(now_s));
        let written = DataWritten { id: row.id.clone(), created_at: now_s };
        self.stores.data.data_put(&self.who.tenant, row).await?;
        Ok(written)
    }

    /// A row can name its agent in the metadata and in a field of its own; both are checked.
    fn check_agent(&self, entry: &DataWrite) -> Result<(), Fault> {
        let beside = entry.more.get("agent_id");
        let within = entry.metadata.as_ref().and_then(|metadata| metadata.get("agent_id"));
        let mut claims = [beside, within].into_iter().flatten();
        claims.try_for_each(|claimed| self.who.rights().check_name("agent_id", claimed.as_str()))
    }

    async fn find(&self, asked: &QueryFilters) -> Result<Vec<PortableData>, Fault> {
        let filters = filters(asked)?;
        check_size("the query", asked.query.len(), QUERY_MAX_BYTES)?;
        let phrases = phrases(&asked.query)?;
        if phrases.is_empty() && !asked.query.chars().all(is_blank) {
            return Ok(Vec::new()); // the query has no searchable word, so nothing matches
        }
        let limit = asked.limit.unwrap_or(LIMIT).min(LIMIT_MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let query = DataQuery { phrases, filters, limit, now_s: self.stores.env.now_s() };
        self.stores.data.data_query(&self.who.tenant, query).await.map_err(Fault::from)
    }
}

impl DataStore for TenantData {
    fn query<'a>(&'a self, filters: &'a QueryFilters) -> Promise<'a, Vec<PortableData>> {
        Box::pin(self.find(filters))
    }

    fn write<'a>(&'a self, entry: &'a DataWrite) -> Promise<'a, DataWritten> {
        Box::pin(self.put(entry))
    }

    fn get<'a>(&'a self, id: &'a str) -> Promise<'a, Option<PortableData>> {
        let now_s = self.stores.env.now_s();
        Box::pin(async move { self.stores.data.data_get(&self.who.tenant, id, now_s).await.map_err(Fault::from) })
    }

    fn manifest(&self) -> Promise<'_, ManifestInfo> {
        let manifest = json!({
            "kind": "frontdesk",
            "supported_modes": [MODE],
            "supported_filters": FILTERS,
            "score_range": "0..1",
            "limit_max": LIMIT_MAX,
            "content_max_bytes": TEXT_MAX_BYTES,
            "answer_max_bytes": ANSWER_MAX_BYTES,
            "expires_by_default": false,
        });
        Box::pin(std::future::ready(Ok(ManifestInfo { capabilities_version: "1".into(), manifest })))
    }
}

/// A row without name and timestamp. Well-known fields become top-level fields, also if the writer put them into
/// the metadata.
fn row(entry: &DataWrite) -> Result<PortableData, Fault> {
    check_size("content", entry.content.len(), TEXT_MAX_BYTES)?;
    let mut metadata = entry.metadata.clone().unwrap_or_default();
    for (key, value) in &entry.more {
        if metadata.insert(key.clone(), value.clone()).is_some_and(|other| other != *value) {
            return Err(Fault::invalid(format!("{key:?} has different values in metadata and at the top level")));
        }
    }
    let mut curated: Map<String, Value> = Map::new();
    for key in CURATED {
        if let Some(value) = metadata.remove(key).filter(|value| !value.is_null()) {
            curated.insert(key.into(), value);
        }
    }
    curated.remove("created_at"); // set by the server
    let mut tags = entry.tags.clone().unwrap_or_default();
    for (key, lifted) in [("domain_tags", curated.remove("domain_tags")), ("tags", metadata.remove("tags"))] {
        tags.extend(strings(key, lifted)?.unwrap_or_default());
    }
    let mut seen = HashSet::new();
    tags.retain(|tag| seen.insert(tag.clone()));
    let recipients = strings("recipients", curated.remove("recipients"))?;
    if let Some(recipients) = entry.recipients.clone().or(recipients) {
        curated.insert("recipients".into(), recipients.into());
    }
    let expires_at = match curated.remove("expires_at") {
        lifted if lifted.is_none() || entry.expires_at.is_some() => entry.expires_at,
        lifted => Some(lifted.as_ref().and_then(Value::as_u64).ok_or_else(|| wrong("expires_at", "unix seconds"))?),
    };
    let row = PortableData {
        summary: summary(&entry.content),
        expires_at,
        domain_tags: (!tags.is_empty()).then_some(tags),
        curated,
        metadata: (!metadata.is_empty()).then_some(metadata),
        ..PortableData::default()
    };
    check_size("the entry without its content", json!(row).to_string().len(), ASIDE_MAX_BYTES)?;
    Ok(PortableData { detail: Some(entry.content.clone()), ..row })
}

/// A list of strings, or a single string.
fn strings(key: &str, value: Option<Value>) -> Result<Option<Vec<String>>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let list = match value {
        Value::Null => return Ok(None),
        Value::String(one) => vec![one],
        value => serde_json::from_value(value).map_err(|_| wrong(key, "a list of strings"))?,
    };
    Ok(Some(list))
}

fn wrong(key: &str, what: &str) -> Fault {
    Fault::invalid(format!("metadata.{key} is not {what}"))
}

/// The first line, truncated if it is too long. A surrogate pair is never split.
fn summary(content: &str) -> String {
    let line = content.split('\n').next().unwrap_or_default();
    if line.encode_utf16().count() <= SUMMARY_MAX {
        return line.to_owned();
    }
    let mut room = SUMMARY_MAX - ELLIPSIS.len();
    let fits = |c: &char| {
        let units = c.len_utf16();
        let fits = units <= room;
        room = room.saturating_sub(if fits { units } else { room });
        fits
    };
    line.chars().take_while(fits).chain(ELLIPSIS.chars()).collect()
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\0'
}

/// Splits a query into phrases, which must all match. Pieces without a letter or digit are ignored. After too many
/// repeated words, only the new words of a piece are kept, as separate phrases.
fn phrases(query: &str) -> Result<Vec<String>, Fault> {
    let mut phrases: Vec<String> = Vec::new();
    let (mut seen, mut named) = (HashSet::new(), HashSet::new());
    let (mut again, mut wide_bytes) = (0, 0);
    for piece in query.split(is_blank).filter(|piece| piece.chars().any(char::is_alphanumeric)) {
        if !seen.insert(piece) {
            continue;
        }
        if !piece.is_ascii() {
            wide_bytes += piece.len();
            phrases.push(piece.into());
            continue;
        }
        let words = piece.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let (new, known): (Vec<String>, Vec<_>) =
            words.map(str::to_ascii_lowercase).partition(|word| named.insert(word.clone()));
        again += known.len();
        match again <= AGAIN_MAX {
            true => phrases.push(piece.into()),
            false => phrases.extend(new),
        }
    }
    check_size("the non-ASCII part of the query", wide_bytes, WIDE_MAX_BYTES)?;
    Ok(phrases)
}

/// The filters of a query. Unsupported ones are refused: ignoring a filter would return rows that the caller
/// excluded.
fn filters(asked: &QueryFilters) -> Result<Vec<(String, Vec<Value>)>, Fault> {
    if let Some(mode) = asked.mode.as_deref().filter(|mode| *mode != MODE) {
        let shown: String = mode.chars().take(80).collect();
        let text = format!("query mode {shown:?} is not supported; use {MODE:?}");
        return Err(Fault::new(Class::QueryError, text).with("mode", mode));
    }
    let (known, mut strange): (Vec<_>, Vec<_>) =
        asked.filters.iter().partition(|(key, _)| FILTERS.contains(&key.as_str()));
    if !strange.is_empty() && !asked.permissive_filters {
        strange.sort_by_key(|(key, _)| *key);
        let strange: Vec<&str> = strange.iter().map(|(key, _)| key.as_str()).collect();
        let text = format!("unsupported filters: {}", strange.join(", "));
        let fault = Fault::new(Class::UnsupportedFilterError, text);
        return Err(fault.with("unsupportedKeys", strange).with("supportedKeys", json!(FILTERS)));
    }
    known.into_iter().map(|(key, value)| Ok((key.clone(), values(key, value)?))).collect()
}

fn values(key: &str, value: &Value) -> Result<Vec<Value>, Fault> {
    let values = match value {
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    };
    let plain = |value: &Value| matches!(value, Value::String(_) | Value::Bool(_) | Value::Number(_));
    if values.len() > VALUES_MAX || !values.iter().all(plain) {
        let text = format!("filter {key} must be a string, number or boolean, or a list of up to {VALUES_MAX} of them");
        return Err(Fault::invalid(text));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_25_a_summary_is_the_first_line() {
        assert_eq!(summary(""), "");
        assert_eq!(summary("one\r\ntwo"), "one\r");
        assert_eq!(summary("\nsecond"), "");
        assert_eq!(summary(&"a".repeat(200)), "a".repeat(200));
        assert_eq!(summary(&"a".repeat(201)), format!("{}...", "a".repeat(197)));
    }

    #[test]
    fn rule_35_a_summary_never_splits_a_surrogate_pair() {
        let faces = "\u{1F600}".repeat(101); // 202 units
        assert_eq!(summary(&faces), format!("{}...", "\u{1F600}".repeat(98)), "197 units would split the 99th pair");
        let odd = format!("a{}", "\u{1F600}".repeat(100));
        assert_eq!(summary(&odd), format!("a{}...", "\u{1F600}".repeat(98)));
        let late = format!("{}\u{1F600}bcd", "a".repeat(196)); // the cut is at the first character that does not fit
        assert_eq!(summary(&late), format!("{}...", "a".repeat(196)));
        assert_eq!(summary(&"\u{1F600}".repeat(100)), "\u{1F600}".repeat(100), "200 units are short enough");
    }

    #[test]
    fn rule_25_a_query_is_phrases() {
        let asked = phrases(" Tea \t(for)\0two -- \" 3.50 tea Tea\u{a0}x").unwrap();
        assert_eq!(asked, ["Tea", "(for)", "two", "3.50", "tea", "x"]);
        for none in ["", " \0\n", "!!! --", "\"", "☃ *"] {
            assert_eq!(phrases(none).unwrap(), [""; 0], "{none:?}");
        }
    }

    #[test]
    fn rule_25_repeated_words_are_limited() {
        assert_eq!(phrases(&"a.".repeat(2_000)).unwrap(), ["a"]);
        let addresses: Vec<String> = (0..200).map(|number| format!("10.0.0.{number}")).collect();
        let asked = phrases(&addresses.join(" ")).unwrap();
        assert_eq!(asked[..10], addresses[..10], "unchanged up to the limit");
        assert_eq!(asked[10..], (11..200).map(|number| number.to_string()).collect::<Vec<_>>(), "then only new words");
        let variants: Vec<String> = (1..90).map(|number| format!("{}Aa", "!".repeat(number))).collect();
        assert_eq!(phrases(&variants.join(" ")).unwrap().len(), 1 + AGAIN_MAX);
        let wide = |bytes: usize| phrases(&"\u{e9}".repeat(bytes / 2));
        assert_eq!(wide(WIDE_MAX_BYTES).unwrap().len(), 1);
        assert_eq!(wide(WIDE_MAX_BYTES + 2).unwrap_err().class, Class::TooLargeError);
    }
}
