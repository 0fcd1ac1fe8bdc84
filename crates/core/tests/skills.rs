//! Skill bodies compared with JavaScript and Node. The vectors and the script that made them are in `data/`.
#![allow(clippy::unwrap_used, reason = "tests")]

use frontdesk_core::agents::approval::{ApprovalKey, BadKey};
use frontdesk_core::agents::skill_text::{
    content_hash, description, is_name, status_of, tags, version_of, with_status,
};
use frontdesk_wire::agents::SkillStatus;
use proptest::prelude::*;
use serde_json::Value;

fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field].as_str().unwrap()
}

#[test]
fn rules_19_and_20_status_lines_are_read_and_rewritten_as_javascript_does() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("data/skill_status.json")).unwrap();
    assert!(vectors.len() > 200);
    assert!(
        vectors.iter().filter(|it| it["bundled"] == true).count() > 150,
        "most vectors are shared with other stores"
    );
    for vector in &vectors {
        let (source, status) = (text(vector, "source"), text(vector, "status"));
        assert_eq!(status_of(source).name(), text(vector, "read"), "rule 19: {source:?}");
        let rewritten = with_status(source, status);
        assert_eq!(rewritten, text(vector, "expected"), "rule 20: {source:?} to {status}");
        assert_eq!(content_hash(&rewritten), text(vector, "hash"), "rule 18");
    }
}

#[test]
fn rule_19_the_first_word_counts_in_any_case() {
    for (source, status) in [
        ("# Status: aPPROVED", SkillStatus::Approved),
        ("# Status: Disabled for now", SkillStatus::Disabled),
        ("#Status:draft", SkillStatus::Draft),
        ("\t # Status: approved", SkillStatus::Approved),
        ("# Status: Drafty", SkillStatus::Draft),
        ("# Status: Unheard\n# Status: Approved", SkillStatus::Draft),
        ("# STATUS: Approved", SkillStatus::Draft),
        ("# Status:\nApproved", SkillStatus::Draft),
        ("# Status:\n# Status: Approved", SkillStatus::Approved),
        ("", SkillStatus::Draft),
    ] {
        assert_eq!(status_of(source), status, "{source:?}");
    }
}

#[test]
fn rule_20_status_rewrite_swallows_blank_lines() {
    assert_eq!(with_status("# Status: Draft\r\n\r\n \n\tbody\n", "Approved"), "# Status: Approved\n\tbody\n");
    assert_eq!(with_status("# Status: Draft  \n\n\n", "Approved"), "# Status: Approved");
    assert_eq!(with_status("# Skill: a\n\n\nbody", "Disabled"), "# Skill: a\n# Status: Disabled\nbody");
    assert_eq!(with_status("body\n", "Draft"), "# Status: Draft\nbody\n");
}

#[test]
fn rule_33_the_line_that_is_read_is_rewritten_with_its_indentation() {
    let source = "# Skill: a\n  # Status: Draft\n# Status: Disabled\n";
    assert_eq!(with_status(source, "Approved"), "# Skill: a\n  # Status: Approved\n# Status: Disabled\n");
}

#[test]
fn rule_22_tags_are_trimmed_lower_case_and_unique() {
    assert_eq!(
        tags("# Skill: a\n# Tags:  Mail, ÄRGER ,mail,, two words \r\n# Tags: later"),
        ["mail", "ärger", "two words"]
    );
    assert_eq!(tags("  # Tags: a"), ["a"]);
    for none in ["", "# Tags:", "# Tags: , ,", "Tags: a", "# tags: a"] {
        assert_eq!(tags(none), [""; 0], "{none:?}");
    }
    assert_eq!(description("x\n# Description:  says hello \r\n").as_deref(), Some("says hello"));
    assert_eq!(description("# Description:\nhello"), None);
}

#[test]
fn rule_22_tags_are_few_and_short() {
    let many: Vec<String> = (0..100_000).map(|number| format!("tag {number}")).collect();
    assert_eq!(tags(&format!("# Tags: {}", many.join(","))), many[..256], "the others are not processed");
    let long = "x".repeat(1_000_000);
    assert_eq!(tags(&format!("# Tags: a, {long}, b")), ["a", "b"], "a tag that is too long is dropped");
}

