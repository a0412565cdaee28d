//! A machine that boots from a volume over NBD, and writes to it.
//!
//! The machine is QEMU's, in plain emulation; its BIOS loads the first sector of the volume and runs it. That
//! program reads 4 KiB, turns its bits over, writes them somewhere else and switches the machine off with a
//! number that says how it went. So no operating system is needed, and it takes a second.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use super::{Up, judge};

/// Where the program finds the bytes, and where it writes them.
const FROM: usize = 2048 * 512;
const TO: usize = 4096 * 512;
const BYTES: usize = 4096;
const IMAGE_BYTES: usize = 8 << 20;

/// How the machine ends: `isa-debug-exit` doubles the number that it is told, and adds one.
const WENT_WELL: i32 = 0x10 * 2 + 1;

/// The program, 16-bit code at 0x7c00.
const PROGRAM: &[&[u8]] = &[
    &[0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0], // cli; ax, ds, es, ss = 0
    &[0xbc, 0x00, 0x7c, 0xfb],                               // sp = 0x7c00; sti
    &[0xbe, 0x40, 0x7c, 0xb4, 0x42, 0xcd, 0x13, 0x72, 0x1d], // extended read as told at 0x7c40
    &[0xbf, 0x00, 0x80, 0xb9, 0x00, 0x08],                   // di = 0x8000, cx = 2048
    &[0x81, 0x35, 0x5a, 0x5a, 0x83, 0xc7, 0x02, 0xe2, 0xf7], // each word ^= 0x5a5a
    &[0xbe, 0x50, 0x7c, 0xb8, 0x00, 0x43, 0xcd, 0x13, 0x72, 0x04], // extended write as told at 0x7c50
    &[0xb0, 0x10, 0xeb, 0x02, 0xb0, 0x20],                   // al = 0x10, or 0x20 after an error
    &[0xba, 0x01, 0x05, 0xee, 0xf4, 0xeb, 0xfd],             // out 0x501, al; halt
    &[0x90, 0x90, 0x90, 0x90],
    &[16, 0, 8, 0, 0x00, 0x80, 0, 0, 0x00, 0x08, 0, 0, 0, 0, 0, 0], // 8 sectors from 2048 to 0x8000
    &[16, 0, 8, 0, 0x00, 0x80, 0, 0, 0x00, 0x10, 0, 0, 0, 0, 0, 0], // 8 sectors from 0x8000 to 4096
];

fn image() -> Vec<u8> {
    let mut image = vec![0; IMAGE_BYTES];
    let program = PROGRAM.concat();
    image[..program.len()].copy_from_slice(&program);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (at, byte) in image[FROM..FROM + BYTES].iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    image
}

/// Copies between a file and a volume.
fn copy(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-test-tools"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How the machine ended that has the volume as its disk; `None` where there is no emulator.
fn boot(uri: &str, interface: &str) -> Option<i32> {
    let drive = format!("file={uri},format=raw,if={interface},cache=writethrough");
    let machine = ["-accel", "tcg", "-m", "32M", "-display", "none", "-net", "none", "-no-reboot"];
    let exit = ["-device", "isa-debug-exit,iobase=0x501,iosize=2"];
    let status = Command::new("timeout")
        .args(["60", "qemu-system-x86_64"])
        .args(machine)
        .args(exit)
        .args(["-drive", &drive])
        .status()
        .expect("timeout of coreutils");
    // What `timeout` says of a program that is not there.
    if status.code() == Some(127) {
        eprintln!(
            "SKIPPED: no machine was booted, because there is no qemu-system-x86_64 (scripts/make-kernel-vm \
             installs it)"
        );
        return None;
    }
    status.code()
}

#[test]
fn a_machine_boots_from_a_volume_and_what_it_writes_stays() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let mut expected = image();
    std::fs::write(file("image"), &expected).unwrap();
    let mut up = Up::start(place.path());
    copy("nbdcopy", &["--flush", &file("image"), up.uri()]);
    // The second machine reads what the first one left, and turns it back.
    for (interface, mask) in [("virtio", 0x5a), ("ide", 0x5a)] {
        let Some(ended) = boot(up.uri(), interface) else { return };
        assert_eq!(ended, WENT_WELL, "{interface}");
        for at in 0..BYTES {
            expected[TO + at] = expected[FROM + at] ^ mask;
        }
        up.end(libc::SIGKILL);
        up = Up::start(place.path());
        check(up.uri(), &expected, place.path());
        let turned = expected[TO..TO + BYTES].to_vec();
        expected[FROM..FROM + BYTES].copy_from_slice(&turned);
        std::fs::write(file("turned"), turned).unwrap();
        copy(
            "qemu-io",
            &["-f", "raw", up.uri(), "-c", &format!("write -s {} {FROM} {BYTES}", file("turned"))],
        );
    }
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}

/// Compares the beginning of the volume, by way of an image in another format, with what is expected.
fn check(uri: &str, expected: &[u8], place: &Path) {
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    copy("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", uri, &path("copy.qcow2")]);
    copy("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", uri, &path("copy.qcow2")]);
    let dump = ["dd", "-f", "qcow2", "-O", "raw", "bs=1M", "count=8"].map(String::from);
    let of = [format!("if={}", path("copy.qcow2")), format!("of={}", path("dump"))];
    match std::fs::remove_file(path("dump")) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
        _ => {}
    }
    let arguments: Vec<&str> = dump.iter().chain(&of).map(String::as_str).collect();
    copy("qemu-img", &arguments);
    assert!(std::fs::read(path("dump")).unwrap() == expected);
}
