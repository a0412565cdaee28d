//! The lab: which settings make storage fast for a workload, and the proof of it.
//!
//! # The idea
//! An [`Experiment`] is data: a target, workloads, settings that are held fixed, and factors, each a setting
//! with the values to compare. Its [`Plan`] has one *variant* for each value of each factor (one changed at a
//! time), the *baseline* that they are all compared with, the baseline a second time under another name
//! (which shows how much two equal things differ: the *noise floor*), and where there is one the raw device
//! (the *limit*). Every round runs each variant with each workload once, in an order drawn anew, so that
//! whatever else the machine does falls on all of them. Two variants are compared within rounds only. A
//! difference that is certain and larger than the noise floor is one; where none can be hidden it is called
//! none; all else is undecided.
//!
//! | module | what it owns |
//! |---|---|
//! | [`experiment`] | the TOML of an experiment: parsed, checked |
//! | [`recipes`] | experiments that come with the program |
//! | [`layout`] | how vdevs are put together, as text and as types |
//! | [`plan`] | variants and the order of runs: pure functions of the experiment and a seed |
//! | [`copy`] | a stream of somebody's own files |
//! | [`fio`] | one run of fio and what its JSON says |
//! | [`series`] | what happened within a run, step by step |
//! | [`machine`] | what the kernel tells of the machine, and how busy it was |
//! | [`load`] | the same done by the process that has the pool open |
//! | [`target`] | where variants live: volumes and filesystems of pools made for them, files and devices, a host with OpenZFS |
//! | [`remote`] | layers in guests, containers and other hosts, by a shell there |
//! | `subprocess` | what a program says that the lab started |
//! | [`input_file`](mod@file) | files that somebody names to be read |
//! | [`trace`] | requests that were recorded, to be replayed |
//! | [`preflight`] | all that is wrong with an experiment, before anything is made |
//! | `nearest` | what somebody may have meant by a name |
//! | [`store`] | the directory of results: each run kept as soon as it ended |
//! | [`run`] | carrying the plan out, from the start or where it was left |
//! | [`search`] | finding a good variant among many: pure functions of what was measured |
//! | [`search_run`] | carrying such a search out |
//! | [`stats`] | intervals, comparisons, corrections: pure functions |
//! | [`analysis`] | from runs to findings |
//! | [`compare`] | results beside each other, and changes over time |
//! | [`advice`] | what to change about a live pool, with evidence |
//! | [`pareto`] | variants that no other beats in all that counts |
//! | [`report`] | findings as HTML, Markdown, CSV and JSON |
//! | `table` | rows of words in columns |
//! | [`medium`] | what devices and files lie on |
//! | [`models`] | formulas that foretell what a setting or a layout costs |
//!
//! # What is never done
//! Nothing is touched that the lab did not make: pools on files in the experiment's own directory, volumes
//! with its own names below a dataset that was named, files in a directory of its own in one that was named.
//! A file or device that was named is written only where workloads write to it, nobody else uses it, and what
//! it holds may be overwritten ([`target::in_use`]).

pub mod advice;
pub mod analysis;
pub mod compare;
pub mod copy;
pub mod environment;
pub mod error;
pub mod experiment;
pub mod fio;
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
pub mod search;
pub mod search_run;
pub mod series;
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
