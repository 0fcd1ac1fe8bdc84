//! Rules for data: rows are found by their words, and only by their own tenant.

use frontdesk_core::port::data::{ANSWER_MAX_BYTES, DataQuery};
use frontdesk_core::port::store::{Retention, Store, StoreError};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use serde_json::{Map, Value, json};

use super::Harness;

pub fn row(id: &str, text: &str) -> PortableData {
    PortableData {
        id: id.into(),
        summary: text.lines().next().unwrap_or_default().into(),
        detail: Some(text.into()),
        created_at: Some(10),
        ..PortableData::default()
    }
}

fn with(id: &str, text: &str, curated: Value) -> PortableData {
    let Value::Object(mut curated) = curated else { unreachable!("tests give objects") };
    let tags = curated.remove("domain_tags").map(|tags| serde_json::from_value(tags).unwrap());
    PortableData { curated, domain_tags: tags, ..row(id, text) }
}

async fn put(store: &dyn Store, row: PortableData) {
    store.data_put(&"acme".into(), row).await.unwrap();
}

fn query(words: &[&str]) -> DataQuery {
    DataQuery { phrases: words.iter().map(|&word| word.into()).collect(), limit: 10, now_s: 100, ..Default::default() }
}

fn filtered(words: &[&str], filters: &[(&str, Value)]) -> DataQuery {
    let values = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let filters = filters.iter().map(|(key, value)| ((*key).to_owned(), values(value))).collect();
    DataQuery { filters, ..query(words) }
}

async fn ids(store: &dyn Store, query: DataQuery) -> Vec<String> {
    store.data_query(&"acme".into(), query).await.unwrap().into_iter().map(|row| row.id).collect()
}

async fn found(store: &dyn Store, words: &[&str]) -> Vec<String> {
    ids(store, query(words)).await
}

