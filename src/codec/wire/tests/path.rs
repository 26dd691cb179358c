//! Tests of paths and queries.

use proptest::prelude::*;

use crate::wire::path::{
    Action, Endpoint, parse, percent_decode, push_path_segment, query_value, query_without,
};
use crate::wire::{Api, Format, video};

fn endpoint(path: &str) -> Option<Endpoint> {
    parse(path, None).endpoint
}

fn native(model: &str, action: Action) -> Option<Endpoint> {
    Some(Endpoint::Native { model: model.to_owned(), action })
}

#[test]
fn base_url_in_every_form_leads_to_the_endpoint() {
    // Forms of base addresses, to which SDKs append their own path.
    let bases = ["", "/", "/v1", "/v1/", "//v1//", "/v1/v1", "/v1//v1/"];
    for (path, expected) in [
        ("/chat/completions", Endpoint::Chat),
        ("/messages", Endpoint::Messages),
        ("/messages/count_tokens", Endpoint::CountTokens),
        ("/responses", Endpoint::Responses),
        ("/responses/input_tokens", Endpoint::InputTokens),
        ("/embeddings", Endpoint::Embeddings),
        ("/rerank", Endpoint::Rerank),
        ("/v2/rerank", Endpoint::Rerank),
        ("/models", Endpoint::Models),
        ("/models/", Endpoint::Models),
        ("/v1/messages", Endpoint::Messages),
        ("/v1/chat/completions", Endpoint::Chat),
        ("//chat//completions//", Endpoint::Chat),
    ] {
        for base in bases {
            let whole = format!("{base}{path}");
            let target = parse(&whole, None);
            assert_eq!(target.endpoint.as_ref(), Some(&expected), "{whole}");
            assert!(!target.beta, "{whole}");
        }
    }
}

#[test]
fn base_url_with_a_full_endpoint_path_is_accepted() {
    for (base, path, expected) in [
        ("/v1/chat/completions", "/chat/completions", Endpoint::Chat),
        ("/v1/chat/completions/", "/v1/chat/completions", Endpoint::Chat),
        ("/v1/chat/completions", "/models", Endpoint::Models),
        ("/v1/chat/completions", "/embeddings", Endpoint::Embeddings),
        ("/chat/completions", "/responses/resp_1", Endpoint::Response { id: "resp_1".to_owned() }),
        ("/v1/messages", "/v1/messages", Endpoint::Messages),
        ("/v1/messages", "/messages", Endpoint::Messages),
        ("/v1/messages", "/v1/messages/count_tokens", Endpoint::CountTokens),
        ("/v1/messages", "/v1/models", Endpoint::Models),
        ("/v1/messages/count_tokens", "/v1/messages", Endpoint::Messages),
        ("/v1/responses", "/responses", Endpoint::Responses),
        ("/v1/responses", "/responses/input_tokens", Endpoint::InputTokens),
        ("/v1/responses", "/responses/resp_1", Endpoint::Response { id: "resp_1".to_owned() }),
        ("/v1/responses", "/chat/completions", Endpoint::Chat),
        ("/v1/embeddings", "/embeddings", Endpoint::Embeddings),
        ("/v1/rerank", "/v2/rerank", Endpoint::Rerank),
        ("/v1/images/generations", "/images/generations", Endpoint::Images),
        ("/v1/images/generations", "/images/edits", Endpoint::ImageEdits),
        ("/v1/video/generations", "/video/generations", Endpoint::Video(video::VideoEndpoint::Submit)),
        ("/v1/videos", "/videos", Endpoint::Video(video::VideoEndpoint::Create)),
        (
            "/v1/videos",
            "/videos/video_1",
            Endpoint::Video(video::VideoEndpoint::Retrieve("video_1".to_owned())),
        ),
        ("/v1/chat/completions/chat/completions", "/chat/completions", Endpoint::Chat),
    ] {
        let whole = format!("{base}{path}");
        let target = parse(&whole, None);
        assert_eq!(target.endpoint.as_ref(), Some(&expected), "{whole}");
        assert!(!target.beta, "{whole}");
    }
    let base = "/v1beta/models/gemini-2.5-flash:generateContent";
    for rest in [
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
        "/models/gemini-2.5-pro:streamGenerateContent",
    ] {
        let whole = format!("{base}{rest}");
        assert_eq!(endpoint(&whole), native("gemini-2.5-pro", Action::Stream { sse: false }), "{whole}");
    }
    assert!(parse("/v1/messages/v1beta/models", None).beta);
    for path in
        ["/v1/chat/completions/x", "/v1/messages/v1", "/v1/messages/v1/batches", "/v1/responses/models/"]
    {
        let expected = path.contains("models").then_some(Endpoint::Models);
        assert_eq!(endpoint(path), expected, "{path}");
    }
}

