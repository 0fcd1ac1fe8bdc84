//! Values of rows, and how they look in the file.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::ser::{Serialize, Serializer};

use super::tables::{Column, Kind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Ints(Vec<i64>),
}

/// One value per column of its table.
pub(crate) type Row = Vec<Value>;

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Int(number) => to.serialize_i64(*number),
            Self::Bool(is_set) => to.serialize_bool(*is_set),
            Self::Text(text) => to.serialize_str(text),
            Self::Bytes(bytes) => to.serialize_str(&BASE64_STANDARD.encode(bytes)),
            Self::Ints(numbers) => numbers.serialize(to),
        }
    }
}

impl Value {
    /// `None`: the value does not fit the column.
    pub(super) fn of(column: &Column, json: serde_json::Value) -> Option<Self> {
        use serde_json::Value as Json;
        Some(match (column.kind, json) {
            (_, Json::Null) if column.is_optional => Self::Null,
            (Kind::Int, Json::Number(number)) => Self::Int(number.as_i64()?),
            (Kind::Bool, Json::Bool(is_set)) => Self::Bool(is_set),
            (Kind::Text, Json::String(text)) => Self::Text(text),
            (Kind::Bytes, Json::String(text)) => Self::Bytes(BASE64_STANDARD.decode(text).ok()?),
            (Kind::Ints, Json::Array(all)) => Self::Ints(all.iter().map(Json::as_i64).collect::<Option<_>>()?),
            _ => return None,
        })
    }

    pub(crate) fn int(&self) -> i64 {
        if let Self::Int(number) = self { *number } else { 0 }
    }

    pub(crate) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }
}
