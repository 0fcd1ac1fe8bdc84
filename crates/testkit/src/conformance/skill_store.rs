//! Rules 18 to 24 and 33: skills.

use std::collections::HashSet;

use frontdesk_core::sha256_hex;
use frontdesk_wire::agents::{
    Class, Fault, OneOrMany, SkillFilter, SkillMeta, SkillNote, SkillSource, SkillStatus, SkillStore, VersionInfo,
};
use serde_json::json;

/// The key of a secured store under test. The private key is not needed, because nothing is signed here.
pub const PUBLIC_KEY_PEM: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAgGNpSPVY6szlY/TgpJ2DxlwWUehPF1fS7/H5gMKjQ1o=
-----END PUBLIC KEY-----
";
/// Signature with that key, made by another program over the body below without its Status and Tags lines.
const TOKEN: &str = "v3:44JWhCJFI_8ixE_aWZHpARwCj90Qbs17LW1MSAFZrrFXNwRSfzKE-tqHhRUsOXUlF0TXWyO3mohhG9dmx03cCQ";

fn signed(status: &str) -> String {
    format!("# Skill: signed\r\n# Status: {status}\r\n# Tags: any\r\n\r\nsay \u{1F600} hello\r\n")
}

async fn put(store: &dyn SkillStore, name: &str, source: &str) -> VersionInfo {
    store.store(name, source, &SkillNote::default()).await.unwrap()
}

async fn load(store: &dyn SkillStore, name: &str) -> SkillSource {
    store.load(name, None).await.unwrap()
}

async fn names(store: &dyn SkillStore, filter: SkillFilter) -> Vec<String> {
    store.query(&filter).await.unwrap().into_iter().map(|meta| meta.name).collect()
}

async fn put_by(store: &dyn SkillStore, name: &str, source: &str, author: &str) -> Result<VersionInfo, Fault> {
    let note = SkillNote { author: Some(author.into()), ..SkillNote::default() };
    store.store(name, source, &note).await
}

/// Checks that the head is the same wherever it is read.
async fn agrees(store: &dyn SkillStore, name: &str) -> SkillMeta {
    let found = load(store, name).await;
    let meta = store.metadata(name).await.unwrap();
    assert_eq!(found.metadata, meta, "rule 19: metadata are the same wherever they are read");
    assert_eq!(found.content_hash, sha256_hex(&found.source), "rule 18: the hash is of the stored bytes");
    assert_eq!(found.version, found.content_hash[..12], "rule 18: the version is the first 12 digits of the hash");
    assert_eq!((&meta.version, &meta.content_hash), (&found.version, &found.content_hash), "rule 18: of the head");
    let last = store.versions(name).await.unwrap().pop().unwrap();
    assert_eq!(
        (&last.content_hash, last.status),
        (&meta.content_hash, meta.status),
        "rule 20: the newest row of the history is the head"
    );
    assert!(meta.created_at <= meta.updated_at, "rule 20: created_at is not after updated_at");
    meta
}

pub async fn rule_18_a_body_is_kept_byte_for_byte(store: &dyn SkillStore) {
    let bodies = [
        "",
        "\n",
        "\u{feff}# Skill: a\r\n# Status: Draft\r\n\r\n  body\t \r\n\r\n",
        "# Status: Approved   \n\n\n\n# Status: Disabled\n",
        "a\rb\u{2028}c\u{85}d\0e",
        "cafe\u{301} caf\u{e9} \u{1F600}\u{200d}",
    ];
    for body in bodies {
        let version = put(store, "a", body).await;
        let found = load(store, "a").await;
        assert_eq!(found.source.as_bytes(), body.as_bytes(), "rule 18: {body:?}");
        assert_eq!((version.name.as_str(), &version.version), ("a", &found.version), "rule 18: {body:?}");
    }
}

pub async fn rule_18_the_hash_is_of_the_stored_bytes(store: &dyn SkillStore) {
    let body = "# Status: Draft\n";
    let version = put(store, "a", body).await;
    assert_eq!(version.content_hash, sha256_hex(body), "rule 18: the hash includes the Status line");
    let version = put(store, "b", "abc").await;
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!((version.content_hash.as_str(), version.version.as_str()), (abc, &abc[..12]), "rule 18");
    agrees(store, "a").await;
    agrees(store, "b").await;
}

