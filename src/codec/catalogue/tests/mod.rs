//! Tests of the embedded catalogue, of names and of files laid over it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod embedded;
mod overlay;
mod refusal;

use super::Catalogue;

/// A catalogue that is complete and small.
pub(super) const BASE: &str = r#"
schema = 1
edition = 2026-11-01

[[provider]]
id = "maker"
strip = ["us.", "maker."]
source = "test"

[[provider]]
id = "cloud"
same_as = "maker"
source = "test"

[[family]]
id = "old"
match = ["model-1"]
guess = ["model-"]
reasoning = "effort"
efforts = ["low", "high"]
off = "none"
default = "none"
forced = true
status = "documented"
source = "page"

[[family]]
id = "new"
like = "old"
match = ["model-2"]
guess = ["model-2"]
efforts = ["medium"]
default = "?"
source = "page"

[[model]]
id = "model-1"
family = "old"
context = 1000
[[model.at]]
provider = "maker"
retires = 2027-01-31
successor = "model-2"
[[model.at.price]]
until = 2026-12-31
input = 1
output = 2
tiers = { flex = 0.5 }
source = "page"
[[model.at.price]]
from = 2027-01-01
input = 3
output = 4
source = "page"

[[model]]
id = "model-2"
family = "new"
forced = false
[[model.at]]
provider = "maker"
[[model.at.price]]
input = 10
output = 20
source = "page"

[[alias]]
name = "model-1"
provider = "maker"
model = "model-2"
from = 2027-02-01
source = "page"
"#;

/// Compiles [`BASE`] with files laid over it.
pub(super) fn over(files: &[&str]) -> Result<Catalogue, String> {
    let mut all = vec![("base", BASE)];
    all.extend(files.iter().map(|text| ("over", *text)));
    Catalogue::read(&all)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}
