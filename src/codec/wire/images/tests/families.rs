use serde_json::json;

use super::{asked, base64, png, refused};
use crate::canonical::image::{ImageFamily, Sizes};

#[test]
fn family_accepts_exactly_the_sizes_of_the_specification() {
    for (family, sizes) in [
        (ImageFamily::Multimodal, "1:1 3:2 2:3 3:4 4:3 4:5 5:4 9:16 16:9 21:9"),
        (ImageFamily::Seedream3, "1024x1024 1152x864 864x1152 1280x720 720x1280 1248x832 832x1248 1512x648"),
        (
            ImageFamily::Seedream4,
            "2048x2048 2304x1728 1728x2304 2560x1440 1440x2560 2496x1664 1664x2496 3024x1296 4096x4096 4704x3520 \
             3520x4704 5504x3040 3040x5504 4992x3328 3328x4992 6240x2656 2K 4K",
        ),
        (
            ImageFamily::Seedream45,
            "2048x2048 2304x1728 1728x2304 2560x1440 1440x2560 2496x1664 1664x2496 3024x1296 4096x4096 4704x3520 \
             3520x4704 5504x3040 3040x5504 4992x3328 3328x4992 6240x2656 2K 4K",
        ),
        (ImageFamily::MultimodalPro, "1:1 3:2 2:3 3:4 4:3 4:5 5:4 9:16 16:9 21:9"),
        (ImageFamily::GptImage, "1024x1024 1024x1536 1536x1024 auto"),
        (ImageFamily::GptImageFree, "1024x1024 2048x1152"),
        (ImageFamily::Qwen, "1328x1328 1664x928 928x1664 1472x1140 1140x1472"),
    ] {
        for size in sizes.split(' ') {
            assert!(asked(family, json!({"size": size})).is_ok(), "{family:?} {size}");
        }
        if family.rules().sizes != Sizes::Any {
            for size in ["1000x1000", "1:7", "large", "0x0", "1024X1024"] {
                if matches!(family, ImageFamily::Multimodal | ImageFamily::MultimodalPro)
                    && size == "1000x1000"
                {
                    continue;
                }
                assert_eq!(refused(family, json!({"size": size})), "size", "{family:?} {size}");
            }
        }
    }
    // A family that has only ratios gets the ratio nearest to a pixel size.
    for (size, ratio) in [("1920x1080", "16:9"), ("1024x1024", "1:1"), ("1000x1500", "2:3")] {
        let request = asked(ImageFamily::Multimodal, json!({"size": size})).unwrap();
        assert_eq!(request.size.as_deref(), Some(ratio), "{size}");
    }
    let picture = base64(&png(100, 100));
    let edit = |size: &str| json!({"image": picture, "size": size});
    let request = asked(ImageFamily::Seededit3, json!({"image": picture})).unwrap();
    assert_eq!(request.size.as_deref(), Some("adaptive"));
    assert!(asked(ImageFamily::Seededit3, edit("adaptive")).is_ok());
    assert_eq!(refused(ImageFamily::Seededit3, edit("1024x1024")), "size");
}

#[test]
fn family_settings_have_the_bounds_of_the_specification() {
    use ImageFamily::{
        GptImage, Multimodal, MultimodalPro, Other, Qwen, QwenEdit, Seedream3, Seedream4, Seedream45,
    };
    for (family, members) in [
        (Seedream3, json!({"seed": 0})),
        (Seedream3, json!({"seed": 2_147_483_647u32})),
        (Seedream3, json!({"guidance_scale": 1})),
        (Seedream3, json!({"guidance_scale": 10.0})),
        (Multimodal, json!({"temperature": 2, "top_p": 0.5, "response_modalities": "image"})),
        (Multimodal, json!({"quality": "high", "n": 10, "mime_type": "image/png", "image_size": "1K"})),
        (MultimodalPro, json!({"image_size": "4K"})),
        (Seedream45, json!({"image_size": "2K", "watermark": true})),
        (Seedream4, json!({"sequential_image_generation": "auto"})),
        (
            Seedream4,
            json!({"sequential_image_generation": "auto", "sequential_image_generation_options": {"max_images": 4}}),
        ),
        (Qwen, json!({"sequential_image_generation": "disabled"})),
        (Seedream4, json!({"optimize_prompt_options": {"mode": "fast"}})),
        (Seedream45, json!({"optimize_prompt_options": {"mode": "standard"}})),
        (GptImage, json!({"n": 10, "quality": "medium", "response_format": "url"})),
        (QwenEdit, json!({"image": base64(&png(400, 400)), "n": 6})),
        (Other, json!({"size": "512x512", "quality": "hd", "style": "vivid"})),
        (Other, json!({"response_format": null, "n": null, "seed": null, "image": null})),
    ] {
        let taken = asked(family, members.clone());
        assert!(taken.is_ok(), "{family:?} {members}: {:?}", taken.unwrap_err());
    }
    for (family, members, field) in [
        (Seedream3, json!({"seed": -1}), "seed"),
        (Seedream3, json!({"seed": 2_147_483_648u32}), "seed"),
        (Seedream3, json!({"seed": 1.5}), "seed"),
        (Seedream3, json!({"seed": "1"}), "seed"),
        (Seedream3, json!({"guidance_scale": 0.9}), "guidance_scale"),
        (Seedream3, json!({"guidance_scale": 10.1}), "guidance_scale"),
        (Seedream4, json!({"guidance_scale": 2.5}), "guidance_scale"),
        (Multimodal, json!({"temperature": 2.1}), "temperature"),
        (Multimodal, json!({"top_p": "x"}), "top_p"),
        (Multimodal, json!({"image_size": "3K"}), "image_size"),
        (MultimodalPro, json!({"image_size": "5K"}), "image_size"),
        (Qwen, json!({"image_size": "2K"}), "image_size"),
        (GptImage, json!({"n": 11}), "n"),
        (GptImage, json!({"n": 0}), "n"),
        (GptImage, json!({"quality": "hd"}), "quality"),
        (Multimodal, json!({"quality": "best"}), "quality"),
        (GptImage, json!({"response_format": "png"}), "response_format"),
        (GptImage, json!({"mime_type": "image/tiff"}), "mime_type"),
        (GptImage, json!({"stream": true}), "stream"),
        (GptImage, json!({"watermark": "no"}), "watermark"),
        (Seedream3, json!({"sequential_image_generation": "auto"}), "sequential_image_generation"),
        (Seedream4, json!({"sequential_image_generation": "on"}), "sequential_image_generation"),
        (
            Seedream4,
            json!({"sequential_image_generation_options": {"max_images": 2}}),
            "sequential_image_generation_options",
        ),
        (
            Seedream4,
            json!({"sequential_image_generation": "auto", "sequential_image_generation_options": {"max_images": 5}}),
            "sequential_image_generation_options.max_images",
        ),
        (Seedream45, json!({"optimize_prompt_options": {"mode": "fast"}}), "optimize_prompt_options.mode"),
        (Qwen, json!({"optimize_prompt_options": {"mode": "standard"}}), "optimize_prompt_options"),
        (Seedream4, json!({"n": 16}), "n"),
        (Seedream4, json!({"n": 5, "sequential_image_generation": "auto"}), "n"),
        (GptImage, json!({"prompt": ""}), "prompt"),
        (GptImage, json!({"prompt": null}), "prompt"),
        (GptImage, json!({"prompt": 1}), "prompt"),
    ] {
        assert_eq!(refused(family, members.clone()), field, "{family:?} {members}");
    }
}

