//! Who can see a channel: the effective `VIEW_CHANNEL` of a member, from roles and overwrites.

use serde::Deserialize;
use serde_json::Value;

use super::snowflake::time_ms;

const ADMINISTRATOR: u64 = 1 << 3;
const VIEW_CHANNEL: u64 = 1 << 10;
const READ_HISTORY: u64 = 1 << 16;
const CONNECT: u64 = 1 << 20;
const MANAGE_THREADS: u64 = 1 << 34;

/// Permissions are numbers in text.
fn bits(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()).unwrap_or(0)
}

/// What cannot be read denies all.
fn denied(value: &Value) -> u64 {
    let is_number = value.as_str().is_some_and(|text| text.parse::<u64>().is_ok()) || value.is_u64();
    if is_number { bits(value) } else { u64::MAX }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Role {
    pub(super) id: String,
    permissions: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overwrite {
    id: String,
    allow: Value,
    deny: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    pub(super) roles: Vec<String>,
    /// Until then the member may only read.
    pub(super) communication_disabled_until: Option<String>,
}

impl Member {
    fn is_timed_out(&self, now_ms: u64) -> bool {
        let until = self.communication_disabled_until.as_deref();
        // What cannot be read denies.
        until.is_some_and(|until| time_ms(until).is_none_or(|until_ms| now_ms < until_ms))
    }
}

/// Of one guild.
#[derive(Debug, Clone, Default)]
pub(super) struct Rights<'a> {
    pub(super) guild_id: &'a str,
    pub(super) owner_id: &'a str,
    pub(super) roles: &'a [Role],
}

/// All permissions of a member in a channel. The overwrites of a thread are those of its parent.
fn effective(rights: &Rights<'_>, user_id: &str, member: &Member, overwrites: &[Overwrite]) -> u64 {
    if rights.owner_id == user_id {
        return u64::MAX;
    }
    // The role of all members (`@everyone`) has the id of the guild.
    let has = |role: &str| role == rights.guild_id || member.roles.iter().any(|own| own == role);
    let base = rights.roles.iter().filter(|role| has(&role.id)).fold(0, |all, role| all | bits(&role.permissions));
    if base & ADMINISTRATOR != 0 {
        return u64::MAX;
    }
    let mut all = base;
    let of_everybody = overwrites.iter().find(|it| it.id == rights.guild_id);
    if let Some(overwrite) = of_everybody {
        all = (all & !denied(&overwrite.deny)) | bits(&overwrite.allow);
    }
    let of_roles = overwrites.iter().filter(|it| it.id != rights.guild_id && member.roles.contains(&it.id));
    let (allow, deny) = of_roles.fold((0, 0), |(allow, deny), it| (allow | bits(&it.allow), deny | denied(&it.deny)));
    all = (all & !deny) | allow;
    if let Some(own) = overwrites.iter().find(|it| it.id == user_id) {
        all = (all & !denied(&own.deny)) | bits(&own.allow);
    }
    all
}

/// Whether the member sees the channel, and whether private threads of it too without being in them.
pub(super) fn sees(
    rights: &Rights<'_>,
    user_id: &str,
    member: &Member,
    overwrites: &[Overwrite],
    now_ms: u64,
) -> (bool, bool) {
    let mut all = effective(rights, user_id, member, overwrites);
    // Owners and administrators cannot be timed out.
    if all != u64::MAX && member.is_timed_out(now_ms) {
        all &= VIEW_CHANNEL | READ_HISTORY;
    }
    let is_seen = all & VIEW_CHANNEL != 0;
    (is_seen, is_seen && all & MANAGE_THREADS != 0)
}

/// Whether the member gets what is written in the channel, and whether also what was written there before.
pub(super) fn reads(
    rights: &Rights<'_>,
    user_id: &str,
    member: &Member,
    overwrites: &[Overwrite],
    is_voice: bool,
) -> (bool, bool) {
    let wanted = if is_voice { VIEW_CHANNEL | CONNECT } else { VIEW_CHANNEL };
    let all = effective(rights, user_id, member, overwrites);
    let is_open = all & wanted == wanted;
    (is_open, is_open && all & READ_HISTORY != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(id: &str, permissions: u64) -> Role {
        serde_json::from_value(json!({ "id": id, "permissions": permissions.to_string() })).unwrap()
    }

    fn overwrite(id: &str, allow: u64, deny: u64) -> Overwrite {
        serde_json::from_value(json!({ "id": id, "allow": allow.to_string(), "deny": deny.to_string() })).unwrap()
    }

    /// The order of the vendor's documents, one step after another, for one permission.
    fn slowly(
        owner: bool,
        everybody: u64,
        own_roles: &[(String, u64)],
        overwrites: &[(String, u64, u64)],
        user: &str,
    ) -> bool {
        if owner {
            return true;
        }
        let mut base = everybody & VIEW_CHANNEL != 0;
        let mut is_admin = everybody & ADMINISTRATOR != 0;
        for (_, permissions) in own_roles {
            base |= permissions & VIEW_CHANNEL != 0;
            is_admin |= permissions & ADMINISTRATOR != 0;
        }
        if is_admin {
            return true;
        }
        let find = |id: &str| overwrites.iter().find(|it| it.0 == id);
        let apply = |seen: bool, it: Option<&(String, u64, u64)>| match it {
            Some((_, allow, _)) if allow & VIEW_CHANNEL != 0 => true,
            Some((_, _, deny)) if deny & VIEW_CHANNEL != 0 => false,
            _ => seen,
        };
        let mut seen = apply(base, find("g"));
        let of_roles: Vec<_> = own_roles.iter().filter_map(|(id, _)| find(id)).collect();
        if of_roles.iter().any(|it| it.2 & VIEW_CHANNEL != 0) {
            seen = false;
        }
        if of_roles.iter().any(|it| it.1 & VIEW_CHANNEL != 0) {
            seen = true;
        }
        apply(seen, find(user))
    }

    #[test]
    fn generated_guilds_agree_with_the_documented_order() {
        let mut dice = 7_u64;
        let mut throw = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        let mut counts = [0; 2];
        for _ in 0..20_000 {
            let mut some = || match throw(8) {
                0 => ADMINISTRATOR,
                1..=3 => VIEW_CHANNEL,
                4 => VIEW_CHANNEL | MANAGE_THREADS,
                _ => 1 << 11,
            };
            let everybody = some() & !ADMINISTRATOR;
            let all_roles: Vec<(String, u64)> = (0..4).map(|number| (format!("r{number}"), some())).collect();
            let own: Vec<(String, u64)> = all_roles.iter().filter(|_| throw(2) == 0).cloned().collect();
            let ids = ["g", "r0", "r1", "r2", "r3", "ann", "ben"];
            let overwrites: Vec<(String, u64, u64)> = ids
                .iter()
                .filter_map(|id| {
                    let kind = throw(6);
                    let (allow, deny) = match kind {
                        0 => (VIEW_CHANNEL, 0),
                        1 => (0, VIEW_CHANNEL),
                        2 => (1 << 11, 1 << 12),
                        _ => return None,
                    };
                    Some(((*id).to_owned(), allow, deny))
                })
                .collect();
            let is_owner = throw(20) == 0;
            let expected = slowly(is_owner, everybody, &own, &overwrites, "ann");
            let mut roles: Vec<Role> = all_roles.iter().map(|(id, permissions)| role(id, *permissions)).collect();
            roles.push(role("g", everybody));
            let rights = Rights { guild_id: "g", owner_id: if is_owner { "ann" } else { "zoe" }, roles: &roles };
            let roles = own.iter().map(|(id, _)| id.clone()).collect();
            let member = Member { roles, ..Member::default() };
            let given: Vec<Overwrite> =
                overwrites.iter().map(|(id, allow, deny)| overwrite(id, *allow, *deny)).collect();
            let (seen, _) = sees(&rights, "ann", &member, &given, 0);
            assert_eq!(seen, expected, "{everybody} {own:?} {overwrites:?} owner {is_owner}");
            counts[usize::from(seen)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 2_000), "{counts:?}");
    }

    #[test]
    fn a_member_who_is_timed_out_only_looks_on() {
        let roles = [role("g", VIEW_CHANNEL | MANAGE_THREADS), role("admin", ADMINISTRATOR)];
        let rights = Rights { guild_id: "g", owner_id: "zoe", roles: &roles };
        let until = |text: &str| Some(text.to_owned());
        let sees = |user: &str, member: &Member| sees(&rights, user, member, &[], 1_700_000_000_000);
        let mut member = Member::default();
        assert_eq!(sees("ann", &member), (true, true));
        for (text, manages) in
            [("2023-11-14T22:13:21+00:00", false), ("2023-11-14T22:13:19+00:00", true), ("soon", false)]
        {
            member.communication_disabled_until = until(text);
            assert_eq!(sees("ann", &member), (true, manages), "{text}");
        }
        assert_eq!(sees("zoe", &member), (true, true), "the owner");
        member.roles.push("admin".into());
        assert_eq!(sees("ann", &member), (true, true), "an administrator");
    }

    #[test]
    fn history_needs_its_own_permission() {
        let roles = [role("g", VIEW_CHANNEL | READ_HISTORY)];
        let rights = Rights { guild_id: "g", owner_id: "zoe", roles: &roles };
        let reads =
            |overwrites: &[Overwrite], is_voice| reads(&rights, "ann", &Member::default(), overwrites, is_voice);
        assert_eq!(reads(&[], false), (true, true));
        assert_eq!(reads(&[overwrite("g", 0, READ_HISTORY)], false), (true, false));
        assert_eq!(reads(&[overwrite("g", 0, VIEW_CHANNEL)], false), (false, false));
        assert_eq!(reads(&[], true), (false, false), "a voice channel");
        assert_eq!(reads(&[overwrite("g", CONNECT, 0)], true), (true, true));
    }
}
