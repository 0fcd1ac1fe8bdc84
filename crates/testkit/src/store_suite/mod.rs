//! Contract of the store port: one test per rule, run on every backend.
//!
//! [`store_contract!`](crate::store_contract) creates the tests. A rule gets a [`Harness`] with an empty store, which it
//! may close and reopen to check durability.

pub mod alarms;
pub mod chat;
pub mod data;
pub mod desks;
pub mod directory;
pub mod exchanges;
pub mod fragments;
pub mod held_media;
pub mod inbox;
pub mod journal;
pub mod ledger;
pub mod mail;
pub mod media;
pub mod sessions;
pub mod skills;
pub mod upkeep;
pub mod vault;

use std::sync::{Arc, Mutex};

use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, MadeRow, NewRow, Position, Retention, RowListener, SealedCapability, Store,
};
use frontdesk_wire::{EventId, InstanceNo, Seq};

type Reopen = Box<dyn FnMut(Option<Arc<dyn Store>>) -> Arc<dyn Store> + Send>;

/// A store, and a function to reopen it.
pub struct Harness {
    pub store: Arc<dyn Store>,
    reopen: Reopen,
}

impl Harness {
    /// `open` gets the store that was open before, and must drop it before it opens another.
    pub fn new(mut open: impl FnMut(Option<Arc<dyn Store>>) -> Arc<dyn Store> + Send + 'static) -> Self {
        Self { store: open(None), reopen: Box::new(open) }
    }

    /// Closes the store and opens it again.
    #[must_use = "the previous store is closed"]
    pub fn reopened(self) -> Self {
        let Self { store, mut reopen } = self;
        Self { store: reopen(Some(store)), reopen }
    }
}

