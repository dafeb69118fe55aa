//! What `derive` cannot say in a JSON Schema.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// An object with every variant of `K`, an enum without fields, as a key, and a `V` for each.
pub fn every_key<K: JsonSchema, V: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let keys = K::json_schema(generator);
    let keys = keys.get("oneOf").and_then(|keys| keys.as_array()).into_iter().flatten();
    let properties: BTreeMap<String, Schema> = keys
        .map(|key| {
            let mut value = generator.subschema_for::<V>();
            value.insert("description".into(), key["description"].clone());
            (key["const"].as_str().unwrap_or_default().to_owned(), value)
        })
        .collect();
    json_schema!({ "type": "object", "properties": properties, "required": properties.keys().collect::<Vec<_>>() })
}
