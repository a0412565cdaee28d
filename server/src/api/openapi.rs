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
    json!({
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
    })
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
