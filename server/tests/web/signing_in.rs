//! Links, passwords and sessions.

use serde_json::json;
use server::api::{DashboardRole, GetDashboardLink, RemoveDashboardUser, SetDashboardUser};
use server::web::Options;

use crate::harness::{Answer, Browser, PASSWORD, Served};

#[test]
fn a_link_signs_in_once() {
    let served = Served::start();
    let (link, secret) = served.link();
    assert!(link.url.starts_with(&format!("http://{}/#sign-in=", served.address)), "{}", link.url);
    assert_eq!((link.expires_in, link.certificate_fingerprint), (300, None));
    let mut browser = Browser::new(served.address);
    assert_eq!(browser.get("/session").status, 401);
    let answer = browser.sign_in(&json!({ "link": secret }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.split("; ").any(|part| part == flag), "{cookie}");
    }
    assert!(
        !cookie.contains("Secure") && !cookie.contains("__Host-") && !cookie.contains("Domain"),
        "{cookie}"
    );
    let session = browser.get("/session");
    assert_eq!(session.status, 200);
    let told = session.json();
    assert_eq!((told["role"].as_str(), told["csrf"] == answer.json()["csrf"]), (Some("admin"), true));
    assert!(told["expires_in"].as_u64().unwrap() > 43_000, "{told}");
    assert!(told["version"].is_string() && told["host"].is_string() && told["user"].is_string(), "{told}");
    assert_eq!(browser.act("pool-list", &json!({})).status, 200);

    let mut other = Browser::new(served.address);
    let again = other.sign_in(&json!({ "link": secret }));
    assert_eq!((again.status, other.cookie), (401, None));
    assert!(again.message().contains("used already"), "{again:?}");

    let lines = served.audit();
    let visits: Vec<_> = lines.iter().filter(|line| line.action == "sign-in").collect();
    assert_eq!((visits[0].result.as_str(), visits[0].from.as_deref()), ("ok", Some("127.0.0.1")));
    assert!(visits[1].result.contains("used already"), "{visits:?}");
    let text = std::fs::read_to_string(served.file("audit.log")).unwrap();
    assert!(!text.contains(&secret));
}

#[test]
fn a_session_ends_when_it_is_signed_out() {
    let served = Served::start();
    let browser = served.admin();
    let without = Browser { csrf: None, ..browser.clone() };
    assert_eq!(without.send("POST", "/sign-out", &[], b"").status, 403);
    assert_eq!(browser.get("/session").status, 200);
    let out = browser.send("POST", "/sign-out", &[], b"");
    assert_eq!(out.status, 204, "{out:?}");
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    assert_eq!(browser.get("/session").status, 401);
    let refused = browser.act("pool-list", &json!({}));
    assert_eq!((refused.status, refused.json()["kind"].as_str()), (401, Some("refused")));
}

#[test]
fn a_password_signs_in_and_wrong_ones_have_to_wait() {
    let served = Served::start();
    served.user("ann", DashboardRole::Operator);
    let mut browser = Browser::new(served.address);
    let mut wrong =
        |user: &str, password: &str| browser.sign_in(&json!({ "user": user, "password": password }));
    assert_eq!(wrong("ann", "wrong horse battery").status, 401);
    let unknown = wrong("hunter2-is-my-password", PASSWORD);
    assert_eq!(unknown.status, 401);
    assert_eq!(unknown.message(), wrong("ann", "").message());
    let right = browser.sign_in(&json!({ "user": "ann", "password": PASSWORD }));
    assert_eq!((right.status, right.json()["role"].as_str()), (200, Some("operator")));
    let mut stranger = Browser::new(served.address);
    let many: Vec<u16> =
        (0..7).map(|_| stranger.sign_in(&json!({ "user": "ann", "password": "x" })).status).collect();
    assert!(many.contains(&429), "{many:?}");
    // Also with the right one.
    let waits = stranger.sign_in(&json!({ "user": "ann", "password": PASSWORD }));
    assert_eq!(waits.status, 429);
    assert!(waits.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{waits:?}");
    // One that is in stays so.
    assert_eq!(browser.get("/session").status, 200);
    let text = std::fs::read_to_string(served.file("audit.log")).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("horse"), "{text}");
    let kept = std::fs::read_to_string(served.file("dashboard.json")).unwrap();
    assert!(kept.contains("ann") && !kept.contains("horse"), "{kept}");
}

