//! Errors of the lab, with advice.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The experiment's text is not one.
    #[error("experiment: {0}")]
    Experiment(String),
    /// A model cannot say anything of what it was given.
    #[error("{0}")]
    Model(String),
    /// A program that is needed could not be started.
    #[error("cannot run '{program}': {error}; install it, or put it on the PATH")]
    Missing {
        /// Its name.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// A program ended with an error.
    #[error("'{command}' failed: {output}")]
    Failed {
        /// The command that was run.
        command: String,
        /// The end of its output.
        output: String,
    },
    /// A program's output is not what it should be.
    #[error("{program}: {what}")]
    Output {
        /// Its name.
        program: &'static str,
        /// The fault.
        what: String,
    },
    /// A pool was lost: its devices did not take what was written.
    #[error("the pool '{pool}' was lost, because its devices did not take what was written: {why}")]
    Lost {
        /// Its name.
        pool: String,
        /// Which device, and why.
        why: String,
    },
    /// A remote run of fio does not end.
    #[error(
        "{run}'{by}' did not end within {} s, at least a minute longer than the run takes: {}",
        limit.as_secs_f64().round(),
        seen.clone().unwrap_or_else(|| format!(
            "the machine that it connects to may be gone. Check whether that answers ('{by} true'); to \
             notice sooner, let ssh check it (ssh -o ServerAliveInterval=5)"
        ))
    )]
    Silent {
        /// The command that leads there.
        by: String,
        /// How long it was waited for.
        limit: std::time::Duration,
        /// Which run it was, where that is known, with what stands between.
        run: String,
        /// What the machine, and the server of its disk, were seen to do meanwhile; nothing where that is
        /// not known.
        seen: Option<String>,
    },
    /// The user stopped it.
    #[error("it was stopped")]
    Stopped,
    /// A file of the results.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Results that are damaged, or of another experiment.
    #[error("{path}: {what}")]
    Results {
        /// Where.
        path: PathBuf,
        /// The fault.
        what: String,
    },
}

impl Error {
    /// Whether it is of the run that it ended, so that another try may end otherwise: a program failed, did
    /// not answer, or said what it does not say. All else would end each try alike.
    pub(crate) fn is_of_a_run(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Output { .. } | Self::Silent { .. })
    }

    /// For [`std::io::Result`]s about a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Self::File { path: path.to_owned(), error }
    }
}

/// The fault, if there is one.
pub(crate) fn fault<T>(result: Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(Error::Experiment(what)) => Some(what),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_does_not_end_says_what_was_seen_meanwhile() {
        let silent = |seen: Option<&str>| {
            let (by, run, limit) =
                ("ssh host".into(), "round 2: ".into(), std::time::Duration::from_secs(61));
            Error::Silent { by, limit, run, seen: seen.map(str::to_owned) }.to_string()
        };
        assert!(
            silent(None).starts_with("round 2: 'ssh host' did not end within 61 s, at least a minute longer")
        );
        assert!(silent(None).contains("'ssh host true'"));
        let seen = silent(Some("the guest is stuck"));
        assert!(seen.ends_with(": the guest is stuck") && !seen.contains("ssh check"), "{seen}");
    }
}
