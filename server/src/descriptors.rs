//! How many files this process may have open.
//!
//! Systems give programs few (1024), for the sake of those that use `select`, and let them take more. A daemon needs one for each mount, each connection and each device, and more while it is busy.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many files open as the system allows. To be called once, at the start.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files stays at {}", current.unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_can_be_open_as_the_system_allows() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