#[test]
fn paths_of_bedrock_name_model_and_operation() {
    let arn = "arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/abc";
    let encoded = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A000000000000%3Aapplication-inference-profile%2Fabc";
    for (operation, stream) in [("invoke", false), ("invoke-with-response-stream", true)] {
        let model = arn.to_owned();
        let found = endpoint(&format!("/model/{encoded}/{operation}"));
        assert_eq!(found, Some(Endpoint::Invoke { model, stream }));
        assert_eq!(found.as_ref().and_then(Endpoint::api), Some(Api::Messages));
        assert_eq!(found.as_ref().and_then(Endpoint::error_format), Some(Format::Converse));
        assert_eq!((found.as_ref().and_then(Endpoint::action), found.unwrap().model()), (None, Some(arn)));
    }
    for (operation, stream) in [("converse", false), ("converse-stream", true)] {
        let found = endpoint(&format!("/model/m:0/{operation}"));
        assert_eq!(found, Some(Endpoint::Converse { model: "m:0".to_owned(), stream }));
    }
    for path in ["/model/m/count-tokens", "/model/m", "/model/m/invoke/x", "/model//invoke"] {
        assert_eq!(endpoint(path), None, "{path}");
    }
}

#[test]
fn base_url_with_a_query_is_accepted() {
    let query = |rest: &str| format!("api-version=2025-04-01-preview{rest}");
    for (path, rest, expected) in [
        ("/v1", "/responses", Some(Endpoint::Responses)),
        ("/v1/", "/chat/completions", Some(Endpoint::Chat)),
        ("", "/v1/messages", Some(Endpoint::Messages)),
        ("/v1", "&x=y/embeddings", Some(Endpoint::Embeddings)),
        ("/v1/responses", "/responses", Some(Endpoint::Responses)),
        ("/v1/responses", "", Some(Endpoint::Responses)),
        ("/v1/chat/completions", "/models", Some(Endpoint::Models)),
        ("/v1", "/models?limit=3", Some(Endpoint::Models)),
        ("/v1", "", Some(Endpoint::Root)),
        ("/v1", "/anything", Some(Endpoint::Root)),
        // Not a base address: the slash is part of a value.
        ("/v1/models", "&after_id=openai/chat", Some(Endpoint::Models)),
        ("/v1/responses/resp_1", "/models", Some(Endpoint::Response { id: "resp_1".to_owned() })),
    ] {
        let query = query(rest);
        assert_eq!(parse(path, Some(&query)).endpoint, expected, "{path}?{query}");
    }
    let stream = parse("/v1beta", Some("x=1/models/m:streamGenerateContent?alt=sse"));
    assert_eq!(stream.endpoint, native("m", Action::Stream { sse: true }));
    assert!(stream.beta);
}

