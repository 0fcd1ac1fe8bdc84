//! A bounded record of calls, for tests to read.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;

use super::snowflake::Id;

const MAX_CALLS: usize = 20_000;
/// Parameters that are longer are replaced by a note.
const MAX_PARAMS_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRecord {
    /// From 1; tells tests where to read on.
    pub number: u64,
    pub at_ms: u64,
    pub bot: Option<Id>,
    /// Verb and path, with `:id` and the like for what varies.
    pub method: String,
    pub path: String,
    pub params: Value,
    /// Field and size of each uploaded file.
    pub files: Vec<(String, usize)>,
    pub status: u16,
    /// Code of the API, where it was refused.
    pub code: Option<u64>,
    /// The fault that a test had queued for it.
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct CallLog {
    kept: VecDeque<CallRecord>,
    total: u64,
    refused_for_rate: u64,
}

impl CallLog {
    pub(super) fn push(&mut self, mut record: CallRecord) {
        self.total += 1;
        self.refused_for_rate += u64::from(record.status == 429);
        record.number = self.total;
        let length = record.params.to_string().len();
        if length > MAX_PARAMS_BYTES {
            record.params = Value::String(format!("{length} bytes, not recorded"));
        }
        if self.kept.len() == MAX_CALLS {
            self.kept.pop_front();
        }
        self.kept.push_back(record);
    }

    pub(super) fn after(&self, number: u64) -> Vec<CallRecord> {
        self.kept.iter().filter(|record| record.number > number).cloned().collect()
    }

    /// Calls that were answered with 429.
    pub(super) fn refused_for_rate(&self) -> u64 {
        self.refused_for_rate
    }
}
