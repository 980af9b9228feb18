//! The OpenAPI document: every handler, what it takes and what it answers.
//!
//! It is written from two tables, of [operations](operations::OPERATIONS) and of [shapes](shapes), in words short enough to be read
//! beside the handlers. A test holds it against the routes, and another against a running Weir: what it says is what happens.

mod operations;
mod shapes;

use axum::Json;
use operations::{OPERATIONS, Operation};
use serde_json::{Map, Value, json};
use shapes::{Shape, shape};
use std::sync::LazyLock;
use weir_foundation::api_tokens::Scope;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document_of_all);

pub(super) async fn document() -> Json<&'static Value> {
    Json(&DOCUMENT)
}

fn document_of_all() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation);
    }
    let schemas: Map<String, Value> = shapes::ALL.iter().map(|named| (named.name.to_owned(), named.schema())).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the console does, for programs. A token is made with `weir console token add NAME --scope read|operate|admin`; \
                what goes wrong is a problem document (RFC 9457) with a hint.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": super::PREFIX }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Problem": {
                "description": "Why not, and what to do next",
                "content": { "application/problem+json": { "schema": shape("Problem") } },
            } },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn described(operation: &Operation) -> Value {
    let mut responses = Map::new();
    for status in ["401", "403", "404", "405", "409", "422", "503", "504"] {
        responses.insert(status.to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    let (kind, schema) = match operation.answer {
        "metrics" => ("text/plain", json!({ "type": "string" })),
        "zip" => ("application/zip", json!({ "type": "string", "format": "binary" })),
        answer => ("application/json", shape(answer)),
    };
    let done = if operation.makes { "201" } else { "200" };
    responses.insert(done.to_owned(), json!({ "description": "Done", "content": { kind: { "schema": schema } } }));
    let mut described = json!({
        "operationId": operation.id(),
        "summary": operation.summary,
        "description": format!("Needs a token with the scope `{}` or wider.", operation.scope),
        "parameters": parameters(operation),
        "responses": responses,
    });
    match operation.body {
        "" => {}
        "bytes" => described["requestBody"] = json!({ "content": { "application/octet-stream": {} } }),
        body => {
            described["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": shape(body) } } });
        }
    }
    described
}

/// What stands in the path, and the query.
fn parameters(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    for field in shapes::fields(operation.query) {
        parameters.push(json!({
            "name": field.name, "in": "query", "required": field.required, "schema": shape(field.kind)
        }));
    }
    parameters
}

impl Shape {
    /// As JSON Schema has it. What comes in is exactly this; what goes out may have more one day.
    fn schema(&self) -> Value {
        let fields = shapes::fields(self.fields);
        let properties: Map<String, Value> =
            fields.iter().map(|field| (field.name.to_owned(), shape(field.kind))).collect();
        let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({ "type": "object", "properties": properties, "required": required });
        if self.comes_in {
            schema["additionalProperties"] = false.into();
        }
        schema
    }
}

/// The scope that a request to a path behind [`super::PREFIX`] needs; nothing if there is no such operation.
pub(crate) fn scope_of(method: &str, path: &str) -> Option<Scope> {
    operations::scope_of(method, path).and_then(Scope::parse)
}

/// Every operation as it is asked for, and the scope that the document says it needs.
#[cfg(test)]
pub(crate) fn scopes() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    OPERATIONS
        .iter()
        .map(|operation| (operation.method, format!("{}{}", super::PREFIX, operation.path), operation.scope))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The routes of the API, as its routers name them, with their methods.
    fn routes() -> BTreeSet<(String, String)> {
        let sources = [include_str!("../mod.rs"), include_str!("../lab.rs"), include_str!("../web.rs")].concat();
        let mut found = BTreeSet::new();
        for line in sources.split(".route(\"").skip(1) {
            let (path, rest) = line.split_once('"').unwrap();
            let handlers = rest.lines().next().unwrap();
            for method in ["get", "post", "patch", "put", "delete"] {
                let (first, more) = (format!(" {method}("), format!(").{method}("));
                if handlers.contains(&first) || handlers.contains(&more) {
                    found.insert((path.to_owned(), method.to_owned()));
                }
            }
        }
        found
    }

    #[test]
    fn every_handler_is_described_and_nothing_else() {
        let described: BTreeSet<_> = OPERATIONS.iter().map(|o| (o.path.to_owned(), o.method.to_owned())).collect();
        let routes = routes();
        assert!(routes.len() > 35, "{routes:?}");
        assert_eq!(described, routes);
        let ids: BTreeSet<String> = OPERATIONS.iter().map(Operation::id).collect();
        assert_eq!(ids.len(), OPERATIONS.len(), "no two have one name");
    }

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                    found.insert(to.to_owned());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_shape_is_used() {
        let mut found = BTreeSet::new();
        references(&DOCUMENT, &mut found);
        for to in &found {
            assert!(DOCUMENT.pointer(to.trim_start_matches('#')).is_some(), "{to}");
        }
        for shape in shapes::ALL {
            let own = format!("#/components/schemas/{}", shape.name);
            let flattened = shapes::ALL.iter().any(|other| other.fields.contains(&format!("+{}", shape.name)));
            assert!(found.contains(&own) || flattened, "{} is not used", shape.name);
        }
    }

    #[test]
    fn short_words_become_schemas() {
        assert_eq!(shape("text?"), json!({ "type": ["string", "null"] }));
        assert_eq!(shape("[int]"), json!({ "type": "array", "items": { "type": "integer" } }));
        assert_eq!(shape("a|b?"), json!({ "enum": ["a", "b", null] }));
        assert_eq!(shape("{int}"), json!({ "type": "object", "additionalProperties": { "type": "integer" } }));
        let page = &DOCUMENT["components"]["schemas"]["UserPage"];
        assert_eq!(page["properties"]["addresses"]["type"], "array", "as of a user in a list");
        assert_eq!(DOCUMENT["components"]["schemas"]["NewUser"]["required"], json!(["name"]));
    }
}
