//! Bodies of HTTP requests: parsing never panics, and a parsed value survives a round trip.

use frontdesk_wire::agents::{
    AgentDescriptor, AgentPut, AgentReply, AgentState, ConnectorSpec, DataItems, DataWrite, DataWritten,
    DeliveryPayload, DeliveryReceipt, Dispatch, Fault, Inbox, InboxMessage, ManifestInfo, Notified, NotifyPost,
    PortableData, QueryFilters, Replied, ReplyPost, SkillFilter, SkillList, SkillMeta, SkillPut, SkillSource,
    SkillVersions, StatusPost, WakeOpts, WakeReceipt, When,
};
use frontdesk_wire::api::{
    BindingNew, BotNew, ChatPost, ChatPress, ChatSettings, DmDefaultAsk, DropMail, EnrollRequest, EnrollmentNew,
    Explanation, GatewayNew, GrantName, LinkAsk, Members, PrincipalAsk, ProvisionReply, ProvisionRequest,
    RelevancePolicy, RouteNew, ScopeAsk, TenantNew, TokenNew,
};
use frontdesk_wire::cron::{
    AlarmHistory, ArmedAlarms, CancelAlarm, FireBody, Misfire, ProvisionAlarm, Provisioned, RelayBody,
};

use super::super::engine::{Outcome, outcome};
use super::{equal_twice, is_worth_reading, read_twice};

/// Relay, management, chat and administration.
pub fn manage_bodies(body: &[u8]) -> Outcome {
    if !is_worth_reading(body) {
        return 0;
    }
    let settings = read_twice::<ChatSettings>(body).map(|(first, second)| {
        assert_eq!(first.members, second.members, "absent and null are different");
        matches!(first.members, Members::Only(_))
    });
    outcome((
        settings,
        equal_twice::<RelevancePolicy>(body),
        [
            read_twice::<LinkAsk>(body).is_some(),
            read_twice::<ScopeAsk>(body).is_some(),
            read_twice::<PrincipalAsk>(body).is_some(),
            read_twice::<DmDefaultAsk>(body).is_some(),
            read_twice::<ProvisionRequest>(body).is_some(),
            read_twice::<ProvisionReply>(body).is_some(),
            read_twice::<EnrollRequest>(body).is_some(),
            read_twice::<ChatPost>(body).is_some(),
            read_twice::<ChatPress>(body).is_some(),
            read_twice::<Explanation>(body).is_some(),
            read_twice::<TenantNew>(body).is_some(),
            read_twice::<TokenNew>(body).is_some(),
            read_twice::<EnrollmentNew>(body).is_some(),
            read_twice::<BotNew>(body).is_some(),
            read_twice::<RouteNew>(body).is_some(),
            read_twice::<BindingNew>(body).is_some(),
            read_twice::<GrantName>(body).is_some(),
            read_twice::<GatewayNew>(body).is_some(),
            read_twice::<DropMail>(body).is_some(),
        ],
    ))
}

/// Delivery between agents, skills and data.
pub fn agent_bodies(body: &[u8]) -> Outcome {
    if !is_worth_reading(body) {
        return 0;
    }
    let wake = read_twice::<WakeOpts>(body).map(|(first, second)| {
        assert_eq!(first, second);
        if let Some(at_ms) = first.later_than(0) {
            assert!(at_ms > 0 && first.later_than(at_ms).is_none(), "a time is later only than earlier ones");
        }
        first.when.map(|when| matches!(when, When::At(at_ms) if at_ms > 0))
    });
    let delivery = read_twice::<DeliveryPayload>(body).map(|(first, second)| {
        assert_eq!((first.kind(), first.text(), first.meta()), (second.kind(), second.text(), second.meta()));
        let origin = first.meta().origin.clone().in_order();
        assert_eq!(origin.clone().in_order(), origin, "in_order is idempotent");
        (first.kind(), first.meta().more.len().min(3), origin.more.len().min(3))
    });
    let connector = read_twice::<ConnectorSpec>(body).map(|(first, second)| {
        assert!(first == second);
        first.name()
    });
    let fault = read_twice::<Fault>(body).map(|(first, second)| {
        assert_eq!(first, second);
        first.class
    });
    let agent = read_twice::<AgentPut>(body).map(|(first, second)| {
        assert!(first.connectors == second.connectors);
        first.connectors.map(|connectors| connectors.len().min(3))
    });
    outcome((
        (wake, delivery, connector, fault, agent),
        [
            equal_twice::<SkillFilter>(body),
            equal_twice::<SkillPut>(body),
            equal_twice::<SkillMeta>(body),
            equal_twice::<SkillSource>(body),
            equal_twice::<SkillList>(body),
            equal_twice::<SkillVersions>(body),
            equal_twice::<StatusPost>(body),
            equal_twice::<QueryFilters>(body),
            equal_twice::<DataWrite>(body),
            equal_twice::<DataWritten>(body),
            equal_twice::<PortableData>(body),
            equal_twice::<DataItems>(body),
            equal_twice::<DeliveryReceipt>(body),
            equal_twice::<WakeReceipt>(body),
            equal_twice::<AgentDescriptor>(body),
            equal_twice::<AgentReply>(body),
            equal_twice::<AgentState>(body),
            equal_twice::<Replied>(body),
            equal_twice::<InboxMessage>(body),
            equal_twice::<Notified>(body),
            equal_twice::<Dispatch>(body),
            equal_twice::<ManifestInfo>(body),
        ],
        [
            read_twice::<Inbox>(body).is_some(),
            read_twice::<NotifyPost>(body).is_some(),
            read_twice::<ReplyPost>(body).is_some(),
        ],
    ))
}

/// Cron API, server and agent side.
pub fn cron_bodies(body: &[u8]) -> Outcome {
    let job = read_twice::<ProvisionAlarm>(body).map(|(first, second)| {
        assert_eq!(first.fire_at, second.fire_at, "the time is stored unchanged");
        assert_eq!((&first.job_id, &first.misfire), (&second.job_id, &second.misfire));
        (first.misfire.map(|misfire| (misfire.grace_s.is_some(), misfire.on_miss as u8)), first.dedup_key.is_some())
    });
    outcome((
        job,
        [
            equal_twice::<Misfire>(body),
            equal_twice::<Provisioned>(body),
            equal_twice::<FireBody>(body),
            read_twice::<CancelAlarm>(body).is_some(),
            read_twice::<RelayBody>(body).is_some(),
            read_twice::<ArmedAlarms>(body).is_some(),
            read_twice::<AlarmHistory>(body).is_some(),
        ],
    ))
}