/// What OpenAI's SDK for Python sends (3.57.0, each resource called) if its base address is `/v1?api-version=...`.
#[test]
fn base_url_with_a_query_is_accepted_without_a_slash_behind_it() {
    let response = |id: &str| Some(Endpoint::Response { id: id.to_owned() });
    let video = |path: &str| parse(path, None).endpoint;
    for version in ["2025-04-01-preview", "2024-10-21", "preview", "latest", "v1"] {
        for path in ["/v1/", "/v1/responses/", "/"] {
            for (rest, expected) in [
                ("chat/completions", Some(Endpoint::Chat)),
                ("responses", Some(Endpoint::Responses)),
                ("responses/resp_1", response("resp_1")),
                ("responses%2Fresp_1&include%5B%5D=reasoning.encrypted_content", response("resp_1")),
                ("responses/resp_1/input_items", Some(Endpoint::ResponseItems { id: "resp_1".to_owned() })),
                (
                    "responses%2Fresp_1%2Finput_items&after=a&limit=2",
                    Some(Endpoint::ResponseItems { id: "resp_1".to_owned() }),
                ),
                ("responses/input_tokens", Some(Endpoint::InputTokens)),
                ("responses/compact", Some(Endpoint::Compact)),
                ("embeddings", Some(Endpoint::Embeddings)),
                ("images/generations", Some(Endpoint::Images)),
                ("images/edits", Some(Endpoint::ImageEdits)),
                ("models", Some(Endpoint::Models)),
                ("models?limit=3", Some(Endpoint::Models)),
                ("models/vendor%2Fm:free", Some(Endpoint::Model { id: "vendor/m:free".to_owned() })),
                ("videos", video("/v1/videos")),
                ("videos/video_1/content", video("/v1/videos/video_1/content")),
                ("files/f1/content", video("/v1/files/f1/content")),
                ("rerank", Some(Endpoint::Rerank)),
                ("messages/count_tokens", Some(Endpoint::CountTokens)),
                ("%2Fresponses%2Fresp_1&include%5B%5D=a", response("resp_1")),
                ("", parse(path, None).endpoint),
            ] {
                let query = format!("api-version={version}{rest}");
                assert_eq!(parse(path, Some(&query)).endpoint, expected, "{path}?{query}");
                let query = format!("key=k&{query}");
                assert_eq!(parse(path, Some(&query)).endpoint, expected, "{path}?{query}");
            }
        }
    }
    // A resource that there is not is an unknown path, and no method that is not allowed for `/`.
    assert_eq!(parse("/v1/", Some("api-version=2025-04-01-previewaudio/speech")).endpoint, None);
    // Not a base address.
    let models = parse("/v1/models", Some("api-version=2025-04-01responses")).endpoint;
    assert_eq!(models, Some(Endpoint::Models));
}

/// `AzureOpenAI` of OpenAI's SDKs, with an endpoint and with a base address.
#[test]
fn path_of_an_azure_client_is_accepted() {
    for (path, expected) in [
        ("/openai/deployments/gpt-4o/chat/completions", Some(Endpoint::Chat)),
        ("/openai/deployments/gpt-4o/embeddings", Some(Endpoint::Embeddings)),
        ("/openai/deployments/gpt-image-1/images/generations", Some(Endpoint::Images)),
        ("/v1/deployments/gpt-4o/chat/completions", Some(Endpoint::Chat)),
        ("/openai/responses", Some(Endpoint::Responses)),
        ("/openai/v1/responses/resp_1", Some(Endpoint::Response { id: "resp_1".to_owned() })),
        ("/openai/models", Some(Endpoint::Models)),
        ("/openai/deployments", None),
        ("/openai/deployments/gpt-4o/audio/speech", None),
    ] {
        assert_eq!(parse(path, Some("api-version=2025-04-01-preview")).endpoint, expected, "{path}");
    }
}

#[test]
fn path_of_an_unknown_operation_of_bedrock_has_errors_of_aws() {
    for path in [
        "/model/m/nope",
        "/model/m",
        "/model/m/count-tokens",
        "/async-invoke",
        "/guardrail/g/version/1/apply",
    ] {
        let parsed = parse(path, None);
        assert_eq!((&parsed.endpoint, parsed.format()), (&None, Some(Format::Converse)), "{path}");
    }
    assert_eq!(parse("/v1/nope", None).format(), None);
}