#[test]
fn requests_to_sign_in_that_make_no_sense_are_refused() {
    let served = Served::start();
    let browser = Browser::new(served.address);
    let json = [("Content-Type", "application/json")];
    for body in ["", "{", "7", "{\"link\": 7}", "{\"password\": 7}", "{\"link\": \"x\", \"more\": 1}"] {
        let answer = browser.send("POST", "/sign-in", &json, body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert_eq!(browser.send("POST", "/sign-in", &[], b"{}").status, 415);
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(browser.send("POST", "/sign-in", &form, b"link=x").status, 415);
    assert_eq!(browser.send("POST", "/sign-in", &json, &[b' '; 9 << 10]).status, 400);
    assert_eq!(browser.send("POST", "/sign-in", &json, b"{}").status, 401);
}

#[test]
fn a_new_role_or_password_and_removal_end_sessions() {
    let served = Served::start();
    let browser = served.browser_of("ann", DashboardRole::Viewer);
    let other = served.browser_of("ben", DashboardRole::Viewer);
    let to_operator =
        SetDashboardUser { name: "ann".into(), role: Some(DashboardRole::Operator), password: None };
    served.as_root(&to_operator).unwrap();
    assert_eq!(browser.get("/session").status, 401);
    let mut browser = Browser::new(served.address);
    assert_eq!(browser.sign_in(&json!({ "user": "ann", "password": PASSWORD })).status, 200);
    let password = Some("another horse battery".to_owned().into());
    served.as_root(&SetDashboardUser { name: "ann".into(), role: None, password }).unwrap();
    assert_eq!(browser.get("/session").status, 401);
    assert_eq!(browser.sign_in(&json!({ "user": "ann", "password": PASSWORD })).status, 401);
    assert_eq!(browser.sign_in(&json!({ "user": "ann", "password": "another horse battery" })).status, 200);
    served.as_root(&RemoveDashboardUser { name: "ann".into() }).unwrap();
    assert_eq!(browser.get("/session").status, 401);
    assert_eq!(other.get("/session").status, 200);
}

#[test]
fn a_user_changes_the_own_password_and_keeps_the_session() {
    const NEW: &str = "another horse battery";
    let served = Served::start();
    let browser = served.browser_of("ann", DashboardRole::Viewer);
    let mut elsewhere = Browser::new(served.address);
    assert_eq!(elsewhere.sign_in(&json!({ "user": "ann", "password": PASSWORD })).status, 200);
    let set = |browser: &Browser, old: &str, new: &str| {
        browser.act("dashboard-password-set", &json!({ "old": old, "new": new }))
    };
    let wrong = set(&browser, "wrong horse battery", NEW);
    assert_eq!((wrong.status, wrong.message().contains("old password is wrong")), (422, true), "{wrong:?}");
    let short = set(&browser, PASSWORD, "short");
    assert!(short.message().contains("too short"), "{short:?}");
    let done = set(&browser, PASSWORD, NEW);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(browser.get("/session").status, 200);
    assert_eq!(elsewhere.get("/session").status, 401, "the own other sessions end");
    assert_eq!(elsewhere.sign_in(&json!({ "user": "ann", "password": PASSWORD })).status, 401);
    assert_eq!(elsewhere.sign_in(&json!({ "user": "ann", "password": NEW })).status, 200);
    // A user of the machine has none, and guessing waits as signing in does.
    assert_eq!(set(&served.admin(), PASSWORD, NEW).status, 422);
    let many: Vec<Answer> = (0..7).map(|_| set(&browser, "x", NEW)).collect();
    assert!(many.iter().any(|answer| answer.status == 409 && answer.message().contains("try again")));
    let text = std::fs::read_to_string(served.file("audit.log")).unwrap();
    assert!(text.contains("dashboard-password-set") && !text.contains("horse"), "{text}");
}

#[test]
fn signing_in_again_ends_the_session_before() {
    let served = Served::start();
    let first = served.admin();
    let mut second = first.clone();
    let (_, secret) = served.link();
    assert_eq!(second.sign_in(&json!({ "link": secret })).status, 200);
    assert_ne!(first.cookie, second.cookie);
    assert_eq!((first.get("/session").status, second.get("/session").status), (401, 200));
}

#[test]
fn the_dashboard_begins_when_a_link_is_asked_for() {
    let (served, addresses) = Served::start_in(tempfile::tempdir().unwrap(), Options::default());
    assert!(addresses.is_empty());
    let wrong = served.as_root(&GetDashboardLink { listen: Some("nowhere".into()) }).unwrap_err();
    assert!(wrong.message.contains("ADDRESS:PORT"), "{wrong}");
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let busy = served.as_root(&GetDashboardLink { listen: Some(taken.clone()) }).unwrap_err();
    assert!(busy.message.contains("does not listen"), "{busy}");
    drop(held);
    let link = served.as_root(&GetDashboardLink { listen: Some("127.0.0.1:0".into()) }).unwrap();
    let address = link.addresses[0].parse().unwrap();
    assert_eq!(Browser::new(address).get("/").status, 200);
    let again = served.as_root(&GetDashboardLink::default()).unwrap();
    assert_eq!(again.addresses, link.addresses);
    let elsewhere = served.as_root(&GetDashboardLink { listen: Some(taken) }).unwrap_err();
    assert!(elsewhere.message.contains("already"), "{elsewhere}");
}