pub async fn a_row_is_given_back_whole(Harness { store, .. }: Harness) {
    let metadata: Map<String, Value> = serde_json::from_str(r#"{"z":[1,null],"a":{"score":3}}"#).unwrap();
    let whole = PortableData {
        expires_at: Some(500),
        metadata: Some(metadata),
        ..with(
            "1",
            "first line\r\nsecond \u{1F600}\n",
            json!({"pinned": true, "vault": "v", "domain_tags": ["x", "y"]}),
        )
    };
    put(&*store, PortableData { score: Some(0.3), ..whole.clone() }).await;
    assert_eq!(
        store.data_get(&"acme".into(), "1", 100).await.unwrap(),
        Some(whole.clone()),
        "everything except the score, which is not stored"
    );
    let listed = store.data_query(&"acme".into(), query(&[])).await.unwrap();
    assert_eq!(listed, [whole]);
    let short = PortableData { detail: None, ..row("2", "only a summary") };
    put(&*store, short.clone()).await;
    assert_eq!(store.data_get(&"acme".into(), "2", 100).await.unwrap(), Some(short));
    assert_eq!(found(&*store, &["summary"]).await, ["2"], "its words are found");
    assert_eq!(store.data_get(&"acme".into(), "3", 100).await.unwrap(), None);
}

pub async fn an_existing_id_is_a_conflict(Harness { store, .. }: Harness) {
    put(&*store, row("1", "one")).await;
    assert_eq!(store.data_put(&"acme".into(), row("1", "two")).await, Err(StoreError::Conflict));
    assert_eq!(found(&*store, &["two"]).await, [""; 0]);
    assert_eq!(found(&*store, &["one"]).await, ["1"]);
    assert_eq!(ids(&*store, query(&[])).await, ["1"]);
}

pub async fn rows_are_found_by_all_words(Harness { store, .. }: Harness) {
    put(&*store, row("1", "the quick brown fox")).await;
    put(&*store, row("2", "the lazy dog\nand a quick cat")).await;
    assert_eq!(found(&*store, &["fox"]).await, ["1"]);
    let mut both = found(&*store, &["quick", "the"]).await;
    both.sort();
    assert_eq!(both, ["1", "2"], "in any order, in any line");
    assert_eq!(found(&*store, &["quick", "dog"]).await, ["2"]);
    assert_eq!(found(&*store, &["fox", "dog"]).await, [""; 0]);
    assert_eq!(found(&*store, &["qui"]).await, [""; 0], "only whole words match");
    assert_eq!(found(&*store, &["nothing"]).await, [""; 0]);
}

pub async fn case_and_marks_of_letters_do_not_matter(Harness { store, .. }: Harness) {
    put(&*store, row("1", "Das CAFÉ in Zürich, naïve Ω")).await;
    put(&*store, row("2", "cafe\u{301} decomposed")).await;
    for words in [["café"], ["CAFE"], ["Cafe"], ["cafe\u{301}"]] {
        let mut both = found(&*store, &words).await;
        both.sort();
        assert_eq!(both, ["1", "2"], "{words:?}");
    }
    assert_eq!(found(&*store, &["ZURICH", "naive", "ω"]).await, ["1"]);
}

pub async fn words_of_the_index_are_plain_words(Harness { store, .. }: Harness) {
    put(&*store, row("1", "cats and dogs or birds not fish near water")).await;
    put(&*store, row("2", "cats")).await;
    for words in [["cats", "AND"], ["NOT", "fish"], ["OR", "cats"], ["NEAR", "water"], ["cats", "OR"]] {
        assert_eq!(found(&*store, &words).await, ["1"], "{words:?}");
    }
    assert_eq!(found(&*store, &["cats", "NOT", "dogs"]).await, ["1"]);
    put(&*store, row("3", "price: 3.50 for a*b (c) \"quoted\" ^up text:colon {brace} x+y")).await;
    for word in ["\"quoted\"", "a*b", "(c)", "^up", "text:colon", "{brace}", "x+y", "3.50", "price:", "*up*", "\"\"c"] {
        assert_eq!(found(&*store, &[word]).await, ["3"], "{word}");
    }
    for word in ["cat*", "marks:cats", "text:cats", "-dogs", "\"", "\"\"", "'", ";", "☃", "\0"] {
        let answer = store.data_query(&"acme".into(), query(&[word])).await;
        assert!(answer.is_ok(), "{word:?}: {answer:?}");
    }
    assert_eq!(found(&*store, &["cat*"]).await, [""; 0], "no prefix search");
}

pub async fn a_phrase_is_words_in_a_row(Harness { store, .. }: Harness) {
    put(&*store, row("1", "see the user-guide for more")).await;
    put(&*store, row("2", "the guide of a user")).await;
    assert_eq!(found(&*store, &["user-guide"]).await, ["1"]);
    assert_eq!(found(&*store, &["user", "guide"]).await.len(), 2);
}

pub async fn no_words_are_newest_first(Harness { store, .. }: Harness) {
    for number in 0..5 {
        put(&*store, row(&number.to_string(), "same")).await;
    }
    assert_eq!(ids(&*store, DataQuery { limit: 3, ..query(&[]) }).await, ["4", "3", "2"]);
    assert_eq!(
        store.data_query(&"acme".into(), query(&[])).await.unwrap()[0].score,
        None,
        "without words there is no score"
    );
    assert_eq!(store.data_query(&"nobody".into(), query(&[])).await.unwrap(), []);
}

pub async fn the_better_match_comes_first(Harness { store, .. }: Harness) {
    put(&*store, row("often", "tea tea tea tea")).await;
    put(&*store, row("dense", "tea please")).await;
    put(&*store, row("thin", &format!("tea {}", "and many other things ".repeat(20)))).await;
    assert_eq!(found(&*store, &["tea"]).await, ["often", "dense", "thin"], "although the last one is the newest");
}

pub async fn among_equals_the_newer_comes_first(Harness { store, .. }: Harness) {
    for id in ["1", "2", "3"] {
        put(&*store, row(id, "green tea")).await;
    }
    assert_eq!(found(&*store, &["tea"]).await, ["3", "2", "1"]);
}

pub async fn scores_are_between_0_and_1(Harness { store, .. }: Harness) {
    let texts = ["a", "a a a a a a", "a\n", "* a * a *", &"long ".repeat(900), &format!("a {}", "b ".repeat(3_000))];
    for (number, text) in texts.iter().enumerate() {
        put(&*store, row(&number.to_string(), text)).await;
    }
    for words in [&["a"][..], &["long"], &["a", "b"], &["a", "a"]] {
        let rows = store.data_query(&"acme".into(), query(words)).await.unwrap();
        assert!(!rows.is_empty(), "{words:?}");
        let scores: Vec<f64> = rows.iter().map(|row| row.score.unwrap()).collect();
        assert!(scores.iter().all(|score| *score > 0.0 && *score <= 1.0), "{words:?}: {scores:?}");
        assert!(scores.is_sorted_by(|a, b| a >= b), "best first: {scores:?}");
    }
}

pub async fn filters_are_exact(Harness { store, .. }: Harness) {
    put(&*store, with("1", "one", json!({"agent_id": "ada", "pinned": true, "domain_tags": ["x", "y"]}))).await;
    put(&*store, with("2", "two", json!({"agent_id": "Ada", "pinned": false, "domain_tags": ["y z"]}))).await;
    put(&*store, with("3", "three", json!({"agent_id": "ada lovelace", "vault": "ada"}))).await;
    let by = async |filters: &[(&str, Value)]| ids(&*store, filtered(&[], filters)).await;
    assert_eq!(by(&[("agent_id", json!("ada"))]).await, ["1"], "exact match only");
    assert_eq!(by(&[("agent_id", json!(["ada", "Ada"]))]).await, ["2", "1"], "any of");
    assert_eq!(by(&[("vault", json!("ada"))]).await, ["3"], "each key is separate");
    assert_eq!(by(&[("pinned", json!(true))]).await, ["1"]);
    assert_eq!(by(&[("pinned", json!("true"))]).await, [""; 0], "a string is not a boolean");
    assert_eq!(by(&[("domain_tags", json!("y"))]).await, ["1"]);
    assert_eq!(by(&[("domain_tags", json!(["x", "y z"]))]).await, ["2", "1"]);
    assert_eq!(by(&[("agent_id", json!("ada")), ("pinned", json!(false))]).await, [""; 0], "all filters are required");
    assert_eq!(by(&[("agent_id", json!("nobody"))]).await, [""; 0]);
    assert_eq!(by(&[("agent_id", json!("\" OR *"))]).await, [""; 0]);
}

pub async fn filters_and_words_go_together(Harness { store, .. }: Harness) {
    put(&*store, with("1", "tea time", json!({"vault": "a"}))).await;
    put(&*store, with("2", "tea time", json!({"vault": "b"}))).await;
    put(&*store, with("3", "coffee", json!({"vault": "a"}))).await;
    assert_eq!(ids(&*store, filtered(&["tea"], &[("vault", json!("a"))])).await, ["1"]);
    assert_eq!(ids(&*store, filtered(&["tea"], &[("vault", json!(["a", "b"]))])).await, ["2", "1"]);
    let scored = store.data_query(&"acme".into(), filtered(&["tea"], &[("vault", json!("a"))])).await.unwrap();
    let plain = store.data_query(&"acme".into(), query(&["tea"])).await.unwrap();
    assert_eq!(scored[0].score, plain[1].score, "a filter does not count as a hit");
}

pub async fn an_empty_filter_list_matches_nothing(Harness { store, .. }: Harness) {
    put(&*store, with("1", "none", json!({"vault": "none"}))).await;
    assert_eq!(ids(&*store, filtered(&[], &[("vault", json!([]))])).await, [""; 0]);
    assert_eq!(ids(&*store, filtered(&["none"], &[("vault", json!([]))])).await, [""; 0]);
}

pub async fn the_limit_holds(Harness { store, .. }: Harness) {
    for number in 0..300 {
        put(&*store, with(&number.to_string(), "same words", json!({"vault": "v"}))).await;
    }
    let count = async |words: &[&str], limit| {
        let rows = store.data_query(&"acme".into(), DataQuery { limit, ..query(words) }).await.unwrap();
        let by_filter = DataQuery { limit, ..filtered(words, &[("vault", json!("v"))]) };
        assert_eq!(store.data_query(&"acme".into(), by_filter).await.unwrap().len(), rows.len());
        rows.len()
    };
    for words in [&[][..], &["words"]] {
        assert_eq!((count(words, 0).await, count(words, 7).await, count(words, 299).await), (0, 7, 299), "{words:?}");
    }
}

pub async fn a_filter_value_is_not_a_word(Harness { store, .. }: Harness) {
    put(&*store, with("1", "plain", json!({"vault": "secretive", "domain_tags": ["tagged"]}))).await;
    for word in ["secretive", "tagged", "vault", "domain_tags", "none"] {
        assert_eq!(found(&*store, &[word]).await, [""; 0], "{word}");
    }
}

pub async fn expired_rows_are_not_seen_and_go(Harness { store, .. }: Harness) {
    put(&*store, PortableData { expires_at: Some(100), ..with("1", "tea", json!({"vault": "v"})) }).await;
    put(&*store, PortableData { expires_at: Some(101), ..with("2", "tea", json!({"vault": "v"})) }).await;
    assert_eq!(store.data_get(&"acme".into(), "1", 99).await.unwrap().map(|row| row.id).as_deref(), Some("1"));
    assert_eq!(store.data_get(&"acme".into(), "1", 100).await.unwrap(), None, "expired at its time");
    for asked in [query(&[]), query(&["tea"]), filtered(&[], &[("vault", json!("v"))])] {
        assert_eq!(ids(&*store, asked).await, ["2"]);
    }
    assert_eq!(super::purge(&*store, at(100)).await, 1);
    assert_eq!(store.data_get(&"acme".into(), "1", 0).await.unwrap(), None, "erased");
    let before = DataQuery { now_s: 0, ..query(&["tea"]) };
    assert_eq!(ids(&*store, before).await, ["2"], "also removed from the index");
    assert_eq!(store.report().await.unwrap().faults, [""; 0]);
    put(&*store, row("1", "tea again")).await;
    assert_eq!(found(&*store, &["again"]).await, ["1"]);
}

pub async fn large_rows_are_purged_in_small_steps(Harness { store, .. }: Harness) {
    let text = "tea and cake ".repeat(10_000);
    for id in ["1", "2", "3", "4", "5", "6"] {
        put(&*store, PortableData { expires_at: Some(50), ..row(id, &text) }).await;
    }
    let mut gone = Vec::new();
    loop {
        let step = store.purge(at(100)).await.unwrap();
        gone.push(step.gone);
        if !step.more && step.gone == 0 {
            break;
        }
    }
    assert!(gone.iter().all(|gone| *gone < 6), "other writes are possible in between: {gone:?}");
    assert_eq!(gone.iter().sum::<u64>(), 6, "{gone:?}");
    assert_eq!(store.report().await.unwrap().faults, [""; 0]);
}

fn at(now_s: u64) -> Retention {
    Retention { now_ms: now_s * 1_000, ..Retention::default() }
}

pub async fn rows_without_expiry_are_kept(Harness { store, .. }: Harness) {
    put(&*store, row("1", "tea")).await;
    assert_eq!(super::purge(&*store, at(u64::from(u32::MAX))).await, 0);
    let far = DataQuery { now_s: u64::MAX >> 1, ..query(&["tea"]) };
    assert_eq!(ids(&*store, far).await, ["1"], "nothing expires by itself");
}

pub async fn data_of_tenants_are_separate(Harness { store, .. }: Harness) {
    put(&*store, with("1", "our secret", json!({"vault": "v"}))).await;
    store.data_put(&"other".into(), with("1", "their secret", json!({"vault": "v"}))).await.unwrap();
    store.data_put(&"other".into(), row("2", "their other")).await.unwrap();
    put(&*store, row("3", "our other")).await;
    for (tenant, word, expected) in [("acme", "our", ["3", "1"]), ("other", "their", ["2", "1"])] {
        let mine = |query| async { store.data_query(&TenantId::from(tenant), query).await.unwrap() };
        for found in [mine(query(&[])).await, mine(query(&[word])).await] {
            let ids: Vec<&str> = found.iter().map(|row| row.id.as_str()).collect();
            let mut expected = expected.to_vec();
            if found[0].score.is_some() {
                expected.sort_by_key(|id| ids.iter().position(|it| it == id));
            }
            assert_eq!(ids, expected, "{tenant}");
            assert!(found.iter().all(|row| row.summary.starts_with(word)));
        }
        assert_eq!(mine(filtered(&["secret"], &[("vault", json!("v"))])).await.len(), 1);
    }
    assert_eq!(found(&*store, &["their"]).await, [""; 0]);
    assert_eq!(store.data_get(&"acme".into(), "2", 0).await.unwrap(), None);
    assert_eq!(store.data_get(&"nobody".into(), "1", 0).await.unwrap(), None);
    assert_eq!(store.data_get(&"acme".into(), "1", 0).await.unwrap().unwrap().summary, "our secret");
}

pub async fn scores_do_not_depend_on_other_tenants(Harness { store, .. }: Harness) {
    put(&*store, row("1", "rare word here")).await;
    put(&*store, row("2", "rare thing, rare indeed")).await;
    let scores = async || {
        let rows = store.data_query(&"acme".into(), query(&["rare"])).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.score)).collect::<Vec<_>>()
    };
    let before = scores().await;
    for number in 0..50 {
        store.data_put(&"other".into(), row(&number.to_string(), "rare rare rare word here")).await.unwrap();
    }
    assert_eq!(scores().await, before);
}

