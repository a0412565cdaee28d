//! What a machine cannot run is left out only when `$CENOTE_SKIP` says so; otherwise what is missing fails.
//!
//! | word | leaves out |
//! |---|---|
//! | `golden` | tests on the pools that OpenZFS made |
//! | `fuse` | tests that mount |
//! | `nfs` | tests by libnfs's programs |
//! | `openzfs` | tests that compare with OpenZFS's own tools |
//! | `kernel` | tests that boot a virtual machine with OpenZFS's kernel module |

/// Whether `$CENOTE_SKIP` lists `word`; says so on the standard error, for `what`.
pub fn skipped(word: &str, what: &str) -> bool {
    let skip =
        std::env::var("CENOTE_SKIP").is_ok_and(|list| list.split([',', ' ']).any(|listed| listed == word));
    if skip {
        eprintln!("skipped: {what} (CENOTE_SKIP lists {word})");
    }
    skip
}