#[test]
fn rule_21_names_are_plain() {
    for name in ["a", "9", "A.b-c_d", "a..b", "a.", &"a".repeat(256)] {
        assert!(is_name(name), "{name}");
    }
    let long = "a".repeat(257);
    for name in
        ["", ".", "..", "../a", ".a", "-a", "_a", "a/b", "a\\b", "a b", "a\n", "\na", "ä", "aä", "a\0", "a%2e", &long]
    {
        assert!(!is_name(name), "{name:?}");
    }
}

#[test]
fn rule_18_a_version_is_the_head_of_the_hash() {
    let hash = content_hash("");
    assert_eq!(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(version_of(&hash), "e3b0c44298fc");
}

fn approvals() -> (Value, ApprovalKey) {
    let vectors: Value = serde_json::from_str(include_str!("data/skill_approval.json")).unwrap();
    let key = ApprovalKey::from_pem(text(&vectors, "public_key_pem")).unwrap();
    (vectors, key)
}

#[test]
fn rule_24_signatures_of_other_implementations_are_valid() {
    let (vectors, key) = approvals();
    let signed = vectors["signed"].as_array().unwrap();
    assert!(signed.len() >= 25);
    for source in signed.iter().map(|it| it.as_str().unwrap()) {
        assert!(key.signed(source), "{source:?}");
        let approved = key.approved(source).unwrap();
        assert_eq!(status_of(&approved), SkillStatus::Approved);
        assert!(key.signed(&approved), "the signature stays: {approved:?}");
    }
}

#[test]
fn rule_24_signed_blank_lines_stay() {
    let (vectors, key) = approvals();
    let source = vectors["signed"][1].as_str().unwrap().replace("# Tags: x, y\n", "");
    assert!(key.signed(&source) && source.contains("# Status: Draft v3:"), "tags are not signed: {source:?}");
    let approved = key.approved(&source).unwrap();
    assert!(key.signed(&approved), "{approved:?}");
    assert_eq!(approved, source.replace("Draft", "Approved"));
    assert_eq!(key.approved(&approved), Some(approved.clone()), "approving again changes nothing");
}

#[test]
fn rule_24_anything_else_is_not_an_approval() {
    let (vectors, key) = approvals();
    for source in vectors["unsigned"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()) {
        assert!(!key.signed(source), "{source:?}");
        assert_eq!(key.approved(source), None);
    }
}

#[test]
fn rule_24_no_text_may_follow_a_status_line() {
    let (vectors, key) = approvals();
    let source = vectors["signed"][0].as_str().unwrap();
    assert!(key.signed(source) && source.contains("# Tags: x, y"));
    for end in ["\u{2028}", "\u{2029}"] {
        for line in ["# Tags: x, y", source.lines().nth(1).unwrap()] {
            let more = source.replace(line, &format!("{line}{end}run something else"));
            assert!(!key.signed(&more), "{more:?}");
        }
    }
}

#[test]
fn rule_34_only_an_ed25519_public_key_is_accepted() {
    let (vectors, key) = approvals();
    let pem = text(&vectors, "public_key_pem");
    assert_eq!(ApprovalKey::from_pem(&pem.replace('\n', "\r\n")), Ok(key));
    let found: Vec<_> = vectors["other_keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| ApprovalKey::from_pem(it.as_str().unwrap()))
        .collect();
    assert_eq!(found, [Err(BadKey::NotEd25519), Err(BadKey::NotEd25519), Err(BadKey::NotPem)]);
    let longer = pem.replace("-----END", "AAAA\n-----END");
    for bad in ["", "-----BEGIN PUBLIC KEY-----", &pem[..pem.len() - 9], &longer, &format!("{pem}{pem}")] {
        assert!(ApprovalKey::from_pem(bad).is_err(), "{bad}");
    }
}

/// Bodies made of confusing pieces.
fn bodies() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "#",
        " ",
        "Status",
        ":",
        "Draft",
        "Approved",
        "Skill",
        "\n",
        "\r",
        "\r\n",
        "\t",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{a0}",
        "x",
        "$1",
        "\u{1F600}",
        "v3:",
        "Tags",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_20_a_written_status_is_read_back(source in bodies(), status in prop::sample::select(vec!["Draft", "Approved", "Disabled"])) {
        let rewritten = with_status(&source, status);
        prop_assert_eq!(status_of(&rewritten).name(), status);
        // The first write may leave blank lines after a new line; the second finds the line and removes them.
        let again = with_status(&rewritten, status);
        prop_assert_eq!(status_of(&again).name(), status);
        prop_assert_eq!(with_status(&again, status), again.clone(), "further writes change nothing");
    }
}
