//! The OpenAPI 3.1 document of the API, made from the declarations of actions and the types of their requests
//! and replies.
//!
//! The schemas are JSON Schema 2020-12, as OpenAPI 3.1 has them; descriptions are the documentation of the
//! types. What OpenAPI has no word for stands beside it: `x-cenote-role` says who may ask, `x-cenote-effects`
//! what may be different afterwards, `x-cenote-form` how the answer comes, and `x-cenote-local` whether only
//! processes of the machine may ask, and not by the dashboard. A request of another form than
//! `once` is answered by lines of JSON or by frames: its schema is that of one line. An action that is got by
//! `GET` too has its operation there as well, with the fields of its request as parameters.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{Action, ApiError, Declaration, ErrorKind, Form, LAST_EVENT_ID};

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
    let mut paths = serde_json::Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        paths.entry(format!("/v1/{path}")).or_insert_with(|| json!({}))[method] = operation;
    };
    for (declared, schemas) in actions {
        let [request, reply] = schemas(&mut generator);
        let Declaration { name, got_at, form, .. } = *declared;
        let body = json!({ "required": true, "content": of_type("application/json", &request) });
        add(name, "post", operation(declared, name, ("requestBody", body), &reply, &error));
        if let Some(path) = got_at {
            let parameters = parameters(form, resolved(&request, generator.definitions()));
            let id = format!("{name}-by-get");
            add(path, "get", operation(declared, &id, ("parameters", parameters), &reply, &error));
        }
    }
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

/// The schema that a reference leads to.
fn resolved<'a>(schema: &'a Schema, definitions: &'a serde_json::Map<String, Value>) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema.as_value())
}

/// The parameters of a `GET` whose request has this schema. What may be left out or `null` in JSON is left
/// out there.
fn parameters(form: Form, request: &Value) -> Value {
    let fields = request.get("properties").and_then(Value::as_object);
    let in_path = fields.into_iter().flatten().map(|(name, schema)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        if let Some(types) = schema.get_mut("type").filter(|types| types.is_array()) {
            *types = types.as_array().into_iter().flatten().find(|one| *one != "null").cloned().into();
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.as_object_mut().and_then(|schema| schema.remove("default"));
        }
        json!({ "name": name, "in": "query", "description": description, "schema": schema })
    });
    let last = json!({
        "name": LAST_EVENT_ID,
        "in": "header",
        "description": "The id of the last message that the client got; counts more than `from`.",
        "schema": { "type": "string" },
    });
    in_path.chain((form == Form::ServerSentEvents).then_some(last)).collect()
}

fn of_type(media: &str, schema: &Schema) -> Value {
    json!({ media: { "schema": schema } })
}

/// An action by one method. How it is asked for is a field of the operation.
fn operation(
    declared: &Declaration,
    id: &str,
    (asked_by, asked): (&str, Value),
    reply: &Schema,
    error: &Schema,
) -> Value {
    let media = match declared.form {
        Form::Once | Form::OnceByServer => "application/json",
        Form::HeldOpen | Form::Parts | Form::StreamIn => "application/x-ndjson",
        Form::FramesOut => "application/octet-stream",
        Form::ServerSentEvents => "text/event-stream",
    };
    let mut responses = json!({
        "200": { "description": "The reply", "content": of_type(media, reply) },
    });
    for kind in ErrorKind::ALL {
        responses[kind.status().to_string()] = json!({
            "description": kind.meaning(),
            "content": of_type("application/json", error),
        });
    }
    json!({
        "operationId": id,
        "tags": [declared.part.heading()],
        "summary": declared.summary,
        "x-cenote-role": declared.role.name(),
        "x-cenote-effects": declared.effects.names(),
        "x-cenote-form": declared.form.name(),
        "x-cenote-local": declared.is_local,
        (asked_by): asked,
        "responses": responses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FollowChanges;

    #[test]
    fn the_fields_of_a_request_are_the_parameters_of_its_get() {
        let document =
            document([(&FollowChanges::DECLARED, schemas_of::<FollowChanges> as Schemas)].into_iter());
        let got = &document["paths"]["/v1/events"]["get"];
        let named = |one: &Value| {
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            [text("name"), text("in"), one["schema"]["type"].as_str().unwrap_or_default().to_owned()]
        };
        let parameters: Vec<_> = got["parameters"].as_array().unwrap().iter().map(named).collect();
        let expected = [
            ["from", "query", "string"],
            ["without_events", "query", "boolean"],
            ["without_snapshot", "query", "boolean"],
            [LAST_EVENT_ID, "header", "string"],
        ];
        assert_eq!(parameters, expected.map(|one| one.map(str::to_owned)));
        assert_ne!(got["operationId"], document["paths"]["/v1/follow"]["post"]["operationId"]);
        assert!(got["responses"]["200"]["content"]["text/event-stream"].is_object());
    }
}