/// Creates a module with one test per rule: `store_contract!(sqlite, || Harness::new(...))`.
#[macro_export]
macro_rules! store_contract {
    ($backend:ident, $open:expr) => {
        mod $backend {
            use super::*;
            $crate::store_contract! { @rules $open;
                directory: every_commit_raises_the_version_of_the_directory,
                    a_stale_writer_gets_a_conflict, changes_include_deletions,
                    versions_rise_across_deletions, kinds_do_not_share_keys, of_many_writers_one_wins, records_survive,
                    a_number_has_one_owner, numbers_are_drawn_once, memory_changes_with_the_commit;
                ledger: rows_and_events_rise_by_one, every_receiver_gets_a_row,
                    an_event_nobody_receives_is_kept_with_its_verdict,
                    a_receiver_may_get_its_own_json, an_event_is_found_by_its_message_id,
                    a_message_is_found_among_many_keys_that_begin_alike, a_search_for_pending_rows_is_bounded,
                    a_duplicate_gives_the_same_event_and_no_rows,
                    a_duplicate_changes_nothing_else, a_duplicate_is_known_after_reopening,
                    a_delivery_is_given_back_whole, listeners_get_the_same_rows_in_order,
                    hints_keep_the_order_of_commits, a_chat_is_reached_where_the_acceptance_says_so,
                    pending_begins_after_and_ends_at_the_limit, pending_skips_settled_and_dead_rows,
                    acks_in_any_order_move_the_watermark, a_lower_position_changes_nothing,
                    a_settled_row_is_never_pending_again, positions_survive, waiting_counts_and_names_the_oldest,
                    the_epoch_is_the_stores_own, pending_rows_are_found_by_message_id;
                sessions: session_numbers_are_never_reused, a_session_goes_on_from_the_position,
                    rows_name_the_desk_that_serves, an_old_session_settles_by_acks_only,
                    a_desk_keeps_its_sessions_under_another_number, every_verb_writes_its_own_columns, a_notice_is_claimed_once, a_wake_is_claimed_by_one_server,
                    a_repeated_attempt_is_answered_as_the_first;
                exchanges: an_exchange_is_answered_once_by_the_agent_that_was_asked,
                    a_correlation_id_is_free_when_the_asker_has_the_answer, an_exchange_is_found_by_what_a_message_names,
                    nobody_waits_at_a_server_that_is_gone, an_answer_that_its_asker_did_not_get_is_kept,
                    one_server_at_a_time_has_a_claim, tries_are_counted_in_a_window,
                    results_are_kept_for_the_next_socket, an_handoff_is_kept_until_it_is_done;
                mail: mail_is_listed_by_state, mail_is_listed_newest_first_in_pages, one_row_is_found_by_its_number,
                    a_row_is_dropped_once, a_settled_or_absent_row_cannot_be_dropped, a_dropped_row_stays_dead,
                    a_replay_is_a_new_row_at_the_end, a_replay_is_reported, a_settled_and_a_dead_row_can_be_replayed,
                    an_absent_row_cannot_be_replayed, sent_turns_are_those_of_rows_that_were_written,
                    sent_turns_are_found_behind_a_replayed_row, sent_turns_reach_far_back,
                    reads_that_are_not_polled_delay_nobody;
                vault: a_capability_is_bound_under_every_key, the_newest_capability_wins,
                    a_capability_belongs_to_its_tenant_and_kind, a_capability_ends_at_its_time, capabilities_survive;
                journal: an_entry_is_opened_then_closed, open_entries_become_unknown_once,
                    entries_are_listed_newest_first_by_tenant, entries_survive, entries_of_live_desks_stay_open,
                    a_late_receipt_is_applied_to_its_entry,
                    an_entry_is_found_by_its_receipts;
                desks: desk_numbers_are_never_reused, a_lease_must_be_renewed_in_time,
                    a_duty_has_one_live_holder_and_its_token_rises,
                    a_desk_that_leaves_has_no_duties_and_keeps_its_lease, a_desk_tells_of_itself, cursors_are_kept_by_bot,
                    an_earlier_holder_of_a_duty_moves_no_cursor;
                fragments: a_group_is_claimed_once_it_is_quiet, a_clock_that_is_set_back_holds_nothing,
                    a_claim_is_fixed_and_can_be_taken_again,
                    a_fragment_is_known_after_it_was_joined, a_chat_claims_its_groups_but_one,
                    fragments_of_a_bot_are_limited, fragments_survive;
                chat: a_message_id_is_appended_once, every_chat_counts_its_own_lines, a_line_is_amended_by_revision,
                    an_amend_of_another_revision_is_a_conflict, lines_are_read_in_pages, the_latest_lines_are_read_in_order, facts_and_lines_share_a_chat, facts_are_compared_and_set,
                    chats_are_listed_by_tenant, chats_survive,
                    a_line_is_written_with_its_event, a_line_that_changed_meanwhile_stops_the_event,
                    a_page_of_large_lines_is_short;
                media: bytes_come_back_equal, media_belong_to_their_tenant, media_end_at_their_time, media_survive,
                    a_broken_upload_leaves_nothing, the_bytes_of_a_tenant_are_limited, what_a_tenant_stores_is_counted;
                held_media: a_remote_file_is_stored_with_its_event, a_duplicate_stores_no_file,
                    an_event_that_nobody_receives_stores_no_file, a_remote_file_belongs_to_its_tenant,
                    fetched_bytes_replace_the_handle, an_id_whose_bytes_are_here_is_taken,
                    a_file_is_kept_while_its_mail_is_owed, a_file_expires_after_its_mail_was_settled,
                    a_file_of_several_events_waits_for_all, a_replayed_row_keeps_its_files,
                    many_files_are_released_in_steps;
                upkeep: a_healthy_store_reports_it, the_report_counts_what_waits, purge_deletes_old_settled_rows,
                    purge_keeps_unsettled_rows_of_any_age, purge_keeps_young_rows,
                    a_replayed_old_row_keeps_younger_ones, purge_ends_capabilities_and_media,
                    numbers_are_never_reused, a_large_backlog_keeps_only_its_own_events,
                    lines_entries_and_inactive_chats_expire;
                alarms: the_same_time_again_is_the_same_alarm, another_time_replaces_the_alarm,
                    a_cancelled_alarm_is_gone_and_may_be_armed_again, an_instance_that_leaves_has_nothing_armed,
                    many_alarms_are_cancelled_in_small_steps,
                    an_alarm_is_claimed_by_one_and_not_before_its_time, a_fired_alarm_is_never_claimed_again,
                    a_retry_comes_at_its_time_and_remembers, a_stale_claim_ends_nothing,
                    a_fired_alarm_is_over_also_by_a_stale_claim, an_end_does_not_touch_the_alarm_that_replaced_it,
                    a_dead_alarm_is_listed_and_can_be_revived, the_next_alarms_come_in_order_and_in_pages,
                    retries_are_hastened_and_first_tries_keep_their_time, ended_alarms_are_deleted,
                    a_page_of_armed_alarms_looks_at_a_bounded_number_of_jobs,
                    a_fired_alarm_is_kept_as_long_as_its_result;
                inbox: a_message_is_written_with_its_event, messages_are_read_in_pages, a_page_of_large_messages_is_short,
                    every_inbox_is_read_alone, a_reader_behind_many_writers_misses_nothing,
                    message_numbers_are_never_reused, inboxes_are_found_by_their_messages,
                    old_messages_are_deleted_if_configured,
                    a_duplicate_stores_no_second_message, a_message_and_its_rows_are_one_commit,
                    receipts_are_noted_and_the_rest_stays,
                    receipts_that_changed_meanwhile_are_not_overwritten, the_newest_messages_of_a_tenant_come_first,
                    a_dropped_inbox_is_empty_and_so_are_its_plans,
                    a_large_inbox_is_dropped_in_small_steps, a_planned_wake_is_kept_until_dropped,
                    messages_survive, messages_outlive_their_events;
                skills: a_skill_is_given_back_byte_for_byte, a_write_is_compared_and_set,
                    another_authors_head_is_a_conflict, of_many_skill_writers_one_wins,
                    a_conflict_leaves_no_trace, old_versions_are_kept, the_newest_row_of_a_version_counts,
                    versions_are_listed_oldest_first, a_long_history_keeps_its_newest_versions, the_creation_time_is_kept,
                    a_deleted_skill_is_gone_with_its_history, the_token_moves_with_the_heads,
                    the_token_stays_where_nothing_changed, heads_are_found_in_the_order_of_names,
                    heads_are_found_by_each_filter, a_page_of_heads_is_limited_in_bytes,
                    skills_of_tenants_are_separate, skills_survive;
                data: a_row_is_given_back_whole, an_existing_id_is_a_conflict, rows_are_found_by_all_words,
                    case_and_marks_of_letters_do_not_matter, words_of_the_index_are_plain_words,
                    a_phrase_is_words_in_a_row, no_words_are_newest_first, the_better_match_comes_first,
                    among_equals_the_newer_comes_first, scores_are_between_0_and_1, filters_are_exact,
                    filters_and_words_go_together, an_empty_filter_list_matches_nothing, the_limit_holds,
                    a_filter_value_is_not_a_word, expired_rows_are_not_seen_and_go,
                    large_rows_are_purged_in_small_steps, rows_without_expiry_are_kept,
                    data_of_tenants_are_separate, scores_do_not_depend_on_other_tenants,
                    a_text_with_zero_bytes_is_kept_and_found, very_long_texts_are_found,
                    the_details_of_an_answer_are_bounded, data_survive;
            }
        }
    };
    (@rules $open:expr; $($part:ident: $($rule:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $rule() {
                let open = $open;
                $crate::store_suite::$part::$rule(open()).await;
            }
        )+)+
    };
}

