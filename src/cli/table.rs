//! Plain-text tables and number formats of the command line.

use super::out::say;
use super::style;

/// Table with left-aligned names and right-aligned numbers.
pub(super) struct TextTable {
    head: Vec<&'static str>,
    /// Number of left-aligned columns, which come first.
    left: usize,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(left: usize, head: Vec<&'static str>) -> Self {
        TextTable { head, left, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints the table, with the last `totals` rows below a line.
    pub(super) fn print(&self, totals: usize) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            let head = self.head.get(column).map_or(0, |head| head.chars().count());
            cells.max().unwrap_or(0).max(head)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells.zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column < self.left { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        say!("{}", style::title(line(&mut self.head.iter().copied())));
        let first_total = self.rows.len().saturating_sub(totals);
        for (at, row) in self.rows.iter().enumerate() {
            if at == first_total && at > 0 {
                let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
                say!("{}", style::faint("-".repeat(whole)));
            }
            say!("{}", line(&mut row.iter().map(String::as_str)));
        }
    }
}

/// Formats a number with thousands separators.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Pads amounts with zeros to the same number of decimals, so that the decimal points are aligned.
pub(super) fn align(amounts: &mut [&mut String]) {
    let after = |amount: &str| amount.split_once('.').map_or(0, |(_, digits)| digits.len());
    let most = amounts.iter().map(|amount| after(amount)).max().unwrap_or(0);
    for amount in amounts {
        let missing = most - after(amount);
        amount.extend(std::iter::repeat_n('0', missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_numbers_are_grouped_and_amounts_aligned() {
        let shown: Vec<String> = [0, 7, 999, 1000, -1_234_567, i64::MIN].map(grouped).to_vec();
        assert_eq!(shown, ["0", "7", "999", "1,000", "-1,234,567", "-9,223,372,036,854,775,808"]);
        let (mut one, mut two) = ("1.50".to_owned(), "0.000125".to_owned());
        align(&mut [&mut one, &mut two]);
        assert_eq!((one.as_str(), two.as_str()), ("1.500000", "0.000125"));
    }
}
