//! Peers that are programs of their own: they measure themselves and print a rate.
//!
//! Where the program is not installed, the row shows ours alone.

use std::collections::HashMap;
use std::process::Command;

/// GB/s of `openssl speed` for a cipher on blocks of `size` bytes, by CPU time.
pub fn openssl(cipher: &str, size: usize, decrypt: bool) -> Option<f64> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-mr", "-seconds", "1", "-bytes", &size.to_string(), "-evp", cipher]);
    if decrypt {
        command.arg("-decrypt");
    }
    let output = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let rate: f64 =
        output.lines().find(|line| line.starts_with("+F"))?.rsplit(':').next()?.trim().parse().ok()?;
    Some(rate / 1e9)
}

/// What `raidz_test -B` prints.
pub struct RaidzTest {
    /// The best implementation and its GB/s of data, by function and block size.
    rates: HashMap<(String, usize), (String, f64)>,
}

impl RaidzTest {
    /// Runs it with 8 data columns. It measures every implementation at every size up to 16 MiB by wall clock, which takes minutes.
    pub fn run() -> Self {
        eprintln!("running raidz_test -B; this takes some minutes");
        let output = Command::new("raidz_test").args(["-B", "-d", "8"]).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let mut rates = HashMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let &[implementation, function, columns, size, per_disk, ..] = &fields[..] else { continue };
            let (Ok(columns), Ok(size), Ok(mib)) =
                (columns.parse::<f64>(), size.parse(), per_disk.parse::<f64>())
            else {
                continue;
            };
            let rate = mib * columns * 1.048_576e-3;
            let best = rates.entry((function.to_owned(), size)).or_insert_with(|| (String::new(), 0.0));
            if rate > best.1 {
                *best = (format!("raidz_test {implementation}"), rate);
            }
        }
        Self { rates }
    }

    /// The best rate for one of its functions.
    pub fn best(&self, function: &str, size: usize) -> Option<(&str, f64)> {
        self.rates.get(&(function.to_owned(), size)).map(|(name, rate)| (name.as_str(), *rate))
    }
}
