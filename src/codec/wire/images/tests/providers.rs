use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::answer::{self, Image, ImageAnswer, ImageLocation, ImageTask, ImageTaskState};
use super::super::ask::encode_call;
use super::super::check::check;
use super::super::fit::fit;
use super::super::reply::{ImageReplyShape, ImageSet, OutputImage, encode};
use super::super::{predict, reply, request};
use super::{asked, base64, png};
use crate::canonical::Usage;
use crate::canonical::image::{
    ImageDialect, ImageFamily, ImageFormat, ImageRequest, ImageShape, ImageSource,
};
use crate::error::{ApiError, ErrorKind};
use crate::wire::form;

fn dialect(shape: ImageShape, family: ImageFamily) -> ImageDialect {
    ImageDialect {
        shape,
        family,
        make: "/make".into(),
        edit: "/edit".into(),
        tasks: "/tasks/".into(),
        max_images: 4,
        sends_response_format: false,
        extensions: &["background", "negative_prompt", "output_format"],
    }
}

fn body(request: &ImageRequest, dialect: &ImageDialect) -> Value {
    let mut request = request.clone();
    fit(&mut request, dialect, &dialect.family.rules()).unwrap();
    serde_json::from_slice(&encode_call(&request, dialect, "up", 2).body).unwrap()
}

