//! Ids, numbers, sizes and times as people read them, and safe for a terminal.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whether a character must not reach a terminal as it is: control characters (C0, DEL, C1), and the invisible ones
/// that reorder, join, hide or break text.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Text with every hostile character as `\u{…}`, and a backslash of its own doubled: two texts never look the same.
pub fn escape(text: &str) -> String {
    replaced(text, true)
}

/// A sentence with every hostile character as `\u{…}`, and nothing else changed.
pub fn sanitize(sentence: &str) -> String {
    replaced(sentence, false)
}

fn replaced(text: &str, doubles_backslash: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            // Writing to a string cannot fail.
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else if c == '\\' && doubles_backslash {
            safe.push_str("\\\\");
        } else {
            safe.push(c);
        }
    }
    safe
}

/// An id or topic, escaped and of at most about `chars_max` characters: a longer one is cut, and its length follows.
/// The empty text is shown as two quotation marks.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    // What lies behind the limit cannot come back into it, so it need not be escaped.
    let head_bytes = text.char_indices().nth(chars_max).map_or(text.len(), |(at, _)| at);
    let mut shown = escape(&text[..head_bytes]);
    let end = shown.char_indices().nth(chars_max).map(|(at, _)| at);
    if end.is_none() && head_bytes == text.len() {
        return shown;
    }
    shown.truncate(end.unwrap_or(shown.len()));
    let _ = write!(shown, "… ({} bytes)", count(text.len() as u64));
    shown
}

/// A number with a comma every three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with a sign, grouped.
pub fn signed(n: i64) -> String {
    if n < 0 { format!("-{}", count(n.unsigned_abs())) } else { count(n.unsigned_abs()) }
}

/// A count in three digits or so: `812`, `43.1 M`.
pub fn short(n: u64) -> String {
    scaled(n, &["", " k", " M", " G", " T"])
}

/// Bytes in decimal units: `812 B`, `11.8 GB`.
pub fn size(bytes: u64) -> String {
    scaled(bytes, &[" B", " kB", " MB", " GB", " TB", " PB"])
}

fn scaled(n: u64, units: &[&str]) -> String {
    if n < 1000 {
        return format!("{n}{}", units[0]);
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 1;
    // What would be rounded to 1000.0 belongs to the next unit.
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1}{}", units[unit])
}

/// A share in percent, rounded towards the middle so that "100 %" and "0 %" are exact.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    let rounded = (part as f64 * 100.0 / whole as f64).round() as u64;
    match rounded {
        0 if part > 0 => "under 1 %".to_owned(),
        100 if part < whole => "over 99 %".to_owned(),
        _ => format!("{rounded} %"),
    }
}

/// A duration in its one or two largest units: `3 ms`, `6.6 s`, `4 min 50 s`, `6 h 12 min`, `3 d 4 h`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| {
        if small == 0 {
            format!("{large} {large_unit}")
        } else {
            format!("{large} {large_unit} {small} {small_unit}")
        }
    };
    match seconds {
        0 if duration.as_millis() == 0 => "under 1 ms".to_owned(),
        0 => format!("{} ms", duration.as_millis()),
        1..=59 => {
            // Tenths cut, not rounded: 59.96 s is not 60.0 s.
            let tenths = duration.as_millis() / 100;
            if tenths.is_multiple_of(10) {
                format!("{seconds} s")
            } else {
                format!("{}.{} s", tenths / 10, tenths % 10)
            }
        }
        60..=3599 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..=86_399 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// Milliseconds since 1970 by the wall clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The age of a moment at another, both in ms since 1970; none if it lies in the future.
pub fn age(then_ms: i64, now_ms: i64) -> Option<Duration> {
    u64::try_from(i128::from(now_ms) - i128::from(then_ms)).ok().map(Duration::from_millis)
}

/// A moment in ms since 1970 as `2026-11-30 20:25:01.123`, UTC. Years that do not have four digits, and negative
/// moments, are given as the plain number.
pub fn utc(ms: i64) -> String {
    const YEAR_10000_MS: i64 = 253_402_300_800_000;
    if !(0..YEAR_10000_MS).contains(&ms) {
        return format!("{ms} ms");
    }
    let (days, in_day) = (ms / 86_400_000, ms % 86_400_000);
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}")
}