#[test]
fn endpoint_unknown_is_distinguished_from_a_wrong_method() {
    for (path, method, unknown) in [
        ("/v1beta/models/gemini:nope", "POST", true),
        ("/v1beta/models/gemini:nope", "GET", false),
        ("/v1beta/models/gemini", "POST", false),
        ("/v1beta/models/gemini:generateContent", "POST", false),
        ("/prod-api/svc/v4/api/nope", "POST", true),
        ("/prod-api/svc/v4/api/nope", "GET", true),
        ("/prod-api/svc/v4/api", "GET", true),
        ("/prod-api/svc/v4/api/task/1/2", "GET", true),
        ("/prod-api/svc/v4/api/task/1", "POST", false),
    ] {
        assert_eq!(endpoint(path).unwrap().is_unknown(method), unknown, "{method} {path}");
    }
}

#[test]
fn endpoint_root_is_found_with_and_without_a_version() {
    for path in ["", "/", "//", "/v1", "/v1/", "/v1/v1", "/v1beta", "/api/hello", "/v1/api/hello"] {
        assert_eq!(endpoint(path), Some(Endpoint::Root), "{path}");
    }
    for path in ["/api", "/hello", "/api/hello/x"] {
        assert_eq!(endpoint(path), None, "{path}");
    }
}

#[test]
fn endpoint_of_stored_responses_and_items_is_found() {
    let id = || "resp_1/2".to_owned();
    let (response, items) = (Endpoint::Response { id: id() }, Endpoint::ResponseItems { id: id() });
    for base in ["", "/v1", "/v1//v1/"] {
        assert_eq!(endpoint(&format!("{base}/responses/resp_1%2F2/")), Some(response.clone()));
        assert_eq!(endpoint(&format!("{base}/responses/resp_1%2F2/input_items")), Some(items.clone()));
    }
    for (endpoint, methods) in [(response, &["GET", "HEAD", "DELETE"][..]), (items, &["GET", "HEAD"])] {
        let allowed =
            ["GET", "HEAD", "POST", "DELETE", "PUT"].into_iter().filter(|name| endpoint.allows(name));
        assert_eq!(allowed.collect::<Vec<_>>(), methods);
        assert_eq!((endpoint.api(), endpoint.label()), (None, "stored_responses"));
    }
    assert_eq!(parse("/v1/responses/resp_1", None).format(), Some(Format::Responses));
}

#[test]
fn endpoint_of_other_paths_is_none() {
    for path in [
        "/v2/chat/completions",
        "/chat",
        "/chat/completions/x",
        "/completions",
        "/v1/responses/resp_1/cancel",
        "/v1/responses/resp_1/input_items/x",
        "/v1/responses/compact/x",
        "/v1/responses/input_tokens/x",
        "/v2/embed",
        "/v1/messages/batches",
        "/V1/messages",
        "/v1/Messages",
        "/v1/chat%2Fcompletions",
        "/v1/v1x/messages",
        "/models:generateContent",
        "/v1/models/:generateContent",
        "/v1/models/models%2F:generateContent",
    ] {
        assert_eq!(endpoint(path), None, "{path}");
    }
}

#[test]
fn native_method_is_found_under_both_versions() {
    for version in ["/v1beta", "/v1", "/v1/v1beta", "/v1beta/v1", ""] {
        for (method, action) in [
            ("generateContent", Action::Generate),
            ("streamGenerateContent", Action::Stream { sse: false }),
            ("countTokens", Action::CountTokens),
            ("embedContent", Action::Embed),
            ("batchEmbedContents", Action::BatchEmbed),
        ] {
            let path = format!("{version}/models/gemini-2.5-flash:{method}");
            assert_eq!(endpoint(&path), native("gemini-2.5-flash", action), "{path}");
            let escaped = format!("{version}/models/models%2Fgemini-2.5-flash%3A{method}");
            assert_eq!(endpoint(&escaped), native("gemini-2.5-flash", action), "{escaped}");
        }
    }
}

