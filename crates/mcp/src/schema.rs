//! Simplifies the schemas of tools: removes what serves only Rust.
//!
//! An optional argument is simply not required: it need not allow `null` as well, which several clients cannot express.
//! The names of types and of number formats mean nothing to a model.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

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

fn simplify(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("format");
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
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
        check(
            json!({ "type": ["string", "null"], "maxLength": 3 }),
            json!({ "type": "string", "maxLength": 3 }),
        );
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
