//! Rules for fragments of events: what a claim has, and what is known after it.

use frontdesk_core::port::fragments::{FRAGMENTS_MAX, FRAGMENTS_MAX_BYTES, JOINED_KEPT_MS};
use frontdesk_core::port::store::{ChatGroups, Claim, Fragment, Held, Store};

use super::Harness;

fn fragment(chat_id: &str, group: &str, id: &str, at_ms: u64) -> Fragment {
    Fragment {
        platform: "p".into(),
        bot: "b".into(),
        chat_id: chat_id.into(),
        group: group.into(),
        id: id.into(),
        at_ms,
        sealed: id.as_bytes().to_vec(),
    }
}

async fn hold(store: &dyn Store, fragments: &[Fragment]) {
    for it in fragments {
        assert_eq!(store.hold(it.clone()).await.unwrap(), Held::New, "{}", it.id);
    }
}

fn ids(claims: &[Claim]) -> Vec<Vec<&str>> {
    claims.iter().map(|claim| claim.fragments.iter().map(|it| it.id.as_str()).collect()).collect()
}

pub async fn a_group_is_claimed_once_it_is_quiet(Harness { store, .. }: Harness) {
    let (first, second) = (fragment("c", "g", "2", 100), fragment("c", "g", "1", 150));
    hold(&*store, &[first.clone(), fragment("c", "h", "3", 120), second.clone()]).await;
    let (claims, is_more) = store.claim_quiet(130, 0, 200).await.unwrap();
    assert_eq!((ids(&claims), is_more), (vec![vec!["3"]], true), "the other one got something after that");
    store.joined(claims[0].number).await.unwrap();
    let (claims, is_more) = store.claim_quiet(150, 0, 200).await.unwrap();
    assert_eq!(claims[0].fragments, [first, second], "in the order in which they came");
    assert_eq!((claims.len(), is_more), (1, true), "it is not joined yet");
    assert_eq!(store.claim_quiet(199, 0, 200).await.unwrap(), (vec![], true), "claimed by one");
    store.joined(claims[0].number).await.unwrap();
    assert_eq!(store.claim_quiet(199, 0, 200).await.unwrap(), (vec![], false));
}

pub async fn a_clock_that_is_set_back_holds_nothing(Harness { store, .. }: Harness) {
    hold(&*store, &[fragment("c", "g", "1", 5_000)]).await;
    let (claims, _) = store.claim_quiet(100, 0, 200).await.unwrap();
    assert_eq!(ids(&claims), [["1"]]);
    assert_eq!(ids(&store.claim_quiet(0, 0, 100).await.unwrap().0), [["1"]], "nor a claim");
}

pub async fn a_claim_is_fixed_and_can_be_taken_again(Harness { store, .. }: Harness) {
    hold(&*store, &[fragment("c", "g", "1", 100), fragment("c", "g", "2", 101)]).await;
    let (first, _) = store.claim_quiet(200, 0, 1_000).await.unwrap();
    hold(&*store, &[fragment("c", "g", "3", 300)]).await;
    assert_eq!(store.claim_quiet(0, 999, 1_100).await.unwrap().0, [], "whoever has it is at work");
    let (again, is_more) = store.claim_quiet(0, 1_000, 2_000).await.unwrap();
    assert_eq!((again, is_more), (first.clone(), true), "without the one that came later");
    assert_eq!(store.claim_quiet(0, 1_999, 2_000).await.unwrap().0, [], "it has just been taken again");
    store.joined(first[0].number).await.unwrap();
    let (late, _) = store.claim_quiet(300, 9_000, 9_000).await.unwrap();
    assert_eq!(ids(&late), [["3"]], "a group of its own");
    assert_ne!(late[0].number, first[0].number);
    store.joined(late[0].number).await.unwrap();
    assert_eq!(store.claim_quiet(9_999, 9_999, 9_999).await.unwrap(), (vec![], false));
}