pub async fn rule_19_the_status_is_the_bodys(store: &dyn SkillStore) {
    for (body, status) in [
        ("no line", SkillStatus::Draft),
        ("# Status: Approved", SkillStatus::Approved),
        ("#Status:aPPROVED and more", SkillStatus::Approved),
        ("\t# Status : disabled\n", SkillStatus::Disabled),
        ("# status: Approved", SkillStatus::Draft),
        ("# Status: Unheard\n# Status: Approved", SkillStatus::Draft),
        ("x\n# Status: Disabled\n# Status: Approved", SkillStatus::Disabled),
        ("# Status:\nApproved", SkillStatus::Draft),
    ] {
        let version = put(store, "a", body).await;
        assert_eq!(version.status, status, "rule 19: {body:?}");
        assert_eq!(agrees(store, "a").await.status, status, "rule 19: {body:?}");
    }
}

pub async fn rule_20_a_status_is_changed_in_the_body(store: &dyn SkillStore) {
    let first = put(store, "a", "# Skill: a\n# Status: Draft\nbody\n").await;
    let second = store.update_status("a", SkillStatus::Approved).await.unwrap();
    assert_eq!(
        load(store, "a").await.source,
        "# Skill: a\n# Status: Approved\nbody\n",
        "rule 20: the line is rewritten"
    );
    assert_ne!(second.content_hash, first.content_hash, "rule 20: a new hash");
    assert_ne!(second.version, first.version, "rule 20: a new version");
    assert_eq!(second.previous_status, Some(SkillStatus::Draft), "rule 20: the previous status");
    assert_eq!(second.status, SkillStatus::Approved, "rule 20");
    let third = store.update_status("a", SkillStatus::Disabled).await.unwrap();
    assert_eq!(third.previous_status, Some(SkillStatus::Approved), "rule 20: the previous status");
    assert_eq!(
        store.versions("a").await.unwrap(),
        [first.clone(), second, third],
        "rule 20: every change is in the history"
    );
    assert_eq!(first.previous_status, None, "rule 20: a store is not a change of status");
    assert_eq!(agrees(store, "a").await.status, SkillStatus::Disabled, "rule 20");
}

pub async fn rule_20_status_rewrite_swallows_blank_lines(store: &dyn SkillStore) {
    for (body, rewritten) in [
        ("# Status: Draft\r\nbody\r\n", "# Status: Approved\nbody\r\n"),
        ("# Status: Draft\n\n \n\t\n  body", "# Status: Approved\n  body"),
        ("# Status: Draft  \n\n\n", "# Status: Approved"),
        ("a\n#  Status :  Draft and words\nb\n\n", "a\n# Status: Approved\nb\n\n"),
    ] {
        put(store, "a", body).await;
        let version = store.update_status("a", SkillStatus::Approved).await.unwrap();
        assert_eq!(load(store, "a").await.source, rewritten, "rule 20: {body:?}");
        assert_eq!(version.content_hash, sha256_hex(rewritten), "rule 20: the same hash as in other stores");
    }
}

pub async fn rule_20_a_status_line_is_put_in_where_there_is_none(store: &dyn SkillStore) {
    put(store, "a", "x\n# Skill: a\nbody").await;
    store.update_status("a", SkillStatus::Disabled).await.unwrap();
    assert_eq!(load(store, "a").await.source, "x\n# Skill: a\n# Status: Disabled\nbody", "rule 20: after # Skill:");
    put(store, "b", "\nbody").await;
    store.update_status("b", SkillStatus::Disabled).await.unwrap();
    assert_eq!(load(store, "b").await.source, "# Status: Disabled\n\nbody", "rule 20: otherwise at the beginning");
}

pub async fn rule_20_changes_at_the_same_time_are_all_kept(store: &dyn SkillStore) {
    put(store, "a", "# Status: Draft\n").await;
    let flip = || store.update_status("a", SkillStatus::Approved);
    let flop = || store.update_status("a", SkillStatus::Draft);
    let (a, b, c, d) = tokio::join!(flip(), flop(), flip(), flop());
    let done = [a, b, c, d].into_iter().flatten().count();
    assert!(done >= 1, "rule 20: at least one succeeds");
    let versions = store.versions("a").await.unwrap();
    assert_eq!(versions.len(), 1 + done, "rule 20: one row per success");
    for pair in versions.windows(2) {
        assert_eq!(pair[1].previous_status, Some(pair[0].status), "rule 20: each row follows from the one before");
    }
    agrees(store, "a").await;
}

