//! Numbers, sizes, ratios and dates as OpenZFS's tools print them.
//!
//! Two styles: parsable (`-p`: plain numbers, seconds since 1970) and human. A human number is at most five
//! characters: scaled by powers of 1024, with as many decimals as fit, none when it divides evenly. Dates
//! need the offset of the reader's time zone at that moment, which only the caller can know. Source of the
//! facts: OpenZFS 2.3 `zutil_nicenum.c`.

/// The style in which values are shown.
#[derive(Clone, Copy)]
pub struct Style {
    /// `-p`: numbers in full.
    pub parsable: bool,
    /// Seconds to add to UTC at the given time (seconds since 1970) for the reader's clock.
    pub utc_offset: fn(i64) -> i32,
}

impl Style {
    /// Numbers in full.
    pub const PARSABLE: Style = Style { parsable: true, utc_offset: |_| 0 };
    /// For people, in UTC.
    pub const HUMAN_UTC: Style = Style { parsable: false, utc_offset: |_| 0 };

    /// A number: `2048` or `2K`.
    pub fn number(self, value: u64) -> String {
        if self.parsable { value.to_string() } else { nicenum(value) }
    }

    /// A size in bytes: `2048` or `2K`; small ones end with a `B`.
    pub fn bytes(self, value: u64) -> String {
        if self.parsable { value.to_string() } else { nicebytes(value) }
    }

    /// A ratio kept as a hundredfold: `1.98` or `1.98x`.
    pub fn ratio(self, hundredfold: u64) -> String {
        let unit = if self.parsable { "" } else { "x" };
        format!("{}.{:02}{unit}", hundredfold / 100, hundredfold % 100)
    }

    /// A percentage: `3` or `3%`.
    pub fn percent(self, value: u64) -> String {
        if self.parsable { value.to_string() } else { format!("{value}%") }
    }

    /// A date to the minute: `1795241193` or `Sat Nov 21  6:06 2026`.
    pub fn date(self, seconds: u64) -> String {
        match self.civil(seconds) {
            Some(at) => format!(
                "{} {} {:>2} {:>2}:{:02} {}",
                at.weekday, at.month_name, at.day, at.hour, at.minute, at.year
            ),
            None => seconds.to_string(),
        }
    }

    /// A date to the second: `1795241193` or `Sat Nov 21  6:06:33 2026`.
    pub fn date_with_seconds(self, seconds: u64) -> String {
        match self.civil(seconds) {
            Some(at) => format!(
                "{} {} {:>2} {:>2}:{:02}:{:02} {}",
                at.weekday, at.month_name, at.day, at.hour, at.minute, at.second, at.year
            ),
            None => seconds.to_string(),
        }
    }

    /// The calendar date and time of day, if the style shows one.
    fn civil(self, seconds: u64) -> Option<Civil> {
        let seconds = i64::try_from(seconds).ok().filter(|_| !self.parsable)?;
        Civil::at(seconds.checked_add(i64::from((self.utc_offset)(seconds)))?)
    }
}

/// `value` scaled by powers of 1024 into at most five characters.
pub fn nicenum(value: u64) -> String {
    nice(value, "")
}

/// Like [`nicenum`], with `B` on numbers below 1024.
pub fn nicebytes(value: u64) -> String {
    nice(value, "B")
}

fn nice(value: u64, small_unit: &str) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    let index = (value.max(1).ilog2() / 10) as usize;
    let Some(unit) = index.checked_sub(1).map(|index| UNITS[index]) else {
        return format!("{value}{small_unit}");
    };
    let scale = 1u64 << (10 * index);
    if value.is_multiple_of(scale) {
        return format!("{}{unit}", value / scale);
    }
    let scaled = value as f64 / scale as f64;
    let mut shown = String::new();
    for decimals in (0..=2).rev() {
        shown = format!("{scaled:.decimals$}{unit}");
        if shown.len() <= 5 {
            break;
        }
    }
    shown
}

/// A time on a wall clock and calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year.
    pub year: i64,
    /// Month, from 1.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second.
    pub second: u32,
    /// Three letters of the weekday's name.
    pub weekday: &'static str,
    /// Three letters of the month's name.
    pub month_name: &'static str,
}

impl Civil {
    /// The calendar time `seconds` after 1970 on the reader's clock; `None` far outside of any calendar.
    pub fn at(seconds: i64) -> Option<Civil> {
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let days = seconds.div_euclid(86_400);
        let time = seconds.rem_euclid(86_400) as u32;
        // Days are counted in eras of 400 years that begin on 1 March, so that the leap day is the last day
        // of its year.
        if days.abs() > 1_000_000_000 {
            return None;
        }
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        Some(Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day,
            hour: time / 3_600,
            minute: time / 60 % 60,
            second: time % 60,
            weekday: WEEKDAYS[days.rem_euclid(7) as usize],
            month_name: MONTHS[month as usize - 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_numbers_fit_in_five_characters() {
        for (value, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1025, "1.00K"),
            (10_239, "10.0K"),
            (26_624, "26K"),
            (2_109_440, "2.01M"),
            (347_224_576, "331M"),
            (21_874_176, "20.9M"),
            (1_048_575, "1024K"),
            (1_073_741_823, "1024M"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(nicenum(value), shown, "{value}");
        }
        assert_eq!(nicebytes(512), "512B");
        assert_eq!(nicebytes(1536), "1.50K");
    }

    #[test]
    fn dates_are_padded_as_by_strftime() {
        let style = Style::HUMAN_UTC;
        assert_eq!(style.date(1_795_241_193), "Sat Nov 21  6:06 2026");
        assert_eq!(style.date_with_seconds(951_782_400), "Tue Feb 29  0:00:00 2000");
        assert_eq!(style.date(0), "Thu Jan  1  0:00 1970");
        assert_eq!(Style::PARSABLE.date(7), "7");
        assert_eq!(style.date(u64::MAX), u64::MAX.to_string());
        let east = Style { parsable: false, utc_offset: |_| 3600 };
        assert_eq!(east.date(86_399), "Fri Jan  2  0:59 1970");
    }

    #[test]
    fn ratios_have_two_decimals() {
        assert_eq!(Style::HUMAN_UTC.ratio(198), "1.98x");
        assert_eq!(Style::PARSABLE.ratio(1203), "12.03");
        assert_eq!(Style::PARSABLE.percent(3), "3");
        assert_eq!(Style::HUMAN_UTC.percent(3), "3%");
    }
}
