//! The OpenAPI document, generated from the operations and the types of their input and answer.

use super::call::Call;
use super::operation::{Operation, Takes, look};
use super::problem::Problem;
use super::table::{Row, Table};
use crate::gates::Gates;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

const DOCUMENT: Operation<(), Box<RawValue>> = look("/openapi.json", "This document");

static WRITTEN: LazyLock<Box<RawValue>> =
    LazyLock::new(|| to_raw_value(&document_of(&super::ROWS)).unwrap_or_default());

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table.with(DOCUMENT, document)
}

async fn document(_: Call<Gates>, (): ()) -> Result<Box<RawValue>, Problem> {
    Ok(WRITTEN.clone())
}

/// The schemas of inputs, where a field with a default may be left out, and of answers, where it is always there.
struct Schemas {
    input: SchemaGenerator,
    answer: SchemaGenerator,
}

impl Schemas {
    fn new() -> Schemas {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Schemas {
            input: settings().for_deserialize().into_generator(),
            answer: settings().for_serialize().into_generator(),
        }
    }

    /// All schemas that have names. A type that is both input and answer has the schema of the input here: it demands fewer fields, so the
    /// answer fits it, too.
    fn named(mut self) -> Map<String, Value> {
        let mut named = self.answer.take_definitions(true);
        named.extend(self.input.take_definitions(true));
        named
    }
}

fn document_of(rows: &[Row]) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Schemas::new());
    for row in rows {
        let path = paths.entry(row.path).or_insert_with(|| json!({}));
        path[row.verb.word()] = described(row, &mut schemas);
    }
    let problem = schemas.answer.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the console does, for programs. A token is made with `weir console token add NAME --scope metrics|read|operate|admin`; \
                what goes wrong is a problem document (RFC 9457) with a hint.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": super::PREFIX }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.named(),
            "responses": { "Problem": {
                "description": "Why not, and what to do next",
                "content": { "application/problem+json": { "schema": problem } },
            } },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn described(row: &Row, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for status in ["401", "403", "404", "405", "409", "422", "503", "504"] {
        responses.insert(status.to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    let (kind, schema) = (row.answer)(&mut schemas.answer);
    let done = if row.makes { "201" } else { "200" };
    responses.insert(done.to_owned(), json!({ "description": "Done", "content": { kind: { "schema": schema } } }));
    let mut described = json!({
        "operationId": row.id(),
        "summary": row.summary,
        "description": format!("Needs a token with the scope `{}` or wider.", row.scope.as_str()),
        "parameters": parameters(row, schemas),
        "responses": responses,
    });
    match row.takes {
        Takes::Nothing | Takes::Query => {}
        Takes::QueryAndContent => described["requestBody"] = json!({ "content": { "application/octet-stream": {} } }),
        Takes::Json => {
            let schema = (row.input)(&mut schemas.input);
            described["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
    }
    described
}

/// The parameters in the path and the query.
fn parameters(row: &Row, schemas: &mut Schemas) -> Vec<Value> {
    let names = row.path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    if matches!(row.takes, Takes::Query | Takes::QueryAndContent) {
        parameters.extend(of_query(&(row.fields)(&mut schemas.input)));
    }
    parameters
}

fn of_query(form: &Schema) -> Vec<Value> {
    let required = form.get("required").and_then(Value::as_array);
    let fields = form.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let needed = required.is_some_and(|required| required.iter().any(|field| field == name));
        json!({ "name": name, "in": "query", "required": needed, "schema": schema })
    };
    fields.into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ROWS;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_str(WRITTEN.get()).unwrap()
    }

    #[test]
    fn every_operation_is_described_under_a_name_of_its_own() {
        assert!(ROWS.len() > 50, "{}", ROWS.len());
        let document = document();
        for row in ROWS.iter() {
            assert!(document["paths"][row.path][row.verb.word()].is_object(), "{} {}", row.verb.word(), row.path);
        }
        let ids: BTreeSet<String> = ROWS.iter().map(Row::id).collect();
        assert_eq!(ids.len(), ROWS.len(), "no two have one name");
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
    fn every_reference_leads_somewhere_and_every_form_is_used() {
        let (document, mut found) = (document(), BTreeSet::new());
        references(&document, &mut found);
        for to in &found {
            assert!(document.pointer(to.trim_start_matches('#')).is_some(), "{to}");
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            assert!(found.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
            // Two types with the same name would be distinguished by a number, which would mean nothing to a reader.
            assert!(!name.ends_with(|last: char| last.is_ascii_digit()), "{name} is the name of two types");
        }
    }

    #[test]
    fn what_goes_in_may_be_left_out_and_what_comes_out_is_there() {
        let schemas = &document()["components"]["schemas"];
        let page = &schemas["UserPage"];
        assert_eq!(page["properties"]["addresses"]["type"], "array", "as of a user in a list");
        assert!(page["required"].as_array().unwrap().contains(&"locked_since".into()), "null, but there");
        assert_eq!(page["properties"]["locked_since"]["format"], "date-time");
        assert_eq!(schemas["NewUser"]["required"], json!(["name"]));
        assert_eq!(schemas["NewUser"]["additionalProperties"], false);
        assert_eq!(schemas["Spread"]["properties"]["mean_s"]["type"], json!(["number", "null"]));
    }

    #[test]
    fn the_fields_of_a_query_are_parameters() {
        let parameters = &document()["paths"]["/lab/samples"]["post"]["parameters"];
        let needed = |name: &str| {
            let found = parameters.as_array().unwrap().iter().find(|parameter| parameter["name"] == name).unwrap();
            (found["in"].as_str().unwrap().to_owned(), found["required"].as_bool().unwrap())
        };
        assert_eq!(needed("name"), ("query".to_owned(), true));
        assert_eq!(needed("tags"), ("query".to_owned(), false));
    }
}