pub async fn rule_21_the_bodys_own_status_wins_on_overwrite(store: &dyn SkillStore) {
    put(store, "a", "# Status: Approved\n").await;
    let again = put(store, "a", "# Status: Draft\nother\n").await;
    assert_eq!((again.status, agrees(store, "a").await.status), (SkillStatus::Draft, SkillStatus::Draft), "rule 21");
    let bare = put(store, "a", "no line").await;
    assert_eq!(bare.status, SkillStatus::Draft, "rule 21: a new body does not keep an old approval");
    put(store, "a", "# Status: Approved\n").await;
    assert_eq!(agrees(store, "a").await.status, SkillStatus::Approved, "rule 21");
}

pub async fn rule_21_another_author_is_a_conflict(store: &dyn SkillStore) {
    put_by(store, "a", "1", "ada").await.unwrap();
    assert_eq!(store.metadata("a").await.unwrap().author.as_deref(), Some("ada"), "rule 21: the author is kept");
    let fault = put_by(store, "a", "2", "bob").await.unwrap_err();
    assert_eq!(fault.class, Class::StorageConflictError, "rule 21");
    assert_eq!(fault.fields.get("skill_name"), Some(&json!("a")), "rule 21: the fault names the skill");
    assert!(fault.fields.get("reason").is_some_and(serde_json::Value::is_string), "rule 21: the fault has a reason");
    assert_eq!(load(store, "a").await.source, "1", "rule 21: nothing was written");
    put_by(store, "a", "2", "ada").await.unwrap();
    assert_eq!(load(store, "a").await.metadata.author.as_deref(), Some("ada"), "rule 21");
}

pub async fn rule_21_strange_names_are_refused(store: &dyn SkillStore) {
    for name in ["", ".", "..", "../up", ".hidden", "-x", "_x", "a/b", "a\\b", "a b", "a\n", "ä", "a\0", "%2e%2e"] {
        let fault = store.store(name, "x", &SkillNote::default()).await.unwrap_err();
        assert_eq!(fault.class, Class::ValidationError, "rule 21: {name:?}");
        assert_eq!(store.load(name, None).await.unwrap_err().class.status() / 100, 4, "rule 21: {name:?}");
    }
    assert_eq!(names(store, SkillFilter::default()).await, [""; 0], "rule 21: none of them was stored");
    for name in ["a", "9", "A.b-c_d", "a..b", "a."] {
        put(store, name, "x").await;
    }
}

pub async fn rule_21_old_versions_are_loaded(store: &dyn SkillStore) {
    let bodies = ["# Status: Draft\r\n\n", "two\n\n\n", "\u{feff}three"];
    let mut versions = Vec::new();
    for body in bodies {
        versions.push(put(store, "a", body).await.version);
    }
    for (version, body) in versions.iter().zip(bodies) {
        let found = store.load("a", Some(version)).await.unwrap();
        assert_eq!((found.source.as_str(), &found.version), (body, version), "rule 21: the bytes of that version");
        assert_eq!(found.content_hash, sha256_hex(body), "rule 21");
    }
    let fault = store.load("a", Some("000000000000")).await.unwrap_err();
    assert_eq!(fault.class, Class::VersionNotFoundError, "rule 21");
    assert_eq!(fault.fields.get("version"), Some(&json!("000000000000")), "rule 21: the fault names the version");
    assert_eq!(fault.fields.get("skill_name"), Some(&json!("a")), "rule 21: the fault names the skill");
}

pub async fn rule_21_versions_are_oldest_first(store: &dyn SkillStore) {
    let mut written = Vec::new();
    for body in ["1", "2", "3", "1"] {
        written.push(put(store, "a", body).await);
    }
    assert_eq!(store.versions("a").await.unwrap(), written, "rule 21");
}