pub async fn a_text_with_zero_bytes_is_kept_and_found(Harness { store, .. }: Harness) {
    let text = "before\0after\nend";
    put(&*store, row("1", text)).await;
    assert_eq!(store.data_get(&"acme".into(), "1", 0).await.unwrap().unwrap().detail.as_deref(), Some(text));
    assert_eq!(found(&*store, &["before"]).await, ["1"]);
    assert_eq!(found(&*store, &["end"]).await, ["1"]);
}

pub async fn very_long_texts_are_found(Harness { store, .. }: Harness) {
    let text = format!("{}needle", "hay ".repeat(250_000));
    put(&*store, row("1", &text)).await;
    put(&*store, row("2", "a needle")).await;
    assert_eq!(found(&*store, &["needle"]).await, ["2", "1"]);
    assert_eq!(found(&*store, &["hay"]).await, ["1"]);
    assert_eq!(store.data_get(&"acme".into(), "1", 0).await.unwrap().unwrap().detail, Some(text));
}

pub async fn the_details_of_an_answer_are_bounded(Harness { store, .. }: Harness) {
    let quarter = format!("tea {}", "x".repeat(ANSWER_MAX_BYTES / 4));
    for id in ["1", "2", "3", "4"] {
        put(&*store, row(id, &quarter)).await;
    }
    put(&*store, row("5", "tea")).await;
    let found = store.data_query(&"acme".into(), query(&["tea"])).await.unwrap();
    let whole: Vec<(&str, bool)> = found.iter().map(|row| (row.id.as_str(), row.detail.is_some())).collect();
    assert_eq!(whole, [("5", true), ("4", true), ("3", true), ("2", true), ("1", false)]);
    assert!(found[4].summary.starts_with("tea "), "the summary is there");
    assert_eq!(
        store.data_get(&"acme".into(), "1", 0).await.unwrap().unwrap().detail,
        Some(quarter),
        "the detail can be read alone"
    );
}

pub async fn data_survive(harness: Harness) {
    put(&*harness.store, row("1", "tea")).await;
    let harness = harness.reopened();
    assert_eq!(found(&*harness.store, &["tea"]).await, ["1"]);
    put(&*harness.store, row("2", "tea")).await;
    assert_eq!(found(&*harness.store, &["tea"]).await, ["2", "1"], "numbering continues");
}
