//! A line of a directory listing in the form of `ls -l`, which clients show.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAY: i64 = 86_400;

/// Half a year: older files are shown with their year instead of their time.
const RECENT: i64 = 182 * DAY;

pub(super) fn line(name: &[u8], metadata: &Metadata, now: i64) -> Vec<u8> {
    let mode = mode(metadata.mode());
    let (uid, gid, links, size) = (metadata.uid(), metadata.gid(), metadata.nlink(), metadata.size());
    let date = date(metadata.mtime(), now);
    let mut line = format!("{mode} {links:>4} {uid:<8} {gid:<8} {size:>12} {date} ").into_bytes();
    line.extend(name);
    line
}

fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o010_000 => 'p',
        0o140_000 => 's',
        0o020_000 => 'c',
        0o060_000 => 'b',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, mark) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => mark,
            (false, true) => mark.to_ascii_uppercase(),
        });
    }
    text
}

fn date(at: i64, now: i64) -> String {
    let (year, month, day) = civil(at.div_euclid(DAY));
    let month = MONTHS[month - 1];
    if (now - RECENT..=now + DAY).contains(&at) {
        let seconds = at.rem_euclid(DAY);
        return format!("{month} {day:>2} {:02}:{:02}", seconds / 3600, seconds / 60 % 60);
    }
    format!("{month} {day:>2}  {year:>4}")
}

/// Year, month and day of a day since 1970. After Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, usize::try_from(month).expect("there are twelve"), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_dates_have_the_format_of_ls() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o104_644), "-rwSr--r--");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
        let now = 1_700_000_000;
        assert_eq!(date(now, now), "Nov 14 22:13");
        assert_eq!(date(0, now), "Jan  1  1970");
        assert_eq!(date(951_782_400, now), "Feb 29  2000");
        assert_eq!(date(-1, now), "Dec 31  1969");
    }
}