pub async fn a_fragment_is_known_after_it_was_joined(Harness { store, .. }: Harness) {
    let it = fragment("c", "g", "1", 100);
    hold(&*store, std::slice::from_ref(&it)).await;
    assert_eq!(store.hold(it.clone()).await.unwrap(), Held::Known, "while it waits");
    let other = Fragment { bot: "other".into(), ..it.clone() };
    hold(&*store, &[other]).await;
    let (claims, _) = store.claim_quiet(100, 0, 200).await.unwrap();
    assert_eq!(claims.len(), 2, "each bot has its own");
    for claim in claims {
        store.joined(claim.number).await.unwrap();
    }
    assert_eq!(store.hold(it.clone()).await.unwrap(), Held::Known);
    assert_eq!(store.claim_quiet(900, 900, 900).await.unwrap(), (vec![], false));
    store.claim_quiet(0, 0, 99 + JOINED_KEPT_MS).await.unwrap();
    assert_eq!(store.hold(it.clone()).await.unwrap(), Held::Known);
    store.claim_quiet(0, 0, 100 + JOINED_KEPT_MS).await.unwrap();
    assert_eq!(store.hold(it).await.unwrap(), Held::New, "not for ever");
}

pub async fn a_chat_claims_its_groups_but_one(Harness { store, .. }: Harness) {
    let groups = |chat_id: &str, but: Option<&str>| ChatGroups {
        platform: "p".into(),
        bot: "b".into(),
        chat_id: chat_id.into(),
        but: but.map(str::to_owned),
    };
    assert_eq!(store.claim_chat(groups("c", None), 1).await.unwrap(), []);
    let elsewhere = Fragment { bot: "other".into(), ..fragment("c", "g4", "4", 1) };
    hold(&*store, &[fragment("c", "g2", "1", 9), fragment("c", "g1", "2", 5), fragment("d", "g3", "3", 1), elsewhere])
        .await;
    hold(&*store, &[fragment("c", "g5", "5", 1)]).await;
    let claims = store.claim_chat(groups("c", Some("g5")), 10).await.unwrap();
    assert_eq!(ids(&claims), [["1"], ["2"]], "in the order in which they began");
    store.joined(claims[0].number).await.unwrap();
    assert_eq!(store.claim_chat(groups("c", Some("g5")), 10).await.unwrap(), claims[1..], "perhaps it failed");
    store.joined(claims[1].number).await.unwrap();
    assert_eq!(store.claim_chat(groups("c", Some("g5")), 10).await.unwrap(), []);
    assert_eq!(ids(&store.claim_chat(groups("d", None), 10).await.unwrap()), [["3"]]);
    assert_eq!(ids(&store.claim_chat(groups("c", None), 10).await.unwrap()), [["5"]]);
}

pub async fn fragments_of_a_bot_are_limited(Harness { store, .. }: Harness) {
    let large = Fragment { sealed: vec![0; FRAGMENTS_MAX_BYTES - 1], ..fragment("c", "g", "large", 1) };
    hold(&*store, &[large, fragment("c", "g", "1", 1)]).await;
    assert_eq!(store.hold(fragment("c", "g", "2", 1)).await.unwrap(), Held::Full);
    let other = Fragment { bot: "other".into(), ..fragment("c", "g", "2", 1) };
    hold(&*store, &[other]).await;
    for claim in store.claim_quiet(1, 0, 2).await.unwrap().0 {
        store.joined(claim.number).await.unwrap();
    }
    for number in 0..FRAGMENTS_MAX {
        hold(&*store, &[fragment("c", "g", &format!("n{number}"), 1)]).await;
    }
    assert_eq!(store.hold(fragment("c", "g", "2", 1)).await.unwrap(), Held::Full);
}

pub async fn fragments_survive(harness: Harness) {
    hold(&*harness.store, &[fragment("c", "g", "1", 100), fragment("c", "h", "2", 100)]).await;
    let claims = harness.store.claim_quiet(100, 0, 200).await.unwrap().0;
    harness.store.joined(claims[0].number).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(harness.store.hold(fragment("c", "g", "1", 100)).await.unwrap(), Held::Known);
    let (again, _) = harness.store.claim_quiet(0, 200, 300).await.unwrap();
    assert_eq!(again, claims[1..]);
}
