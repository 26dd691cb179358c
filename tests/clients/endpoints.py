"""Official SDKs at the endpoints other than conversations: embeddings, reranking, token counts, images,
videos, model lists.

Usage: endpoints.py BASE_URL KEY
Prints a line for each failure. Exits with 1 if there was a failure.
"""

import base64
import sys
import time
import traceback
import warnings

import anthropic
import cohere
import openai
from google import genai

warnings.filterwarnings("ignore", category=DeprecationWarning, module=__name__)

BASE, KEY = sys.argv[1], sys.argv[2]

EMBEDDERS = ["text-embedding-3-small", "gemini-embedding-001", "embed-v4.0"]
RANKER = "rerank-v3.5"
SPEAKERS = ["gpt-4o", "claude-sonnet-4-6", "gemini-2.5-flash"]
PAINTERS = [
    "gpt-image-1",
    "gemini-2.5-flash-image",
    "imagen-4.0-generate-001",
    "doubao-seedream-4-5-251128",
    "qwen-image-plus",
]
FILMERS = [
    "sora-2",
    "veo-3.1-fast-generate-preview",
    "wan2.5-t2v-preview",
    "doubao-seedance-1-5-pro-251215",
]
EDITORS = ["gpt-image-1", "gemini-2.5-flash-image", "doubao-seedream-4-5-251128"]
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAAA1BMVEX/AAAZ4gk3AAAAD0lEQVR4nGNgGAWjYCABAAIAAAFAkz3hAAAA"
    "AElFTkSuQmCC"
)
TEXTS = ["Hello", "Äpfel und Birnen", "third"]

OPENAI = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
PLAIN = OPENAI.with_options(default_headers={"x-gateway-images": "plain"})
ANTHROPIC = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
GOOGLE = genai.Client(api_key=KEY, http_options={"base_url": BASE})
VERTEX = genai.Client(vertexai=True, api_key=KEY, http_options={"base_url": BASE})
COHERE = cohere.ClientV2(api_key=KEY, base_url=BASE)
COHERE_1 = cohere.Client(api_key=KEY, base_url=BASE)


def vectors_of_the_list(model):
    # The SDK requests base64 and decodes it, unless encoding_format is set.
    packed = OPENAI.embeddings.create(model=model, input=TEXTS, dimensions=256)
    plain = OPENAI.embeddings.create(model=model, input=TEXTS, dimensions=256, encoding_format="float")
    assert [entry.index for entry in packed.data] == [0, 1, 2], packed.data
    assert packed.model == model and packed.usage.prompt_tokens > 0, packed.usage
    for one, other in zip(packed.data, plain.data):
        assert len(one.embedding) == 256 and len(other.embedding) == 256
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding))
    single = OPENAI.embeddings.create(model=model, input=TEXTS[1], dimensions=256)
    assert list(single.data[0].embedding) == list(packed.data[1].embedding)
    many = OPENAI.embeddings.create(model=model, input=[f"text {n}" for n in range(150)], dimensions=256)
    assert len(many.data) == 150 and many.data[149].index == 149


def vectors_of_parts(model):
    config = {"output_dimensionality": 256, "task_type": "RETRIEVAL_QUERY"}
    found = GOOGLE.models.embed_content(model=model, contents=TEXTS, config=config)
    assert [len(one.values) for one in found.embeddings] == [256] * 3
    single = GOOGLE.models.embed_content(model=model, contents=TEXTS[0], config=config)
    assert single.embeddings[0].values == found.embeddings[0].values


def wrong_vectors(model):
    for asked in [{"input": ""}, {"input": []}, {"input": "x", "dimensions": -1}]:
        try:
            OPENAI.embeddings.create(model=model, **asked)
        except openai.BadRequestError as error:
            assert error.param in ("input", "dimensions"), error.body
        else:
            raise AssertionError(f"{asked} was taken")


