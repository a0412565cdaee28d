//! What other pages, strangers and slow clients can do.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use server::api::DashboardRole;

use crate::harness::{Browser, LIMIT, Served};

#[test]
fn a_request_of_another_page_is_refused() {
    let served = Served::start();
    let browser = served.admin();
    let without = Browser { csrf: None, ..browser.clone() };
    let refused = without.act("pool-list", &json!({}));
    assert_eq!(refused.status, 403);
    assert!(refused.message().contains("x-cenote-csrf"), "{refused:?}");
    let wrong = Browser { csrf: Some("x".repeat(43)), ..browser.clone() };
    assert_eq!(wrong.act("pool-list", &json!({})).status, 403);
    let own = format!("http://{}", served.address);
    for (header, value, status) in [
        ("Origin", own.as_str(), 200),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Sec-Fetch-Site", "same-origin", 200),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
    ] {
        let answer = browser.send("POST", "/v1/pool-list", &[(header, value)], b"{}");
        assert_eq!(answer.status, status, "{header}: {value}");
    }
    let session = browser.send("GET", "/session", &[("Sec-Fetch-Site", "cross-site")], b"");
    assert_eq!(session.status, 403);
    // A link from elsewhere leads to the page.
    assert_eq!(browser.send("GET", "/", &[("Sec-Fetch-Site", "cross-site")], b"").status, 200);
}

#[test]
fn another_name_of_this_machine_is_refused() {
    let served = Served::start_with("127.0.0.1:0", |mut options| {
        options.hosts = vec!["nas.example".into()];
        options
    });
    let browser = served.admin();
    let port = served.address.port();
    for (host, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("localhost:{port}"), 200),
        ("NAS.example".to_owned(), 200),
        ("evil.example".to_owned(), 403),
        (format!("evil.example:{port}"), 403),
        ("192.0.2.7".to_owned(), 403),
        ("localhost.evil.example".to_owned(), 403),
    ] {
        let as_host = Browser { host: host.clone(), ..browser.clone() };
        assert_eq!(as_host.act("pool-list", &json!({})).status, status, "{host}");
        assert_eq!(as_host.get("/").status, status, "{host}");
    }
    let mut proxied = TcpStream::connect(served.address).unwrap();
    let request =
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert_eq!(crate::harness::exchange(&mut proxied, request.as_bytes()).status, 403);
}

#[test]
fn strangers_get_the_page_and_nothing_else() {
    let served = Served::start();
    let stranger = Browser::new(served.address);
    assert_eq!(stranger.get("/").status, 200);
    for path in ["/session", "/metrics", "/v1/events"] {
        assert_eq!(stranger.get(path).status, 401, "{path}");
    }
    for action in ["hello", "pool-list", "no-such-action", "follow", "pool-view"] {
        assert_eq!(stranger.act(action, &json!({})).status, 401, "{action}");
    }
    for path in ["/none", "/../etc/passwd", "/%2e%2e/etc/passwd", "//app.js", "/v1", "/v1/", "/index.html"] {
        assert_eq!(stranger.get(path).status, 404, "{path}");
    }
    assert_eq!(stranger.send("PUT", "/v1/hello", &[], b"").status, 405);
    assert_eq!(stranger.send("DELETE", "/", &[], b"").status, 405);
    for cookie in ["", "x", "cenote-1=x", ";;=;", "cenote=\u{1}"] {
        let with = Browser { cookie: Some(cookie.to_owned()), csrf: Some("x".into()), ..stranger.clone() };
        let mut stream = TcpStream::connect(served.address).unwrap();
        let answer = crate::harness::exchange(&mut stream, &with.request("GET", "/session", &[], b""));
        assert!(matches!(answer.status, 400 | 401), "{cookie}: {answer:?}");
    }
}

#[test]
fn every_answer_says_what_the_page_may_do() {
    let served = Served::start();
    let browser = served.admin();
    let port = served.address.port();
    let strange = Browser { host: "evil.example".into(), ..Browser::new(served.address) };
    let answers = [
        browser.get("/"),
        browser.get("/app.js"),
        browser.get("/none"),
        browser.act("hello", &json!({})),
        strange.get("/"),
    ];
    for answer in answers {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"));
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"), "{policy}");
        for (header, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(answer.header(header), Some(value), "{port}: {answer:?}");
        }
        assert!(answer.header("access-control-allow-origin").is_none());
        assert!(answer.header("cache-control").is_some());
    }
    assert_eq!(browser.act("hello", &json!({})).header("cache-control"), Some("no-store"));
}

