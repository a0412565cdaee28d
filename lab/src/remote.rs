//! Layers of a stack that are not on this machine: in a guest, a container, another host.
//!
//! A layer's `by` is a command that runs a shell there (`["ssh", "root@guest"]`,
//! `["docker", "exec", "-i", "name"]`, `["chroot", "/somewhere"]`). The lab appends `sh` and writes the
//! commands to the shell's standard input: so they are quoted once, however the command treats its arguments.
//!
//! Before measuring, the lab checks what it needs there (`fault`): a shell, fio, and the file or device at
//! the layer's path. The answers are untrusted: the lab reads at most [`MOST_SAID`] of them, for at most
//! [`ANSWER_LIMIT`].

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::environment::{Environment, RemoteMachine};
use crate::error::{Error, Result};
use crate::layer::{ENGINES, Layer};
use crate::size::Size;
use crate::subprocess::{SubprocessOutput, end, has_ended};

/// How long an answer may take.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How long caches may take to be dropped: what is not on the device yet is written first.
const DROP_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of an answer that are read.
pub const MOST_SAID: usize = 256 << 10;
/// How often it is looked whether there is an answer.
const LOOK: Duration = Duration::from_millis(10);

/// What stands before each of the facts that are asked for: a shell may say more, as a greeting.
const MARK: &str = "cenote-lab ";

/// A word as `sh` reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command line of a program, as `sh` takes its place with it.
pub(crate) fn command_line(program: &str, arguments: &[String]) -> String {
    let words = arguments.iter().map(|word| quoted(word));
    let words: Vec<String> = ["exec".to_owned(), program.to_owned()].into_iter().chain(words).collect();
    format!("{}\n", words.join(" "))
}

/// The command that starts a shell there, which reads what it is to do from its standard input.
pub(crate) fn shell(by: &[String]) -> Command {
    let (program, arguments) = by.split_first().map_or(("", by), |(first, rest)| (first.as_str(), rest));
    let mut command = Command::new(program);
    command.args(arguments).arg("sh");
    command
}

/// Has a shell there do `script`; what that printed.
///
/// # Errors
/// Why there is no answer: it cannot be started, it fails, it takes longer than `limit`, or it says more than
/// [`MOST_SAID`].
fn ask(by: &[String], script: &str, limit: Duration) -> std::result::Result<String, String> {
    let began = Instant::now();
    let mut command = shell(by);
    // Ctrl-C is for the lab. Who would ask for a password cannot, and is told of by the time limit.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let script = script.to_owned();
        // Who does not read it says why.
        thread::spawn(move || stdin.write_all(script.as_bytes()));
    }
    let too_much = || format!("its output is longer than {}", Size(MOST_SAID as u64));
    let heard = SubprocessOutput::of(&mut child, MOST_SAID);
    let outcome = loop {
        if heard.is_too_much() {
            break Err(too_much());
        }
        match has_ended(&child) {
            Err(error) => break Err(error.to_string()),
            Ok(true) => break Ok(()),
            Ok(false) if began.elapsed() > limit => {
                break Err(format!(
                    "no answer within {} s: it must run a shell there without a question (a \
                     password, a host's key)",
                    limit.as_secs_f64()
                ));
            }
            Ok(false) => thread::sleep(LOOK),
        }
    };
    end(&child, Signal::KILL);
    let status = child.wait().map_err(|error| error.to_string())?;
    outcome?;
    let said = heard.rest(status.success());
    if said.iter().any(|bytes| bytes.len() > MOST_SAID) {
        return Err(too_much());
    }
    let [stdout, stderr] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if status.success() {
        return Ok(stdout);
    }
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect();
    let why = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
    Err(format!("it did not run a shell there ({status}){why}"))
}

/// The shell's own function that prints a fact.
const SAY: &str = "say() { printf '\\ncenote-lab %s=%s\\n' \"$1\" \"$2\"; }\n";

