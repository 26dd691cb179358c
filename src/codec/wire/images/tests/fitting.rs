//! Tests of every setting with every family: accepted, converted, refused, or dropped with a warning.

use serde_json::{Value, json};

use super::super::ask::encode_call;
use super::super::fit::fit;
use super::{asked, base64, png, refused};
use crate::canonical::image::ImageFamily::{
    GptImage, GptImageFree, Multimodal, MultimodalPro, Other, Qwen, QwenEdit, Seededit3, Seedream3,
    Seedream4, Seedream45,
};
use crate::canonical::image::{ImageDialect, ImageFamily, ImageShape};

/// Returns the dialect of a family at its usual provider.
fn dialect(family: ImageFamily) -> ImageDialect {
    let (shape, extensions): (ImageShape, &[&str]) = match family {
        Multimodal | MultimodalPro => (ImageShape::Parts, &[]),
        Seedream3 | Seededit3 | Seedream4 | Seedream45 => (ImageShape::Flat, &["output_format"]),
        GptImage | GptImageFree => (ImageShape::List, &["background", "output_format", "user"]),
        Qwen | QwenEdit => (ImageShape::Turns, &["negative_prompt"]),
        Other => (ImageShape::Instances, &["negative_prompt"]),
    };
    ImageDialect {
        shape,
        family,
        make: "/make".into(),
        edit: "/edit".into(),
        tasks: "/tasks/".into(),
        max_images: 1,
        sends_response_format: false,
        extensions,
    }
}

/// Returns the upstream request, and the names of dropped settings.
fn told(family: ImageFamily, members: Value) -> (Value, String) {
    let mut members = members;
    if family.rules().inputs.0 > 0 {
        members["image"] = json!(base64(&png(64, 64)));
    }
    let mut request =
        asked(family, members.clone()).unwrap_or_else(|error| panic!("{family:?} {members}: {error:?}"));
    let dialect = dialect(family);
    fit(&mut request, &dialect, &family.rules()).unwrap();
    let body = encode_call(&request, &dialect, "m", 1).body;
    let lost: Vec<String> = request
        .lost_settings
        .iter()
        .map(|lost| match &lost.instead {
            Some(instead) => format!("{} {instead}", lost.field),
            None => lost.field.clone(),
        })
        .collect();
    (serde_json::from_slice(&body).unwrap_or_default(), lost.join(", "))
}

#[test]
fn image_size_is_mapped_to_what_the_family_supports() {
    for (family, step, pointer, value, lost) in [
        // This family has one tier and no setting for it.
        (Multimodal, "1K", "/generationConfig/imageConfig", Value::Null, ""),
        (MultimodalPro, "1K", "/generationConfig/imageConfig/imageSize", json!("1K"), ""),
        (MultimodalPro, "2k", "/generationConfig/imageConfig/imageSize", json!("2K"), ""),
        (
            MultimodalPro,
            "3K",
            "/generationConfig/imageConfig/imageSize",
            json!("4K"),
            "image_size 3K made as 4K",
        ),
        (MultimodalPro, "4K", "/generationConfig/imageConfig/imageSize", json!("4K"), ""),
        (Seedream4, "1K", "/size", json!("1K"), ""),
        (Seedream4, "2K", "/size", json!("2K"), ""),
        (Seedream4, "3K", "/size", json!("3072x3072"), ""),
        (Seedream4, "4K", "/size", json!("4K"), ""),
        (Seedream45, "2K", "/size", json!("2K"), ""),
        (Seedream45, "3K", "/size", json!("3072x3072"), ""),
        (Seedream45, "4K", "/size", json!("4K"), ""),
    ] {
        let (body, found) = told(family, json!({"image_size": step}));
        assert_eq!(body.pointer(pointer).cloned().unwrap_or_default(), value, "{family:?} {step}: {body}");
        assert_eq!(found, lost, "{family:?} {step}");
    }
    for family in ImageFamily::ALL.into_iter().filter(|family| *family != Other && *family != GptImageFree) {
        let mut members = json!({"image_size": "5K"});
        if family.rules().inputs.0 > 0 {
            members["image"] = json!(base64(&png(64, 64)));
        }
        assert_eq!(refused(family, members), "image_size", "{family:?}");
    }
    for (family, step) in
        [(Multimodal, "2K"), (Seedream45, "1K"), (Seedream3, "1K"), (GptImage, "1K"), (Qwen, "2K")]
    {
        assert_eq!(refused(family, json!({"image_size": step})), "image_size", "{family:?} {step}");
    }
    // A size overrides the tier.
    let (body, lost) = told(Seedream4, json!({"size": "2048x2048", "image_size": "4K"}));
    assert_eq!((&body["size"], lost.as_str()), (&json!("2048x2048"), "image_size"));
}

