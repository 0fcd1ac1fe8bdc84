//! What is sent, judged by the published description of the Bot API.

use std::path::PathBuf;

use frontdesk_testkit::fakes::telegram::CallRecord;
use serde_json::Value;

/// The description is not part of this project. Without it the check is skipped, which is printed.
fn description() -> Option<Value> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/schemas");
    let folder = std::env::var_os("FRONTDESK_SCHEMAS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(folder.join("telegram-bot-api.json")) else {
        println!("skipped: FRONTDESK_SCHEMAS names no folder with telegram-bot-api.json");
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

/// Every call is one of the Bot API, with its required fields and no unknown one, each of a type that is described.
pub(crate) fn check(calls: &[CallRecord]) {
    let Some(api) = description() else { return };
    assert!(!calls.is_empty());
    for call in calls {
        let method = &api["methods"][&call.method];
        assert!(method.is_object(), "there is no method {}", call.method);
        let (fields, none) = (method["fields"].as_array(), Vec::new());
        let fields = fields.unwrap_or(&none);
        let given = call.params.as_object().unwrap();
        for (name, value) in given {
            let field = fields.iter().find(|field| field["name"] == name.as_str());
            let field = field.unwrap_or_else(|| panic!("{} has no field {name}", call.method));
            // A form has only texts.
            if call.files.is_empty() {
                assert!(
                    fits(&api, value, &field["types"]),
                    "{}: {name} = {value} is not {}",
                    call.method,
                    field["types"]
                );
            }
        }
        for field in fields.iter().filter(|field| field["required"] == true) {
            let name = field["name"].as_str().unwrap();
            let is_file = call.files.iter().any(|(given, _)| given == name);
            assert!(is_file || given.contains_key(name), "{}: {name} is missing in {}", call.method, call.params);
        }
    }
}

fn fits(api: &Value, value: &Value, types: &Value) -> bool {
    types.as_array().unwrap().iter().any(|kind| fits_one(api, value, kind.as_str().unwrap()))
}

fn fits_one(api: &Value, value: &Value, kind: &str) -> bool {
    if let Some(item) = kind.strip_prefix("Array of ") {
        return value.as_array().is_some_and(|all| all.iter().all(|value| fits_one(api, value, item)));
    }
    match kind {
        "Integer" => value.is_i64() || value.is_u64(),
        "Float" => value.is_number(),
        "String" => value.is_string(),
        "Boolean" | "True" => value.is_boolean(),
        _ => {
            let described = &api["types"][kind];
            if let Some(kinds) = described["subtypes"].as_array() {
                return kinds.iter().any(|kind| fits_one(api, value, kind.as_str().unwrap()));
            }
            let (Some(given), Some(fields)) = (value.as_object(), described["fields"].as_array()) else { return false };
            let known = given.iter().all(|(name, value)| {
                fields.iter().any(|field| field["name"] == name.as_str() && fits(api, value, &field["types"]))
            });
            known
                && fields
                    .iter()
                    .filter(|field| field["required"] == true)
                    .all(|field| given.contains_key(field["name"].as_str().unwrap()))
        }
    }
}
