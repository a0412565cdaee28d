//! The lab: which settings make storage fast for a workload, and the proof of it.
//!
//! # The idea
//! An [`Experiment`] is data: a target, workloads, fixed settings, and factors, each a setting with the
//! values to compare. Its [`Plan`] has one *variant* for each value of each factor (one changed at a time);
//! the *baseline* that all are compared with; the baseline a second time under another name, which shows how
//! much two equal variants differ (the *noise floor*); and, if there is one, the raw device (the *limit*).
//! Every round runs each variant with each workload once, in a new random order, so that other activity of
//! the machine affects all of them. Two variants are compared within rounds only. A difference counts if it
//! is certain and larger than the noise floor. If a difference of a tenth would have shown, the result is "no
//! difference". All other results are undecided.
//!
//! | module | what it owns |
//! |---|---|
//! | [`experiment`] | the TOML of an experiment: parsed, checked |
//! | [`recipes`] | experiments that come with the program |
//! | [`layout`] | how vdevs are put together, as text and as types |
//! | [`plan`] | variants and the order of runs: pure functions of the experiment and a seed |
//! | [`copy`] | a stream of the user's files as a workload |
//! | [`fio`] | one run of fio and its JSON |
//! | [`series`] | operations within a run, step by step |
//! | [`machine`] | the machine as the kernel describes it, and how busy it was |
//! | [`load`] | load by the process that has the pool open |
//! | [`site`] | where an experiment takes place: the kinds of targets, and all that is particular to one |
//! | [`target`] | where variants live: volumes and filesystems of pools made for them, files and devices |
//! | [`remote`] | layers in guests, containers and other hosts, by a shell there |
//! | `subprocess` | the output of programs that the lab starts |
//! | [`input_file`] | files that the user names to be read |
//! | [`trace`] | recorded requests, to be replayed |
//! | [`preflight`] | all faults of an experiment, before anything is made |
//! | [`store`] | the directory of results: each run is kept as soon as it ended |
//! | [`scenario`] | stories with faults that the program plays: their names and reports |
//! | [`run`] | running the plan, from the start or after an interruption |
//! | [`search`] | finding a good variant among many: pure functions of the measurements |
//! | [`search_run`] | running such a search |
//! | [`stats`] | intervals, comparisons, corrections: pure functions |
//! | [`analysis`] | from runs to findings |
//! | [`compare`] | results side by side, and changes over time |
//! | [`advice`] | what to change about a live pool, with evidence |
//! | [`pareto`] | variants that no other beats in every metric |
//! | [`report`] | findings as HTML, Markdown, CSV and JSON |
//! | `table` | text tables |
//! | [`medium`] | the medium below devices and files |
//! | [`models`] | formulas that predict what a setting or a layout costs |
//!
//! # What the lab never does
//! The lab touches only what it made: pools on files in the experiment's own directory, volumes with its own
//! names below a named dataset, files in a directory of its own in a named directory. It writes to a file or
//! device that the user named only if workloads write to it, no other program uses it, and its contents may
//! be overwritten ([`target::in_use`]). What it sets on a volume that holds data it sets back, and of volumes
//! it destroys only those that it made, or had rewritten.

pub mod advice;
pub mod analysis;
pub mod compare;
pub mod copy;
pub mod environment;
pub mod error;
pub mod experiment;
pub mod fio;
pub mod guest;
pub mod input_file;
pub mod layout;
pub mod load;
pub mod machine;
pub mod medium;
pub mod models;
pub mod pareto;
pub mod plan;
pub mod preflight;
pub mod recipes;
pub mod remote;
pub mod report;
pub mod run;
pub mod scenario;
pub mod search;
pub mod search_run;
pub mod series;
pub mod site;
pub mod size;
pub mod stats;
pub mod store;
mod subprocess;
mod table;
pub mod target;
pub mod trace;

pub use error::{Error, Result};
pub use experiment::Experiment;
pub use plan::Plan;
