//! `model.fallback` of routes.toml: models as a graph, whose cycles are faults, and the targets that fallbacks add to a model.
//!
//! All of it is linear in the number of models and fallbacks: who may send a text to be checked must not be able to make the
//! check take long.

use std::collections::{HashMap, HashSet};

use super::models::{Draft, Roots, api_set, is_same, wrong_at};
use super::report::closest;
use routing::route::Target;
use routing::route::pick::MAX_TARGETS;

/// Longest cycle whose models a message lists.
const MAX_SHOWN: usize = 100;
/// Maximum number of targets of all models together, those of fallbacks included. Each takes some 300 bytes.
const MAX_ALL_TARGETS: usize = 1_000_000;
/// Maximum number of fallbacks that are followed for all models together: a fallback counts for each model that leads to it.
const MAX_STEPS: usize = 4_000_000;

/// Models and their fallbacks: an edge leads from a model to one that replaces it.
struct FallbackGraph {
    /// Replacements of each model, each once, in the order of the configuration.
    next: Vec<Vec<usize>>,
    /// Component of each model: models of one component can reach each other.
    component: Vec<usize>,
    /// Number of models of each component.
    sizes: Vec<usize>,
}

/// Model that is visited, with the number of its edges that were followed.
type Visit = (usize, usize);

impl FallbackGraph {
    fn new(drafts: &[Draft], by_id: &HashMap<&str, usize>) -> Self {
        let next: Vec<Vec<usize>> = drafts
            .iter()
            .map(|draft| {
                let mut seen = HashSet::new();
                let known = draft.fallback.iter().filter_map(|(name, _)| by_id.get(&**name).copied());
                known.filter(|other| seen.insert(*other)).collect()
            })
            .collect();
        let component = components(&next);
        let mut sizes = vec![0; next.len()];
        for size in component.iter().copied() {
            if let Some(size) = sizes.get_mut(size) {
                *size += 1;
            }
        }
        FallbackGraph { next, component, sizes }
    }

    fn edge(&self, (from, number): Visit) -> Option<usize> {
        self.next.get(from)?.get(number).copied()
    }

    fn size(&self, model: usize) -> usize {
        let size = self.component.get(model).and_then(|component| self.sizes.get(*component));
        size.copied().unwrap_or(0)
    }

    /// Returns whether the edge from `model` to `other` is one of a cycle.
    fn is_cyclic(&self, model: usize, other: usize) -> bool {
        self.component.get(model) == self.component.get(other)
    }

    /// Returns a path from a model to another one of its component, both included.
    fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let (mut seen, mut path): (_, Vec<Visit>) = (HashSet::from([from]), vec![(from, 0)]);
        while let Some(last) = path.last_mut() {
            if last.0 == to {
                break;
            }
            let edge = self.edge(*last);
            last.1 += 1;
            match edge {
                Some(next) if self.is_cyclic(from, next) && seen.insert(next) => path.push((next, 0)),
                Some(_) => {}
                None => _ = path.pop(),
            }
        }
        path.into_iter().map(|(model, _)| model).collect()
    }
}

/// Search for what is behind each model, with one bound for all searches.
struct FallbackSearch<'g> {
    graph: &'g FallbackGraph,
    /// Number of the last search that has found each model.
    found_in: Vec<usize>,
    searches: usize,
    /// Edges that all further searches may follow.
    left: usize,
}

impl FallbackSearch<'_> {
    /// Returns the fallbacks of a model, transitively and nearest first. `None` if all searches together have followed more than
    /// [`MAX_STEPS`] edges.
    fn behind(&mut self, model: usize) -> Option<Vec<usize>> {
        self.searches += 1;
        let mut found = Vec::new();
        let mut path: Vec<Visit> = vec![(model, 0)];
        while let Some(last) = path.last_mut() {
            let edge = self.graph.edge(*last);
            last.1 += 1;
            let Some(next) = edge else {
                path.pop();
                continue;
            };
            self.left = self.left.checked_sub(1)?;
            if let Some(search) = self.found_in.get_mut(next).filter(|search| **search != self.searches) {
                *search = self.searches;
                found.push(next);
                path.push((next, 0));
            }
        }
        Some(found)
    }
}

