//! Firing an alarm: by a signed call to the agent's URL or through its socket, and what its answer means.

use std::sync::{Arc, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::EventId;
use frontdesk_wire::cron::{BY_RELAY, FireBody, RelayBody};
use frontdesk_wire::frame::PassthroughForward;
use serde_json::json;

use super::retry::{FireAnswer, conclude, is_missed};
use super::{BY_WAKE, CronPlane, LEASE_MS, STORE_PAUSE, lane_of};
use crate::directory::facts::Instance;
use crate::error::DeskError;
use crate::meters::Why;
use crate::port::alarms::{Alarm, AlarmState, Concluded, Conclusion};
use crate::port::outcall::Call;
use crate::port::store::{Acceptance, Delivery};

/// Agents answer before they start to work; the rest of the body is not read.
const ANSWER_MAX_BYTES: usize = 4096;

impl CronPlane {
    /// Called by an external scheduler: fires the alarm once, now, and returns the result.
    ///
    /// Claims it like the internal scheduler does, so that both never fire it at the same time. An alarm that was fired
    /// is not fired again.
    pub async fn fire_for(&self, ask: &RelayBody) -> Result<(), DeskError> {
        let named: Vec<Arc<Instance>> =
            self.directory.read(|view| view.live_instances_named(&ask.agent_id).cloned().collect());
        if named.is_empty() {
            return Err(self
                .directory
                .find_instance(&ask.agent_id, None)
                .err()
                .unwrap_or_else(|| DeskError::NotFound(format!("instance {:?} was deprovisioned", ask.agent_id))));
        }
        // In a database of the first release several tenants may have an instance of this name. Each has its own alarms.
        let mut fired = None;
        for instance in named {
            match self.alarms.alarm(instance.no, &ask.job_id).await? {
                Some(alarm) if alarm.fire_at == ask.fire_at => {
                    let this = self.fire_now(&instance, alarm).await;
                    fired = Some(fired.map_or(Ok(()), |before: Result<(), DeskError>| before).and(this));
                }
                _ => {}
            }
        }
        fired.unwrap_or_else(|| Err(DeskError::NotFound("no alarm is armed for this job and time".into())))
    }

    /// Fires the alarm once, unless it was fired.
    async fn fire_now(&self, instance: &Instance, alarm: Alarm) -> Result<(), DeskError> {
        if alarm.state == AlarmState::Fired {
            return Ok(());
        }
        let now_ms = self.env.now_ms();
        let due_by_ms = now_ms.max(alarm.next_ms);
        let claimed = self.alarms.claim_alarms(vec![alarm.id], due_by_ms, now_ms, now_ms + LEASE_MS).await?.pop();
        let Some(alarm) = claimed else {
            return Err(DeskError::Conflict("the alarm is being fired, or was given up".into()));
        };
        let end = self.try_alarm(&alarm, || {}).await;
        match end {
            Conclusion::Fired { .. } => Ok(()),
            Conclusion::Retry { next_ms, note } => {
                self.schedule_alarm(next_ms, alarm.id, &instance.tenant, lane_of(&alarm.callback));
                self.notify_owner(alarm.instance, alarm.id, next_ms, lane_of(&alarm.callback));
                Err(DeskError::Elsewhere(note))
            }
            Conclusion::Dead { note } | Conclusion::Skipped { note } => Err(DeskError::Elsewhere(note)),
        }
    }

    /// Fires a claimed alarm once and stores the result. Retries until the store accepts it, because the alarm would
    /// otherwise fire again. `answered` is called as soon as the agent has answered.
    pub async fn try_alarm(&self, alarm: &Alarm, answered: impl FnOnce()) -> Conclusion {
        let began_ms = self.env.now_ms();
        let late_ms = began_ms.saturating_sub(alarm.next_ms);
        let end = if is_missed(alarm, began_ms) {
            Conclusion::Skipped { note: format!("skipped, {} s too late", late_ms / 1000) }
        } else {
            let answer = self.fire(alarm).await;
            let mut random = [0; 8];
            self.env.fill(&mut random);
            conclude(alarm, &answer, self.env.now_ms(), u64::from_le_bytes(random))
        };
        answered();
        let concluded = loop {
            match self.alarms.conclude(vec![(alarm.clone(), end.clone())], self.env.now_ms()).await {
                Ok(each) => break each.first().copied().unwrap_or(Concluded::Stale),
                Err(error) => {
                    tracing::error!(%error, job = alarm.job_id.as_str(), "storing the result of an alarm failed; retrying");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        };
        if concluded == Concluded::Stale {
            tracing::warn!(
                job = alarm.job_id.as_str(),
                "the result of an alarm call was discarded, because another worker had claimed or ended the alarm"
            );
        } else {
            self.note_fire(alarm, &end, late_ms, concluded == Concluded::Ended);
        }
        end
    }

    /// Every failure becomes a `FireAnswer`.
    async fn fire(&self, alarm: &Alarm) -> FireAnswer {
        let found = self.directory.read(|view| view.instance_no(alarm.instance).cloned());
        let answer = match (alarm.callback.as_str(), &found) {
            (callback, _) if callback.starts_with(BY_WAKE) => match self.planned_wakes.get().and_then(Weak::upgrade) {
                Some(wakes) => wakes.fire(alarm).await,
                None => FireAnswer::Failed("the server is stopping".into()),
            },
            (_, None) => FireAnswer::Failed("the instance was removed".into()),
            (_, Some(instance)) if instance.left_ms.is_some() => {
                FireAnswer::Failed("the instance was deprovisioned".into())
            }
            (BY_RELAY, Some(instance)) => self.fire_by_relay(alarm, instance).await,
            (callback, Some(instance)) => self.fire_by_call(alarm, instance, callback).await,
        };
        let why = match &answer {
            FireAnswer::Taken(_) => "taken",
            FireAnswer::Refused(_) => "refused",
            FireAnswer::Failed(_) => "failed",
        };
        self.meters.alarm_tries.get_or_create(&Why { why }).inc();
        answer
    }

    async fn fire_by_call(&self, alarm: &Alarm, instance: &Instance, callback: &str) -> FireAnswer {
        let token = match self.keys.fire_token(instance) {
            Ok(token) => token,
            Err(error) => return FireAnswer::Failed(error),
        };
        let body = FireBody { job_id: alarm.job_id.clone(), fire_at: alarm.fire_at.clone() };
        let body = serde_json::to_string(&body).unwrap_or_default();
        let url = format!("{callback}/api/cron/fire");
        let call = Call { bearer: Some(&token), cut: true, ..Call::post(&url, &body, ANSWER_MAX_BYTES) };
        match self.outcall.call(call).await {
            Ok(answer) if (200..300).contains(&answer.status) => FireAnswer::Taken(answer.status),
            Ok(answer) => FireAnswer::Refused(answer.status),
            Err(error) => FireAnswer::Failed(error.to_string()),
        }
    }

    /// Sends it through the agent's socket, as a durable delivery that wakes the agent. Accepted once it is committed.
    async fn fire_by_relay(&self, alarm: &Alarm, instance: &Instance) -> FireAnswer {
        let body = json!({ "job_id": alarm.job_id, "fire_at": alarm.fire_at }).to_string();
        let forward = PassthroughForward {
            platform: "cron".into(),
            bot_id: "desk".into(),
            method: "POST".into(),
            path: "/api/cron/fire".into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body_b64: STANDARD.encode(body),
        };
        let delivery = Delivery {
            event: EventId::default(),
            at_ms: self.env.now_ms(),
            passthrough: true,
            json: serde_json::to_string(&forward).unwrap_or_default(),
            platform: "cron".into(),
            bot: "desk".into(),
            chat_id: alarm.job_id.as_str().into(),
            session_key: format!("cron:{}", alarm.job_id).into(),
            message_id: alarm.schedule_id.as_str().into(),
        };
        // Prevents a second delivery after a crash between this commit and storing the result.
        let dedup = [b"\0cron:".as_slice(), &alarm.id.to_be_bytes(), &alarm.attempts.to_be_bytes()].concat();
        let verdict = json!(["delivered", "cron", [[instance.name, true, "owner", "alarm", alarm.job_id]]]).to_string();
        let unreceived = Acceptance::unreceived(&instance.tenant, dedup, delivery, verdict);
        let acceptance = Acceptance { receivers: vec![instance.no], ..unreceived };
        match self.lease.accept(&*self.ledger, vec![acceptance]).await {
            Ok(_) => FireAnswer::Taken(202),
            Err(error) => FireAnswer::Failed(error.to_string()),
        }
    }

    /// Reports the result to the event stream and to the metrics.
    fn note_fire(&self, alarm: &Alarm, end: &Conclusion, late_ms: u64, was_armed: bool) {
        let (step, note) = match end {
            Conclusion::Fired { note } => ("fired", note),
            Conclusion::Dead { note } => ("dead", note),
            Conclusion::Skipped { note } => ("skipped", note),
            Conclusion::Retry { note, .. } => ("fire_failed", note),
        };
        if !matches!(end, Conclusion::Retry { .. }) {
            self.meters.alarms_ended.get_or_create(&Why { why: step }).inc();
            if was_armed {
                self.clock.note_ended(&self.directory.tenant_of_no(alarm.instance), 1);
            }
        }
        if alarm.attempts == 0 {
            self.meters.alarm_lateness.note_ms(late_ms);
        }
        if self.tail.is_watched() {
            let Some((tenant, name)) = self.directory.read(|view| view.owner_of_no(alarm.instance)) else { return };
            self.tail.publish(&tenant, step, |notice| {
                notice.instance = name;
                notice.message_id = alarm.schedule_id.as_str().into();
                notice.text = format!("job {}: {note}", alarm.job_id);
            });
        }
    }
}
