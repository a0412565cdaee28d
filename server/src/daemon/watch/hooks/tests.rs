//! Hooks against small servers: webhooks, ntfy, a relay of mail; secrets, and failures that are told.

use std::io::Write;

use super::*;
use crate::api::{Mail, Ntfy, Password};

fn event(class: &str, state: Option<State>) -> Event {
    let fields = state.map(|state| ("vdev_state".to_owned(), Value::Number(state.number())));
    Event { eid: 7, time: (1, 2), class: class.into(), fields: fields.into_iter().collect() }
}

fn hook(action: HookAction, limit_s: u64) -> Hook {
    Hook {
        name: "test".into(),
        events: vec!["all".into()],
        action,
        limit_s: Some(limit_s),
        secret: None,
        has_secret: false,
    }
}

#[test]
fn a_command_gets_the_event_and_is_ended_when_it_takes_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let command = format!("echo $ZEVENT_SUBCLASS $ZEVENT_EID $ZEVENT_VDEV_STATE_STR > {}", file.display());
    let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
    run(&hook(HookAction::Command(command), 10), &faulted).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "statechange 7 FAULTED\n");
    let slow = run(&hook(HookAction::Command("sleep 600".into()), 1), &faulted).unwrap_err();
    assert_eq!(slow, "it was ended after 1 s");
    let failed = run(&hook(HookAction::Command("exit 3".into()), 10), &faulted).unwrap_err();
    assert!(failed.contains("exit status: 3"), "{failed}");
}

/// Up to the end of its JSON.
fn read_request(stream: &mut std::net::TcpStream) -> String {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    while !request.ends_with(b"}") {
        let read = stream.read(&mut part).unwrap();
        request.extend_from_slice(&part[..read]);
    }
    String::from_utf8(request).unwrap()
}

#[test]
fn a_webhook_that_refuses_the_event_or_does_not_answer_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut refusing, _) = listener.accept().unwrap();
        read_request(&mut refusing);
        refusing.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").unwrap();
        let (silent, _) = listener.accept().unwrap();
        (refusing, silent)
    });
    let event = event("sysevent.fs.zfs.scrub_finish", None);
    let hook = hook(HookAction::Webhook(url), 1);
    let refused = run(&hook, &event).unwrap_err();
    assert!(refused.ends_with("answered 503 Service Unavailable"), "{refused}");
    let silent = run(&hook, &event).unwrap_err();
    assert!(silent.ends_with("no answer in 1 s"), "{silent}");
    drop(served.join().unwrap());
}

#[test]
fn a_webhook_gets_the_event_as_json() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        request
    });
    let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
    run(&hook(HookAction::Webhook(url), 10), &faulted).unwrap();
    let request = served.join().unwrap();
    assert!(request.starts_with("POST /events HTTP/1.1\r\n"), "{request}");
    let body = request.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(serde_json::from_str::<Event>(body).unwrap(), faulted);
}

/// A daemon with a place for its hooks.
fn daemon(place: &std::path::Path) -> Daemon {
    Daemon::with_cache(64 << 20).keeping(Some(place.join("zpool.cache")))
}

fn add(daemon: &Daemon, action: HookAction, secret: Option<&str>) -> Result<(), ApiError> {
    let secret = secret.map(|secret| Password::from(secret.to_owned()));
    daemon.add_hook(api::AddHook { hook: Hook { secret, ..hook(action, 10) } })
}