/// Returns the number of the strongly connected component of each node (R. Tarjan, "Depth-First Search and Linear Graph
/// Algorithms", 1972), without recursion: a chain of fallbacks may be as long as the file.
fn components(next: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let count = next.len();
    let (mut order, mut low, mut component) = (vec![NONE; count], vec![NONE; count], vec![NONE; count]);
    let (mut visited, mut components) = (0, 0);
    let mut open: Vec<usize> = Vec::new();
    let get = |list: &[usize], at: usize| list.get(at).copied().unwrap_or(NONE);
    fn set(list: &mut [usize], at: usize, value: usize) {
        if let Some(slot) = list.get_mut(at) {
            *slot = value;
        }
    }
    for root in 0..count {
        if get(&order, root) != NONE {
            continue;
        }
        let mut path: Vec<Visit> = vec![(root, 0)];
        while let Some(last) = path.last_mut() {
            let (node, edge) = *last;
            last.1 += 1;
            if edge == 0 {
                set(&mut order, node, visited);
                set(&mut low, node, visited);
                visited += 1;
                open.push(node);
            }
            match next.get(node).and_then(|edges| edges.get(edge)).copied() {
                Some(other) if get(&order, other) == NONE => path.push((other, 0)),
                Some(other) => {
                    // A node of a finished component is not reachable from here and back.
                    if get(&component, other) == NONE {
                        let least = get(&low, node).min(get(&order, other));
                        set(&mut low, node, least);
                    }
                }
                None => {
                    path.pop();
                    if let Some((before, _)) = path.last() {
                        let least = get(&low, *before).min(get(&low, node));
                        set(&mut low, *before, least);
                    }
                    if get(&low, node) == get(&order, node) {
                        while let Some(member) = open.pop() {
                            set(&mut component, member, components);
                            if member == node {
                                break;
                            }
                        }
                        components += 1;
                    }
                }
            }
        }
    }
    component
}

/// Resolves the fallbacks: returns the targets that each model gets from its fallbacks, transitively, in the order of the
/// models. Empty if a fallback is not valid, which is reported.
pub(super) fn resolve(roots: Roots<'_, '_>, drafts: &[Draft]) -> Vec<Vec<Target>> {
    let mut by_id: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        by_id.entry(&*draft.model.id).or_insert(index);
    }
    let graph = FallbackGraph::new(drafts, &by_id);
    let apis: Vec<u32> = drafts.iter().map(|draft| api_set(draft.model.targets.iter())).collect();
    let apis_of = |index: usize| apis.get(index).copied().unwrap_or(0);
    let mut sound = true;
    for draft in drafts {
        // That of two models with one id that counts.
        let Some(model) = by_id.get(&*draft.model.id).copied() else { continue };
        for (name, mark) in &draft.fallback {
            let wrong = match by_id.get(&**name).copied() {
                None => Some(unknown(roots, draft, drafts, name)),
                Some(other) if graph.is_cyclic(model, other) => {
                    Some((cycle(&graph, drafts, model, other), None))
                }
                Some(other) if apis_of(other) & apis_of(model) == 0 => Some((
                    format!("\"{name}\" shares no API with this model"),
                    Some("a fallback replaces the model and must share an API with it".to_owned()),
                )),
                Some(_) => None,
            };
            if let Some((message, hint)) = wrong {
                sound = false;
                wrong_at(roots, draft.file, mark, message, hint);
            }
        }
    }
    // Only if all fallbacks are valid: the targets of a cycle have no order, and further faults would mislead.
    if !sound {
        return Vec::new();
    }
    let (mut room, mut added) = (MAX_ALL_TARGETS, Vec::with_capacity(drafts.len()));
    let found_in = vec![0; drafts.len()];
    let mut search = FallbackSearch { graph: &graph, found_in, searches: 0, left: MAX_STEPS };
    for (index, draft) in drafts.iter().enumerate() {
        let own = draft.model.targets.len();
        let Some(others) = search.behind(index) else {
            let fault = format!("the fallbacks of all models together are more than {MAX_STEPS}");
            wrong_at(roots, draft.file, &draft.targets, fault, None);
            return Vec::new();
        };
        let more = if own <= MAX_TARGETS { targets_of(drafts, draft, &others) } else { None };
        if more.is_none() {
            let fault =
                format!("a model can have at most {MAX_TARGETS} targets, including those of its fallback");
            wrong_at(roots, draft.file, &draft.targets, fault, None);
        }
        let more = more.unwrap_or_default();
        let Some(left) = room.checked_sub(own.saturating_add(more.len())) else {
            let fault = format!("all models together have more than {MAX_ALL_TARGETS} targets");
            wrong_at(roots, draft.file, &draft.targets, fault, None);
            return Vec::new();
        };
        room = left;
        added.push(more);
    }
    added
}

