//! Simplifies the schemas of tools: removes what serves only Rust.
//!
//! An optional argument is simply not required: it need not allow `null` as well, which several clients cannot express.
//! The names of types and of number formats mean nothing to a model. Neither do limits: those of
//! texts are far above what a model writes, those of numbers are in their descriptions where they matter, and the server
//! enforces all of them.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

/// Words of a schema that are left out.
const LEFT_OUT: [&str; 9] = [
    "format",
    "default",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "minimum",
    "maximum",
];

pub(crate) fn simplify_tool(tool: &mut Tool) {
    let mut schema = JsonObject::clone(&tool.input_schema);
    for word in ["$schema", "title", "description"] {
        schema.remove(word);
    }
    // Makes tools without arguments refuse arguments too.
    schema.entry("additionalProperties").or_insert(Value::Bool(false));
    for value in schema.values_mut() {
        simplify(value);
    }
    tool.input_schema = Arc::new(schema);
}

/// What remains has its bounds.
#[cfg(test)]
pub(crate) fn remove_null_from(tool: &mut Tool) {
    let mut schema = JsonObject::clone(&tool.input_schema);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(JsonObject::values_mut) {
        property.as_object_mut().into_iter().for_each(without_null);
    }
    tool.input_schema = Arc::new(schema);
}

fn simplify(value: &mut Value) {
    match value {
        Value::Object(object) => {
            // Only where they are words of the schema, and not names of arguments.
            if object.contains_key("type") || object.contains_key("anyOf") {
                for word in LEFT_OUT {
                    object.remove(word);
                }
            }
            without_null(object);
            object.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `["string", "null"]` becomes `"string"`; a choice between a schema and `null` becomes the schema.
fn without_null(object: &mut JsonObject) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if choices.len() == 1
            && let Some(Value::Array(mut choices)) = object.remove("anyOf")
            && let Some(Value::Object(only)) = choices.pop()
        {
            for (word, value) in only {
                object.entry(word).or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(mut before: Value, after: Value) {
        simplify(&mut before);
        assert_eq!(before, after);
    }

    #[test]
    fn optional_arguments_do_not_allow_null() {
        check(json!({ "type": ["string", "null"], "maxLength": 3 }), json!({ "type": "string" }));
        check(
            json!({ "description": "which", "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "null" }] }),
            json!({ "description": "which", "$ref": "#/$defs/A" }),
        );
        check(
            json!({ "type": "integer", "format": "uint64", "default": null }),
            json!({ "type": "integer" }),
        );
        check(json!({ "type": ["string", "integer"] }), json!({ "type": ["string", "integer"] }));
    }
}