/// The kind of file at `$at`, and the requirements to measure it.
const LOOK_AT: &str = r#"
if command -v fio >/dev/null 2>&1; then
    say fio "$(fio --version 2>/dev/null)"
    for engine in io_uring libaio; do
        if fio --name=probe --ioengine=$engine --readonly --rw=read --bs=4k --size=4k --filename=/dev/zero >/dev/null 2>&1 </dev/null; then
            say "engine-$engine" yes
        fi
    done
fi
if [ -b "$at" ]; then
    say kind device
    say bytes "$(blockdev --getsize64 "$at" 2>/dev/null)"
    name=$(readlink -f "$at" 2>/dev/null)
    say sectors "$(cat "/sys/class/block/${name##*/}/size" 2>/dev/null)"
elif [ -f "$at" ]; then
    say kind file
    say bytes "$(stat -L -c %s "$at" 2>/dev/null || wc -c <"$at" 2>/dev/null)"
elif [ -d "$at" ]; then
    say kind directory
elif [ -e "$at" ]; then
    say kind other
else
    say kind nothing
fi
if [ -r "$at" ]; then say reads yes; fi
if [ -w "$at" ]; then say writes yes; fi
exit 0
"#;

/// Facts about the machine that it runs on.
const TELL_MACHINE: &str = r#"
say fio "$(fio --version 2>/dev/null)"
say cores "$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo 2>/dev/null)"
say proc/cpuinfo "$(head -n 64 /proc/cpuinfo 2>/dev/null)"
say proc/meminfo "$(head -n 4 /proc/meminfo 2>/dev/null)"
say proc/sys/kernel/osrelease "$(cat /proc/sys/kernel/osrelease 2>/dev/null || uname -r)"
say sys/class/dmi/id/sys_vendor "$(cat /sys/class/dmi/id/sys_vendor 2>/dev/null)"
exit 0
"#;

/// The facts of an answer, by their names; each goes on until the next.
fn facts(answer: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut name = None;
    for line in answer.lines() {
        match line.strip_prefix(MARK).and_then(|fact| fact.split_once('=')) {
            Some((named, first)) => {
                name = Some(named.to_owned());
                all.insert(named.to_owned(), first.to_owned());
            }
            None => {
                if let Some(text) = name.as_ref().and_then(|name| all.get_mut(name)) {
                    text.push('\n');
                    text.push_str(line);
                }
            }
        }
    }
    all.retain(|_, text| {
        *text = text.trim().to_owned();
        !text.is_empty()
    });
    all
}

/// Why a layer with `by` cannot be measured, where it cannot: it is asked what it has, which takes `limit` at
/// most. `writes` says whether workloads write to it.
pub(crate) fn fault(layer: &Layer, size: Size, writes: bool, limit: Duration) -> Option<String> {
    let by = layer.by.as_deref().filter(|by| !by.is_empty())?;
    let script = format!("{SAY}at={}\n{LOOK_AT}", quoted(&layer.at));
    let (name, at) = (layer.title(), &layer.at);
    let answer = match ask(by, &script, limit) {
        Ok(answer) => facts(&answer),
        Err(why) => return Some(format!("target {name}: by: {why}")),
    };
    let has = |fact: &str| answer.contains_key(fact);
    let number = |fact: &str| answer.get(fact).and_then(|number| number.parse::<u64>().ok());
    let bytes = number("bytes").or_else(|| number("sectors").and_then(|count| count.checked_mul(512)));
    let what = match (answer.get("kind").map(String::as_str), bytes) {
        (None, _) => "by: its command does not answer like a shell: the lab appends `sh`, which must read \
            commands from standard input (docker exec -i, kubectl exec -i)"
            .to_owned(),
        _ if !has("fio") => {
            "there is no fio there: install it (in Debian, Fedora and Alpine the package is fio)".to_owned()
        }
        _ if !has(&format!("engine-{}", layer.engine())) => {
            let other = ENGINES.into_iter().find(|other| has(&format!("engine-{other}")));
            let how = match other {
                Some(other) => format!("write engine = \"{other}\" into [[target.layer]], which works there"),
                None => format!("nor any of {}: run fio there to see its errors", ENGINES.join(", ")),
            };
            format!("fio there cannot use {} (containers forbid io_uring by default): {how}", layer.engine())
        }
        (Some("nothing"), _) => format!("{at} is not there"),
        (Some("device" | "file"), _) if !has("reads") => format!(
            "{at} may not be read there: by another \
            user (root@…, sudo)"
        ),
        (Some("device" | "file"), _) if writes && !has("writes") => {
            format!("{at} may not be written there, and workloads write to it")
        }
        (Some("device" | "file"), None) => {
            format!("cannot find out the size of {at} there: install blockdev (util-linux)")
        }
        (Some("device" | "file"), Some(bytes)) if bytes < size.0 => format!(
            "{at} has {bytes} bytes there, fewer than its size of {size}: make `size` smaller, or extend the \
             file (truncate -s {size})"
        ),
        (Some("device" | "file"), Some(_)) => return None,
        _ => format!("{at} is neither a file nor a block device there"),
    };
    Some(format!("target {name}: {what}"))
}

/// Empties the page cache of the machine that a layer is on.
///
/// # Errors
/// Why it stays as it is.
pub(crate) fn drop_caches(by: &[String]) -> std::result::Result<(), String> {
    let script = format!(
        "{SAY}sync\nif echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then say dropped yes; fi \
         2>/dev/null\nexit 0\n"
    );
    match facts(&ask(by, &script, DROP_LIMIT)?).contains_key("dropped") {
        true => Ok(()),
        false => Err("/proc/sys/vm/drop_caches cannot be written there".to_owned()),
    }
}

/// The machines that layers are on which have `by`, by the layers' names.
pub(crate) fn guests(layers: &[Layer]) -> Result<BTreeMap<String, RemoteMachine>> {
    let layers = layers.iter().filter_map(|layer| Some((layer, layer.by.as_deref()?)));
    let of = |(layer, by): (&Layer, &[String])| {
        let answer = ask(by, &format!("{SAY}{TELL_MACHINE}"), ANSWER_LIMIT);
        let answer =
            answer.map_err(|why| Error::Experiment(format!("target {}: by: {why}", layer.title())))?;
        let facts = facts(&answer);
        let machine = Environment::of_files(&|path| facts.get(path).cloned());
        let guest = RemoteMachine {
            by: by.to_vec(),
            cpu: machine.cpu,
            cores: facts.get("cores").and_then(|cores| cores.parse().ok()).unwrap_or(0),
            cpu_flags: machine.cpu_flags,
            memory_bytes: machine.memory_bytes,
            kernel: machine.kernel,
            is_virtual: machine.is_virtual,
            fio: facts.get("fio").cloned().unwrap_or_default(),
        };
        Ok((layer.name.clone(), guest))
    };
    layers.map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn layer(by: &[String], at: &str) -> Layer {
        Layer { name: "guest".into(), at: at.into(), by: Some(by.to_vec()), engine: None }
    }

    #[test]
    fn words_arrive_as_they_are() {
        let hard = ["", "a b", "it's", "\"$HOME\"", "`id`;$(id)", "two\nlines", "\\", "--x=*", "é", "~", "#"];
        let hard = hard.map(str::to_owned);
        let mut line = command_line("printf", &[vec!["[%s]".to_owned()], hard.to_vec()].concat());
        let said = ask(&words("env X=1"), &line, ANSWER_LIMIT).unwrap();
        assert_eq!(said, hard.iter().map(|word| format!("[{word}]")).collect::<String>());
        line = command_line("fio", &words("--name=lab --bs=4096 --filename=/dev/vda"));
        assert_eq!(line, "exec fio --name=lab --bs=4096 --filename=/dev/vda\n");
    }

    #[test]
    fn who_does_not_answer_or_says_too_much_is_not_waited_for() {
        let asked = |by: &str| ask(&words(by), "exit 0\n", Duration::from_millis(200)).unwrap_err();
        let began = Instant::now();
        let sleeps = ["sh", "-c", "exec sleep 100"].map(str::to_owned);
        let hangs = ask(&sleeps, "exit 0\n", Duration::from_millis(200)).unwrap_err();
        assert!(hangs.contains("no answer within 0.2 s"), "{hangs}");
        let script = |line: &str, limit| ask(&words("env X=1"), line, limit);
        let hangs = script("sleep 100\n", Duration::from_millis(200)).unwrap_err();
        assert!(hangs.contains("no answer within 0.2 s"), "{hangs}");
        // Also where who hangs has closed what it says by.
        let hangs = script("exec >&- 2>&-; sleep 100\n", Duration::from_millis(200)).unwrap_err();
        assert!(hangs.contains("no answer"), "{hangs}");
        let endless = script("while :; do echo yes yes yes yes; done\n", ANSWER_LIMIT).unwrap_err();
        assert!(endless.contains("longer than 256K"), "{endless}");
        let endless = script("while :; do echo no no no no >&2; done\n", ANSWER_LIMIT).unwrap_err();
        assert!(endless.contains("longer than 256K"), "{endless}");
        assert!(began.elapsed() < Duration::from_secs(15));
        assert!(asked("/no/such/program").contains("cannot be started"));
        let refused = ["sh", "-c", "echo 'no route' >&2; exit 255"].map(str::to_owned);
        let refused = ask(&refused, "", ANSWER_LIMIT).unwrap_err();
        assert!(refused.contains("did not run a shell") && refused.contains("no route"), "{refused}");
    }

    #[test]
    fn what_a_layer_elsewhere_lacks_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("it's a $disk").display().to_string();
        let here = words("env X=1");
        let told = |by: &[String], at: &str| fault(&layer(by, at), Size(1 << 20), true, ANSWER_LIMIT);
        let named = |by: &[String], at: &str, what: &str| {
            let told = told(by, at).unwrap_or_default();
            assert!(told.contains(what) && told.contains("layer 'guest'"), "{what}: {told}");
        };
        named(&here, &at, "is not there");
        fs::write(&at, vec![1; 4096]).unwrap();
        named(&here, &at, "has 4096 bytes there, fewer than its size of 1M");
        fs::write(&at, vec![1; 1 << 20]).unwrap();
        assert_eq!(told(&here, &at), None);
        named(&here, &directory.path().display().to_string(), "neither a file nor a block device");
        named(&here, "/dev/null", "neither a file nor a block device");
        named(&words("true"), &at, "does not answer like a shell");
        named(&words("false"), &at, "did not run a shell");
        // A shell whose programs are none but its own.
        let bare = ["sh", "-c", "PATH=/nowhere; export PATH; exec /bin/sh"].map(str::to_owned);
        named(&bare, &at, "no fio there");
        // One that may not use io_uring, as in a container.
        let fio = directory.path().join("fio");
        fs::write(
            &fio,
            "#!/bin/sh\ncase \"$*\" in *io_uring*) exit 1;; esac\nPATH=${PATH#*:} exec fio \"$@\"\n",
        )
        .unwrap();
        fs::set_permissions(&fio, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("PATH={}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        let forbidden = ["env".to_owned(), path];
        named(&forbidden, &at, "write engine = \"libaio\" into [[target.layer]]");
        let other = Layer { engine: Some("libaio".into()), ..layer(&forbidden, &at) };
        assert_eq!(fault(&other, Size(1 << 20), true, ANSWER_LIMIT), None);
        // A greeting is no answer, and does no harm.
        let greets = ["sh", "-c", "echo Welcome=1; echo cenote; exec sh"].map(str::to_owned);
        assert_eq!(told(&greets, &at), None);
    }

    #[test]
    fn the_machine_of_a_layer_is_asked_for_what_it_is() {
        let layers = [
            Layer { name: "device".into(), at: "/dev/sdx".into(), by: None, engine: None },
            layer(&words("env X=1"), "/dev/vda"),
        ];
        let guests = guests(&layers).unwrap();
        let own = Environment::of_this_machine();
        let guest = &guests["guest"];
        assert_eq!(guests.len(), 1);
        assert_eq!(
            (&guest.cpu, &guest.cpu_flags, guest.memory_bytes, &guest.kernel, guest.is_virtual),
            (&own.cpu, &own.cpu_flags, own.memory_bytes, &own.kernel, own.is_virtual)
        );
        assert!(guest.cores >= 1 && guest.fio.starts_with("fio-"), "{guest:?}");
    }
}