pub async fn rule_22_queries_are_ordered_by_name(store: &dyn SkillStore) {
    for name in ["b", "a.b", "B", "a", "a-b", "9", "ab", "a_b"] {
        put(store, name, "x").await;
    }
    let order = ["9", "B", "a", "a-b", "a.b", "a_b", "ab", "b"];
    assert_eq!(names(store, SkillFilter::default()).await, order, "rule 22: byte by byte");
    let page = |offset, limit| SkillFilter { offset: Some(offset), limit: Some(limit), ..SkillFilter::default() };
    assert_eq!(names(store, page(0, 3)).await, order[..3], "rule 22: limit");
    assert_eq!(names(store, page(6, 3)).await, order[6..], "rule 22: offset");
    assert_eq!(names(store, page(8, 3)).await, [""; 0], "rule 22: past the end");
    assert_eq!(names(store, page(u64::MAX, u64::MAX)).await, [""; 0], "rule 22: far past the end");
    let unknown: SkillFilter = serde_json::from_value(json!({"colour": "red", "limit": 1})).unwrap();
    assert_eq!(names(store, unknown).await, ["9"], "rule 22: unknown keys are ignored");
}

pub async fn rule_22_each_filter_narrows(store: &dyn SkillStore) {
    put_by(store, "mail.read", "# Status: Approved\n# Tags: Mail, daily", "ada").await.unwrap();
    put_by(store, "mail.send", "# Status: Draft\n# Tags: mail", "bob").await.unwrap();
    put_by(store, "clean", "# Status: Disabled\n", "ada").await.unwrap();
    let found = async |filter: serde_json::Value| names(store, serde_json::from_value(filter).unwrap()).await;
    assert_eq!(found(json!({"status": "Approved"})).await, ["mail.read"], "rule 22: status");
    let many = json!({"status": ["Approved", "Disabled"]});
    assert_eq!(found(many).await, ["clean", "mail.read"], "rule 22: any of several statuses");
    assert_eq!(found(json!({"status": []})).await, [""; 0], "rule 22: an empty list of statuses matches nothing");
    assert_eq!(found(json!({"author": "ada"})).await, ["clean", "mail.read"], "rule 22: author");
    assert_eq!(found(json!({"name_pattern": "^mail\\."})).await, ["mail.read", "mail.send"], "rule 22: name_pattern");
    assert_eq!(found(json!({"name_pattern": "ea"})).await, ["clean", "mail.read"], "rule 22: anywhere in the name");
    assert_eq!(found(json!({"name_pattern": "^\\w+$"})).await, ["clean"], "rule 22: classes of characters");
    assert_eq!(found(json!({"tag": "mail"})).await, ["mail.read", "mail.send"], "rule 22: tag");
    assert_eq!(found(json!({"tag": ["daily", "mail"]})).await, ["mail.read"], "rule 22: all of several tags");
    assert_eq!(found(json!({"tag": "mail", "author": "bob"})).await, ["mail.send"], "rule 22: combined filters");
    let since = store.metadata("clean").await.unwrap().updated_at;
    assert_eq!(found(json!({"since": since + 1_000_000})).await, [""; 0], "rule 22: since");
    assert!(found(json!({"since": since})).await.contains(&"clean".to_owned()), "rule 22: since is inclusive");
}

pub async fn rule_22_tags_come_from_the_body(store: &dyn SkillStore) {
    put(store, "a", "# Skill: a\n# Tags:  Mail, ÄRGER ,mail,, two words \r\n").await;
    assert_eq!(store.metadata("a").await.unwrap().tags, ["mail", "ärger", "two words"], "rule 22");
    put(store, "a", "none any more").await;
    assert_eq!(store.metadata("a").await.unwrap().tags, [""; 0], "rule 22: tags are those of the current body");
}

