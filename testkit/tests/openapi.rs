//! The OpenAPI document of the daemon's API is valid: by OpenAPI's own schema for version 3.1
//! (`data/openapi-3.1.schema.json`, as the specification publishes it), by JSON Schema 2020-12 for the
//! schemas in it, and by following each reference. The validator is Debian's `python3-jsonschema`. That the
//! document is that of the program is a test of the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn document() -> PathBuf {
    repository().join("docs/src/openapi.json")
}

fn schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openapi-3.1.schema.json")
}

/// Judges the whole document by a schema, and each schema in it by its own language.
const JUDGE: &str = "
import json, sys
from jsonschema import Draft202012Validator
schema, document = (json.load(open(path)) for path in sys.argv[1:3])
found = Draft202012Validator(schema).iter_errors(document)
faults = [f'{list(fault.path)}: {fault.message}' for fault in found]
for name, part in document['components']['schemas'].items():
    try:
        Draft202012Validator.check_schema(part)
    except Exception as fault:
        faults.append(f'{name}: {fault}')
sys.exit('\\n'.join(faults) or 0)
";

/// What the validator has against a document; `None` for one that is valid.
fn faults(document: &Path) -> Option<String> {
    let judged = Command::new("python3")
        .args(["-W", "ignore", "-c", JUDGE])
        .args([&schema(), document])
        .output()
        .expect("python3, which scripts/install-test-tools installs with python3-jsonschema");
    (!judged.status.success()).then(|| String::from_utf8_lossy(&judged.stderr).into_owned())
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_valid() {
    assert_eq!(faults(&document()), None);
    let text = std::fs::read_to_string(document()).expect("docs/src/openapi.json");
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    let mut found = Vec::new();
    references(&parsed, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads elsewhere"));
        assert!(parsed.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn a_document_that_is_not_valid_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to) in
        [("\"requestBody\"", "\"requestBodies\""), ("\"type\": \"object\"", "\"type\": \"thing\"")]
    {
        let text = std::fs::read_to_string(document()).expect("docs/src/openapi.json");
        assert!(text.contains(from));
        let spoiled = folder.path().join("openapi.json");
        std::fs::write(&spoiled, text.replacen(from, to, 1)).expect("a file");
        assert!(faults(&spoiled).is_some(), "{to}");
    }
}
