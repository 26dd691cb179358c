//! Fingerprints of the sections of a prompt, by which the cause of a missed prompt cache is found.
//!
//! Providers cache beginnings of prompts: tools first, then instructions, then turns. A section that differs from the
//! request before makes the cache miss from there on.

use std::fmt;

/// Turns whose fingerprints are kept. What changes a prompt mostly stands at its beginning.
pub const MAX_TURNS: usize = 256;

/// Fingerprints of the sections of one prompt, in the order in which providers cache them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptSections {
    /// Fingerprint of the tools.
    pub tools: u64,
    /// Fingerprint of the instructions.
    pub instructions: u64,
    /// Fingerprints of the first [`MAX_TURNS`] turns.
    pub turns: Vec<u32>,
}

/// Section of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptSection {
    /// Declarations of tools.
    Tools,
    /// Instructions: system prompt and developer messages before the first turn.
    Instructions,
    /// Turn with this number; the first is 1.
    Turn(usize),
}

impl PromptSections {
    /// Returns the first section in which an earlier prompt differs. `None` if one is the beginning of the other.
    pub fn first_change(&self, earlier: &PromptSections) -> Option<PromptSection> {
        if self.tools != earlier.tools {
            return Some(PromptSection::Tools);
        }
        if self.instructions != earlier.instructions {
            return Some(PromptSection::Instructions);
        }
        let differs = self.turns.iter().zip(&earlier.turns).position(|(now, before)| now != before);
        differs.map(|at| PromptSection::Turn(at + 1))
    }

    /// Returns the number of leading sections that an earlier prompt has in common with this one.
    pub fn shared(&self, earlier: &PromptSections) -> usize {
        match self.first_change(earlier) {
            Some(PromptSection::Tools) => 0,
            Some(PromptSection::Instructions) => 1,
            Some(PromptSection::Turn(number)) => 1 + number,
            None => 2 + self.turns.len().min(earlier.turns.len()),
        }
    }
}

impl PromptSection {
    /// Returns the label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            PromptSection::Tools => "tools",
            PromptSection::Instructions => "instructions",
            PromptSection::Turn(_) => "turn",
        }
    }
}

impl fmt::Display for PromptSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PromptSection::Turn(number) => write!(f, "turn {number}"),
            other => f.write_str(other.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_sections_name_the_first_change() {
        let sections = |tools, instructions, turns: &[u32]| PromptSections {
            tools,
            instructions,
            turns: turns.to_vec(),
        };
        let now = sections(1, 2, &[3, 4, 5]);
        for (earlier, change, shared) in [
            (sections(0, 2, &[3, 4]), Some("tools"), 0),
            (sections(1, 0, &[3, 4]), Some("instructions"), 1),
            (sections(1, 2, &[0, 4]), Some("turn 1"), 2),
            (sections(1, 2, &[3, 0]), Some("turn 2"), 3),
            (sections(1, 2, &[3, 4]), None, 4),
            (sections(1, 2, &[3, 4, 5, 6]), None, 5),
            (sections(1, 2, &[]), None, 2),
        ] {
            let found = now.first_change(&earlier);
            assert_eq!(found.map(|section| section.to_string()).as_deref(), change);
            assert_eq!(now.shared(&earlier), shared);
        }
    }
}
