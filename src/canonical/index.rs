//! Finds keys in a list that grows, in constant time however long it becomes.
//!
//! Requests and answers name their calls, tools and members by texts that a client or a provider chooses, as many as it
//! likes. Whoever looks for one of many does it here, and not by a scan: a scan for each of n is n² comparisons.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

/// Keys up to which a scan is quicker than a hash map, and needs no allocation.
const FEW: usize = 8;

/// A key, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// The key of a text, a number, or several of them in a tuple. Two keys of different things differ: the hash has
    /// 64 bits and a seed of the process, so that nobody can send keys that collide.
    #[inline]
    pub fn of(what: impl Hash) -> Key {
        static STATE: LazyLock<RandomState> = LazyLock::new(Default::default);
        Key(STATE.hash_one(what))
    }
}

/// The first and the last position of each key.
type Ends = HashMap<Key, (usize, usize), RandomState>;

/// Positions of keys. A key may stand at several positions.
#[derive(Clone, Debug, Default)]
pub struct Index {
    few: SmallVec<[(Key, usize); FEW]>,
    /// The first and the last position of each key, once there are many.
    many: Option<Box<Ends>>,
    length: usize,
}

impl Index {
    /// Appends a key: its position is how many there were before.
    #[inline]
    pub fn push(&mut self, key: Key) {
        self.put(key, self.length);
    }

    /// A key stands at this position as well.
    #[inline]
    pub fn put(&mut self, key: Key, position: usize) {
        self.length += 1;
        if self.length <= FEW {
            self.few.push((key, position));
        } else {
            self.put_into_many(key, position);
        }
    }

    #[cold]
    fn put_into_many(&mut self, key: Key, position: usize) {
        let few = &self.few;
        let many = self.many.get_or_insert_with(|| {
            let mut many = Box::new(HashMap::with_capacity_and_hasher(4 * FEW, RandomState::default()));
            few.iter().for_each(|(key, position)| note(&mut many, *key, *position));
            many
        });
        note(many, key, position);
    }

    /// Appends a key that has not been there before. False where it has.
    #[inline]
    pub fn add(&mut self, key: Key) -> bool {
        let new = !self.has(key);
        if new {
            self.push(key);
        }
        new
    }

    /// The first position of a key.
    #[inline]
    pub fn first(&self, key: Key) -> Option<usize> {
        match &self.many {
            None => self.few.iter().filter(|known| known.0 == key).map(|known| known.1).min(),
            Some(many) => many.get(&key).map(|place| place.0),
        }
    }

    /// The last position of a key.
    #[inline]
    pub fn last(&self, key: Key) -> Option<usize> {
        match &self.many {
            None => self.few.iter().filter(|known| known.0 == key).map(|known| known.1).max(),
            Some(many) => many.get(&key).map(|place| place.1),
        }
    }

    /// Whether a key is there.
    #[inline]
    pub fn has(&self, key: Key) -> bool {
        match &self.many {
            None => self.few.iter().any(|known| known.0 == key),
            Some(many) => many.contains_key(&key),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many = None;
        self.length = 0;
    }
}

fn note(many: &mut HashMap<Key, (usize, usize), RandomState>, key: Key, position: usize) {
    let place = many.entry(key).or_insert((position, position));
    *place = (place.0.min(position), place.1.max(position));
}

impl FromIterator<Key> for Index {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut index = Index::default();
        keys.into_iter().for_each(|key| index.push(key));
        index
    }
}

/// Positions of keys, each taken once, the earliest first.
#[derive(Debug, Default)]
pub struct Queues {
    /// Positions that wait under a key, the earliest last.
    waiting: HashMap<Key, Queue, RandomState>,
}

#[derive(Debug, Default)]
struct Queue {
    positions: SmallVec<[usize; 2]>,
    /// Positions before this one were taken.
    at: usize,
}

impl Queues {
    /// A position waits under a key, behind those that wait there already. It may wait under several keys.
    pub fn push(&mut self, key: Key, position: usize) {
        self.waiting.entry(key).or_default().positions.push(position);
    }

    /// The earliest position under a key that still waits. Those of which `waits` says that they do not are left out
    /// for good.
    pub fn earliest(&mut self, key: Key, waits: impl Fn(usize) -> bool) -> Option<usize> {
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

/// Values under numbers, of which few are there at a time as a rule: the blocks of an answer that are open.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    few: Vec<(u64, T)>,
    /// All of them, once there were many. The second number tells those with the same number apart, by their age.
    many: BTreeMap<(u64, u64), T>,
    pushed: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { few: Vec::new(), many: BTreeMap::new(), pushed: 0 }
    }
}

impl<T> Slots<T> {
    /// Puts a value under a number, behind those that are there already.
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

    /// The earliest value under a number.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        if self.many.is_empty() {
            return self.few.iter_mut().find(|slot| slot.0 == number).map(|slot| &mut slot.1);
        }
        self.many.range_mut((number, 0)..=(number, u64::MAX)).next().map(|slot| slot.1)
    }

    /// Takes out the earliest value under a number.
    #[inline]
    pub fn remove(&mut self, number: u64) -> Option<T> {
        if self.many.is_empty() {
            let at = self.few.iter().position(|slot| slot.0 == number)?;
            return Some(self.few.remove(at).1);
        }
        let key = *self.many.range((number, 0)..=(number, u64::MAX)).next()?.0;
        self.many.remove(&key)
    }

    /// Takes out all values: in the order in which they came, or, where they are many, in that of their numbers.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let few = std::mem::take(&mut self.few).into_iter().map(|slot| slot.1);
        few.chain(std::mem::take(&mut self.many).into_values())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_position_is_taken_once() {
        let mut queues = Queues::default();
        for (position, name) in ["a", "b", "a", "a"].into_iter().enumerate() {
            queues.push(Key::of(name), position);
        }
        let mut taken = [false; 4];
        for expected in [Some(0), Some(2), Some(3), None] {
            let found = queues.earliest(Key::of("a"), |position| !taken[position]);
            assert_eq!(found, expected);
            if let Some(position) = found {
                taken[position] = true;
            }
        }
        assert_eq!(queues.earliest(Key::of("c"), |_| true), None);
    }

    #[test]
    fn values_are_found_under_their_numbers_however_many_there_are() {
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
        fn an_index_says_what_a_scan_says(names in prop::collection::vec("[a-h]{1,2}", 0..60)) {
            let index: Index = names.iter().map(|name| Key::of(name.as_str())).collect();
            for name in names.iter().map(String::as_str).chain(["z"]) {
                prop_assert_eq!(index.first(Key::of(name)), names.iter().position(|known| known == name));
                prop_assert_eq!(index.last(Key::of(name)), names.iter().rposition(|known| known == name));
            }
        }
    }
}