def counts_of_messages(model):
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    plain = ANTHROPIC.messages.count_tokens(model=model, messages=messages).input_tokens
    more = ANTHROPIC.messages.count_tokens(model=model, messages=messages, system="Be brief.").input_tokens
    assert 7 <= plain < more <= 60, (plain, more)
    google = GOOGLE.models.count_tokens(model=model, contents="Hello, how are you today?")
    assert google.total_tokens == plain, (google, plain)
    responses = OPENAI.responses.input_tokens.count(model=model, input="Hello, how are you today?")
    assert responses.input_tokens == plain, (responses, plain)


def wrong_counts(model):
    try:
        ANTHROPIC.messages.count_tokens(model=model, messages=[{"role": "nobody", "content": "x"}])
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error", error.body
    else:
        raise AssertionError("a role that is none was taken")


def orders():
    documents = ["Bread is eaten everywhere.", "Paris is the capital of France.", "Rome is in Italy."]
    for client in (COHERE, COHERE_1):
        found = client.rerank(model=RANKER, query="What is the capital of France?", documents=documents, top_n=2)
        assert [result.index for result in found.results][0] == 1 and len(found.results) == 2, found
        assert all(0 <= result.relevance_score <= 1 for result in found.results)
    try:
        COHERE.rerank(model=RANKER, query="", documents=documents)
    except cohere.BadRequestError:
        pass
    else:
        raise AssertionError("an empty query was taken")


def png(image):
    assert base64.b64decode(image).startswith(b"\x89PNG\r\n\x1a\n"), image[:40]


def images_of_the_list(model):
    made = PLAIN.images.generate(model=model, prompt="a red circle", n=2, response_format="b64_json")
    assert len(made.data) == 2 and made.created > 1_700_000_000, made
    for image in made.data:
        png(image.b64_json)
    # Without response_format the model decides between URL and base64.
    one = PLAIN.images.generate(model=model, prompt="a red circle").data[0]
    assert bool(one.url) != bool(one.b64_json), one


def edits_of_images(model):
    picture = base64.b64decode(PICTURE)
    edited = PLAIN.images.edit(model=model, prompt="make it blue", image=("a.png", picture), response_format="b64_json")
    png(edited.data[0].b64_json)
    several = PLAIN.images.edit(model=model, prompt="both", image=[("a.png", picture), ("b.png", picture)])
    assert len(several.data) == 1, several


def usage_of_images(model):
    usage = PLAIN.images.generate(model=model, prompt="a red circle", quality="low", size="1024x1024").usage
    assert usage.output_tokens > 0 and usage.total_tokens == usage.input_tokens + usage.output_tokens, usage
    assert usage.input_tokens_details.image_tokens == 0, usage


def wrong_images(model):
    for asked, param in [({"n": 99}, "n"), ({"size": "1x1"}, "size"), ({"prompt": ""}, "prompt")]:
        for client in (OPENAI, PLAIN):
            try:
                client.images.generate(model=model, **({"prompt": "x"} | asked))
            except openai.BadRequestError as error:
                assert error.param == param and error.type == "invalid_request_error", error.body
            else:
                raise AssertionError(f"{asked} was taken")


