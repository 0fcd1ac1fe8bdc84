//! Contract tests for authors of connectors and stores: the rules of `AgentConnector`, `SkillStore` and `DataStore` as
//! assertions. Each one names the number of its rule in the spec.
//!
//! ```ignore
//! async fn empty() -> (Box<dyn SkillStore>, ()) { (Box::new(MyStore::new()), ()) }
//! frontdesk_testkit::skill_store_conformance!(my_store, empty);
//! ```
//!
//! Each rule gets an empty store; the second value of the tuple is kept until the rule has finished.

pub mod agent_connector;
pub mod data_store;
pub mod skill_store;

/// Creates a module with one test per rule of a `SkillStore`.
#[macro_export]
macro_rules! skill_store_conformance {
    ($name:ident, $open:expr) => {
        $crate::conformance_tests! { $name, $open, skill_store:
            rule_18_a_body_is_kept_byte_for_byte, rule_18_the_hash_is_of_the_stored_bytes,
            rule_19_the_status_is_the_bodys, rule_20_a_status_is_changed_in_the_body,
            rule_20_status_rewrite_swallows_blank_lines, rule_20_a_status_line_is_put_in_where_there_is_none,
            rule_20_changes_at_the_same_time_are_all_kept, rule_21_the_bodys_own_status_wins_on_overwrite,
            rule_21_another_author_is_a_conflict, rule_21_strange_names_are_refused,
            rule_21_old_versions_are_loaded, rule_21_versions_are_oldest_first, rule_22_queries_are_ordered_by_name,
            rule_22_each_filter_narrows, rule_22_tags_come_from_the_body, rule_22_bad_patterns_are_refused,
            rule_23_what_is_absent_is_a_fault, rule_23_delete_frees_the_name,
            rule_23_the_token_moves_with_every_change, rule_33_a_noted_status_is_written_into_the_body,
            rule_33_the_line_that_is_read_is_rewritten, rule_33_the_same_again_is_history
        }
    };
}

/// The same for a store in secured mode with [`skill_store::PUBLIC_KEY_PEM`] as its key.
#[macro_export]
macro_rules! secured_skill_store_conformance {
    ($name:ident, $open:expr) => {
        $crate::conformance_tests! { $name, $open, skill_store:
            rule_24_an_unsigned_approval_is_stored_as_a_draft, rule_24_a_signed_body_is_kept_as_it_is,
            rule_24_an_unsigned_body_is_not_promoted, rule_24_a_signed_body_keeps_its_signature
        }
    };
}

/// Creates a module with one test per rule of a `DataStore`.
#[macro_export]
macro_rules! data_store_conformance {
    ($name:ident, $open:expr) => {
        $crate::conformance_tests! { $name, $open, data_store:
            rule_25_the_summary_is_the_first_line, rule_25_the_detail_is_everything,
            rule_35_a_summary_cuts_no_pair_in_half, rule_25_absence_is_no_fault, rule_25_ids_are_new,
            rule_25_all_words_are_required, rule_25_case_and_diacritics_do_not_matter,
            rule_25_boolean_words_are_words, rule_25_punctuation_is_never_an_error,
            rule_25_no_words_are_newest_first, rule_25_an_undeclared_mode_fails,
            rule_25_filters_outside_the_manifest_fail, rule_25_declared_filters_are_honoured,
            rule_25_the_limit_holds, rule_25_nothing_expires_by_default, rule_25_curated_fields_stand_at_the_top
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $open:expr, $part:ident: $($rule:ident),+) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test]
                async fn $rule() {
                    let open = $open;
                    let (store, kept) = open().await;
                    $crate::conformance::$part::$rule(&*store).await;
                    drop((store, kept));
                }
            )+
        }
    };
}
