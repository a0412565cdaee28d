//! Secrets: who gets in, as whom, and to what.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use server::block::Limits;

use crate::harness::{self, Disk, Disks, Initiator, Served, TARGET};

const SIZE: usize = 1 << 20;
const SECRETS: &str = "one 0123456789ab\ntarget nas ba9876543210\n";
const A: &str = "iqn.2026-01.host:a";
const B: &str = "iqn.2026-01.host:b";

/// The class and the detail of how a login ended: as this initiator, to that session, with this name of a
/// secret and this secret.
fn log_in(
    served: &Served,
    initiator: &str,
    session: &str,
    name: &str,
    secret: &str,
) -> Result<Initiator, (u8, u8)> {
    let mut one = Initiator::connect(served);
    let status = |answer: &harness::Answer| match answer.header[36] {
        0 => Ok(()),
        class => Err((class, answer.header[37])),
    };
    let begun = one.login(0, 0, &[&format!("InitiatorName={initiator}"), session, "AuthMethod=CHAP"]);
    status(&begun.expect("an answer"))?;
    let asked = one.login(0, 0, &["CHAP_A=5"]).expect("a challenge");
    let asked = String::from_utf8(asked.data).expect("text");
    let value = |key: &str| {
        let found = asked.split('\0').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        found.expect("a value").to_owned()
    };
    let digits = value("CHAP_C");
    let challenge: Vec<u8> = (2..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits"))
        .collect();
    let identifier: u8 = value("CHAP_I").parse().expect("a number");
    let proof = Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize();
    let proof: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
    let answer = one.login(0, 1, &[&format!("CHAP_N={name}"), &format!("CHAP_R=0x{proof}")]);
    status(&answer.expect("an answer"))?;
    status(&one.login(1, 3, &["HeaderDigest=None"]).expect("an answer"))?;
    Ok(one)
}

/// The targets that a session which looks for some is told.
fn targets(mut one: Initiator) -> Vec<String> {
    let pairs = one.targets();
    pairs.iter().filter_map(|pair| pair.strip_prefix("TargetName=")).map(str::to_owned).collect()
}

#[test]
fn an_initiator_gets_what_is_shared_with_the_name_that_it_proved() {
    let disks = Disks::default()
        .with("tank/a", &format!("iscsi(initiator={A})"), &Arc::new(Disk::new(1, SIZE, true)))
        .with("tank/b", &format!("iscsi(initiator={B})"), &Arc::new(Disk::new(2, SIZE, true)))
        .with("tank/all", "on", &Arc::new(Disk::new(3, SIZE, true)));
    let secrets = format!("{A} secret-of-a-1\n{B} b-name secret-of-b-1\nold secret-of-old\n");
    let served = Served::start_with(disks, Some(&secrets), Limits::default());
    let target = |volume: &str| format!("iqn.2026-11.org.cenote:tank:{volume}");
    let outcome = |initiator, volume, name, secret| {
        let session = format!("TargetName={}", target(volume));
        log_in(&served, initiator, &session, name, secret).err()
    };
    assert_eq!(outcome(A, "a", A, "secret-of-a-1"), None);
    assert_eq!(outcome(B, "b", "b-name", "secret-of-b-1"), None);
    assert_eq!(outcome("IQN.2026-01.Host:B", "b", "b-name", "secret-of-b-1"), None, "case does not matter");
    assert_eq!(outcome(A, "b", A, "secret-of-a-1"), Some((2, 3)), "it has no such target");
    assert_eq!(outcome(B, "b", A, "secret-of-a-1"), Some((2, 1)), "the secret is another one's");
    assert_eq!(outcome(B, "all", A, "secret-of-a-1"), Some((2, 1)), "whatever it asks for");
    // A secret that is bound to no initiator is good for what is shared with all.
    assert_eq!(outcome("iqn.c", "all", "old", "secret-of-old"), None);
    assert_eq!(outcome(B, "b", "old", "secret-of-old"), Some((2, 1)));
    // It is the same for those that look for targets.
    let found = |initiator, name, secret| {
        log_in(&served, initiator, "SessionType=Discovery", name, secret).map(targets)
    };
    assert_eq!(found(A, A, "secret-of-a-1"), Ok(vec![target("a"), target("all")]));
    assert_eq!(found("iqn.c", "old", "secret-of-old"), Ok(vec![target("all")]));
    assert_eq!(found(B, A, "secret-of-a-1"), Err((2, 1)));
}

#[test]
fn a_name_that_was_not_proven_is_not_served_as_if_it_were() {
    // Both are bound to no initiator, so that either could say the other one's name.
    let disks = Disks::default().with(
        "tank/b",
        &format!("iscsi(initiator={B})"),
        &Arc::new(Disk::new(2, SIZE, true)),
    );
    let secrets = "host-a secret-of-a-1\nhost-b secret-of-b-1\n";
    let served = Served::start_with(disks, Some(secrets), Limits::default());
    let session = "TargetName=iqn.2026-11.org.cenote:tank:b";
    for (name, secret) in [("host-a", "secret-of-a-1"), ("host-b", "secret-of-b-1")] {
        assert_eq!(log_in(&served, B, session, name, secret).err(), Some((2, 3)), "{name}");
    }
}

#[test]
fn nobody_gets_in_without_the_proof() {
    let served = Served::start(SIZE, Some(SECRETS), Limits::default());
    let target = format!("TargetName={TARGET}");
    let name = "InitiatorName=iqn.test:one";
    let refused = |answer: Option<harness::Answer>| {
        let answer = answer.expect("an answer");
        assert_eq!((answer.header[36], answer.header[37]), (2, 1), "{answer:?}");
    };
    // It begins after the proof; it offers nothing; it goes on without an answer.
    refused(Initiator::connect(&served).login(1, 3, &[name, &target]));
    refused(Initiator::connect(&served).login(0, 1, &[name, &target, "AuthMethod=None"]));
    refused(Initiator::connect(&served).login(0, 1, &[name, "SessionType=Discovery", "AuthMethod=None"]));
    let mut one = Initiator::connect(&served);
    one.login(0, 0, &[name, &target, "AuthMethod=CHAP,None"]).expect("an answer");
    let answer = one.login(0, 0, &["CHAP_A=5"]).expect("a challenge");
    assert!(String::from_utf8_lossy(&answer.data).contains("CHAP_C=0x"));
    refused(one.login(0, 1, &["CHAP_N=one", "CHAP_R=0x00112233445566778899aabbccddeeff"]));
    let mut one = Initiator::connect(&served);
    one.login(0, 0, &[name, &target, "AuthMethod=CHAP"]).expect("an answer");
    let answer = one.login(0, 3, &["CHAP_A=5"]).expect("a challenge");
    assert_eq!(answer.header[1] & 0x80, 0, "it does not go on before the proof");
    assert_eq!(one.login(1, 3, &[]).map(|answer| answer.header[36]), Some(2));
}
