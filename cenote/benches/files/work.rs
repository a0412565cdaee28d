//! What is done on each filesystem.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Error, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Table;
use super::systems::System;

/// A group of rows that build on each other.
type Run = fn(&System, &Scale, &mut Table) -> io::Result<()>;

/// Each, by its name.
pub const GROUPS: [(&str, Run); 8] = [
    ("random-data", |on, scale, table| stream(on, scale, table, "random data", false)),
    ("half-data", |on, scale, table| stream(on, scale, table, "2:1 data", true)),
    ("records", records),
    ("append", append),
    ("small", |on, scale, table| small(on, scale, table, 1)),
    ("small-four", |on, scale, table| small(on, scale, table, 4)),
    ("untar", untar),
    ("compile", compile),
];

/// How much is done.
pub struct Scale {
    /// Bytes of a stream.
    stream: usize,
    /// Bytes of the file that is written and read at random.
    file: u64,
    /// How often.
    operations: usize,
    appends: usize,
    small_files: usize,
    tree_files: usize,
    /// Units that are compiled.
    units: usize,
}

impl Scale {
    /// What the figures in the documents were measured with.
    pub const FULL: Self = Self {
        stream: 512 << 20,
        file: 256 << 20,
        operations: 16_384,
        appends: 2000,
        small_files: 100_000,
        tree_files: 10_000,
        units: 400,
    };
    /// An impression.
    pub const QUICK: Self = Self {
        stream: 256 << 20,
        file: 64 << 20,
        operations: 8192,
        appends: 500,
        small_files: 10_000,
        tree_files: 2000,
        units: 50,
    };
}

const MIB: usize = 1 << 20;
const RECORD: usize = 8 << 10;
const SMALL: usize = 1000;
/// Files in one directory.
const BREADTH: usize = 1000;

/// Data that no code makes smaller, or that any makes half as large.
fn data(length: usize, compressible: bool) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut numbers = fastrand::Rng::with_seed(length as u64);
    for block in bytes.chunks_mut(4096) {
        let random = if compressible { block.len() * 12 / 25 } else { block.len() };
        numbers.fill(&mut block[..random]);
    }
    bytes
}

fn mib(bytes: usize) -> (f64, &'static str) {
    (bytes as f64 / MIB as f64, "MiB/s")
}

fn many(count: usize) -> (f64, &'static str) {
    (count as f64, "/s")
}

fn read_all(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; MIB];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn stream(on: &System, scale: &Scale, table: &mut Table, what: &str, compressible: bool) -> io::Result<()> {
    let pool = data(64 * MIB, compressible);
    let path = on.at.join("stream");
    table.time(on, &format!("write 1M + fsync, {what}"), mib(scale.stream), || {
        let mut file = File::create(&path)?;
        for piece in pool.chunks(MIB).cycle().take(scale.stream / MIB) {
            file.write_all(piece)?;
        }
        file.sync_all()
    })?;
    on.settle()?;
    on.cold()?;
    table.time(on, &format!("cold read 1M, {what}"), mib(scale.stream), || read_all(&path))?;
    table.time(on, &format!("warm read 1M, {what}"), mib(scale.stream), || read_all(&path))?;
    fs::remove_file(&path)?;
    on.settle()
}

