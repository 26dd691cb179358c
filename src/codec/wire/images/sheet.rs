//! Documentation table of image families in docs/images.md, generated from the rules that the code enforces.

use crate::canonical::image::{ImageDelivery, ImageFamily, ImageRules, Sizes};

/// Returns the table of families as Markdown.
pub fn family_table() -> String {
    let mut out = String::from(
        "| Family | `size` | `image_size` | Input images | Input formats | Maximum size | `n` | Response |\n\
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
            format!("1 to {}", rules.max_images),
            match rules.delivery {
                ImageDelivery::Inline => "`b64_json` always".to_owned(),
                ImageDelivery::AsRequested => "`url`, or as requested".to_owned(),
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
        Sizes::Adaptive(word) => format!("`{word}`: that of the input image"),
        Sizes::Any => "any that the provider accepts".to_owned(),
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
        text.push_str(&format!(", {together} with generated images"));
    }
    text
}