#[test]
fn a_viewer_and_an_operator_destroy_nothing_and_are_never_root() {
    let served = Served::start();
    let viewer = served.browser_of("vic", DashboardRole::Viewer);
    let operator = served.browser_of("olga", DashboardRole::Operator);
    let destroy = json!({ "pool": "tank", "force": true });
    for (browser, name) in [(&viewer, "vic"), (&operator, "olga")] {
        for (action, body) in [
            ("pool-destroy", &destroy),
            ("dataset-destroy", &json!({ "name": "tank/a" })),
            ("dashboard-users", &json!({})),
            ("dashboard-user-set", &json!({ "name": name, "role": "admin" })),
            ("dashboard-token-create", &json!({ "name": "x", "role": "admin" })),
            (
                "hook-add",
                &json!({ "hook": { "name": "x", "events": ["all"], "action": { "command": "id" } } }),
            ),
            ("key-load", &json!({ "dataset": "tank", "key": [1, 2, 3] })),
        ] {
            let refused = browser.act(action, body);
            assert_eq!(refused.status, 422, "{action}: {refused:?}");
            assert!(refused.message().ends_with("permission denied"), "{action}: {refused:?}");
        }
        assert_eq!(browser.act("pool-list", &json!({})).status, 200);
    }
    assert_eq!(viewer.act("audit", &json!({ "count": 10 })).status, 422);
    assert_eq!(operator.act("audit", &json!({ "count": 10 })).status, 200);
    let lines = served.audit();
    let refused = lines.iter().find(|line| line.action == "pool-destroy").unwrap();
    assert_eq!(refused.user.as_deref(), Some("vic"));
    assert_eq!((refused.role.as_deref(), refused.from.as_deref()), (Some("viewer"), Some("127.0.0.1")));
    assert_eq!((refused.uid, refused.pid), (u32::MAX, None));
}

#[test]
fn what_is_for_the_machine_itself_is_refused_with_the_reason() {
    let served = Served::start();
    let admin = served.admin();
    for (action, body) in [
        ("shutdown", json!({})),
        ("pool-view", json!({ "pool": "tank" })),
        ("volume-load", json!({})),
        ("dashboard-link", json!({})),
    ] {
        let refused = admin.act(action, &body);
        assert_eq!(refused.status, 422, "{action}: {refused:?}");
        assert!(refused.message().contains("not by the dashboard"), "{refused:?}");
    }
    // Keys are handed over by admins.
    let load = admin.act("key-load", &json!({ "dataset": "tank", "key": [1, 2, 3] }));
    assert_eq!(load.status, 404, "{load:?}");
}

#[test]
fn a_slow_client_holds_up_no_other_and_broken_requests_end() {
    let served = Served::start();
    let browser = served.admin();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        let begun: &[u8] = match number % 2 {
            0 => b"GET / HTTP/1.1\r\nHo",
            _ => {
                b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                  Content-Length: 100\r\n\r\n{"
            }
        };
        stream.write_all(begun).unwrap();
    }
    for _ in 0..8 {
        assert_eq!(browser.act("hello", &json!({})).status, 200);
    }
    for broken in [
        "\r\n\r\n\r\n",
        "GARBAGE\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
         Content-Length: 2\r\n\r\nzz\r\n",
        &format!("GET / HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000)),
        &format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "x: y\r\n".repeat(1000)),
    ] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(broken.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let head = String::from_utf8_lossy(&bytes);
        assert!(bytes.is_empty() || head.starts_with("HTTP/1.1 4"), "{broken:.60}: {head}");
    }
    assert_eq!(browser.act("hello", &json!({})).status, 200);
    // The answer may be lost where the server leaves the rest of the request unread.
    let mut stream = TcpStream::connect(served.address).unwrap();
    let _ = stream.write_all(&browser.request("POST", "/v1/pool-list", &[], &vec![b' '; 2 << 20]));
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn an_address_has_so_many_connections_and_no_more() {
    let served = Served::start();
    let mut all: Vec<TcpStream> = Vec::new();
    // One beyond the limit is closed at once.
    let closed = loop {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut first = [0; 1];
        match stream.read(&mut first) {
            Ok(1) => all.push(stream),
            _ => break all.len(),
        }
        assert!(all.len() < 1000);
    };
    assert!((16..=256).contains(&closed), "{closed}");
    drop(all);
    let browser = Browser::new(served.address);
    let is_answered = || {
        let mut stream = TcpStream::connect(browser.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(&browser.request("GET", "/icon.svg", &[], b""));
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes.starts_with(b"HTTP/1.1 200")
    };
    while !is_answered() {}
}