fn records(on: &System, scale: &Scale, table: &mut Table) -> io::Result<()> {
    let path = on.at.join("db/file");
    let pool = data(64 * MIB, false);
    let mut file = File::create(&path)?;
    for piece in pool.chunks(MIB).cycle().take(scale.file as usize / MIB) {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    drop(file);
    on.settle()?;
    on.cold()?;
    let mut numbers = fastrand::Rng::with_seed(1);
    let count = scale.file / RECORD as u64;
    let mut record = vec![0; RECORD];
    table.time(on, "random read 8K, cold", many(scale.operations), || {
        let file = File::open(&path)?;
        for _ in 0..scale.operations {
            file.read_exact_at(&mut record, numbers.u64(..count) * RECORD as u64)?;
        }
        Ok(())
    })?;
    table.time(on, "random write 8K + fsync at the end", many(scale.operations), || {
        let file = OpenOptions::new().write(true).open(&path)?;
        for place in 0..scale.operations {
            let from = place * RECORD % (pool.len() - RECORD);
            file.write_all_at(&pool[from..from + RECORD], numbers.u64(..count) * RECORD as u64)?;
        }
        file.sync_all()
    })?;
    fs::remove_file(&path)?;
    on.settle()
}

fn append(on: &System, scale: &Scale, table: &mut Table) -> io::Result<()> {
    let path = on.at.join("log");
    let piece = data(4096, false);
    table.time(on, "append 4K + fsync, each", many(scale.appends), || {
        let mut file = File::create(&path)?;
        for _ in 0..scale.appends {
            file.write_all(&piece)?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    fs::remove_file(&path)?;
    on.settle()
}

/// Many small files, by `clients` at once, each of which has directories of its own.
fn small(on: &System, scale: &Scale, table: &mut Table, clients: usize) -> io::Result<()> {
    let root = on.at.join("small");
    let directories: Vec<PathBuf> =
        (0..scale.small_files.div_ceil(BREADTH)).map(|number| root.join(format!("d{number}"))).collect();
    // What each client does with each of its directories.
    let share = |then: &(dyn Fn(usize, &Path) -> io::Result<()> + Sync)| {
        let client = |first: usize| {
            (first..directories.len())
                .step_by(clients)
                .try_for_each(|number| then(number, &directories[number]))
        };
        if clients == 1 {
            return client(0);
        }
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients).map(|first| scope.spawn(move || client(first))).collect();
            running.into_iter().try_for_each(|one| {
                one.join().unwrap_or_else(|_| Err(Error::other("a client of the measurement broke down")))
            })
        })
    };
    let each = |then: &(dyn Fn(&Path) -> io::Result<()> + Sync)| {
        share(&|number, directory| {
            let files = number * BREADTH..scale.small_files.min((number + 1) * BREADTH);
            files.into_iter().try_for_each(|file| then(&directory.join(format!("file{file}"))))
        })
    };
    let content = data(SMALL, false);
    let count = many(scale.small_files);
    let title = |what: &str| match clients {
        1 => what.to_owned(),
        _ => format!("{what}, {clients} at once"),
    };
    table.time(on, &title("create files of 1000 bytes"), count, || {
        directories.iter().try_for_each(fs::create_dir_all)?;
        each(&|path| File::create_new(path)?.write_all(&content))?;
        on.settle()
    })?;
    on.forget_names()?;
    table.time(on, &title("list"), count, || {
        let found = AtomicUsize::new(0);
        share(&|_, directory| {
            found.fetch_add(fs::read_dir(directory)?.count(), Ordering::Relaxed);
            Ok(())
        })?;
        match found.into_inner() {
            all if all == scale.small_files => Ok(()),
            some => Err(Error::other(format!("{some} files are listed"))),
        }
    })?;
    on.forget_names()?;
    let keeps = on.keeps();
    table.time(on, &title("stat"), count, || {
        each(&|path| match fs::symlink_metadata(path)?.len() as usize {
            SMALL => Ok(()),
            _ if !keeps => Ok(()),
            length => Err(Error::other(format!("{}: {length} bytes", path.display()))),
        })
    })?;
    on.cold()?;
    table.time(on, &title("cold read"), count, || each(&|path| fs::read(path).map(drop)))?;
    table.time(on, &title("delete"), count, || {
        share(&|_, directory| fs::remove_dir_all(directory))?;
        fs::remove_dir(&root)?;
        on.settle()
    })
}

/// A tree like that of a program's source: many small texts, few large ones.
fn make_archive(at: &Path, files: usize) -> io::Result<u64> {
    const WORDS: [&str; 16] = [
        "static ", "int ", "return ", "struct ", "if (", ") {\n", "}\n", "\t", "for (", "size_t ", "const ",
        "NULL", ";\n", "(void)", "-> ", "= ",
    ];
    let place = tempfile::tempdir()?;
    let mut numbers = fastrand::Rng::with_seed(7);
    let mut total = 0;
    for number in 0..files {
        let directory = place.path().join(format!("source/part{}/unit{}", number / 400, number / 40));
        fs::create_dir_all(&directory)?;
        let mut file = BufWriter::new(File::create(directory.join(format!("module{number}.c")))?);
        let length = 200u64 << (numbers.u64(..8));
        let mut written = 0;
        while written < length {
            let number = numbers.u64(..);
            let word = WORDS[number as usize % WORDS.len()];
            write!(file, "{word}name{:x} ", number >> 52)?;
            written += word.len() as u64 + 8;
        }
        total += length;
    }
    let status = Command::new("tar").arg("-cf").arg(at).arg("-C").arg(place.path()).arg("source").status()?;
    if status.success() { Ok(total) } else { Err(Error::other("tar failed")) }
}

fn untar(on: &System, scale: &Scale, table: &mut Table) -> io::Result<()> {
    if !on.keeps() {
        return Ok(());
    }
    let archive = on.at.with_file_name("source.tar");
    if !archive.exists() {
        make_archive(&archive, scale.tree_files)?;
    }
    table.time(on, "untar a source tree", many(scale.tree_files), || {
        let status = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&on.at).status()?;
        if !status.success() {
            return Err(Error::other("tar failed"));
        }
        on.settle()
    })?;
    fs::remove_dir_all(on.at.join("source"))?;
    on.settle()
}

/// Headers of the program that is compiled.
const HEADERS: usize = 40;

/// A program of `units` files, each of which includes every header, and what makes it.
fn write_program(at: &Path, units: usize) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let headers: String = (0..HEADERS).map(|number| format!("#include \"part{number}.h\"\n")).collect();
    for number in 0..HEADERS {
        let declared: String = (0..50)
            .map(|of| {
                format!(
                    "struct part{number}_{of} \
                {{ int first; long second; struct part{number}_{of} *next; }};\nint use{number}_{of}(struct \
                part{number}_{of} *part);\n"
                )
            })
            .collect();
        fs::write(at.join(format!("part{number}.h")), format!("#pragma once\n{declared}"))?;
    }
    for number in 0..units {
        let of = number % HEADERS;
        let code = format!(
            "{headers}int unit{number}(struct part{of}_0 *part) {{ return part->first + use{of}_1(0); }}\n"
        );
        fs::write(at.join(format!("unit{number}.c")), code)?;
    }
    let objects: String = (0..units).map(|number| format!(" unit{number}.o")).collect();
    fs::write(at.join("Makefile"), format!("all.a:{objects}\n\tar rcs $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\n"))
}

fn compile(on: &System, scale: &Scale, table: &mut Table) -> io::Result<()> {
    if !on.keeps() {
        return Ok(());
    }
    let program = on.at.join("program");
    write_program(&program, scale.units)?;
    on.settle()?;
    on.cold()?;
    table.time(on, "compile a program, cold", (scale.units as f64, "units/s"), || {
        let status = Command::new("make").args(["--silent", "--jobs=2", "-C"]).arg(&program).status()?;
        if !status.success() {
            return Err(Error::other("make failed"));
        }
        on.settle()
    })?;
    fs::remove_dir_all(&program)?;
    on.settle()
}
