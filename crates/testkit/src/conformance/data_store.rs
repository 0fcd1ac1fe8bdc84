//! Rules 25 and 35: data.

use frontdesk_wire::agents::{Class, DataStore, DataWrite, PortableData, QueryFilters};
use serde_json::{Value, json};

async fn put(store: &dyn DataStore, content: &str) -> String {
    let entry = DataWrite { content: content.into(), ..DataWrite::default() };
    store.write(&entry).await.unwrap().id
}

async fn put_with(store: &dyn DataStore, content: &str, metadata: Value) -> PortableData {
    let metadata = metadata.as_object().cloned();
    let entry = DataWrite { content: content.into(), metadata, ..DataWrite::default() };
    let id = store.write(&entry).await.unwrap().id;
    store.get(&id).await.unwrap().unwrap()
}

fn ask(query: &str) -> QueryFilters {
    QueryFilters { query: query.into(), ..QueryFilters::default() }
}

async fn found(store: &dyn DataStore, query: &str) -> Vec<String> {
    let rows = store.query(&ask(query)).await.unwrap();
    rows.into_iter().map(|row| row.detail.unwrap_or_default()).collect()
}

async fn summary(store: &dyn DataStore, content: &str) -> String {
    let id = put(store, content).await;
    store.get(&id).await.unwrap().unwrap().summary
}

/// A list in the manifest, such as `supported_filters`.
async fn declared(store: &dyn DataStore, list: &str) -> Vec<String> {
    let manifest = store.manifest().await.unwrap().manifest;
    serde_json::from_value(manifest[list].clone()).unwrap_or_default()
}

pub async fn rule_25_the_summary_is_the_first_line(store: &dyn DataStore) {
    assert_eq!(summary(store, "first\nsecond\n").await, "first", "rule 25");
    assert_eq!(summary(store, "\nsecond").await, "", "rule 25: only the text before the first LF");
    let (short, long) = ("a".repeat(200), "a".repeat(201));
    assert_eq!(summary(store, &short).await, short, "rule 25: 200 units are short enough");
    assert_eq!(summary(store, &long).await, format!("{}...", "a".repeat(197)), "rule 25: 197 units and three dots");
    let wide = "ä".repeat(200);
    assert_eq!(summary(store, &wide).await, wide, "rule 25: units, not bytes");
}

pub async fn rule_35_a_summary_cuts_no_pair_in_half(store: &dyn DataStore) {
    let faces = "\u{1F600}".repeat(101);
    assert_eq!(summary(store, &faces).await, format!("{}...", "\u{1F600}".repeat(98)), "rule 35");
    let odd = format!("a{faces}");
    assert_eq!(summary(store, &odd).await, format!("a{}...", "\u{1F600}".repeat(98)), "rule 35");
}

pub async fn rule_25_the_detail_is_everything(store: &dyn DataStore) {
    for content in ["", "one", "\r\n\n tail \n", "\u{feff}a\0b\u{1F600}", &"long ".repeat(50_000)] {
        let entry = DataWrite { content: content.into(), ..DataWrite::default() };
        let written = store.write(&entry).await.unwrap();
        let row = store.get(&written.id).await.unwrap().unwrap();
        assert_eq!(row.detail.as_deref(), Some(content), "rule 25: {content:.20?}");
        assert_eq!((row.id, row.created_at), (written.id, Some(written.created_at)), "rule 25");
    }
}

pub async fn rule_25_absence_is_no_fault(store: &dyn DataStore) {
    for id in ["", "nothing", "00000000-0000-4000-8000-000000000000", "'; --"] {
        assert_eq!(store.get(id).await.unwrap(), None, "rule 25: a missing row is None, {id:?}");
    }
    assert_eq!(store.query(&ask("nothing")).await.unwrap(), [], "rule 25: no match is an empty list");
    assert_eq!(store.query(&ask("")).await.unwrap(), [], "rule 25");
}

pub async fn rule_25_ids_are_new(store: &dyn DataStore) {
    let (first, second) = (put(store, "same").await, put(store, "same").await);
    assert_ne!(first, second, "rule 25: each write creates a row");
    assert_eq!(found(store, "same").await.len(), 2, "rule 25");
}

