//! What is hashed and compressed.

/// Log-like text: made from a fixed seed, compresses about threefold.
pub fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "request",
        "accepted",
        "from",
        "client",
        "timeout",
        "after",
        "retry",
        "the",
        "of",
        "block",
        "written",
        "to",
        "cache",
        "miss",
        "hit",
        "offset",
        "length",
        "pool",
        "device",
        "error",
        "warning",
        "closed",
        "connection",
        "by",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut text = String::with_capacity(len + 100);
    while text.len() < len {
        let random = next();
        text.push_str(&format!("2026-11-{:02} {:06} ", random % 28 + 1, random >> 44));
        for word in 0..4 + random % 9 {
            text.push_str(WORDS[(next() >> (word + 20)) as usize % WORDS.len()]);
            text.push(' ');
        }
        text.push('\n');
    }
    text.truncate(len);
    text.into_bytes()
}

/// What does not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut rng = testkit::Rng::new(1);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Machine code and constants: the beginning of this very program.
pub fn binary(len: usize) -> Vec<u8> {
    let mut program = std::env::current_exe().and_then(std::fs::read).expect("a program can read itself");
    // Past the headers and relocation tables.
    let start = program.len() / 4;
    program.drain(..start);
    program.truncate(len);
    program
}