#[test]
fn native_method_follows_the_last_colon() {
    assert_eq!(
        endpoint("/v1beta/models/qwen3:8b:generateContent"),
        native("qwen3:8b", Action::Generate),
        "a model with a colon"
    );
    assert_eq!(
        endpoint("/v1beta/models/deepseek/deepseek-r1:free:embedContent"),
        native("deepseek/deepseek-r1:free", Action::Embed)
    );
    assert_eq!(
        endpoint("/v1beta/tunedModels/mine-1:generateContent"),
        native("tunedModels/mine-1", Action::Generate)
    );
    // An unknown method is part of a model name, which is then not found.
    assert_eq!(
        endpoint("/v1beta/models/x:unheardOf"),
        Some(Endpoint::Model { id: "x:unheardOf".to_owned() })
    );
}

#[test]
fn model_in_the_path_is_decoded_and_may_contain_slashes() {
    for (path, id) in [
        ("/v1/models/gpt-4o", "gpt-4o"),
        ("/v1/models/meta%2Fllama", "meta/llama"),
        ("/v1/models/meta/llama", "meta/llama"),
        ("/v1beta/models/models%2Fgemini", "gemini"),
        ("/v1/models/%E6%A8%A1%E5%9E%8B", "模型"),
        ("/v1/models/a%20b", "a b"),
        ("/v1/models/50%", "50%"),
        ("/v1/models/a%ffb", "a%ffb"),
        ("/v1/models/qwen3:8b", "qwen3:8b"),
    ] {
        assert_eq!(endpoint(path), Some(Endpoint::Model { id: id.to_owned() }), "{path}");
    }
}

#[test]
fn native_stream_uses_sse_if_the_query_has_alt_sse() {
    let stream = |query| match parse("/v1beta/models/m:streamGenerateContent", query).endpoint {
        Some(Endpoint::Native { action: Action::Stream { sse }, .. }) => sse,
        other => panic!("{other:?}"),
    };
    assert!(stream(Some("alt=sse")));
    assert!(stream(Some("key=k&alt=sse&x")));
    assert!(stream(Some("%61lt=%73se")));
    assert!(!stream(None));
    assert!(!stream(Some("alt=json")));
    assert!(!stream(Some("alt=json&alt=sse")), "the first one counts");
    assert!(!stream(Some("xalt=sse")));
}

#[test]
fn format_is_derived_from_the_path_if_possible() {
    for (path, format) in [
        ("/v1/chat/completions", Some(Format::Chat)),
        ("/v1/messages", Some(Format::Messages)),
        ("/v1/messages/count_tokens", Some(Format::Messages)),
        ("/v1/responses/input_tokens", Some(Format::Responses)),
        ("/v1/rerank", Some(Format::Chat)),
        ("/v1/responses", Some(Format::Responses)),
        ("/v1/embeddings", Some(Format::Chat)),
        ("/v1/models/m:embedContent", Some(Format::Generate)),
        ("/v1/models/m:countTokens", Some(Format::Generate)),
        ("/v1beta/nothing", Some(Format::Generate)),
        ("/v1beta/models", Some(Format::Generate)),
        ("/v1/models", None),
        ("/v1/nothing", None),
    ] {
        assert_eq!(parse(path, None).format(), format, "{path}");
    }
}

#[test]
fn endpoint_has_its_methods_label_and_api() {
    for (path, methods, label, api) in [
        ("/v1/chat/completions", "POST", "chat", Some(Api::Chat)),
        ("/v1/messages", "POST", "messages", Some(Api::Messages)),
        ("/v1/messages/count_tokens", "POST", "count_tokens", Some(Api::CountTokens)),
        ("/v1/responses/input_tokens", "POST", "count_tokens", Some(Api::Responses)),
        ("/v1/rerank", "POST", "rerank", Some(Api::Rerank)),
        ("/v1/responses", "POST", "responses", Some(Api::Responses)),
        ("/v1/embeddings", "POST", "embeddings", Some(Api::Embeddings)),
        ("/v1/models/m:generateContent", "POST", "generate", Some(Api::Generate)),
        ("/v1/models/m:streamGenerateContent", "POST", "generate", Some(Api::Generate)),
        ("/v1/models/m:countTokens", "POST", "count_tokens", Some(Api::Generate)),
        ("/v1/models/m:embedContent", "POST", "embed_content", Some(Api::EmbedContent)),
        ("/v1/models/m:batchEmbedContents", "POST", "embed_content", Some(Api::EmbedContent)),
        ("/v1/models", "GET, HEAD", "models", None),
        ("/v1/models/m", "GET, HEAD", "models", None),
        ("/", "GET, HEAD", "root", None),
    ] {
        let endpoint = endpoint(path).unwrap();
        assert_eq!(endpoint.allow(), methods, "{path}");
        assert_eq!(endpoint.label(), label, "{path}");
        assert_eq!(endpoint.api(), api, "{path}");
        assert_eq!(endpoint.allows("POST"), methods == "POST", "{path}");
        assert_eq!(endpoint.allows("HEAD"), methods != "POST", "{path}");
        assert!(!endpoint.allows("GET, HEAD") && !endpoint.allows("") && !endpoint.allows("post"), "{path}");
    }
}

