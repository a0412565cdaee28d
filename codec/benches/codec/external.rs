//! Peers that are not crates: programs, which measure themselves and print a rate, and OpenZFS's library.
//!
//! Where one is not installed, the row shows ours alone or beside something else.

use std::collections::HashMap;
use std::ffi::c_void;
use std::process::Command;

/// Fletcher4 of OpenZFS's own `libzfs`, in the implementation that it prefers on this processor.
pub struct Libzfs {
    native: Fletcher4,
    byteswap: Fletcher4,
}

/// Data, its length, nothing, and where the checksum goes.
type Fletcher4 = unsafe extern "C" fn(*const c_void, u64, *const c_void, *mut [u64; 4]);

impl Libzfs {
    /// Loads it, if it is installed. It stays loaded.
    pub fn load() -> Option<Self> {
        // SAFETY: the names end with NUL; loading these libraries has no effect but on themselves.
        let load = |name: &std::ffi::CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        let library =
            [c"libzfs.so.6", c"libzfs.so.4"].into_iter().map(load).find(|library| !library.is_null())?;
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: the library is loaded and the name ends with NUL.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let init = symbol(c"fletcher_4_init")?;
        // SAFETY: this is the function's type in zfs_fletcher.h. It may run more than once.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(init)() };
        // SAFETY: both functions have this type in zfs_fletcher.h.
        let function = |found| unsafe { std::mem::transmute::<*mut c_void, Fletcher4>(found) };
        Some(Self {
            native: function(symbol(c"fletcher_4_native")?),
            byteswap: function(symbol(c"fletcher_4_byteswap")?),
        })
    }

    /// The checksum of `data`, as written by a machine of the other byte order if `byteswap`.
    pub fn fletcher4(&self, data: &[u8], byteswap: bool) -> [u64; 4] {
        let mut checksum = [0; 4];
        let function = if byteswap { self.byteswap } else { self.native };
        // SAFETY: it reads `data` and writes the four words of `checksum`.
        unsafe { function(data.as_ptr().cast(), data.len() as u64, std::ptr::null(), &mut checksum) };
        checksum
    }
}

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
    /// Runs it with 8 data columns. It measures every implementation at every size up to 16 MiB by wall
    /// clock, which takes minutes.
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
