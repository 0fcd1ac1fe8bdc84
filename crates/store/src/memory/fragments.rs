//! Fragments of events that are not complete.

use frontdesk_core::port::fragments::{FRAGMENTS_MAX, FRAGMENTS_MAX_BYTES, JOINED_KEPT_MS};
use frontdesk_core::port::store::{ChatGroups, Claim, Fragment, Fragments, Held, Stored};

use super::{MemoryStore, State, now};

pub(super) struct StoredFragment {
    fragment: Fragment,
    /// Number of the claim; 0 if the group is open.
    claim: u64,
    claimed_ms: u64,
    is_joined: bool,
}

impl StoredFragment {
    fn is_open(&self) -> bool {
        self.claim == 0
    }

    fn group(&self) -> [&str; 3] {
        [&self.fragment.platform, &self.fragment.bot, &self.fragment.group]
    }
}

impl State {
    /// The claims of these, as far as they are not joined.
    fn claims<'a>(kept: impl Iterator<Item = &'a StoredFragment>) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for it in kept.filter(|it| !it.is_open() && !it.is_joined) {
            match claims.iter_mut().find(|claim| claim.number == it.claim) {
                Some(claim) => claim.fragments.push(it.fragment.clone()),
                None => claims.push(Claim { number: it.claim, fragments: vec![it.fragment.clone()] }),
            }
        }
        claims
    }

    /// Claims the open groups that have one of these as its first fragment.
    fn claim_groups(
        &mut self,
        is_wanted: impl Fn(&StoredFragment, &[StoredFragment]) -> bool,
        now_ms: u64,
    ) -> Vec<Claim> {
        let mut claims = Vec::new();
        for at in 0..self.fragments.len() {
            let first = &self.fragments[at];
            if !first.is_open() || !is_wanted(first, &self.fragments) {
                continue;
            }
            self.last_claim += 1;
            let group = first.group().map(str::to_owned);
            let mut fragments = Vec::new();
            for it in self.fragments.iter_mut().filter(|it| it.is_open() && it.group() == group) {
                (it.claim, it.claimed_ms) = (self.last_claim, now_ms);
                fragments.push(it.fragment.clone());
            }
            claims.push(Claim { number: self.last_claim, fragments });
        }
        claims
    }
}

impl Fragments for MemoryStore {
    fn hold(&self, fragment: Fragment) -> Stored<'_, Held> {
        let mut state = self.state();
        let of_bot =
            |it: &&StoredFragment| it.fragment.platform == fragment.platform && it.fragment.bot == fragment.bot;
        if state.fragments.iter().filter(of_bot).any(|it| it.fragment.id == fragment.id) {
            return now(Held::Known);
        }
        let kept = state.fragments.iter().filter(of_bot).filter(|it| !it.is_joined);
        let (count, bytes) = kept.fold((0, 0), |(count, bytes), it| (count + 1, bytes + it.fragment.sealed.len()));
        if count >= FRAGMENTS_MAX || bytes + fragment.sealed.len() > FRAGMENTS_MAX_BYTES {
            return now(Held::Full);
        }
        state.fragments.push(StoredFragment { fragment, claim: 0, claimed_ms: 0, is_joined: false });
        now(Held::New)
    }

    fn claim_chat(&self, groups: ChatGroups, now_ms: u64) -> Stored<'_, Vec<Claim>> {
        let is_wanted = |StoredFragment { fragment: it, .. }: &StoredFragment, _: &[StoredFragment]| {
            it.platform == groups.platform
                && it.bot == groups.bot
                && it.chat_id == groups.chat_id
                && groups.but.as_ref() != Some(&it.group)
        };
        let mut state = self.state();
        let of_chat = |it: &&StoredFragment| {
            let of = &it.fragment;
            (&of.platform, &of.bot, &of.chat_id) == (&groups.platform, &groups.bot, &groups.chat_id)
        };
        let mut claims = State::claims(state.fragments.iter().filter(of_chat));
        claims.extend(state.claim_groups(is_wanted, now_ms));
        now(claims)
    }

    fn claim_quiet(&self, quiet_since_ms: u64, claimed_until_ms: u64, now_ms: u64) -> Stored<'_, (Vec<Claim>, bool)> {
        let mut state = self.state();
        state.fragments.retain(|it| !it.is_joined || it.fragment.at_ms + JOINED_KEPT_MS > now_ms);
        let is_stale = |it: &&StoredFragment| it.claimed_ms <= claimed_until_ms || it.claimed_ms > now_ms;
        let mut claims = State::claims(state.fragments.iter().filter(is_stale));
        for it in &mut state.fragments {
            if claims.iter().any(|claim| claim.number == it.claim) {
                it.claimed_ms = now_ms;
            }
        }
        let is_quiet = |first: &StoredFragment, all: &[StoredFragment]| {
            let of_group = all.iter().filter(|it| it.is_open() && it.group() == first.group());
            let newest_ms = of_group.map(|it| it.fragment.at_ms).max().unwrap_or_default();
            newest_ms <= quiet_since_ms || newest_ms > now_ms
        };
        claims.extend(state.claim_groups(is_quiet, now_ms));
        let is_more = state.fragments.iter().any(|it| !it.is_joined);
        now((claims, is_more))
    }

    fn joined(&self, claim: u64) -> Stored<'_, ()> {
        for it in self.state().fragments.iter_mut().filter(|it| it.claim == claim) {
            it.is_joined = true;
            it.fragment.sealed.clear();
        }
        now(())
    }
}