#[test]
fn family_limits_input_images_by_count_type_and_size() {
    let nested =
        |levels: usize| (0..levels).fold(json!("https://e.com/a"), |inner, _| json!({ "image_url": inner }));
    use ImageFamily::{GptImage, Multimodal, Qwen, QwenEdit, Seededit3, Seedream3, Seedream4, Seedream45};
    let picture = base64(&png(64, 64));
    let data = format!("data:image/jpeg;base64,{picture}");
    let gif = base64(b"GIF89a\x40\0\x40\0");
    let many = |count: usize| json!({"image": vec![picture.clone(); count]});
    for (family, members) in [
        (GptImage, json!({"image": picture})),
        // The media type that a data URL declares is ignored.
        (GptImage, json!({"image": data})),
        (GptImage, json!({"image": gif})),
        (GptImage, many(10)),
        (Multimodal, many(5)),
        (Seedream4, many(5)),
        (Seedream45, json!({"image": gif})),
        (Seededit3, many(1)),
        (QwenEdit, many(1)),
        (GptImage, json!({"images": [{"image_url": "https://example.com/a.png"}]})),
        (
            Multimodal,
            json!({"contents": [{"role": "user", "parts": [{"text": "x"}, {"image": "https://e.com/a"}]}]}),
        ),
        (
            Multimodal,
            json!({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": picture}}]}]}),
        ),
    ] {
        let taken = asked(family, members.clone());
        assert!(taken.is_ok(), "{family:?} {members}: {:?}", taken.unwrap_err());
    }
    let large = |bytes: usize| {
        let mut file = png(64, 64);
        file.resize(bytes, 0);
        json!({"image": base64(&file)})
    };
    for (family, members, field) in [
        (Seedream3, many(1), "image[0]"),
        (Qwen, many(1), "image[0]"),
        (Seededit3, json!({}), "image"),
        (QwenEdit, json!({}), "image"),
        (QwenEdit, many(2), "image"),
        (GptImage, many(11), "image"),
        (Multimodal, many(6), "image"),
        (Multimodal, json!({"image": gif}), "image"),
        (Seedream4, json!({"image": gif}), "image"),
        (Multimodal, large((7 << 20) + 1), "image"),
        (GptImage, large((10 << 20) + 1), "image"),
        (Seedream4, json!({"image": base64(&png(10, 100))}), "image"),
        (Seedream4, json!({"image": base64(&png(20, 1000))}), "image"),
        (Seedream4, json!({"image": base64(&png(9000, 9000))}), "image"),
        (GptImage, json!({"image": base64(&png(0, 10))}), "image"),
        (GptImage, json!({"image": base64(b"<html></html>")}), "image"),
        (GptImage, json!({"image": "not base64 !"}), "image"),
        (GptImage, json!({"image": "data:image/png,abc"}), "image"),
        (GptImage, json!({"image": ["https://e.com/a", 1]}), "image[1]"),
        (GptImage, json!({"images": [{"file_id": "file-1"}]}), "images[0]"),
        (GptImage, json!({"images": [nested(6)]}), "images[0]"),
        (GptImage, json!({"mask": picture}), "image"),
        (Multimodal, json!({"contents": {}}), "contents"),
        (Multimodal, json!({"contents": [{"role": "system", "parts": []}]}), "contents[0].role"),
        (Multimodal, json!({"contents": [{"parts": [{"video": 1}]}]}), "contents[0].parts[0]"),
    ] {
        assert_eq!(refused(family, members), field, "{family:?}");
    }
}
