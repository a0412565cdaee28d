//! `cenote dashboard`: links, users and tokens, through the binary.

use serde_json::Value;

use crate::session::Session;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn links_users_and_tokens_are_made_and_taken_away() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit.log");
    let session = Session::start_serving(&["--audit", log.to_str().unwrap()]);
    let told = json(&session.print(&["dashboard", "--listen", "127.0.0.1:0", "--json"]));
    let url = told["url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && url.contains("/#sign-in="), "{url}");
    let text = session.print(&["dashboard"]);
    assert!(text.contains("signs in once, within 5 minutes") && !text.contains(url), "{text}");

    let set = ["dashboard", "user", "set", "ann", "--role", "operator"];
    let short = session.run_with(&set, b"short\n");
    assert_eq!(short.code, 1);
    assert!(short.err.contains("at least 10 characters"), "{short:?}");
    let new = session.run_with(&["dashboard", "user", "set", "ann"], b"correct horse battery\n");
    assert!(new.code == 1 && new.err.contains("--role"), "{new:?}");
    assert_eq!(session.run_with(&set, b"correct horse battery\n").code, 0);
    session.print(&["dashboard", "user", "set", "ann", "--role", "viewer"]);
    let users = json(&session.print(&["dashboard", "user", "list", "--json"]));
    assert_eq!((&users["users"][0]["name"], &users["users"][0]["role"]), (&"ann".into(), &"viewer".into()));
    assert!(session.print(&["dashboard", "user", "list"]).contains("ann "));

    let token = session.print(&["dashboard", "token", "create", "backup", "--role", "admin", "--days", "9"]);
    assert!(token.starts_with("cenote_") && token.trim().len() > 40, "{token}");
    let tokens = json(&session.print(&["dashboard", "token", "list", "--json"]));
    assert_eq!(tokens["tokens"][0]["name"], "backup");
    assert!(!tokens.to_string().contains(token.trim()));
    session.print(&["dashboard", "token", "remove", "backup"]);
    assert_eq!(session.print(&["dashboard", "token", "list"]), "no tokens\n");
    session.print(&["dashboard", "user", "remove", "ann"]);
    assert_eq!(session.run(&["dashboard", "user", "remove", "ann"]).code, 1);
    let audit = session.print(&["audit"]);
    assert!(audit.contains("dashboard-user-set") && !audit.contains("horse"), "{audit}");
}
