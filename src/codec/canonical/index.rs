//! Key lookup in a growing list, in constant time for any length.
//!
//! Clients and providers choose the names of tool calls, tools and members, and their number. Code that looks up one of
//! many such names uses this module: a linear scan for each of n names takes n² comparisons.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

/// Number of keys up to which a linear scan is faster than a hash map, and needs no allocation.
const FEW: usize = 8;

/// Hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexKey(u64);

impl IndexKey {
    /// Hashes a text, a number, or several of them in a tuple. Different values are taken to have different keys: the
    /// hash has 64 bits and a per-process random seed, so that an attacker cannot construct collisions.
    #[inline]
    pub fn of(what: impl Hash) -> IndexKey {
        static STATE: LazyLock<RandomState> = LazyLock::new(Default::default);
        IndexKey(STATE.hash_one(what))
    }
}

/// First and last position of each key.
type Ends = HashMap<IndexKey, (usize, usize), RandomState>;

/// Index of key positions. A key may have several positions.
#[derive(Clone, Debug, Default)]
pub struct Index {
    few: SmallVec<[(IndexKey, usize); FEW]>,
    /// First and last position of each key; `None` up to [`FEW`] keys.
    many: Option<Box<Ends>>,
    length: usize,
}

impl Index {
    /// Appends a key: its position is the number of keys so far.
    #[inline]
    pub fn push(&mut self, key: IndexKey) {
        self.put(key, self.length);
    }

    /// Adds a position of a key.
    #[inline]
    pub fn put(&mut self, key: IndexKey, position: usize) {
        // Up to `FEW` keys stay inline; then all of them are copied to the map, and lookups use the map only.
        self.length += 1;
        if self.length <= FEW {
            self.few.push((key, position));
        } else {
            self.put_into_many(key, position);
        }
    }

    #[cold]
    fn put_into_many(&mut self, key: IndexKey, position: usize) {
        let few = &self.few;
        let many = self.many.get_or_insert_with(|| {
            let mut many = Box::new(HashMap::with_capacity_and_hasher(4 * FEW, RandomState::default()));
            few.iter().for_each(|(key, position)| note(&mut many, *key, *position));
            many
        });
        note(many, key, position);
    }

    /// Appends a key if it is absent. Returns false if it was present.
    #[inline]
    pub fn add(&mut self, key: IndexKey) -> bool {
        let new = !self.has(key);
        if new {
            self.push(key);
        }
        new
    }

    /// Returns the first position of a key; `None` if it is absent.
    #[inline]
    pub fn first(&self, key: IndexKey) -> Option<usize> {
        match &self.many {
            None => self.few.iter().filter(|known| known.0 == key).map(|known| known.1).min(),
            Some(many) => many.get(&key).map(|place| place.0),
        }
    }

    /// Returns the last position of a key; `None` if it is absent.
    #[inline]
    pub fn last(&self, key: IndexKey) -> Option<usize> {
        match &self.many {
            None => self.few.iter().filter(|known| known.0 == key).map(|known| known.1).max(),
            Some(many) => many.get(&key).map(|place| place.1),
        }
    }

    /// Returns true if a key is present.
    #[inline]
    pub fn has(&self, key: IndexKey) -> bool {
        match &self.many {
            None => self.few.iter().any(|known| known.0 == key),
            Some(many) => many.contains_key(&key),
        }
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many = None;
        self.length = 0;
    }
}

fn note(many: &mut HashMap<IndexKey, (usize, usize), RandomState>, key: IndexKey, position: usize) {
    let place = many.entry(key).or_insert((position, position));
    *place = (place.0.min(position), place.1.max(position));
}

impl FromIterator<IndexKey> for Index {
    fn from_iter<I: IntoIterator<Item = IndexKey>>(keys: I) -> Self {
        let mut index = Index::default();
        keys.into_iter().for_each(|key| index.push(key));
        index
    }
}

/// Queues of positions by key; positions leave in the order in which they were added.
#[derive(Debug, Default)]
pub struct Queues {
    /// Positions by key, in the order in which they were added.
    waiting: HashMap<IndexKey, Queue, RandomState>,
}

#[derive(Debug, Default)]
struct Queue {
    positions: SmallVec<[usize; 2]>,
    /// Number of leading positions that have been discarded.
    at: usize,
}