#[test]
fn api_name_round_trips_and_unknown_names_are_none() {
    for api in Api::ALL {
        assert_eq!(Api::from_name(api.name()), Some(api));
        assert_eq!(api.to_string(), api.name());
    }
    for format in Format::ALL {
        assert_eq!(format.api().format(), Some(format));
        assert_eq!(format.to_string(), format.api().name());
    }
    assert_eq!(Api::from_name("Chat"), None);
    assert_eq!(Api::from_name(""), None);
}

#[test]
fn query_values_are_decoded_and_keys_removed() {
    let query = Some("a=1&key=s%3Dx%26&empty=&flag&a=2");
    assert_eq!(query_value(query, "key").as_deref(), Some("s=x&"));
    assert_eq!(query_value(query, "a").as_deref(), Some("1"));
    assert_eq!(query_value(query, "empty").as_deref(), Some(""));
    assert_eq!(query_value(query, "flag").as_deref(), Some(""));
    assert_eq!(query_value(query, "none"), None);
    assert_eq!(query_value(None, "a"), None);
    assert_eq!(query_without("a=1&key=s&b=%20&k%65y=t&&flag", &["key"]), "a=1&b=%20&flag");
    assert_eq!(query_without("key=s", &["key"]), "");
    assert_eq!(query_without("", &["key"]), "");
}

#[test]
fn percent_decode_keeps_invalid_escapes() {
    for text in ["%", "%4", "%zz", "a%+1b", "%e2%82", "plain"] {
        assert_eq!(percent_decode(text), text);
    }
    assert_eq!(percent_decode("%41%e2%82%ac%25"), "A€%");
}

#[test]
fn path_segment_escapes_the_model() {
    let mut out = String::new();
    push_path_segment(&mut out, "a?b#c d%2e\"\r\nü:x/y");
    assert_eq!(out, "a%3Fb%23c%20d%252e%22%0D%0A%C3%BC:x/y");
}

proptest! {
    #[test]
    fn parse_of_arbitrary_paths_never_panics(path in "[/a-z0-9:%.]{0,40}", query in "[a-z=&%0-9]{0,20}") {
        let target = parse(&path, Some(&query));
        if let Some(endpoint) = target.endpoint {
            prop_assert!(!endpoint.label().is_empty());
        }
    }

    #[test]
    fn path_segment_escaping_round_trips(text in "\\PC{0,20}") {
        let mut out = String::new();
        push_path_segment(&mut out, &text);
        prop_assert!(out.is_ascii());
        prop_assert_eq!(percent_decode(&out), text);
    }
}

#[test]
fn endpoint_that_compacts_is_a_method_of_the_responses_api() {
    for path in ["/v1/responses/compact", "/v1/v1/responses/compact/", "/responses/compact"] {
        let endpoint = parse(path, None).endpoint.unwrap();
        assert_eq!((&endpoint, endpoint.api()), (&Endpoint::Compact, Some(Api::Responses)), "{path}");
        assert_eq!(
            (endpoint.label(), endpoint.allow(), endpoint.action()),
            ("responses", "POST", Some(Action::Compact))
        );
    }
}