#[test]
fn quality_is_sent_or_reported_as_lost() {
    for quality in ["low", "medium", "high"] {
        let (body, lost) = told(GptImage, json!({"quality": quality}));
        assert_eq!((&body["quality"], lost.as_str()), (&json!(quality), ""));
        for family in
            [Multimodal, MultimodalPro, Seedream3, Seededit3, Seedream4, Seedream45, Qwen, QwenEdit, Other]
        {
            let (body, lost) = told(family, json!({"quality": quality}));
            assert!(!body.to_string().contains("quality"), "{family:?}");
            assert_eq!(lost, "quality", "{family:?}");
        }
    }
}

#[test]
fn settings_unsupported_by_the_family_are_reported_as_lost() {
    let all = json!({"temperature": 0.5, "top_p": 0.5, "seed": 1, "watermark": true, "mime_type": "image/jpeg",
        "response_modalities": "text, image", "negative_prompt": "x", "user": "u", "nonsense": {"a": 1}});
    for (family, lost) in [
        (Multimodal, "watermark, mime_type, negative_prompt, nonsense"),
        (MultimodalPro, "watermark, mime_type, negative_prompt, nonsense"),
        (Seedream3, "temperature, top_p, mime_type, response_modalities, negative_prompt, nonsense"),
        (Seededit3, "temperature, top_p, mime_type, response_modalities, negative_prompt, nonsense"),
        (Seedream4, "temperature, top_p, seed, mime_type, response_modalities, negative_prompt, nonsense"),
        (Seedream45, "temperature, top_p, seed, mime_type, response_modalities, negative_prompt, nonsense"),
        (GptImage, "temperature, top_p, seed, watermark, response_modalities, negative_prompt, nonsense"),
        (Qwen, "temperature, top_p, mime_type, response_modalities, nonsense"),
        (QwenEdit, "temperature, top_p, mime_type, response_modalities, nonsense"),
        (Other, "temperature, top_p, watermark, response_modalities, nonsense"),
    ] {
        let (body, found) = told(family, all.clone());
        assert_eq!(found, lost, "{family:?}");
        assert!(!body.to_string().contains("nonsense"), "{family:?}: {body}");
    }
    // Requesting the default behavior is not a loss.
    for family in [Multimodal, Qwen] {
        let (_, lost) = told(
            family,
            json!({"mime_type": "image/png", "watermark": false, "response_modalities": ["IMAGE"]}),
        );
        assert_eq!(lost, "", "{family:?}");
    }
    let (body, _) = told(GptImage, json!({"mime_type": "image/jpeg"}));
    assert_eq!(body["output_format"], "jpeg");
    let (body, _) = told(Multimodal, json!({"response_modalities": "image"}));
    assert_eq!(body["generationConfig"]["responseModalities"], json!(["IMAGE"]));
    let (body, _) = told(Multimodal, json!({"response_modalities": ["TEXT", "IMAGE"]}));
    assert_eq!(body["generationConfig"]["responseModalities"], json!(["TEXT", "IMAGE"]));
    for wrong in [json!("text"), json!("video"), json!([]), json!(""), json!(1)] {
        assert_eq!(
            refused(Multimodal, json!({"response_modalities": wrong})),
            "response_modalities",
            "{wrong}"
        );
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    for (field, good, bad) in [
        (
            "temperature",
            vec![json!(0), json!(2), json!(0.7)],
            vec![json!(-0.1), json!(2.1), json!("1"), json!(true)],
        ),
        ("top_p", vec![json!(0), json!(1), json!(0.98)], vec![json!(-0.1), json!(1.1), json!("x")]),
        ("seed", vec![json!(0), json!(2_147_483_647)], vec![json!(-1), json!(2_147_483_648_u32), json!(1.5)]),
        ("guidance_scale", vec![json!(1), json!(10), json!(5.5)], vec![json!(0.9), json!(10.1)]),
    ] {
        for value in good {
            assert!(asked(Seedream3, json!({field: value})).is_ok(), "{field} {value}");
        }
        for value in bad {
            assert_eq!(refused(Seedream3, json!({field: value})), field, "{field} {value}");
        }
    }
    for family in [Seedream3, Seededit3] {
        assert_eq!(told(family, json!({})).0["guidance_scale"], 2.5, "{family:?}");
        assert_eq!(told(family, json!({"guidance_scale": 7})).0["guidance_scale"], 7, "{family:?}");
    }
    assert!(told(Seedream4, json!({})).0.get("guidance_scale").is_none());
}

/// docs/specification.md, 8: a Seedream 4.x request and its response have at most fifteen images together.
#[test]
fn seedream_input_and_output_images_are_at_most_fifteen() {
    let picture = base64(&png(64, 64));
    for family in [Seedream4, Seedream45] {
        for (inputs, count, sequence, good) in [
            (0, 15, None, true),
            (0, 16, None, false),
            (5, 10, None, true),
            (5, 11, None, false),
            (1, 14, None, true),
            (1, 15, None, false),
            (5, 1, Some(4), true),
            (3, 3, Some(4), true),
            (4, 3, Some(4), false),
            (0, 4, Some(4), false),
        ] {
            let mut members = json!({"n": count});
            if inputs > 0 {
                members["image"] = json!(vec![picture.clone(); inputs]);
            }
            if let Some(most) = sequence {
                members["sequential_image_generation"] = json!("auto");
                members["sequential_image_generation_options"] = json!({"max_images": most});
            }
            if good {
                assert!(asked(family, members).is_ok(), "{family:?} {inputs} {count} {sequence:?}");
            } else {
                assert_eq!(refused(family, members), "n", "{family:?} {inputs} {count} {sequence:?}");
            }
        }
    }
}

#[test]
fn mask_is_refused_by_families_without_one() {
    let picture = base64(&png(64, 64));
    let members = json!({"image": picture, "mask": picture});
    for family in [Multimodal, Seededit3, Seedream4, QwenEdit] {
        let mut request = asked(family, members.clone()).unwrap();
        let error = fit(&mut request, &dialect(family), &family.rules()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("mask"), "{family:?}");
        // The task group sends a mask as one more image, if the model accepts several.
        let mut request = asked(family, members.clone()).unwrap();
        request.group = true;
        let fitted = fit(&mut request, &dialect(family), &family.rules());
        assert_eq!(fitted.is_ok(), family != Seededit3, "{family:?}");
        assert_eq!(request.images.len(), if family == Seededit3 { 1 } else { 2 });
    }
    let mut request = asked(GptImage, members).unwrap();
    fit(&mut request, &dialect(GptImage), &GptImage.rules()).unwrap();
    assert!(request.mask.is_some() && request.lost_settings.is_empty());
}

#[test]
fn task_group_accepts_its_own_sizes() {
    for (family, size, good) in [
        (Seedream4, "1328x1328", true),
        (Seedream4, "1024x1024", true),
        (Seedream4, "512x512", false),
        (Seedream4, "16384x1024", true),
        (Seedream4, "32768x512", false),
        (Seedream3, "1328x1328", true),
        (Qwen, "1328x1328", true),
        (Qwen, "1024x1024", false),
        (GptImage, "1328x1328", false),
        (GptImage, "1024x1024", true),
    ] {
        let mut request = super::read(json!({"prompt": "x", "size": size})).unwrap();
        request.group = true;
        assert_eq!(super::check(&mut request, &family.rules()).is_ok(), good, "{family:?} {size}");
        if good {
            assert_eq!(request.size.as_deref(), Some(size), "{family:?}");
        }
    }
    assert_eq!(refused(Seedream4, json!({"size": "1328x1328"})), "size");
}

/// docs/specification.md, 8: formats are checked by the file's bytes, not by its declared type.
#[test]
fn file_formats_are_accepted_by_family() {
    let jpeg = [&[0xff_u8, 0xd8, 0xff, 0xc0, 0, 17, 8, 0, 64, 0, 64, 3][..], &[0; 20]].concat();
    let webp = [&b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"[..], &[63, 0, 0, 63, 0, 0]].concat();
    let bmp = [&b"BM"[..], &[0; 12], &[40, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0]].concat();
    let tiff = [
        &b"II*\0\x08\0\0\0\x02\0"[..],
        &[0, 1, 3, 0, 1, 0, 0, 0, 64, 0, 0, 0],
        &[1, 1, 3, 0, 1, 0, 0, 0, 64, 0, 0, 0],
    ]
    .concat();
    let files = [
        ("png", png(64, 64)),
        ("jpeg", jpeg),
        ("webp", webp),
        ("gif", b"GIF89a\x40\0\x40\0".to_vec()),
        ("bmp", bmp),
        ("tiff", tiff),
    ];
    for (family, takes) in [
        (Multimodal, "png jpeg webp"),
        (MultimodalPro, "png jpeg webp"),
        (Seededit3, "png jpeg"),
        (Seedream4, "png jpeg"),
        (Seedream45, "png jpeg webp gif bmp tiff"),
        (GptImage, "png jpeg webp gif"),
        (QwenEdit, "png jpeg webp bmp tiff"),
    ] {
        for (kind, file) in &files {
            let members = json!({"image": format!("data:image/png;base64,{}", base64(file))});
            if takes.split(' ').any(|taken| taken == *kind) {
                let taken = asked(family, members);
                assert!(taken.is_ok(), "{family:?} {kind}: {:?}", taken.unwrap_err());
            } else {
                assert_eq!(refused(family, members), "image", "{family:?} {kind}");
            }
        }
    }
}
