//! What QEMU says of a guest that does not answer: whether it runs, and what became of its disk's requests.
//!
//! QEMU's monitor speaks JSON, a document a line, on a socket in the machine's folder. It answers while the
//! guest is stuck. Requests of the disk that QEMU has begun and that are not done are not among its counts:
//! where the guest waits for its disk, the counts stand still.
//!
//! Source: QEMU 10's QMP reference (`query-status`, `query-blockstats`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The socket, in a machine's folder.
pub(super) const SOCKET: &str = "monitor";
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer.
const MOST_SAID: u64 = 1 << 20;
/// Most lines until an answer: events may come before.
const MOST_LINES: usize = 64;

/// What it says now.
///
/// # Errors
/// It does not answer, or not as QEMU answers.
pub(super) fn seen(folder: &Path) -> io::Result<String> {
    let mut socket = UnixStream::connect(folder.join(SOCKET))?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let mut ask = |command: &str| {
        socket.write_all(format!("{{\"execute\": \"{command}\"}}\n").as_bytes())?;
        answer(&mut answers)
    };
    ask("qmp_capabilities")?;
    let status = ask("query-status")?;
    let status = status.get("status").and_then(Value::as_str).unwrap_or("in an unknown state").to_owned();
    Ok(described(&status, &ask("query-blockstats")?))
}

/// The next answer; a greeting and events are skipped.
fn answer(from: &mut impl BufRead) -> io::Result<Value> {
    for _ in 0..MOST_LINES {
        let mut line = Vec::new();
        from.by_ref().take(MOST_SAID).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut document: Value = serde_json::from_slice(&line)?;
        if let Some(error) = document.get("error") {
            return Err(io::Error::other(error.to_string()));
        }
        if let Some(answer) = document.get_mut("return") {
            return Ok(answer.take());
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "no answer among many lines"))
}

/// What the answers mean.
fn described(status: &str, disks: &Value) -> String {
    let disk = disks.as_array().into_iter().flatten().find_map(|disk| {
        let stats = disk.get("stats")?;
        let count = |name: &str| stats.get(name).and_then(Value::as_u64).unwrap_or(0);
        let ago = stats.get("idle_time_ns").and_then(Value::as_u64);
        let ago = ago.map_or("never".to_owned(), |ago| format!("{} s ago", ago / 1_000_000_000));
        let [reads, writes, flushes] = ["rd_operations", "wr_operations", "flush_operations"].map(count);
        let failed: u64 = ["failed_rd_operations", "failed_wr_operations", "failed_flush_operations"]
            .map(count)
            .iter()
            .sum();
        Some(format!(
            "QEMU did {reads} reads, {writes} writes and {flushes} flushes of its disk, the last {ago}, and \
             {failed} failed"
        ))
    });
    let disk = disk.unwrap_or_else(|| "its disk is not QEMU's".to_owned());
    format!("the guest is {status}, and {disk}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_does_not_answer_is_described_by_its_monitor() {
        let folder = tempfile::tempdir().unwrap();
        let monitor = std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = monitor.accept().unwrap();
                let mut asked = BufReader::new(socket.try_clone().unwrap()).lines();
                socket.write_all(b"{\"QMP\": {}}\n").unwrap();
                for answer in [
                    r#"{"return": {}}"#,
                    "{\"event\": \"RTC_CHANGE\"}\n{\"return\": {\"status\": \"running\"}}",
                    r#"{"return": [{"stats": {"wr_operations": 7, "idle_time_ns": 61000000000}}]}"#,
                ] {
                    asked.next().unwrap().unwrap();
                    socket.write_all(format!("{answer}\n").as_bytes()).unwrap();
                }
            });
            seen(folder.path()).unwrap()
        });
        assert!(
            said.contains("is running") && said.contains("7 writes") && said.contains("61 s ago"),
            "{said}"
        );
        assert!(seen(&folder.path().join("none")).is_err());
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for wrong in ["", "{}", "no JSON\n", "{\"error\": {\"desc\": \"no such command\"}}\n"] {
            assert!(answer(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(described("paused", &Value::Null).contains("not QEMU's"));
    }
}
