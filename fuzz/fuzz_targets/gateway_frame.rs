//! Any line of a gateway: reading it must never panic, and what was read as an action must be one
//! again when it is written and read a second time.
#![no_main]

use frontdesk_wire::{Action, GatewayFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    if let Ok(GatewayFrame::Outbound { action, .. }) = GatewayFrame::parse(line) {
        read_twice(action);
    }
    read_twice(line);
});

fn read_twice(raw: &str) {
    if let Ok(action) = Action::parse(raw) {
        let written = action.to_value().to_string();
        let again = Action::parse(&written).map(|again| (again.act.op(), again.metadata));
        assert_eq!(again, Ok((action.act.op(), action.metadata)), "{written}");
    }
}