def predictions(model):
    config = {"number_of_images": 2, "aspect_ratio": "16:9"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = VERTEX.models.generate_images(model=model, prompt="a red circle", config=config).generated_images
    assert [image.image.mime_type for image in made] == ["image/png"] * 2, made
    assert all(image.image.image_bytes.startswith(b"\x89PNG") for image in made)


def drawn_by_a_language_model(model):
    answer = GOOGLE.models.generate_content(
        model=model, contents="a red circle", config={"response_modalities": ["TEXT", "IMAGE"]}
    )
    parts = answer.candidates[0].content.parts
    assert any(part.inline_data and part.inline_data.data.startswith(b"\x89PNG") for part in parts), parts


def is_video(data):
    assert data[4:12] == b"ftypmp42" and len(data) == 4096, data[:20]


def seconds_of(model):
    # Each model family supports other lengths: 4, 6 or 8; 5 or 10; and so on.
    return 5 if model.startswith("wan") else 8


def videos_of_the_list(model):
    begun = OPENAI.videos.create(model=model, prompt="a cat", seconds=str(seconds_of(model)))
    assert begun.object == "video" and begun.status == "queued" and begun.model == model, begun
    done = OPENAI.videos.poll(begun.id, poll_interval_ms=300)
    assert done.id == begun.id and done.status == "completed" and done.progress == 100, done
    is_video(OPENAI.videos.download_content(begun.id).read())


def videos_made_anew(model):
    picture = base64.b64decode(PICTURE)
    begun = OPENAI.videos.create(
        model=model, prompt="a cat", size="1280x720", seconds="8", input_reference=("a.png", picture, "image/png")
    )
    assert (begun.size, begun.seconds) == ("1280x720", "8"), begun
    anew = OPENAI.videos.remix(begun.id, prompt="a dog")
    assert anew.id != begun.id and anew.remixed_from_video_id == begun.id, anew
    failed = OPENAI.videos.create_and_poll(model=model, prompt="a cat [[film fail]]", poll_interval_ms=300)
    assert failed.status == "failed" and failed.error.code == "moderation_blocked", failed


def wrong_videos(model):
    for asked, param in [({"seconds": "5"}, "seconds"), ({"size": "1x1"}, "size"), ({"prompt": ""}, "prompt")]:
        try:
            OPENAI.videos.create(model=model, **({"prompt": "x"} | asked))
        except openai.BadRequestError as error:
            assert error.param == param, error.body
        else:
            raise AssertionError(f"{asked} was taken")
    try:
        OPENAI.videos.retrieve("video_0")
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("a video that is not there")


def videos_of_operations(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operation = VERTEX.models.generate_videos(model=model, prompt="a cat", config={"duration_seconds": seconds_of(model)})
    for _ in range(100):
        if operation.done:
            break
        time.sleep(0.3)
        operation = VERTEX.operations.get(operation)
    videos = operation.response.generated_videos
    assert len(videos) == 1, operation
    is_video(videos[0].video.video_bytes)


def listings():
    known = set(EMBEDDERS + SPEAKERS + [RANKER] + PAINTERS + FILMERS)
    listed = {model.id for model in OPENAI.models.list()}
    assert known <= listed, listed
    # Page by page, as the SDKs iterate.
    assert {model.id for model in ANTHROPIC.models.list(limit=2)} == listed
    assert {model.name.removeprefix("models/") for model in GOOGLE.models.list(config={"page_size": 2})} == listed
    for model in known:
        assert OPENAI.models.retrieve(model).id == model
        one = ANTHROPIC.models.retrieve(model)
        assert one.id == model and one.lifecycle == "active" and one.created_at.year > 2000, one
        assert GOOGLE.models.get(model=model).name == f"models/{model}"
    actions = GOOGLE.models.get(model=EMBEDDERS[0]).supported_actions
    assert "embedContent" in actions, actions
    try:
        OPENAI.models.retrieve("nobody")
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("a model that is not there")


def main():
    checks = [(check, (model,)) for check in (vectors_of_the_list, vectors_of_parts) for model in EMBEDDERS]
    checks += [(wrong_vectors, (EMBEDDERS[0],)), (wrong_vectors, (EMBEDDERS[2],))]
    checks += [(check, (model,)) for check in (counts_of_messages, wrong_counts) for model in SPEAKERS]
    checks += [(check, (model,)) for check in (images_of_the_list, predictions) for model in PAINTERS]
    checks += [(edits_of_images, (model,)) for model in EDITORS]
    checks += [(check, (PAINTERS[0],)) for check in (usage_of_images, wrong_images)]
    checks += [(drawn_by_a_language_model, (PAINTERS[1],))]
    checks += [(check, (model,)) for check in (videos_of_the_list, videos_of_operations) for model in FILMERS]
    checks += [(check, (FILMERS[0],)) for check in (videos_made_anew, wrong_videos)]
    checks += [(orders, ()), (listings, ())]
    failed = 0
    for check, arguments in checks:
        try:
            check(*arguments)
        except Exception as error:  # noqa: BLE001: every failure is reported
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED {check.__name__}{arguments}: {type(error).__name__} {error} ({where.name}:{where.lineno})")
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
