//! Records of a known kind that this version cannot read: a newer server on the same store wrote them, or they are damaged.
//!
//! They are not usable here, are never overwritten, and do not count as absent where that would permit something.

use std::collections::BTreeMap;

use frontdesk_wire::{InstanceId, Source, TenantId, UserId};

use super::facts::{Fact, Grant};

const SEPARATOR: char = '\u{1f}';

/// Kind and key of each, with the version that wrote it. Almost always empty.
#[derive(Default)]
pub struct Unreadable(BTreeMap<(&'static str, String), u64>);

impl Unreadable {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Kind and key, for people.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.0.keys().map(|(kind, key)| (*kind, key.replace(SEPARATOR, " ")))
    }

    pub fn has(&self, kind: &str, parts: &[&str]) -> bool {
        !self.is_empty() && self.any(kind, |there| there == parts)
    }

    pub fn has_kind(&self, kind: &str) -> bool {
        !self.is_empty() && self.any(kind, |_| true)
    }

    fn any(&self, kind: &str, fits: impl Fn(&[&str]) -> bool) -> bool {
        let of_kind = self.0.keys().filter(|(known, _)| *known == kind);
        of_kind.into_iter().any(|(_, key)| fits(&key.split(SEPARATOR).collect::<Vec<_>>()))
    }

    /// Whether an instance or agent of this name is among them, in any tenant. Such names are not free.
    pub fn is_named(&self, name: &InstanceId) -> bool {
        self.is_named_in(None, name)
    }

    /// Whether an instance or agent of this name is among them, in this tenant or in any.
    pub fn is_named_in(&self, tenant: Option<&TenantId>, name: &InstanceId) -> bool {
        let is_it = |it: &[&str]| {
            it.last() == Some(&name.as_str()) && tenant.is_none_or(|tenant| it.first() == Some(&tenant.as_str()))
        };
        !self.is_empty() && ["instance", "agent"].iter().any(|kind| self.any(kind, is_it))
    }

    /// Whether a record that decides on the tenant of a place is among them: by the keys of its routes, or by the user of a
    /// direct chat.
    pub(super) fn bears_on_place(&self, platform: &str, keys: &[Option<&str>], person: Option<&UserId>) -> bool {
        if self.is_empty() {
            return false;
        }
        let is_linked = |person: &UserId| {
            let of_person = |it: &[&str]| it.get(1..3) == Some(&[platform, person.as_str()]);
            self.any("binding", of_person) || self.any("dm_default", of_person)
        };
        keys.iter().flatten().any(|key| self.has("route", &[platform, key])) || person.is_some_and(is_linked)
    }

    /// The kind of a record among them that decides who gets an event of this author. `grant` is the one of the channel.
    pub fn bears_on(
        &self,
        tenant: &TenantId,
        source: &Source,
        author: &UserId,
        grant: Option<&Grant>,
    ) -> Option<&'static str> {
        if self.is_empty() {
            return None;
        }
        let there = [tenant, source.platform.as_str()];
        let of_author = |it: &[&str]| it.get(..3) == Some(&[there[0], there[1], author.as_str()]);
        // The user who was linked first is the owner, whose access to the channel counts.
        let of_holder = |it: &[&str]| {
            it.get(..2) == Some(&there) && grant.is_some_and(|grant| it.last() == Some(&grant.instance.as_str()))
        };
        let scope = source.scope_id.as_deref().unwrap_or_default();
        let channel = [tenant, source.platform.as_str(), scope, source.channel()];
        let kinds = [
            ("binding", self.any("binding", |it| of_author(it) || of_holder(it))),
            ("dm_default", self.any("dm_default", of_author)),
            ("grant", !source.is_direct() && self.has("grant", &channel)),
            ("policy", self.any("policy", of_holder)),
        ];
        kinds.into_iter().find(|(_, bears)| *bears).map(|(kind, _)| kind)
    }

    pub(super) fn insert(&mut self, kind: &'static str, key: String, version: u64) {
        self.0.insert((kind, key), version);
    }

    pub(super) fn remove(&mut self, kind: &'static str, key: &str) {
        if !self.is_empty() {
            self.0.remove(&(kind, key.to_owned()));
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Why these changes must not be made here.
    pub(super) fn objection(&self, puts: &[Fact], removes: &[(&'static str, String)]) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let put = puts.iter().find_map(|fact| {
            let name = (fact.kind(), fact.key());
            let is_taken = match fact {
                Fact::Instance(it) => self.is_named(&it.name),
                Fact::Agent(it) => self.is_named(&it.id),
                // Of the same tenant: its own record may say what is not allowed in it.
                Fact::Tenant(_) => false,
                other => tenant_of(other).is_some_and(|tenant| self.has("tenant", &[tenant])),
            };
            (is_taken || self.0.contains_key(&name)).then_some(name)
        });
        let (kind, key) = put.or_else(|| removes.iter().find(|it| self.0.contains_key(*it)).cloned())?;
        let key = key.replace(SEPARATOR, " ");
        Some(format!(
            "{kind} {key:?} cannot be changed by this server: a record that it cannot read is in the way, probably written by \
             a newer version; use a server of that version"
        ))
    }
}

/// The tenant of records that give a user or agent access in it.
fn tenant_of(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Token(it) => Some(&it.tenant),
        Fact::Enrollment(it) => Some(&it.tenant),
        Fact::Route(it) => Some(&it.tenant),
        Fact::Binding(it) => Some(&it.tenant),
        Fact::Grant(it) => Some(&it.tenant),
        Fact::Gateway(it) => Some(&it.tenant),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::facts::key;

    fn unreadable(kind: &'static str, parts: &[&str]) -> Unreadable {
        let mut all = Unreadable::default();
        all.insert(kind, key(parts), 7);
        all
    }

    fn source() -> Source {
        Source {
            platform: "p".into(),
            chat_id: "c".into(),
            chat_type: "group".into(),
            scope_id: Some("s".into()),
            user_id: Some("ann".into()),
            ..Source::default()
        }
    }

    fn grant() -> Grant {
        let [tenant, instance] = ["t", "i"];
        let (platform, scope, channel) = ("p".into(), "s".into(), "c".into());
        Grant { tenant: tenant.into(), platform, scope, channel, instance: instance.into(), at_ms: 1 }
    }

    #[test]
    fn a_record_bears_on_those_whom_it_names() {
        let cases: [(&'static str, &[&str], bool); 8] = [
            ("binding", &["t", "p", "ann", "x"], true),
            ("binding", &["t", "p", "ben", "i"], true),
            ("binding", &["t", "p", "ben", "x"], false),
            ("dm_default", &["t", "p", "ann"], true),
            ("grant", &["t", "p", "s", "c"], true),
            ("grant", &["t", "p", "s", "elsewhere"], false),
            ("policy", &["t", "p", "i"], true),
            ("policy", &["t", "q", "i"], false),
        ];
        for (kind, parts, bears) in cases {
            let found = unreadable(kind, parts).bears_on(&"t".into(), &source(), &"ann".into(), Some(&grant()));
            assert_eq!(found.is_some(), bears, "{kind} {parts:?}");
        }
        assert_eq!(Unreadable::default().bears_on(&"t".into(), &source(), &"ann".into(), None), None);
    }

    #[test]
    fn a_place_whose_owner_cannot_be_read_belongs_to_nobody() {
        let (keys, person) = ([Some("s"), Some("c"), None], Some(&"ann".into()));
        for (kind, parts) in [("route", ["p", "s"].as_slice()), ("binding", &["t", "p", "ann", "i"])] {
            assert!(unreadable(kind, parts).bears_on_place("p", &keys, person), "{kind}");
        }
        assert!(!unreadable("route", &["p", "other"]).bears_on_place("p", &keys, person));
    }

    #[test]
    fn what_cannot_be_read_is_not_overwritten() {
        let all = unreadable("grant", &["t", "p", "s", "c"]);
        let why = all.objection(&[Fact::Grant(grant())], &[]).unwrap();
        assert!(why.starts_with("grant \"t p s c\" cannot be changed by this server"), "{why}");
        assert!(all.objection(&[], &[("grant", key(&["t", "p", "s", "c"]))]).is_some());
        assert!(all.objection(&[Fact::Grant(Grant { channel: "d".into(), ..grant() })], &[]).is_none());
        assert!(unreadable("tenant", &["t"]).objection(&[Fact::Grant(grant())], &[]).is_some());
        assert!(unreadable("instance", &["other", "i"]).is_named(&"i".into()));
    }
}
