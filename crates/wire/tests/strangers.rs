//! Untrusted input: parsing any text returns a value or an error and never panics.
#![allow(clippy::unwrap_used, reason = "tests")]

use frontdesk_wire::lines::Lines;
use frontdesk_wire::token::{Proof, SKEW_S, claim, mint};
use frontdesk_wire::{Action, GatewayFrame, Secret, Source, UserId, build_session_key};
use proptest::prelude::*;

/// Text that resembles frames: names of the contract mixed with JSON syntax.
fn near_json() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "null",
        "true",
        "1e999",
        "-0",
        "\"type\"",
        "\"op\"",
        "\"hello\"",
        "\"outbound\"",
        "\"send\"",
        "\"chat_id\"",
        "\"action\"",
        "\"requestId\"",
        "\"r\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"bufferId\"",
        "\"inbound_ack\"",
        "\"metadata\"",
        " ",
        "\n",
        "é",
        "🙂",
    ]);
    prop::collection::vec(words, 0..24).prop_map(|words| words.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        near_json(),
        near_json().prop_map(|inner| format!("{{\"type\":\"outbound\",{inner}}}"))
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_frame_or_an_error(text in any_text()) {
        if let Ok(GatewayFrame::Outbound { action, .. }) = GatewayFrame::parse(&text) {
            let _ = Action::parse(action);
        }
    }

    #[test]
    fn any_text_is_an_action_or_an_error(text in any_text()) {
        if let Ok(action) = Action::parse(&text) {
            prop_assert_eq!(Action::parse(&action.to_value().to_string()), Ok(action));
        }
    }

    #[test]
    fn any_text_is_a_claim_or_nothing(text in any_text(), encoded in "[A-Za-z0-9_=-]{0,80}") {
        for token in [text, encoded] {
            if let Some(claimed) = claim(&token) {
                prop_assert_eq!(claimed.prove([&Secret::new("not the signer's")], 0), Proof::Bad);
            }
        }
    }

    #[test]
    fn a_token_proves_any_id(id in ".{1,200}", secret in ".{0,80}", exp in 0_u64..=u64::from(u32::MAX) * 4) {
        let (secret, other) = (Secret::new(secret.clone()), Secret::new(secret + "x"));
        let token = mint(&id, &secret, exp);
        let Some(claimed) = claim(&token) else {
            prop_assert!(token.len() > 2048, "only an overlong id is refused");
            return Ok(());
        };
        prop_assert_eq!(&claimed.gateway_id, &id);
        prop_assert_eq!(claimed.prove([&other, &secret], exp), Proof::Good);
        prop_assert_eq!(claimed.prove([&other], exp), Proof::Bad);
        let late = if exp == 0 { Proof::Good } else { Proof::Expired };
        prop_assert_eq!(claimed.prove([&secret], exp + SKEW_S + 1), late);
    }

    #[test]
    fn a_token_changed_in_one_place_is_refused(id in "[a-z:]{1,20}", place in any::<prop::sample::Index>(), to in "[A-Za-z0-9_-]") {
        let secret = Secret::new("s");
        let token = mint(&id, &secret, 0);
        let mut bent = token.clone().into_bytes();
        let place = place.index(bent.len());
        bent[place] = to.as_bytes()[0];
        let bent = String::from_utf8(bent).unwrap();
        prop_assume!(bent != token);
        if let Some(claimed) = claim(&bent) {
            // The hex digits of the signature may change case without changing the signature.
            let same = claimed.gateway_id == id && claimed.prove([&secret], 0) == Proof::Good;
            prop_assert!(!same || place > token.len() - 90);
            prop_assert!(same || claimed.prove([&secret], 0) == Proof::Bad);
        }
    }

    #[test]
    fn lines_are_the_same_however_they_are_split(text in "[ab\n ]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..8)) {
        let split = |chunks: &[&str]| {
            let (mut lines, mut seen) = (Lines::new(1_000), Vec::new());
            for chunk in chunks {
                lines.push(chunk, |line| seen.push(line.to_owned())).expect("within the limit");
            }
            seen
        };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let (mut chunks, mut from) = (Vec::new(), 0);
        for cut in cuts {
            chunks.push(&text[from..cut]);
            from = cut;
        }
        chunks.push(&text[from..]);
        prop_assert_eq!(split(&chunks), split(&[&text]));
    }

    #[test]
    fn any_source_has_a_key_of_its_platform(
        platform in prop::sample::select(vec!["whatsapp", "discord", ""]),
        chat_type in prop::sample::select(vec!["dm", "group", ""]),
        chat_id in any::<String>(),
        user_id in any::<Option<String>>(),
        thread_id in any::<Option<String>>(),
    ) {
        let source = Source {
            platform: platform.into(), chat_type: chat_type.into(), chat_id: chat_id.into(), user_id: user_id.map(UserId::from), thread_id, ..Source::default()
        };
        let start = format!("agent:main:{platform}:{chat_type}");
        prop_assert!(build_session_key(&source).starts_with(&start));
    }
}

#[test]
fn an_id_that_would_make_the_token_too_long_is_refused() {
    assert!(claim(&mint(&"g".repeat(4_000), &Secret::new("s"), 0)).is_none());
    assert!(claim(&mint("", &Secret::new("s"), 0)).is_none(), "an empty id is refused, too");
}
