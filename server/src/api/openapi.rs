//! The OpenAPI 3.1 document of the API, made from the declarations of actions and the types of their requests
//! and replies.
//!
//! The schemas are JSON Schema 2020-12, as OpenAPI 3.1 has them; descriptions are the documentation of the
//! types. What OpenAPI has no word for stands beside it: `x-cenote-role` says who may ask, `x-cenote-effects`
//! what may be different afterwards, and `x-cenote-form` how the answer comes. A request of another form than
//! `once` is answered by lines of JSON or by frames: its schema is that of one line.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{Action, ApiError, Declaration, ErrorKind, Form};

/// The schemas of an action's request and reply.
pub type Schemas = fn(&mut SchemaGenerator) -> [Schema; 2];

/// The schemas of an action.
pub fn schemas_of<A: Action>(generator: &mut SchemaGenerator) -> [Schema; 2] {
    [generator.subschema_for::<A>(), generator.subschema_for::<A::Reply>()]
}

/// The document for these actions.
pub fn document<'a>(actions: impl Iterator<Item = (&'a Declaration, Schemas)>) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ApiError>();
    let paths: serde_json::Map<String, Value> = actions
        .map(|(declared, schemas)| {
            let schemas = schemas(&mut generator);
            (format!("/v1/{}", declared.name), json!({ "post": operation(declared, schemas, &error) }))
        })
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cenote",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The daemon's API, on a Unix socket",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost", "description": "by the Unix socket of the daemon" }],
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    });
    name_words(&mut document);
    document
}

/// Makes an `enum` of words of each choice between constants that are words, which generators of clients
/// understand better. What each word means goes into the description.
fn name_words(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(name_words),
        Value::Object(fields) => {
            fields.values_mut().for_each(name_words);
            let word = |choice: &Value| Some((choice.get("const")?.as_str()?.to_owned(), choice.clone()));
            let choices = fields.get("oneOf").and_then(Value::as_array);
            let words = choices.and_then(|all| all.iter().map(word).collect::<Option<Vec<_>>>());
            let Some(words) = words.filter(|words| !words.is_empty()) else { return };
            let mut text = fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (word, choice) in &words {
                let meaning = choice.get("description").and_then(Value::as_str).unwrap_or_default();
                text += &format!("\n- `{word}`: {meaning}");
            }
            fields.remove("oneOf");
            fields.insert("type".into(), "string".into());
            fields.insert("enum".into(), words.into_iter().map(|(word, _)| word).collect());
            fields.insert("description".into(), text.trim_start().into());
        }
        _ => {}
    }
}

fn operation(declared: &Declaration, [request, reply]: [Schema; 2], error: &Schema) -> Value {
    let of_type = |media: &str, schema: &Schema| json!({ media: { "schema": schema } });
    let media = match declared.form {
        Form::Once | Form::OnceByServer => "application/json",
        Form::HeldOpen | Form::Parts | Form::StreamIn => "application/x-ndjson",
        Form::FramesOut => "application/octet-stream",
        Form::ServerSentEvents => "text/event-stream",
    };
    let mut responses = json!({
        "200": { "description": "The reply", "content": of_type(media, &reply) },
    });
    for kind in ErrorKind::ALL {
        responses[kind.status().to_string()] = json!({
            "description": kind.meaning(),
            "content": of_type("application/json", error),
        });
    }
    json!({
        "operationId": declared.name,
        "tags": [declared.part.heading()],
        "summary": declared.summary,
        "x-cenote-role": declared.role.name(),
        "x-cenote-effects": declared.effects.names(),
        "x-cenote-form": declared.form.name(),
        "requestBody": { "required": true, "content": of_type("application/json", &request) },
        "responses": responses,
    })
}