pub async fn rule_25_all_words_are_required(store: &dyn DataStore) {
    let (fox, dog) = ("the quick brown fox", "the lazy dog\nand a quick cat");
    put(store, fox).await;
    put(store, dog).await;
    assert_eq!(found(store, "fox").await, [fox], "rule 25");
    assert_eq!(found(store, "cat  THE\tdog").await, [dog], "rule 25: in any order");
    assert_eq!(found(store, "fox dog").await, [""; 0], "rule 25: all words are required");
    assert_eq!(found(store, "the quick").await.len(), 2, "rule 25");
}

pub async fn rule_25_case_and_diacritics_do_not_matter(store: &dyn DataStore) {
    put(store, "Das CAFÉ in Zürich").await;
    for query in ["cafe", "Café", "CAFE\u{301}", "zurich", "ZÜRICH das"] {
        assert_eq!(found(store, query).await.len(), 1, "rule 25: {query}");
    }
}

pub async fn rule_25_boolean_words_are_words(store: &dyn DataStore) {
    let all = "cats and dogs or birds not fish near water";
    put(store, all).await;
    put(store, "cats").await;
    for query in ["cats AND dogs", "birds OR dogs", "NOT fish", "water NEAR fish", "cats OR", "AND", "cats NOT dogs"] {
        assert_eq!(found(store, query).await, [all], "rule 25: {query}");
    }
}

pub async fn rule_25_punctuation_is_never_an_error(store: &dyn DataStore) {
    put(store, "plain words 3.50").await;
    for query in [
        "\"",
        "\"\"\"",
        "'",
        "*",
        "words*",
        "^words",
        "(",
        ")",
        "((words)",
        "a:b",
        "text:words",
        "{words}",
        "-words",
        "+",
        "words;--",
        "\\",
        "NEAR(a b, 3)",
        "\0",
        "words\0",
        "\u{1F600}",
        "%",
        "_",
        "[",
        "?!",
        "a AND",
        "\"words",
    ] {
        let answer = store.query(&ask(query)).await;
        assert!(answer.is_ok(), "rule 25: {query:?}: {answer:?}");
    }
    for query in ["\"words\"", "(words)", "words,", "plain: words;", "3.50!"] {
        assert_eq!(found(store, query).await.len(), 1, "rule 25: {query}");
    }
    for query in ["\"", "?!", "-- *", "\u{1F600}"] {
        assert_eq!(found(store, query).await, [""; 0], "rule 25: {query:?} has no word, and matches nothing");
    }
}

pub async fn rule_25_no_words_are_newest_first(store: &dyn DataStore) {
    for content in ["one", "two", "three"] {
        put(store, content).await;
    }
    for query in ["", "  \n\t"] {
        assert_eq!(found(store, query).await, ["three", "two", "one"], "rule 25: {query:?}");
    }
}

pub async fn rule_25_an_undeclared_mode_fails(store: &dyn DataStore) {
    put(store, "tea").await;
    assert!(declared(store, "supported_modes").await.contains(&"fts".to_owned()), "rule 25: fts is always supported");
    let by = |mode: &str| QueryFilters { mode: Some(mode.into()), ..ask("tea") };
    assert_eq!(store.query(&by("fts")).await.unwrap().len(), 1, "rule 25");
    let fault = store.query(&by("telepathy")).await.unwrap_err();
    assert_eq!(fault.class, Class::QueryError, "rule 25");
    assert_eq!(fault.fields.get("mode"), Some(&json!("telepathy")), "rule 25: the fault names the mode");
}

pub async fn rule_25_filters_outside_the_manifest_fail(store: &dyn DataStore) {
    put(store, "tea").await;
    let asked = |permissive| QueryFilters {
        filters: json!({"zodiac": "leo", "aura": [1, {"x": null}]}).as_object().cloned().unwrap_or_default(),
        permissive_filters: permissive,
        ..ask("tea")
    };
    let fault = store.query(&asked(false)).await.unwrap_err();
    assert_eq!(fault.class, Class::UnsupportedFilterError, "rule 25");
    assert_eq!(
        fault.fields.get("unsupportedKeys"),
        Some(&json!(["aura", "zodiac"])),
        "rule 25: the fault names the keys"
    );
    let supported = declared(store, "supported_filters").await;
    assert_eq!(
        fault.fields.get("supportedKeys"),
        Some(&json!(supported)),
        "rule 25: the fault names the supported keys"
    );
    assert_eq!(store.query(&asked(true)).await.unwrap().len(), 1, "rule 25: permissive filters are ignored");
}

