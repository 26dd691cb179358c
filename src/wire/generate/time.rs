//! Points in time as this format writes them.

/// The Unix time of an RFC 3339 time in UTC (`2026-04-02T17:03:50.399550Z`), whole seconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let time = time.split('.').next()?;
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin in March here, so that the day that is not always there is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2024-02-29T12:00:00.5Z"), Some(1_709_208_000));
        assert_eq!(seconds("2026-04-02T17:03:50.399550Z"), Some(1_775_149_430));
        for wrong in ["", "2026-04-02", "2026-04-02T17:03:50+02:00", "2026-13-02T17:03:50Z", "x-y-zT1:2:3Z"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