impl Queues {
    /// Appends a position to the queue of a key. A position may be in several queues.
    pub fn push(&mut self, key: IndexKey, position: usize) {
        self.waiting.entry(key).or_default().positions.push(position);
    }

    /// Returns the first position of a key for which `waits` is true; `None` if there is none. Positions before it, for
    /// which `waits` is false, are discarded permanently. The returned position stays in the queue.
    pub fn earliest(&mut self, key: IndexKey, waits: impl Fn(usize) -> bool) -> Option<usize> {
        let queue = self.waiting.get_mut(&key)?;
        while let Some(position) = queue.positions.get(queue.at) {
            if waits(*position) {
                return Some(*position);
            }
            queue.at += 1;
        }
        None
    }
}

/// Multimap from numbers to values that is usually small, for example the open blocks of a response.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    few: Vec<(u64, T)>,
    /// All values, once there were more than [`FEW`]. The second number orders the values of one number by age.
    many: BTreeMap<(u64, u64), T>,
    pushed: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { few: Vec::new(), many: BTreeMap::new(), pushed: 0 }
    }
}

impl<T> Slots<T> {
    /// Adds a value, behind the other values of the same number.
    #[inline]
    pub fn push(&mut self, number: u64, value: T) {
        if self.many.is_empty() && self.few.len() < FEW {
            self.few.push((number, value));
        } else {
            self.push_into_many(number, value);
        }
    }

    #[cold]
    fn push_into_many(&mut self, number: u64, value: T) {
        for (number, value) in self.few.drain(..).chain([(number, value)]) {
            self.pushed += 1;
            self.many.insert((number, self.pushed), value);
        }
    }

    /// Returns the oldest value of a number; `None` if there is none.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        if self.many.is_empty() {
            return self.few.iter_mut().find(|slot| slot.0 == number).map(|slot| &mut slot.1);
        }
        self.many.range_mut((number, 0)..=(number, u64::MAX)).next().map(|slot| slot.1)
    }

    /// Removes and returns the oldest value of a number; `None` if there is none.
    #[inline]
    pub fn remove(&mut self, number: u64) -> Option<T> {
        if self.many.is_empty() {
            let at = self.few.iter().position(|slot| slot.0 == number)?;
            return Some(self.few.remove(at).1);
        }
        // The oldest entry of a number has the lowest second key.
        let key = *self.many.range((number, 0)..=(number, u64::MAX)).next()?.0;
        self.many.remove(&key)
    }

    /// Removes all values: in insertion order while there are few, otherwise ordered by number.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let few = std::mem::take(&mut self.few).into_iter().map(|slot| slot.1);
        few.chain(std::mem::take(&mut self.many).into_values())
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queue_position_is_taken_once() {
        let mut queues = Queues::default();
        for (position, name) in ["a", "b", "a", "a"].into_iter().enumerate() {
            queues.push(IndexKey::of(name), position);
        }
        let mut taken = [false; 4];
        for expected in [Some(0), Some(2), Some(3), None] {
            let found = queues.earliest(IndexKey::of("a"), |position| !taken[position]);
            assert_eq!(found, expected);
            if let Some(position) = found {
                taken[position] = true;
            }
        }
        assert_eq!(queues.earliest(IndexKey::of("c"), |_| true), None);
    }

    #[test]
    fn slots_find_few_and_many_values_by_number() {
        for count in [3_u64, 100] {
            let mut slots = Slots::default();
            (0..count).for_each(|number| slots.push(number, number * 10));
            slots.push(1, 11);
            assert_eq!(slots.remove(1), Some(10));
            assert_eq!(slots.get_mut(1), Some(&mut 11));
            assert_eq!(slots.remove(count), None);
            assert_eq!(slots.drain().count() as u64, count);
            assert!(slots.is_empty());
        }
    }

    proptest! {
        #[test]
        fn index_agrees_with_a_linear_scan(names in prop::collection::vec("[a-h]{1,2}", 0..60)) {
            let index: Index = names.iter().map(|name| IndexKey::of(name.as_str())).collect();
            for name in names.iter().map(String::as_str).chain(["z"]) {
                prop_assert_eq!(index.first(IndexKey::of(name)), names.iter().position(|known| known == name));
                prop_assert_eq!(index.last(IndexKey::of(name)), names.iter().rposition(|known| known == name));
            }
        }
    }
}