// ---- fixtures -------------------------------------------------------------------------------

/// An ordinary event; `number` makes it unique.
pub fn delivery(number: u64) -> Delivery {
    Delivery {
        event: EventId::default(),
        at_ms: 1_000 + number,
        passthrough: false,
        json: format!(r#"{{"text":"{number}"}}"#),
        platform: "chat".into(),
        bot: "desk".into(),
        chat_id: "c".into(),
        session_key: "k".into(),
        message_id: format!("m-{number}").into(),
    }
}

/// `number` is the dedup key too.
pub fn acceptance(number: u64, receivers: &[u64]) -> Acceptance {
    let (dedup, verdict) = (number.to_be_bytes().to_vec(), format!(r#"{{"n":{number}}}"#));
    let receivers = receivers.iter().copied().map(InstanceNo).collect();
    Acceptance { receivers, ..Acceptance::unreceived(&"acme".into(), dedup, delivery(number), verdict) }
}

pub fn capability(id: &str, session_keys: &[&str], expires_ms: u64) -> SealedCapability {
    SealedCapability {
        id: id.into(),
        tenant: "acme".into(),
        kind: "interaction".into(),
        session_keys: session_keys.iter().map(|&key| key.into()).collect(),
        platform: "discord".into(),
        bot: "bot-1".into(),
        chat_id: "c".into(),
        sealed: id.bytes().chain([0, 255]).collect(),
        expires_ms,
    }
}

pub fn settled(seqs: &[u64]) -> Position {
    Position { above: seqs.iter().copied().map(Seq).collect(), ..Position::default() }
}

pub fn sent(seq: u64) -> Position {
    Position { sent: Seq(seq), ..Position::default() }
}

/// Accepts one event.
pub async fn accept(store: &dyn Store, one: Acceptance) -> Accepted {
    store.accept(vec![one]).await.unwrap().remove(0)
}

/// Instance and number of each row, without the server that serves the instance.
pub fn numbers(rows: &[MadeRow]) -> Vec<(u64, u64)> {
    rows.iter().map(|row| (row.instance.0, row.seq.0)).collect()
}

/// Accepts events `1..=count`, all for one instance.
pub async fn accept_many(store: &dyn Store, count: u64, instance: u64) {
    store.accept((1..=count).map(|number| acceptance(number, &[instance])).collect()).await.unwrap();
}

/// Purges until the round is finished; each step is bounded. Returns the number of deleted rows.
pub async fn purge(store: &dyn Store, retention: Retention) -> u64 {
    let mut gone = 0;
    loop {
        let step = store.purge(retention).await.unwrap();
        gone += step.gone;
        if !step.more {
            return gone;
        }
    }
}

/// Numbers of pending rows.
pub async fn owed(store: &dyn Store, instance: u64) -> Vec<u64> {
    store
        .pending(InstanceNo(instance), Seq::NONE, usize::MAX)
        .await
        .unwrap()
        .into_iter()
        .map(|(seq, _)| seq.0)
        .collect()
}

/// Records notifications.
#[derive(Default)]
pub struct NotifiedRows(Mutex<Vec<Vec<NewRow>>>);

impl NotifiedRows {
    pub fn on(store: &dyn Store) -> Arc<Self> {
        let notified = Arc::new(Self::default());
        store.attach_listener(notified.clone());
        notified
    }

    /// All rows so far, in order.
    pub fn rows(&self) -> Vec<(u64, u64)> {
        self.deliveries().into_iter().map(|new| (new.row.instance.0, new.row.seq.0)).collect()
    }

    pub fn deliveries(&self) -> Vec<NewRow> {
        self.0.lock().unwrap().concat()
    }
}

impl RowListener for NotifiedRows {
    fn rows_committed(&self, rows: &[NewRow]) {
        self.0.lock().unwrap().push(rows.to_vec());
    }
}
