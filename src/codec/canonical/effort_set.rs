//! Set of reasoning efforts: those that a model takes. Models skip names in the middle (`low`, `high` and `max`), so a range
//! cannot say it.

use super::request::Effort;

/// Set of reasoning efforts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffortSet(u8);

impl EffortSet {
    /// No effort.
    pub const EMPTY: EffortSet = EffortSet(0);
    /// All six efforts.
    pub const ALL: EffortSet = EffortSet(0b11_1111);

    /// Returns the set of these efforts.
    pub fn of(efforts: impl IntoIterator<Item = Effort>) -> EffortSet {
        efforts.into_iter().fold(EffortSet::EMPTY, EffortSet::with)
    }

    /// Returns the set of all efforts from `lowest` to `highest`.
    pub const fn range(lowest: Effort, highest: Effort) -> EffortSet {
        let below = (1 << lowest as u8) - 1;
        EffortSet(((1 << (highest as u8 + 1)) - 1) & !below)
    }

    /// Returns the set with one more effort.
    #[must_use]
    pub const fn with(self, effort: Effort) -> EffortSet {
        EffortSet(self.0 | 1 << effort as u8)
    }

    /// Returns the efforts that both sets have.
    #[must_use]
    pub const fn common(self, other: EffortSet) -> EffortSet {
        EffortSet(self.0 & other.0)
    }

    /// Returns whether the set has an effort.
    pub const fn has(self, effort: Effort) -> bool {
        self.0 & 1 << effort as u8 != 0
    }

    /// Returns whether the set has no effort.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the efforts in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Effort> {
        Effort::ALL.into_iter().filter(move |effort| self.has(*effort))
    }

    /// Returns the lowest effort. `None` if the set is empty.
    pub fn lowest(self) -> Option<Effort> {
        self.iter().next()
    }

    /// Returns the member that is nearest to an effort, of two equally near ones the higher one. `None` if the set is empty.
    pub fn nearest(self, wish: Effort) -> Option<Effort> {
        let distance = |effort: &Effort| (*effort as u8).abs_diff(wish as u8);
        // Of equal minima the first one is taken: the higher effort comes first.
        Effort::ALL.into_iter().rev().filter(|effort| self.has(*effort)).min_by_key(distance)
    }

    /// Returns the highest member up to an effort; the lowest one if all are higher. `None` if the set is empty.
    pub fn up_to(self, highest: Effort) -> Option<Effort> {
        self.iter().filter(|effort| *effort <= highest).last().or_else(|| self.lowest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_effort_is_the_higher_one_at_equal_distance() {
        use Effort::{High, Low, Max, Medium, Minimal, XHigh};
        let set = EffortSet::of([Low, High, Max]);
        let nearest = Effort::ALL.map(|wish| set.nearest(wish));
        assert_eq!(nearest, [Low, Low, High, High, Max, Max].map(Some));
        let set = EffortSet::of([Low, Medium, High, Max]);
        assert_eq!(set.nearest(XHigh), Some(Max));
        assert_eq!(EffortSet::range(Medium, XHigh).nearest(Minimal), Some(Medium));
        assert_eq!(EffortSet::range(Medium, XHigh).nearest(Max), Some(XHigh));
        assert_eq!(EffortSet::EMPTY.nearest(Low), None);
        assert_eq!(EffortSet::range(Minimal, Max), EffortSet::ALL);
        assert_eq!(EffortSet::range(Low, High).iter().collect::<Vec<_>>(), [Low, Medium, High]);
        assert_eq!(set.up_to(XHigh), Some(High));
        assert_eq!(EffortSet::range(High, Max).up_to(Low), Some(High));
    }
}
