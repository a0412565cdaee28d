//! Tokens of programs.

use serde_json::json;
use server::api::{
    CreateDashboardToken, DashboardRole, ListDashboardUsers, RemoveDashboardToken, SetDashboardUser,
};

use crate::harness::{Answer, Browser, Served};

fn ask(served: &Served, token: &str, action: &str) -> Answer {
    let header = format!("Bearer {token}");
    let browser = Browser::new(served.address);
    browser.send("POST", &format!("/v1/{action}"), &[("Authorization", &header)], b"{}")
}

#[test]
fn a_token_has_its_role_and_ends() {
    let served = Served::start();
    let create = |name: &str, role, days| {
        served.as_root(&CreateDashboardToken { name: name.into(), role, days }).unwrap().token
    };
    let (viewer, admin) =
        (create("v", DashboardRole::Viewer, Some(1)), create("a", DashboardRole::Admin, None));
    assert_eq!(ask(&served, &viewer, "pool-list").status, 200);
    assert_eq!(ask(&served, &viewer, "dashboard-users").status, 422);
    assert_eq!(ask(&served, &admin, "dashboard-users").status, 200);
    assert_eq!(ask(&served, &admin, "dashboard-link").status, 422);
    for wrong in ["", "x", "cenote_", &viewer[..viewer.len() - 1], &format!("{viewer}x")] {
        assert_eq!(ask(&served, wrong, "pool-list").status, 401, "{wrong}");
    }
    let browser = Browser::new(served.address);
    let basic = browser.send("POST", "/v1/hello", &[("Authorization", "Basic YTpi")], b"{}");
    assert_eq!(basic.status, 401);
    // A token is no session.
    let header = format!("Bearer {admin}");
    assert_eq!(browser.send("GET", "/session", &[("Authorization", &header)], b"").status, 401);
    // A program may call the machine as it likes; a page that was led here knows no token.
    let strange = Browser { host: "nas.example".into(), ..browser };
    assert_eq!(strange.send("POST", "/v1/hello", &[("Authorization", &header)], b"{}").status, 200);
    assert_eq!(strange.send("POST", "/v1/hello", &[("Authorization", "Bearer x")], b"{}").status, 401);
    for (method, path) in [("POST", "/sign-in"), ("GET", "/session"), ("GET", "/")] {
        assert_eq!(strange.send(method, path, &[("Authorization", &header)], b"{}").status, 403, "{path}");
    }
    let lines = served.audit();
    let refused = lines.iter().find(|line| line.action == "dashboard-users" && line.token.is_some()).unwrap();
    assert_eq!((refused.token.as_deref(), refused.role.as_deref()), (Some("v"), Some("viewer")));

    let users = served.as_root(&ListDashboardUsers {}).unwrap();
    let own = users.iter().find(|user| !user.has_password).unwrap();
    assert_eq!(own.tokens.iter().map(|token| token.name.as_str()).collect::<Vec<_>>(), ["v", "a"]);
    assert!(own.tokens.iter().all(|token| token.last_used.is_some()));
    served.as_root(&RemoveDashboardToken { name: "v".into() }).unwrap();
    assert_eq!(ask(&served, &viewer, "pool-list").status, 401);
    let kept = std::fs::read_to_string(served.file("dashboard.json")).unwrap();
    assert!(!kept.contains(admin.strip_prefix("cenote_").unwrap()), "{kept}");
}

#[test]
fn a_token_of_a_user_never_has_more_than_the_user() {
    let served = Served::start();
    let browser = served.browser_of("ann", DashboardRole::Admin);
    let made = browser.act("dashboard-token-create", &json!({ "name": "anns", "role": "admin", "days": 9 }));
    assert_eq!(made.status, 200, "{made:?}");
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(ask(&served, &token, "dashboard-users").status, 200);
    let lower = SetDashboardUser { name: "ann".into(), role: Some(DashboardRole::Viewer), password: None };
    served.as_root(&lower).unwrap();
    assert_eq!(ask(&served, &token, "dashboard-users").status, 422);
    assert_eq!(ask(&served, &token, "pool-list").status, 200);
}

#[test]
fn a_token_for_metrics_reads_metrics_and_nothing_else() {
    let served = Served::start();
    let request =
        CreateDashboardToken { name: "prometheus".into(), role: DashboardRole::Metrics, days: None };
    let token = served.as_root(&request).unwrap().token;
    let header = format!("Bearer {token}");
    let browser = Browser::new(served.address);
    let metrics = browser.send("GET", "/metrics", &[("Authorization", &header)], b"");
    assert_eq!(metrics.status, 200, "{metrics:?}");
    assert!(String::from_utf8(metrics.body).unwrap().contains("cenote_"));
    for action in ["hello", "pool-list", "follow", "dashboard-users"] {
        assert_eq!(ask(&served, &token, action).status, 403, "{action}");
    }
}