/// Reads a number of bytes, with or without a unit of 1,024: `4096`, `512M`, `8G`.
///
/// # Errors
/// A sentence that says how to write it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size; write it like 4096, 64K, 512M, 8G or 1T");
    // "8G", "8GB" and "8GiB" are the same.
    let text_of_size = text.trim().trim_end_matches('B').trim_end_matches('i');
    let units = [('K', 10), ('k', 10), ('M', 20), ('G', 30), ('T', 40)];
    let (number, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text_of_size.strip_suffix(unit)?, shift)))
        .unwrap_or((text.trim(), 0));
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// Reads a duration as people write it: numbers with the units `ms`, `s`, `m` (or `min`), `h`, `d`, largest first or
/// not, as in `90s`, `6h` and `1d12h`.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no duration; write it like 90s, 15m, 6h or 1d12h");
    let mut total_ms: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = rest[digits..].trim_start();
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        rest = rest[letters..].trim_start();
        total_ms = number.checked_mul(unit_ms).and_then(|ms| total_ms.checked_add(ms)).ok_or_else(bad)?;
    }
    Ok(Duration::from_millis(total_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_hide() {
        assert_eq!(
            escape("a\x1b[31m\n\u{202e}\u{9b}\u{200b}\u{2028}b"),
            r"a\u{1b}[31m\u{a}\u{202e}\u{9b}\u{200b}\u{2028}b"
        );
        assert_eq!(escape(r"\u{1b}"), r"\\u{1b}", "not the escape of ESC");
        assert_eq!(sanitize("a\\\nb"), "a\\\\u{a}b");
        for c in
            ['\0', '\x7f', '\u{85}', '\u{61c}', '\u{200e}', '\u{2066}', '\u{2069}', '\u{feff}', '\u{2029}']
        {
            assert!(is_hostile(c), "{c:?}");
        }
        for c in ['a', 'é', '日', '😀', '<', '=', '\u{fffd}', ' '] {
            assert!(!is_hostile(c), "{c:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_with_their_length() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc… (4 bytes)");
        assert_eq!(cut(&"é".repeat(1000), 2), "éé… (2,000 bytes)");
        assert_eq!(cut("\n\n", 4), r"\u{a… (2 bytes)");
        assert_eq!(cut("", 3), "\"\"");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([count(0), count(999), count(1000), count(8_214_339)], ["0", "999", "1,000", "8,214,339"]);
        assert_eq!([signed(-1), signed(-12_345), signed(7)], ["-1", "-12,345", "7"]);
        assert_eq!([short(812), short(1000), short(43_100_000)], ["812", "1.0 k", "43.1 M"]);
        assert_eq!([size(812), size(11_800_000_000), size(999_999)], ["812 B", "11.8 GB", "1.0 MB"]);
        assert_eq!(size(u64::MAX), "18446.7 PB");
        assert_eq!(
            [percent(86, 100), percent(1, 1000), percent(999, 1000)],
            ["86 %", "under 1 %", "over 99 %"]
        );
        assert_eq!([percent(0, 0), percent(0, 5), percent(5, 5)], ["0 %", "0 %", "100 %"]);
    }

    #[test]
    fn times_for_people() {
        let text = |ms| duration(Duration::from_millis(ms));
        assert_eq!([text(0), text(3), text(999)], ["under 1 ms", "3 ms", "999 ms"]);
        assert_eq!([text(1000), text(6600), text(59_999)], ["1 s", "6.6 s", "59.9 s"]);
        assert_eq!([text(60_000), text(290_000)], ["1 min", "4 min 50 s"]);
        assert_eq!(
            [text(22_320_000), text(604_800_000), text(273_600_000)],
            ["6 h 12 min", "7 d", "3 d 4 h"]
        );
        assert_eq!(utc(0), "1970-01-01 00:00:00.000");
        assert_eq!(utc(951_825_599_999), "2000-02-29 11:59:59.999");
        assert_eq!(utc(1_700_000_000_000), "2023-11-14 22:13:20.000");
        assert_eq!(utc(253_402_300_799_999), "9999-12-31 23:59:59.999");
        assert_eq!([utc(-1), utc(i64::MAX)], ["-1 ms", "9223372036854775807 ms"]);
        assert_eq!(age(i64::MIN, i64::MAX), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(age(2, 1), None);
    }

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 64 << 10),
            (" 512M ", 512 << 20),
            ("8GiB", 8 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "8Q", "lots", "99999999999999T", "4096i"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        let ms = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("90s"), Ok(90_000));
        assert_eq!(ms("1d12h"), Ok(129_600_000));
        assert_eq!(ms(" 6 h 12 min "), Ok(22_320_000));
        assert_eq!(ms("0ms"), Ok(0));
        for bad in ["", "5", "h", "-1s", "1w", "1.5h", "99999999999999999999s", "18446744073709551615d", "é"]
        {
            assert!(ms(bad).is_err(), "{bad}");
        }
    }
}
