//! Parameters of a call. They come as JSON, as form fields or as parts of a multipart body, so a number may be a text and
//! an object may be a text that holds JSON.

use serde_json::{Map, Value};

use super::answer::ApiError;

/// A file of a multipart body.
#[derive(Debug, Clone)]
pub struct Upload {
    pub field: String,
    pub filename: String,
    pub mime: String,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub struct Params(pub Map<String, Value>);

impl Params {
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(yes) => Some(yes.to_string()),
            other => Some(other.to_string()),
        }
    }

    /// A text that is not empty.
    pub fn some_text(&self, name: &str) -> Option<String> {
        self.text(name).filter(|text| !text.is_empty())
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn is_true(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Bool(yes)) => *yes,
            Some(Value::String(text)) => matches!(text.to_lowercase().as_str(), "true" | "1" | "yes"),
            Some(Value::Number(number)) => number.as_i64() == Some(1),
            _ => false,
        }
    }

    /// An object or a list, also where it comes as a text with JSON in it.
    pub fn json(&self, name: &str) -> Result<Option<Value>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => serde_json::from_str(text)
                .map(Some)
                .map_err(|_| ApiError::bad(format!("can't parse {} JSON object", name.replace('_', " ")))),
            Some(value) => Ok(Some(value.clone())),
        }
    }

    /// A list of texts; `None` if the parameter is not there.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        let Some(value) = self.json(name)? else { return Ok(None) };
        let items = value.as_array().ok_or_else(|| ApiError::bad(format!("can't parse {name} JSON object")))?;
        Ok(Some(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()))
    }
}

impl From<Value> for Params {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self(fields),
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_flags_and_objects_may_be_texts() {
        let params = Params::from(json!({"a": "-7", "b": "true", "c": "[\"x\"]", "d": 3, "e": "{", "f": null}));
        assert_eq!((params.int("a"), params.int("d"), params.int("f")), (Some(-7), Some(3), None));
        assert!(params.is_true("b") && !params.is_true("a"));
        assert_eq!(params.texts("c").unwrap().unwrap(), ["x"]);
        assert_eq!(params.json("e").unwrap_err().code, 400);
        assert_eq!(params.text("d").as_deref(), Some("3"));
    }
}
