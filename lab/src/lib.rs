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
//! | [`setting`] | what variants can differ in, and the part that each setting belongs to |
//! | [`workload`] | what is measured: jobs of fio, and what is like them |
//! | [`metric`] | figures of a run, and how their values are written |
//! | [`design`] | what an experiment compares, and with which work: what a target has to know of it |
//! | [`layout`] | how vdevs are put together, as text and as types |
//! | [`layer`] | a layer of a stack: its name and address |
//! | [`mod@reference`] | what the reference of an experiment's file is made of |
//! | [`subprocess`] | programs that the lab starts: their output and their end |
//! | [`input_file`] | files that the user names to be read |
//! | `created_files` | files that the lab made in directories that users name |
//! | `export` | NBD exports and disks behind iSCSI: what their servers say |
//! | [`trace`] | recorded requests, to be replayed |
//! | [`copy`] | a stream of the user's files as a workload |
//! | [`series`] | operations within a run, step by step |
//! | [`machine`] | the machine as the kernel describes it, and how busy it was |
//! | [`remote`] | layers in guests, containers and other hosts, by a shell there |
//! | [`fio`] | one run of fio and its JSON |
//! | [`load`] | load by the process that has the pool open |
//! | [`guest`] | virtual machines in which a volume or an image is a disk |
//! | [`counters`] | what a run cost the devices and the process that serves |
//! | [`programs`] | `zpool` and `zfs`, and what volumes are reached by |
//! | [`site`] | where an experiment takes place: the kinds of targets, and all that is particular to one |
//! | [`experiment`] | the TOML of an experiment: parsed, checked |
//! | [`recipes`] | experiments that come with the program |
//! | [`plan`] | variants and the order of runs: pure functions of the experiment and a seed |
//! | [`store`] | the directory of results: each run is kept as soon as it ended |
//! | [`progress`] | what is said while an experiment is carried out, and whether the user stops it |
//! | [`target`] | where variants live: volumes and filesystems of pools made for them, files and devices |
//! | [`preflight`] | all faults of an experiment, before anything is made |
//! | [`search`] | finding a good variant among many: pure functions of the measurements |
//! | [`found`] | what a search found, as the runs say that were kept |
//! | [`run`] | running the plan, and a search before it, from the start or after an interruption |
//! | [`scenario`] | stories with faults that the program plays: their names and reports |
//! | [`stats`] | intervals, comparisons, corrections: pure functions |
//! | [`analysis`] | from runs to findings |
//! | [`compare`] | results side by side, and changes over time |
//! | [`advice`] | what to change about a live pool, with evidence |
//! | [`report`] | findings as documents: a page, Markdown, CSV and JSON |
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
pub mod counters;
mod created_files;
pub mod design;
pub mod environment;
pub mod error;
pub mod experiment;
mod export;
pub mod fio;
pub mod found;
pub mod guest;
pub mod input_file;
pub mod layer;
pub mod layout;
pub mod load;
pub mod machine;
pub mod medium;
pub mod metric;
pub mod models;
pub mod plan;
pub mod preflight;
pub mod programs;
pub mod progress;
pub mod recipes;
pub mod reference;
pub mod remote;
pub mod report;
pub mod run;
pub mod scenario;
pub mod search;
pub mod series;
pub mod setting;
pub mod site;
pub mod size;
pub mod stats;
pub mod store;
pub mod subprocess;
mod table;
pub mod target;
pub mod trace;
pub mod workload;

pub use error::{Error, Result};
pub use experiment::Experiment;
pub use plan::Plan;