pub async fn rule_25_declared_filters_are_honoured(store: &dyn DataStore) {
    for key in declared(store, "supported_filters").await {
        let value = |word: &str| match key.as_str() {
            "domain_tags" => json!([word]),
            "pinned" => json!(word == "one"),
            _ => json!(word),
        };
        let one = put_with(store, &format!("by {key}"), json!({ key.clone(): value("one") })).await;
        let two = put_with(store, &format!("by {key}"), json!({ key.clone(): value("two") })).await;
        put(store, &format!("by {key}")).await;
        let by = async |value: Value| {
            let filters = json!({ key.clone(): value }).as_object().cloned().unwrap_or_default();
            let rows = store.query(&QueryFilters { filters, ..ask(&format!("by {key}")) }).await.unwrap();
            rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
        };
        assert_eq!(by(value("one")).await, [one.id.as_str()], "rule 25: the filter {key} is declared");
        let both: Vec<Value> = [value("one"), value("two")]
            .into_iter()
            .flat_map(|it| match it {
                Value::Array(items) => items,
                it => vec![it],
            })
            .collect();
        assert_eq!(by(both.into()).await, [two.id, one.id], "rule 25: any of several values, {key}");
    }
}

pub async fn rule_25_the_limit_holds(store: &dyn DataStore) {
    for number in 0..15 {
        put(store, &format!("tea number {number}")).await;
    }
    for query in ["", "tea"] {
        let limited = QueryFilters { limit: Some(3), ..ask(query) };
        assert_eq!(store.query(&limited).await.unwrap().len(), 3, "rule 25");
        assert_eq!(store.query(&ask(query)).await.unwrap().len(), 10, "rule 25: the default limit is ten");
        let huge = QueryFilters { limit: Some(u64::MAX), ..ask(query) };
        assert_eq!(store.query(&huge).await.unwrap().len(), 15, "rule 25: a limit of the store is not an error");
    }
}

pub async fn rule_25_nothing_expires_by_default(store: &dyn DataStore) {
    let id = put(store, "stays").await;
    assert_eq!(store.get(&id).await.unwrap().unwrap().expires_at, None, "rule 25");
    let past = DataWrite { content: "gone".into(), expires_at: Some(1), ..DataWrite::default() };
    let gone = store.write(&past).await.unwrap();
    assert_eq!(store.get(&gone.id).await.unwrap(), None, "rule 25: an expired row is gone");
    assert_eq!(found(store, "gone").await, [""; 0], "rule 25");
    let future = DataWrite { expires_at: Some(9_999_999_999), ..past };
    let there = store.write(&future).await.unwrap();
    let row = store.get(&there.id).await.unwrap().unwrap();
    assert_eq!(row.expires_at, Some(9_999_999_999), "rule 25: a row that has not expired is there");
}

pub async fn rule_25_curated_fields_stand_at_the_top(store: &dyn DataStore) {
    let metadata = json!({
        "pinned": true, "confidence": 0.5, "thread_status": "open", "tags": ["a", "b"], "agent_id": "ada",
        "id": "mine", "created_at": 7, "score": 9, "own": {"x": [1]},
    });
    let row = put_with(store, "content", metadata).await;
    for (key, value) in [("pinned", json!(true)), ("confidence", json!(0.5)), ("thread_status", json!("open"))] {
        assert_eq!(row.curated.get(key), Some(&value), "rule 25: {key}");
        assert_eq!(row.metadata.as_ref().and_then(|it| it.get(key)), None, "rule 25: {key} is not in metadata too");
    }
    assert_eq!(row.domain_tags, Some(vec!["a".into(), "b".into()]), "rule 25: tags");
    assert_eq!(
        row.metadata.as_ref().and_then(|it| it.get("own")),
        Some(&json!({"x": [1]})),
        "rule 25: other metadata stay"
    );
    assert_ne!(row.id, "mine", "rule 25: the store assigns the id");
    assert_ne!(row.created_at, Some(7), "rule 25: the store sets the time");
    assert_eq!(row.score, None, "rule 25: a written score is ignored");
}
