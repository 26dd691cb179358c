//! The table of families as docs/images.md shows it, made from the rules themselves.

use crate::canonical::image::{Comes, ImageFamily, ImageRules, Sizes};

/// The table of families, as Markdown.
pub fn sheet() -> String {
    let mut out = String::from(
        "| Family | `size` | `image_size` | Images in | Of these | Largest | `n` | Answers with |\n\
         |---|---|---|---|---|--:|--:|---|\n",
    );
    for family in ImageFamily::ALL {
        let rules = family.rules();
        let cells = [
            rules.name.to_owned(),
            sizes(rules.sizes),
            rules.tiers.join(", "),
            inputs(&rules),
            rules.formats.iter().map(|picture| picture.name()).collect::<Vec<_>>().join(", "),
            format!("{} MB", rules.bytes >> 20),
            format!("1 to {}", rules.most),
            match rules.comes {
                Comes::Inline => "`b64_json`, always".to_owned(),
                Comes::AsAsked => "`url`, or as asked".to_owned(),
            },
        ];
        let cells = cells.map(|cell| {
            if family.rules().inputs.1 == 0 && cell.contains("PNG") { String::new() } else { cell }
        });
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

fn sizes(sizes: Sizes) -> String {
    match sizes {
        Sizes::Ratios(ratios) => format!("ratios {}", ratios.join(", ")),
        Sizes::Pixels(known, words) => [known, words].concat().join(", "),
        Sizes::Adaptive(word) => format!("`{word}`: that of the image"),
        Sizes::Any => "any that the provider takes".to_owned(),
    }
}

fn inputs(rules: &ImageRules) -> String {
    let (least, most) = rules.inputs;
    let mut text = match (least, most) {
        (_, 0) => "none".to_owned(),
        (least, most) if least == most => format!("{most}"),
        (least, most) => format!("{least} to {most}"),
    };
    if let Some(together) = rules.together {
        text.push_str(&format!(", {together} with those that are made"));
    }
    text
}
