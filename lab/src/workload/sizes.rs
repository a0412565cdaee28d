//! Sizes of operations by their shares: fio's `bssplit`.
//!
//! `4k/60:16k/40` means 60 of a hundred of 4K, the others of 16K; sizes without a percentage share the rest
//! evenly. Sizes after a comma are for writes; without them reads and writes have the same. fio also accepts
//! input that makes little sense: it cuts or stretches percentages that do not add up to 100, and rounds
//! sizes that are not multiples of the smallest. Those are errors here.

use crate::size::Size;

/// How many of a hundred operations have a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The size.
    pub size: Size,
    /// The percentage; those of all sizes add up to 100.
    pub percent: u32,
}

/// Sizes of reads, and of writes; or what is wrong with them.
pub(crate) fn parse(text: &str) -> Result<[Vec<Share>; 2], String> {
    let mut directions = text.split(',').map(direction);
    let reads = directions.next().unwrap_or_else(|| Err("there is no size".to_owned()))?;
    let writes = directions.next().unwrap_or_else(|| Ok(reads.clone()))?;
    // The third is of what is discarded, and nothing is.
    match directions.nth(1) {
        None => Ok([reads, writes]),
        Some(_) => Err("more than three directions".to_owned()),
    }
}

fn direction(text: &str) -> Result<Vec<Share>, String> {
    let sizes: Vec<(Size, Option<u32>)> = text.split(':').map(one).collect::<Result<_, _>>()?;
    let told = sizes.iter().filter_map(|(_, percent)| *percent).fold(0_u32, u32::saturating_add);
    let untold = sizes.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    let rest = 100_u32.saturating_sub(told);
    // What cannot be shared evenly goes to the first ones.
    let mut shared = (0..untold).map(|number| rest / untold + u32::from(number < rest % untold));
    let share = |(size, percent): (Size, Option<u32>)| Share {
        size,
        percent: percent.or_else(|| shared.next()).unwrap_or(0),
    };
    let shares: Vec<Share> = sizes.into_iter().map(share).collect();
    if told > 100 || untold == 0 && told < 100 {
        return Err(format!("the percentages add up to {told}, not to 100"));
    }
    if let Some(never) = shares.iter().find(|share| share.percent == 0) {
        return Err(format!("{} is never used", never.size));
    }
    let least = shares.iter().map(|share| share.size.0).min().unwrap_or_default();
    match shares.iter().find(|share| least == 0 || !share.size.0.is_multiple_of(least)) {
        Some(odd) => Err(format!("{} is no multiple of the smallest size", odd.size)),
        None => Ok(shares),
    }
}

/// `SIZE/PERCENT`, `SIZE/` or `SIZE`.
fn one(text: &str) -> Result<(Size, Option<u32>), String> {
    let (size, percent) = text.split_once('/').unwrap_or((text, ""));
    let percent = match percent.trim() {
        "" => None,
        percent => Some(percent.parse().map_err(|_| format!("'{percent}' is not a percentage"))?),
    };
    Ok((size.parse()?, percent))
}

/// As fio has it, in bytes.
pub(crate) fn words([reads, writes]: &[Vec<Share>; 2]) -> String {
    let one = |share: &Share| format!("{}/{}", share.size.0, share.percent);
    let all = |shares: &[Share]| shares.iter().map(one).collect::<Vec<_>>().join(":");
    if reads == writes { all(reads) } else { format!("{},{}", all(reads), all(writes)) }
}

/// fio's `offset_increment`: bytes, or a percentage of the volume, whatever of that is worked on.
pub(crate) fn increment(text: &str, volume: Size) -> Option<Size> {
    match text.strip_suffix('%') {
        None => text.parse().ok(),
        Some(percent) => {
            let percent = percent.parse::<u8>().ok().filter(|percent| *percent <= 100)?;
            Some(Size((u128::from(volume.0) * u128::from(percent) / 100) as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(all: &[(u64, u32)]) -> Vec<Share> {
        all.iter().map(|&(bytes, percent)| Share { size: Size(bytes), percent }).collect()
    }

    #[test]
    fn sizes_have_the_shares_that_fio_gives_them() {
        let both = |all: &[(u64, u32)]| [shares(all), shares(all)];
        for (text, expected) in [
            ("4k/40:16K/60", both(&[(4096, 40), (16384, 60)])),
            ("4k", both(&[(4096, 100)])),
            ("4k/50:8k/:32k", both(&[(4096, 50), (8192, 25), (32768, 25)])),
            ("512/:1k/:2k/", both(&[(512, 34), (1024, 33), (2048, 33)])),
            (
                "2k/50:4k/50,4k/90:8k/10",
                [shares(&[(2048, 50), (4096, 50)]), shares(&[(4096, 90), (8192, 10)])],
            ),
            ("2k/100,4k/100,8k/100", [shares(&[(2048, 100)]), shares(&[(4096, 100)])]),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed, expected, "{text}");
            assert_eq!(parse(&words(&parsed)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_makes_little_sense_is_an_error() {
        for (text, named) in [
            ("", "not a size"),
            ("4k/50:8k/40", "add up to 90"),
            ("4k/50:8k/60", "add up to 110"),
            ("4k/100:8k/", "8K is never used"),
            ("4k/0:8k/100", "4K is never used"),
            ("4k/x", "'x' is not a percentage"),
            ("4k/50:6k/50", "6K is no multiple"),
            ("0/100", "no multiple"),
            ("4k/100,", "not a size"),
            ("4k,4k,4k,4k", "three"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
