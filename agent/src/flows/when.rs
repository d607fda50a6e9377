//! Times, as they are written and read. All in UTC.

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use prost_types::Timestamp as Message;

use crate::cli::TimeFormat;

/// Longest name of a unit first.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
/// Nanoseconds of a hundred years.
const MOST: f64 = 3600e9 * 24.0 * 36_525.0;

/// Reads how long ago (`1h30m`), RFC 3339, or a date with or without a time.
///
/// # Errors
/// What to write.
pub(crate) fn read(text: &str, now: Timestamp) -> Result<Message, String> {
    let ago = || duration(text).and_then(|ns| Timestamp::from_nanosecond(now.as_nanosecond() - ns).ok());
    let exact = || text.parse::<Timestamp>().ok();
    let civil = || text.parse::<DateTime>().ok().and_then(|time| TimeZone::UTC.to_timestamp(time).ok());
    let time = ago().or_else(exact).or_else(civil);
    let time = time.ok_or_else(|| {
        format!("{text:?} is no time: write how long ago (1h30m) or when (2006-01-02T15:04:05Z)")
    })?;
    let mut message = Message { seconds: time.as_second(), nanos: time.subsec_nanosecond() };
    // Before 1970 the two have different signs.
    message.normalize();
    Ok(message)
}

/// Nanoseconds of a duration as Go writes it.
pub(crate) fn duration(text: &str) -> Option<i128> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let (unit, factor) =
            UNITS.iter().filter(|(unit, _)| tail.starts_with(unit)).max_by_key(|(unit, _)| unit.len())?;
        sum += number.parse::<f64>().ok()? * factor;
        rest = &tail[unit.len()..];
    }
    (!text.is_empty() && sum <= MOST).then_some(sum as i128)
}

/// A time in a format; `N/A` where there is none.
pub(super) fn text(time: Option<&Message>, format: TimeFormat) -> String {
    let layout = match format {
        TimeFormat::StampMilli => "%b %e %H:%M:%S%.3f",
        TimeFormat::Rfc3339 => "%Y-%m-%dT%H:%M:%SZ",
        TimeFormat::Rfc3339Milli => "%Y-%m-%dT%H:%M:%S%.3fZ",
        TimeFormat::Rfc3339Micro => "%Y-%m-%dT%H:%M:%S%.6fZ",
        TimeFormat::Rfc3339Nano => "%Y-%m-%dT%H:%M:%S%.9fZ",
        TimeFormat::Rfc1123z => "%a, %d %b %Y %H:%M:%S %z",
    };
    let zoned = time.and_then(|time| {
        let time = Timestamp::new(time.seconds, time.nanos).ok()?;
        Some(Zoned::new(time, TimeZone::UTC))
    });
    zoned.and_then(|zoned| strtime::format(layout, &zoned).ok()).unwrap_or_else(|| "N/A".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let now: Timestamp = "2025-12-01T12:00:00Z".parse().expect("one");
        let check = |text: &str, want: Option<&str>| {
            let got = read(text, now).ok().map(|time| super::text(Some(&time), TimeFormat::Rfc3339Milli));
            assert_eq!(got.as_deref(), want, "{text:?}");
        };
        check("1h30m", Some("2025-12-01T10:30:00.000Z"));
        check("1.5s", Some("2025-12-01T11:59:58.500Z"));
        check("250ms", Some("2025-12-01T11:59:59.750Z"));
        check("2025-11-30T10:00:00Z", Some("2025-11-30T10:00:00.000Z"));
        check("2025-11-30T10:00:00.25+02:00", Some("2025-11-30T08:00:00.250Z"));
        check("2025-11-30T10:00:00", Some("2025-11-30T10:00:00.000Z"));
        check("2025-11-30T10:00", Some("2025-11-30T10:00:00.000Z"));
        check("2025-11-30", Some("2025-11-30T00:00:00.000Z"));
        for bad in ["", "5", "h", "1x", "1h5", "-5m", "1000000000h", "yesterday", "1.2.3s"] {
            check(bad, None);
        }
    }

    #[test]
    fn times_are_written() {
        let time = Message { seconds: 1_764_601_802, nanos: 123_456_789 };
        for (format, want) in [
            (TimeFormat::StampMilli, "Dec  1 15:10:02.123"),
            (TimeFormat::Rfc3339, "2025-12-01T15:10:02Z"),
            (TimeFormat::Rfc3339Milli, "2025-12-01T15:10:02.123Z"),
            (TimeFormat::Rfc3339Micro, "2025-12-01T15:10:02.123456Z"),
            (TimeFormat::Rfc3339Nano, "2025-12-01T15:10:02.123456789Z"),
            (TimeFormat::Rfc1123z, "Mon, 01 Dec 2025 15:10:02 +0000"),
        ] {
            assert_eq!(text(Some(&time), format), want);
        }
        assert_eq!(text(None, TimeFormat::Rfc3339), "N/A");
        assert_eq!(text(Some(&Message { seconds: i64::MAX, nanos: 0 }), TimeFormat::Rfc3339), "N/A");
    }
}