#[test]
fn a_secret_is_kept_for_its_server_and_told_by_none() {
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon(place.path());
    let webhook = |url: &str| HookAction::Webhook(url.to_owned());
    let has_secret = || {
        let [hook] = &daemon.list_hooks(api::ListHooks {}).unwrap()[..] else { panic!("one hook") };
        assert_eq!(hook.secret, None);
        hook.has_secret
    };
    add(&daemon, webhook("https://host/a"), Some("sesame")).unwrap();
    assert!(has_secret());
    add(&daemon, webhook("https://host/b"), None).unwrap();
    assert!(has_secret(), "it is the same server");
    let refused = add(&daemon, webhook("https://other/a"), None).unwrap_err();
    assert!(refused.message.contains("another server") && has_secret(), "{refused}");
    let refused = add(&daemon, webhook("http://host/a"), Some("sesame")).unwrap_err();
    assert!(refused.message.contains("https://") && !refused.message.contains("sesame"), "{refused}");
    let file = place.path().join(FILE_NAME);
    assert!(std::fs::read_to_string(&file).unwrap().contains("sesame"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let again = self::daemon(place.path());
    again.load_hooks();
    assert!(again.list_hooks(api::ListHooks {}).unwrap()[0].has_secret);
    let tested = again.test_hook(api::TestHook { name: "test".into(), dry_run: true }).unwrap();
    assert!(tested.hook.secret.is_none() && tested.hook.has_secret);
    add(&daemon, webhook("https://host/a"), Some("")).unwrap();
    assert!(!has_secret());
    assert!(!std::fs::read_to_string(&file).unwrap().contains("sesame"));
    let mail = |relay: &str| {
        HookAction::Mail(Mail { relay: relay.into(), from: "a@b".into(), to: vec!["c@d".into()] })
    };
    let refused = add(&daemon, mail("smtp://host"), Some("sesame")).unwrap_err();
    assert!(refused.message.contains("smtp://USER@HOST"), "{refused}");
    add(&daemon, mail("smtp://ann@host"), Some("sesame")).unwrap();
    for wrong in [
        HookAction::Mail(Mail { relay: "smtp://host".into(), from: "a@b".into(), to: Vec::new() }),
        HookAction::Mail(Mail { relay: "host".into(), from: "a@b".into(), to: vec!["c@d".into()] }),
        HookAction::Mail(Mail { relay: "smtp://host".into(), from: "a b@c".into(), to: vec!["c@d".into()] }),
        HookAction::Ntfy(Ntfy { url: "https://host/t".into(), priority: Some(6) }),
        HookAction::Ntfy(Ntfy { url: "ftp://host/t".into(), priority: None }),
        webhook("host"),
    ] {
        assert!(add(&daemon, wrong.clone(), Some("")).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_topic_gets_the_event_in_words_with_its_token() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/alerts", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&request).contains("vdev_state_str: FAULTED\n") {
            let read = stream.read(&mut part).unwrap();
            assert_ne!(read, 0);
            request.extend_from_slice(&part[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8(request).unwrap()
    });
    let ntfy = HookAction::Ntfy(Ntfy { url, priority: None });
    let secret = Some(Password::from("tk_sesame".to_owned()));
    let faulted = event("resource.fs.zfs.statechange", Some(State::Faulted));
    run(&Hook { secret, ..hook(ntfy, 10) }, &faulted).unwrap();
    let request = served.join().unwrap();
    assert!(request.starts_with("POST /alerts HTTP/1.1\r\n"), "{request}");
    for line in ["authorization: Bearer tk_sesame\r\n", "priority: 5\r\n", "tags: warning\r\n", "title: "] {
        assert!(request.contains(line), "{line}: {request}");
    }
}

#[test]
fn a_failure_is_told_by_an_event_of_which_no_hook_hears() {
    let daemon = Daemon::with_cache(64 << 20);
    let events = daemon.events();
    let about = event("sysevent.fs.zfs.scrub_finish", None);
    for _ in 0..3 {
        daemon.hooks.failures.tell(&events, "mail", &about, "the relay went away");
    }
    let told = events.since(0).events;
    let [failed] = &told[..] else { panic!("{told:?}") };
    assert_eq!(failed.class, HOOK_FAILED);
    assert_eq!((failed.text("hook"), failed.text("hook_error")), (Some("mail"), Some("the relay went away")));
    add(&daemon, HookAction::Command("false".into()), None).unwrap();
    daemon.run_hooks(failed);
    assert_eq!(daemon.hooks.running.load(Ordering::Acquire), 0);
    // One that fails is waited for by its event.
    let daemon = Daemon::with_cache(64 << 20);
    add(&daemon, HookAction::Command("exit 7".into()), None).unwrap();
    daemon.run_hooks(&about);
    let until = Instant::now() + Duration::from_secs(120);
    while daemon.events().since(0).events.is_empty() {
        assert!(Instant::now() < until, "no event tells of it");
        std::thread::yield_now();
    }
    let told = daemon.events().since(0).events;
    assert!(told[0].text("hook_error").unwrap().contains("exit status: 7"), "{told:?}");
}