#[test]
fn request_is_encoded_in_the_shape_of_each_provider() {
    let picture = base64(&png(64, 64));
    let data = format!("data:image/png;base64,{picture}");
    let some = json!({"seed": 7, "n": 2, "negative_prompt": "fog", "unknown": 1, "size": "1024x1024"});
    let request = asked(ImageFamily::Other, some).unwrap();
    assert_eq!(
        body(&request, &dialect(ImageShape::List, ImageFamily::Other)),
        json!({"model": "up", "prompt": "a red circle", "n": 2, "size": "1024x1024", "negative_prompt": "fog"})
    );
    assert_eq!(
        body(&request, &dialect(ImageShape::Flat, ImageFamily::Seedream3)),
        json!({"model": "up", "prompt": "a red circle", "size": "1024x1024", "response_format": "url",
               "watermark": false, "seed": 7, "guidance_scale": 2.5, "negative_prompt": "fog"})
    );
    assert_eq!(
        body(&request, &dialect(ImageShape::Turns, ImageFamily::Qwen)),
        json!({"model": "up", "input": {"messages": [{"role": "user", "content": [{"text": "a red circle"}]}]},
               "parameters": {"size": "1024*1024", "n": 2, "watermark": false, "seed": 7, "negative_prompt": "fog"}})
    );
    let later = encode_call(&request, &dialect(ImageShape::PromptLater, ImageFamily::Other), "up", 2);
    assert!(later.later && !later.edits);
    assert_eq!(
        serde_json::from_slice::<Value>(&later.body).unwrap(),
        json!({"model": "up", "input": {"prompt": "a red circle", "negative_prompt": "fog"},
               "parameters": {"size": "1024*1024", "n": 2, "watermark": false, "seed": 7}})
    );
    assert_eq!(
        body(&request, &dialect(ImageShape::Instances, ImageFamily::Other)),
        json!({"instances": [{"prompt": "a red circle"}],
               "parameters": {"sampleCount": 2, "aspectRatio": "1:1", "seed": 7, "negativePrompt": "fog"}})
    );
    let members = json!({"image": [data, "https://e.com/b.png"], "watermark": true, "image_size": "2K",
        "response_format": "b64_json", "sequential_image_generation": "auto",
        "sequential_image_generation_options": {"max_images": 3}, "optimize_prompt_options": {"mode": "fast"}});
    let request = asked(ImageFamily::Seedream4, members).unwrap();
    assert_eq!(
        body(&request, &dialect(ImageShape::Flat, ImageFamily::Seedream4)),
        json!({"model": "up", "prompt": "a red circle", "image": [data, "https://e.com/b.png"], "size": "2K",
               "response_format": "b64_json", "watermark": true, "sequential_image_generation": "auto",
               "sequential_image_generation_options": {"max_images": 3}, "optimize_prompt_options": {"mode": "fast"}})
    );
    let members = json!({"contents": [
            {"role": "user", "parts": [{"text": "a cat"}]},
            {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": picture}}]}],
        "image": data, "size": "16:9", "temperature": 0.5, "top_p": 1, "seed": 3, "image_size": "2K"});
    let request = asked(ImageFamily::MultimodalPro, members).unwrap();
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": picture}});
    assert_eq!(
        body(&request, &dialect(ImageShape::Parts, ImageFamily::MultimodalPro)),
        json!({"contents": [{"role": "user", "parts": [{"text": "a cat"}]}, {"role": "model", "parts": [inline]},
                   {"role": "user", "parts": [inline, {"text": "a red circle"}]}],
               "generationConfig": {"responseModalities": ["TEXT", "IMAGE"],
                   "imageConfig": {"aspectRatio": "16:9", "imageSize": "2K"},
                   "temperature": 0.5, "topP": 1, "seed": 3}})
    );
}

#[test]
fn request_with_images_is_a_multipart_form() {
    let file = png(64, 64);
    let members = json!({"image": [base64(&file), base64(&file)], "mask": base64(&file), "quality": "low",
        "background": "opaque", "mime_type": "image/webp"});
    let request = asked(ImageFamily::GptImage, members).unwrap();
    let asked = encode_call(&request, &dialect(ImageShape::List, ImageFamily::GptImage), "up", 1);
    assert!(asked.edits);
    let boundary = form::boundary(&asked.media.unwrap()).unwrap();
    let parts = form::read(&asked.body, &boundary).unwrap();
    let seen: Vec<(&str, bool)> = parts.iter().map(|part| (part.name.as_str(), part.is_file)).collect();
    assert_eq!(
        seen,
        [
            ("model", false),
            ("prompt", false),
            ("n", false),
            ("quality", false),
            ("output_format", false),
            ("background", false),
            ("image[]", true),
            ("image[]", true),
            ("mask", true)
        ]
    );
    assert_eq!((&parts[4].value[..], &parts[5].value[..]), (&b"webp"[..], &b"opaque"[..]));
    assert_eq!(parts[8].value, file);
    // The upstream form parses back to the same request.
    let again = request::decode_form(&parts).unwrap();
    assert_eq!((again.images.len(), again.prompt.as_str(), again.count), (2, "a red circle", Some(1)));
    assert_eq!(again.mask.unwrap().source, ImageSource::Bytes(file.into()));
}

#[test]
fn watermark_is_told_to_an_unknown_provider_as_the_client_says() {
    let every = ImageDialect { extensions: &["*"], ..dialect(ImageShape::List, ImageFamily::Other) };
    let image = base64(&png(64, 64));
    for (members, wanted) in [
        (json!({"watermark": true}), Some("true")),
        (json!({"watermark": false}), Some("false")),
        (json!({"watermark": null}), None),
        (json!({}), None),
    ] {
        let mut request = asked(ImageFamily::Other, members.clone()).unwrap();
        let told = body(&request, &every).get("watermark").map(Value::to_string);
        assert_eq!(told.as_deref(), wanted, "{members}");
        request.images = asked(ImageFamily::Other, json!({"image": image})).unwrap().images;
        let form = encode_call(&request, &every, "up", 1);
        let parts = form::read(&form.body, &form::boundary(&form.media.unwrap()).unwrap()).unwrap();
        let told = parts.iter().find(|part| part.name == "watermark");
        assert_eq!(told.map(|part| &part.value[..]), wanted.map(str::as_bytes), "{members}");
    }
}

#[test]
fn request_predict_form_is_decoded_for_any_family() {
    let body = json!({"instances": [{"prompt": "x"}], "parameters": {"sampleCount": 2, "aspectRatio": "16:9",
        "guidanceScale": 7, "negativePrompt": "fog", "addWatermark": false, "sampleImageSize": "2K"}});
    let read = || predict::decode(&body.to_string()).unwrap();
    for (family, size) in [
        (ImageFamily::GptImage, Some("1536x1024")),
        (ImageFamily::Multimodal, Some("16:9")),
        (ImageFamily::Qwen, Some("1664x928")),
        (ImageFamily::Other, Some("16:9")),
    ] {
        let mut request = read();
        check(&mut request, &family.rules()).unwrap();
        assert_eq!(request.size.as_deref(), size, "{family:?}");
        assert_eq!((request.count, request.inline), (Some(2), Some(true)));
    }
    for (body, field) in [
        (json!({"instances": []}), "instances[0].prompt"),
        (json!({"instances": [{"prompt": "a"}, {"prompt": "b"}]}), "instances"),
        (json!({"instances": [{"prompt": 1}]}), "instances[0].prompt"),
        (json!({"instances": [{"prompt": "a"}], "parameters": {"sampleCount": 0}}), "parameters.sampleCount"),
        (
            json!({"instances": [{"prompt": "a"}], "parameters": {"storageUri": "gs://x"}}),
            "parameters.storageUri",
        ),
    ] {
        assert_eq!(predict::decode(&body.to_string()).unwrap_err().param.as_deref(), Some(field), "{body}");
    }
}

fn answered(body: Value) -> ImageAnswer {
    answer::decode(&Bytes::from(body.to_string())).unwrap()
}

#[test]
fn response_of_each_provider_is_decoded() {
    let here = |text: &'static str| Image {
        location: ImageLocation::Base64(Bytes::from_static(text.as_bytes())),
        revised: None,
    };
    let link = |revised: Option<&str>| Image {
        location: ImageLocation::Link("https://v/x.png".to_owned()),
        revised: revised.map(str::to_owned),
    };
    let openai = answered(
        json!({"created": 1, "data": [{"b64_json": "aGVsbG8="}], "size": "1024x1024", "quality": "low",
        "usage": {"input_tokens": 14, "input_tokens_details": {"image_tokens": 4, "text_tokens": 10}, "output_tokens": 272,
                  "output_tokens_details": {"image_tokens": 272, "text_tokens": 0}, "total_tokens": 286}}),
    );
    assert_eq!(openai.images, [here("aGVsbG8=")]);
    let usage = Usage {
        input: Some(14),
        image_input: Some(4),
        output: Some(272),
        image_output: Some(272),
        ..Usage::default()
    };
    assert_eq!(
        (openai.usage, openai.size.as_deref(), openai.quality.as_deref()),
        (usage, Some("1024x1024"), Some("low"))
    );
    let dalle = answered(json!({"data": [{"url": "https://v/x.png", "revised_prompt": "more"}]}));
    assert_eq!(dalle.images, [link(Some("more"))]);
    let ark = answered(json!({"data": [{"url": "https://v/x.png", "size": "2048x2048"},
        {"error": {"code": "OutputImageSensitiveContentDetected", "message": "no"}}],
        "usage": {"generated_images": 1, "output_tokens": 4096, "total_tokens": 4096}}));
    assert_eq!((ark.images, ark.size.as_deref()), (vec![link(None)], Some("2048x2048")));
    assert_eq!(ark.refusals, [("OutputImageSensitiveContentDetected".to_owned(), "no".to_owned())]);
    let gemini = answered(json!({"candidates": [{"content": {"parts": [{"text": "Here:"},
            {"thought": true, "inlineData": {"mimeType": "image/png", "data": "ZHJhZnQ="}},
            {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1290, "thoughtsTokenCount": 5,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}]}}));
    assert_eq!(gemini.images, [here("aGVsbG8=")]);
    assert_eq!(
        (gemini.usage.output, gemini.usage.image_output, gemini.usage.reasoning),
        (Some(1295), Some(1290), Some(5))
    );
    for (body, told) in [
        (
            json!({"candidates": [{"finishReason": "IMAGE_SAFETY"}]}),
            "The model generated no image: IMAGE_SAFETY.",
        ),
        (json!({"promptFeedback": {"blockReason": "SAFETY"}}), "The prompt was blocked: SAFETY."),
        (json!({"predictions": [{"raiFilteredReason": "No."}]}), "No."),
    ] {
        assert_eq!(answered(body).refusals[0].1, told);
    }
    let imagen =
        answered(json!({"predictions": [{"mimeType": "image/png", "bytesBase64Encoded": "aGVsbG8="}]}));
    assert_eq!(imagen.images, [here("aGVsbG8=")]);
    let qwen =
        answered(json!({"output": {"choices": [{"finish_reason": "stop", "message": {"role": "assistant",
        "content": [{"image": "https://v/x.png"}]}}]}, "usage": {"image_count": 1}, "request_id": "r"}));
    assert_eq!(qwen.images, [link(None)]);
    let task = |state| Some(ImageTask { id: "t-1".to_owned(), state });
    let open = answered(json!({"output": {"task_id": "t-1", "task_status": "PENDING"}, "request_id": "r"}));
    assert_eq!(open.task, task(ImageTaskState::Open));
    let done = answered(json!({"output": {"task_id": "t-1", "task_status": "SUCCEEDED", "results": [
        {"url": "https://v/x.png", "actual_prompt": "more"}, {"code": "DataInspectionFailed", "message": "no"}]}}));
    assert_eq!(
        (done.task, done.images, done.refusals.len()),
        (task(ImageTaskState::Done), vec![link(Some("more"))], 1)
    );
    let failed = answered(
        json!({"output": {"task_id": "t-1", "task_status": "FAILED", "code": "DataInspectionFailed",
        "message": "no"}}),
    );
    assert_eq!(failed.refusals, [("DataInspectionFailed".to_owned(), "no".to_owned())]);
    assert!(answered(json!({"code": "InvalidParameter", "message": "no", "request_id": "r"})).failed);
    assert!(answered(json!({"error": {"message": "no"}})).failed);
    for broken in ["", "[]", "{}", "{\"data\":[]}", "{\"data\":[{\"b64_json\":\"a\\\"b\"}]}", "<html>"] {
        assert!(answer::decode(&Bytes::from_static(broken.as_bytes())).is_err(), "{broken}");
    }
}

#[test]
fn response_base64_is_not_copied() {
    let body = Bytes::from(json!({"data": [{"b64_json": "aGVsbG8="}]}).to_string());
    let read = answer::decode(&body).unwrap();
    let ImageLocation::Base64(text) = &read.images[0].location else { panic!() };
    assert!(body.as_ptr_range().contains(&text.as_ptr()));
    let escaped = answer::decode(&Bytes::from_static(br#"{"data":[{"b64_json":"a\/b="}]}"#)).unwrap();
    assert_eq!(escaped.images[0].location, ImageLocation::Base64(Bytes::from_static(b"a/b=")));
}

fn made() -> ImageSet {
    ImageSet {
        images: vec![
            (OutputImage::Link("https://v/x".to_owned()), Some("more".to_owned())),
            (OutputImage::Base64(Bytes::from_static(b"iVBORw0KGgo=")), None),
            (OutputImage::Bytes(Bytes::from_static(b"\xff\xd8\xff\xe0")), None),
        ],
        created: 9,
        usage: Usage { input: Some(10), image_input: Some(4), output: Some(5), ..Usage::default() },
        size: Some("1x1".to_owned()),
        quality: None,
    }
}

#[test]
fn response_is_encoded_in_each_shape() {
    let written = |shape| -> Value {
        let body = encode(made(), shape);
        let length = body.len();
        let bytes = body.into_bytes();
        assert_eq!(bytes.len(), length);
        serde_json::from_slice(&bytes).unwrap()
    };
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"text_tokens": 6, "image_tokens": 4},
        "output_tokens": 5, "total_tokens": 15});
    assert_eq!(
        written(ImageReplyShape::Envelope),
        json!({"code": 200, "msg": "success", "data": {"created": 9, "size": "1x1", "usage": usage, "data": [
            {"url": "https://v/x", "b64_json": "", "revised_prompt": "more"},
            {"url": "", "b64_json": "iVBORw0KGgo=", "revised_prompt": ""},
            {"url": "", "b64_json": "/9j/4A==", "revised_prompt": ""}]}})
    );
    assert_eq!(
        written(ImageReplyShape::Plain),
        json!({"created": 9, "size": "1x1", "usage": usage, "data": [
            {"url": "https://v/x", "revised_prompt": "more"}, {"b64_json": "iVBORw0KGgo="}, {"b64_json": "/9j/4A=="}]})
    );
    let predictions = written(ImageReplyShape::Predictions);
    assert_eq!(predictions["predictions"][1]["mimeType"], "image/png");
    assert_eq!(
        predictions["predictions"][2],
        json!({"mimeType": "image/jpeg", "bytesBase64Encoded": "/9j/4A=="})
    );
    let one =
        ImageSet { images: vec![(OutputImage::Data(Bytes::from(png(1, 1))), None)], ..ImageSet::default() };
    let plain: Value = serde_json::from_slice(&encode(one, ImageReplyShape::Plain).into_bytes()).unwrap();
    assert!(plain["data"][0]["url"].as_str().unwrap().starts_with("data:image/png;base64,iVBOR"));
    assert!(plain.get("usage").is_none(), "what nobody knows is not told");
}

#[test]
fn error_in_the_envelope_has_both_forms() {
    let error = ApiError::new(ErrorKind::InvalidField, "'n' must be \"less\".").param("n");
    let plain = crate::wire::error::body(crate::wire::Format::Chat, &error, "id");
    let body: Value = serde_json::from_slice(&reply::error(&error, &plain)).unwrap();
    assert_eq!((&body["code"], &body["msg"]), (&json!(400), &json!("'n' must be \"less\".")));
    assert_eq!(body["error"]["param"], "n");
    assert_eq!(body["error"]["type"], "invalid_request_error");
}

#[test]
fn doc_table_of_families_is_on_the_page() {
    let page = include_str!("../../../../../docs/images.md");
    assert!(
        page.contains(&super::super::family_table()),
        "docs/images.md must hold:\n{}",
        super::super::family_table()
    );
    for picture in [ImageFormat::Png, ImageFormat::Tiff] {
        assert!(picture.media().starts_with("image/"));
    }
}

proptest! {
    #[test]
    fn decode_of_arbitrary_text_never_panics(text in ".{0,200}", pieces in proptest::collection::vec(prop_oneof![
        Just("{\"prompt\":\"x\","), Just("\"image\":["), Just("\"contents\":[{\"parts\":["), Just("{\"text\":\"a\"}"),
        Just("]"), Just("}"), Just(","), Just("\"data\":[{\"b64_json\":\"aa\"}]"), Just("\"output\":{"), Just("{"),
        Just("\"task_status\":\"FAILED\""), Just("\"candidates\":[{\"content\":{\"parts\":[{\"inlineData\":{\"data\":\"a\"}}]}}]"),
        Just("\"instances\":[{\"prompt\":\"x\"}]"), Just("\"usage\":{\"input_tokens\":1}"), Just("\"a\":1"),
    ], 0..12)) {
        for text in [text, pieces.concat()] {
            if let Ok(mut read) = request::decode(&text) {
                for family in ImageFamily::ALL {
                    let _ = check(&mut read.clone(), &family.rules());
                }
                let _ = check(&mut read, &ImageFamily::Other.rules());
            }
            let _ = predict::decode(&text);
            let _ = answer::decode(&Bytes::from(text));
        }
    }
}

#[test]
fn answer_nested_deeply_is_refused() {
    let endless = Bytes::from(r#"{"output":"#.repeat(500_000));
    assert_eq!(answer::decode(&endless).unwrap_err(), answer::BrokenImageAnswer);
    let one = json!({"output": {"results": [{"url": "https://e.com/a.png"}]}});
    assert_eq!(answered(one.clone()).images.len(), 1);
    // No provider has a second level.
    let two = Bytes::from(json!({"output": one}).to_string());
    assert_eq!(answer::decode(&two).unwrap_err(), answer::BrokenImageAnswer);
}