/// Returns the fault of a fallback that no model has, with its hint.
fn unknown(roots: Roots<'_, '_>, draft: &Draft, drafts: &[Draft], name: &str) -> (String, Option<String>) {
    let is_counted_only = roots.get(draft.file).is_some_and(|root| root.has_too_many_faults());
    let names = drafts.iter().filter(|_| !is_counted_only).map(|draft| &*draft.model.id);
    let hint = closest(name, names).map(|meant| format!("did you mean \"{meant}\"?"));
    (format!("no model is named \"{name}\""), hint)
}

/// Describes the cycle from a model via its fallback `through` back to the model.
fn cycle(graph: &FallbackGraph, drafts: &[Draft], model: usize, through: usize) -> String {
    let size = graph.size(model);
    if size > MAX_SHOWN {
        return format!("the fallback forms a cycle among {size} models");
    }
    let steps = std::iter::once(model).chain(graph.path(through, model));
    let names: Vec<String> =
        steps.filter_map(|step| Some(format!("\"{}\"", drafts.get(step)?.model.id))).collect();
    format!("the fallback forms a cycle: {}", names.join(" -> "))
}

/// Returns the targets of the fallbacks of a model. Each tier of a fallback becomes a further tier of the model. `None` if the
/// model gets more than [`MAX_TARGETS`] targets.
fn targets_of(drafts: &[Draft], draft: &Draft, others: &[usize]) -> Option<Vec<Target>> {
    let own = &draft.model.targets;
    let mut more: Vec<Target> = Vec::new();
    let mut tier = own.iter().map(|target| target.handle.tier).max().unwrap_or(0);
    for other in others.iter().filter_map(|other| drafts.get(*other)) {
        let mut ordered: Vec<&Target> = other.model.targets.iter().collect();
        ordered.sort_by_key(|target| target.handle.tier);
        let mut last = None;
        for target in ordered {
            // A target that was tried already would only fail again.
            if own.iter().chain(&more).any(|before| is_same(before, target)) {
                continue;
            }
            // Each tier of a fallback comes after all tiers before it, whatever its configured number.
            if last.replace(target.handle.tier) != Some(target.handle.tier) {
                tier = tier.saturating_add(1);
            }
            if own.len() + more.len() >= MAX_TARGETS {
                return None;
            }
            let mut handle = target.handle.clone();
            handle.tier = tier;
            // Who answers is charged. A fallback without a price has that of the model that was requested.
            let own = target.price.clone().or_else(|| Some(other.model.price.clone()));
            let price = own.filter(|price| draft.pays_answered && !price.is_empty());
            let price_origin = other.model.price_origin_of(target);
            let mut target = target.clone();
            target.handle = handle;
            target.price = price;
            target.price_origin = price_origin;
            target.drained_weight = None;
            more.push(target);
        }
    }
    Some(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_the_cycles_of_a_graph() {
        let of = |next: &[&[usize]]| {
            let next: Vec<Vec<usize>> = next.iter().map(|edges| edges.to_vec()).collect();
            components(&next)
        };
        let of_two = of(&[&[1], &[2], &[0, 3], &[4], &[3], &[0]]);
        assert!(of_two[0] == of_two[1] && of_two[1] == of_two[2] && of_two[3] == of_two[4], "{of_two:?}");
        assert!(of_two[0] != of_two[3] && of_two[5] != of_two[0], "{of_two:?}");
        let line = of(&[&[1, 2], &[2], &[]]);
        assert!(line[0] != line[1] && line[1] != line[2] && line[0] != line[2], "{line:?}");
    }

    #[test]
    fn components_of_a_long_chain_need_no_stack() {
        let count = 300_000;
        let chain: Vec<Vec<usize>> = (1..=count).map(|next| vec![next % count]).collect();
        assert!(components(&chain).iter().all(|component| *component == 0));
    }
}