pub async fn rule_22_bad_patterns_are_refused(store: &dyn SkillStore) {
    put(store, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b", "x").await;
    for pattern in ["(", "[", "a{2", "*", "((((a{100}){100}){100}){100})", &"a".repeat(100_000)] {
        let filter = SkillFilter { name_pattern: Some(pattern.into()), ..SkillFilter::default() };
        let answer = store.query(&filter).await;
        // Engines may accept some of these literally, but must not fail in another way.
        let class = answer.as_ref().err().map(|fault| fault.class);
        assert!(matches!(class, None | Some(Class::ValidationError)), "rule 22: {pattern:.40}: {answer:?}");
    }
    let slow = SkillFilter { name_pattern: Some("^(a+)+$".into()), ..SkillFilter::default() };
    assert_eq!(names(store, slow).await, [""; 0], "rule 22: no pattern runs without limit");
}

pub async fn rule_23_what_is_absent_is_a_fault(store: &dyn SkillStore) {
    let faults = [
        store.load("gone", None).await.unwrap_err(),
        store.load("gone", Some("000000000000")).await.unwrap_err(),
        store.metadata("gone").await.unwrap_err(),
        store.versions("gone").await.unwrap_err(),
        store.update_status("gone", SkillStatus::Draft).await.unwrap_err(),
        store.delete("gone").await.unwrap_err(),
    ];
    for fault in faults {
        assert_eq!(fault.class, Class::SkillNotFoundError, "rule 23: {fault}");
        assert_eq!(fault.fields.get("skill_name"), Some(&json!("gone")), "rule 23: the fault names the skill");
    }
    assert_eq!(store.query(&SkillFilter::default()).await.unwrap(), [], "rule 22: an empty list is not a fault");
}

pub async fn rule_23_delete_frees_the_name(store: &dyn SkillStore) {
    let old = put_by(store, "a", "1", "ada").await.unwrap();
    put_by(store, "a", "2", "ada").await.unwrap();
    store.delete("a").await.unwrap();
    assert_eq!(store.load("a", None).await.unwrap_err().class, Class::SkillNotFoundError, "rule 23");
    assert_eq!(names(store, SkillFilter::default()).await, [""; 0], "rule 23");
    put_by(store, "a", "3", "bob").await.unwrap();
    assert_eq!(store.versions("a").await.unwrap().len(), 1, "rule 23: no history is left");
    let fault = store.load("a", Some(&old.version)).await.unwrap_err();
    assert_eq!(fault.class, Class::VersionNotFoundError, "rule 23: no old body is left");
}

pub async fn rule_23_the_token_moves_with_every_change(store: &dyn SkillStore) {
    let mut seen = HashSet::from([store.version().await.unwrap()]);
    let mut moved = async |what: &str| {
        let token = store.version().await.unwrap();
        assert!(seen.insert(token.clone()), "rule 23: {what}");
        assert_eq!(store.version().await.unwrap(), token, "rule 23: reading does not change it");
    };
    put(store, "a", "# Status: Draft\n1").await;
    moved("a skill is added").await;
    put(store, "a", "# Status: Draft\n2").await;
    moved("a body is edited and its status stays").await;
    store.update_status("a", SkillStatus::Approved).await.unwrap();
    moved("a status is changed").await;
    put(store, "b", "# Status: Draft\n1").await;
    moved("another is added").await;
    store.delete("a").await.unwrap();
    moved("one is removed").await;
}

pub async fn rule_33_a_noted_status_is_written_into_the_body(store: &dyn SkillStore) {
    let note = |status| SkillNote { status: Some(status), ..SkillNote::default() };
    let body = "# Skill: a\n# Status: Draft\r\n\r\nbody\n";
    let version = store.store("a", body, &note(SkillStatus::Disabled)).await.unwrap();
    assert_eq!(
        load(store, "a").await.source,
        "# Skill: a\n# Status: Disabled\nbody\n",
        "rule 33: rewritten as by rule 20"
    );
    assert_eq!((version.status, version.previous_status), (SkillStatus::Disabled, None), "rule 33");
    store.store("a", body, &note(SkillStatus::Draft)).await.unwrap();
    assert_eq!(load(store, "a").await.source, body, "rule 33: the status that it has changes nothing");
    store.store("b", "body", &note(SkillStatus::Draft)).await.unwrap();
    assert_eq!(load(store, "b").await.source, "body", "rule 33: also if the body has no Status line");
    agrees(store, "a").await;
}

pub async fn rule_33_the_line_that_is_read_is_rewritten(store: &dyn SkillStore) {
    put(store, "a", "x\n \t# Status: Draft\n# Status: Approved\n").await;
    store.update_status("a", SkillStatus::Disabled).await.unwrap();
    let expected = "x\n \t# Status: Disabled\n# Status: Approved\n";
    assert_eq!(load(store, "a").await.source, expected, "rule 33: with its indentation");
    assert_eq!(agrees(store, "a").await.status, SkillStatus::Disabled, "rule 33");
}

pub async fn rule_33_the_same_again_is_history(store: &dyn SkillStore) {
    let first = put(store, "a", "same").await;
    let token = store.version().await.unwrap();
    let again = put(store, "a", "same").await;
    assert_eq!(again.version, first.version, "rule 33");
    assert_eq!(store.versions("a").await.unwrap().len(), 2, "rule 33: it is in the history");
    assert_eq!(store.version().await.unwrap(), token, "rule 33: the token does not change");
}

// ---- secured mode -----------------------------------------------------------------------------

pub async fn rule_24_an_unsigned_approval_is_stored_as_a_draft(store: &dyn SkillStore) {
    let forged = format!("Approved v3:{}", "A".repeat(86));
    let altered = format!("Approved {TOKEN}");
    let bodies = [signed("Approved"), signed(&forged), format!("{}more", signed(&altered)), signed("Approved x")];
    for body in bodies {
        let version = put(store, "a", &body).await;
        assert_eq!(version.status, SkillStatus::Draft, "rule 24: {body:?}");
        let kept = load(store, "a").await.source;
        assert!(kept.contains("# Status: Draft\n"), "rule 24: the line says Draft: {kept:?}");
        assert!(!kept.contains("Approved"), "rule 24: {kept:?}");
        agrees(store, "a").await;
    }
    let note = SkillNote { status: Some(SkillStatus::Approved), ..SkillNote::default() };
    let version = store.store("b", "body", &note).await.unwrap();
    assert_eq!(version.status, SkillStatus::Draft, "rule 24: a note does not approve");
    assert_eq!(load(store, "b").await.source, "body", "rule 24: a draft is stored unchanged");
}

pub async fn rule_24_a_signed_body_is_kept_as_it_is(store: &dyn SkillStore) {
    let body = signed(&format!("Approved {TOKEN}"));
    assert_eq!(put(store, "a", &body).await.status, SkillStatus::Approved, "rule 24");
    assert_eq!(load(store, "a").await.source, body, "rule 24: byte for byte");
    let other_tags = body.replace("# Tags: any", "# Tags: other");
    assert_eq!(put(store, "a", &other_tags).await.status, SkillStatus::Approved, "rule 24: tags are not signed");
    let plain_ends = body.replace("\r\n", "\n");
    assert_eq!(put(store, "a", &plain_ends).await.status, SkillStatus::Approved, "rule 24: line ends are not signed");
}

pub async fn rule_24_an_unsigned_body_is_not_promoted(store: &dyn SkillStore) {
    put(store, "a", &signed("Draft")).await;
    let token = store.version().await.unwrap();
    let fault = store.update_status("a", SkillStatus::Approved).await.unwrap_err();
    assert_eq!(fault.class, Class::ApprovalRejectedError, "rule 24");
    assert_eq!(fault.fields.get("skill_name"), Some(&json!("a")), "rule 24: the fault names the skill");
    assert!(fault.fields.get("reason").is_some_and(serde_json::Value::is_string), "rule 24: the fault has a reason");
    assert_eq!(load(store, "a").await.source, signed("Draft"), "rule 24: nothing was written");
    assert_eq!(store.version().await.unwrap(), token, "rule 24");
    let disabled = store.update_status("a", SkillStatus::Disabled).await.unwrap();
    assert_eq!(disabled.status, SkillStatus::Disabled, "rule 24: other changes need no signature");
    let one = SkillFilter { status: Some(OneOrMany::One(SkillStatus::Approved)), ..SkillFilter::default() };
    assert_eq!(names(store, one).await, [""; 0], "rule 24: nothing is approved");
}

pub async fn rule_24_a_signed_body_keeps_its_signature(store: &dyn SkillStore) {
    put(store, "a", &signed(&format!("Draft {TOKEN}"))).await;
    assert_eq!(agrees(store, "a").await.status, SkillStatus::Draft, "rule 24: a signature alone does not approve");
    let version = store.update_status("a", SkillStatus::Approved).await.unwrap();
    assert_eq!(version.status, SkillStatus::Approved, "rule 24");
    let kept = load(store, "a").await.source;
    assert!(kept.contains(&format!("# Status: Approved {TOKEN}\n")), "rule 24: {kept:?}");
    agrees(store, "a").await;
    let note = SkillNote { status: Some(SkillStatus::Approved), ..SkillNote::default() };
    store.store("b", &signed(&format!("Disabled {TOKEN}")), &note).await.unwrap();
    assert_eq!(agrees(store, "b").await.status, SkillStatus::Approved, "rules 24 and 33: a note may ask for it");
    let blank_behind = signed(&format!("Draft {TOKEN}")).replace("# Tags: any\r\n", "");
    put(store, "c", &blank_behind).await;
    store.update_status("c", SkillStatus::Approved).await.unwrap();
    let again = put(store, "c", &load(store, "c").await.source).await;
    assert_eq!(again.status, SkillStatus::Approved, "rule 24: the signature is valid for the stored body");
}
