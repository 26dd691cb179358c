"""Official SDKs at providers of other formats: the results that a user of each SDK gets.

Usage: translation.py BASE_URL KEY WISH,... MODEL...
Every SDK tests every model with the named wishes (methods of the clients below). Prints a line for each failure. Exits
with 1 if there was a failure.
"""

import base64
import json
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
from google import genai
from google.genai import types
from pydantic import BaseModel

BASE, KEY, WISHES, MODELS = sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4:]

# Image of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASK_TOOL = "Please use get_weather."


class Person(BaseModel):
    name: str
    age: int


def said(text, what="Hello"):
    assert f'You said: "{what}".' in text, text


def answered(text):
    assert "The tool get_weather answered: " in text and "sunny" in text, text


def person(text):
    value = json.loads(text)
    assert isinstance(value["name"], str) and isinstance(value["age"], int), text


class Chat:
    errors = openai.APIStatusError

    def __init__(self):
        self.api = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
        self.tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]

    def create(self, model, messages, **more):
        return self.api.chat.completions.create(model=model, messages=messages, **more)

    def user(self, text):
        return [{"role": "user", "content": text}]

    def text(self, model):
        answer = self.create(model, self.user("Hello"))
        said(answer.choices[0].message.content)
        assert answer.choices[0].finish_reason == "stop" and answer.model == model
        assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, answer.usage

    def stream(self, model):
        pieces = []
        options = {"include_usage": True}
        with self.api.chat.completions.stream(
            model=model, messages=self.user("Hello"), stream_options=options
        ) as stream:
            for event in stream:
                if event.type == "content.delta":
                    pieces.append(event.delta)
            final = stream.get_final_completion()
        said("".join(pieces))
        said(final.choices[0].message.content)
        assert len(pieces) > 3 and final.usage.completion_tokens > 0

    def tool(self, model):
        for streamed in (False, True):
            messages = self.user(ASK_TOOL)
            if streamed:
                with self.api.chat.completions.stream(
                    model=model, messages=messages, tools=self.tools
                ) as stream:
                    for _ in stream:
                        pass
                    choice = stream.get_final_completion().choices[0]
            else:
                choice = self.create(model, messages, tools=self.tools).choices[0]
            assert choice.finish_reason == "tool_calls", choice
            calls = choice.message.tool_calls
            assert [call.function.name for call in calls] == ["get_weather"], calls
            assert "city" in json.loads(calls[0].function.arguments)
            messages.append(choice.message.model_dump(exclude_none=True))
            messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"})
            second = self.create(model, messages, tools=self.tools)
            answered(second.choices[0].message.content)

    def structured(self, model):
        answer = self.api.chat.completions.parse(
            model=model, messages=self.user("Who?"), response_format=Person
        )
        assert isinstance(answer.choices[0].message.parsed, Person), answer

    def thinking(self, model):
        messages = self.user(ASK_TOOL)
        first = self.create(model, messages, tools=self.tools, reasoning_effort="high")
        message = first.choices[0].message
        # Fields that the SDK does not know are sent back unchanged.
        messages.append(message.model_dump(exclude_none=True))
        messages.append(
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        )
        second = self.create(model, messages, tools=self.tools, reasoning_effort="high")
        answered(second.choices[0].message.content)
        messages.append(second.choices[0].message.model_dump(exclude_none=True))
        messages += self.user("Hello")
        said(self.create(model, messages, tools=self.tools, reasoning_effort="high").choices[0].message.content)

    def image(self, model):
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        content = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": url}}]
        answer = self.create(model, [{"role": "user", "content": content}])
        assert "I see 1 image." in answer.choices[0].message.content, answer

    def error(self, model):
        expect(openai.RateLimitError, lambda: self.create(model, self.user("[[status 429]]")))
        expect(openai.APIError, lambda: list(self.create(model, self.user("Hi [[error 3]]"), stream=True)))
        expect(openai.APIError, lambda: list(self.create(model, self.user("Hi [[cut 3]]"), stream=True)))

    def late(self, model):
        ask = lambda: list(self.create(model, self.user("[[status 429]]"), stream=True))
        assert not isinstance(expect(openai.APIError, ask), openai.APIStatusError)


class Responses:
    def __init__(self):
        self.api = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
        self.tools = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]

    def create(self, model, input, **more):
        return self.api.responses.create(model=model, input=input, **more)

    def text(self, model):
        answer = self.create(model, "Hello")
        said(answer.output_text)
        assert answer.status == "completed" and answer.model == model
        assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage
        self.compaction(model)

    def compaction(self, model):
        """The compacted conversation is the beginning of the next request."""
        messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
        compacted = self.api.responses.compact(model=model, input=messages)
        assert compacted.object == "response.compaction" and compacted.usage.total_tokens > 0, compacted
        assert [item.type for item in compacted.output] == ["message", "compaction"], compacted.output
        items = [item.model_dump(exclude_none=True) for item in compacted.output]
        assert "Hello" in self.create(model, items + [{"role": "user", "content": "Hello"}]).output_text

    def stream(self, model):
        pieces = []
        with self.api.responses.stream(model=model, input="Hello") as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    pieces.append(event.delta)
            final = stream.get_final_response()
        said("".join(pieces))
        said(final.output_text)
        assert len(pieces) > 3 and final.usage.output_tokens > 0

    def tool(self, model):
        for streamed in (False, True):
            items = [{"role": "user", "content": ASK_TOOL}]
            if streamed:
                with self.api.responses.stream(model=model, input=items, tools=self.tools) as stream:
                    for _ in stream:
                        pass
                    answer = stream.get_final_response()
            else:
                answer = self.create(model, items, tools=self.tools)
            calls = [item for item in answer.output if item.type == "function_call"]
            assert [call.name for call in calls] == ["get_weather"], answer.output
            assert "city" in json.loads(calls[0].arguments)
            items += [item.model_dump(exclude_none=True) for item in calls]
            items.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"})
            answered(self.create(model, items, tools=self.tools).output_text)

    def structured(self, model):
        answer = self.api.responses.parse(model=model, input="Who?", text_format=Person)
        assert isinstance(answer.output_parsed, Person), answer

    def thinking(self, model):
        more = {
            "tools": self.tools,
            "reasoning": {"effort": "high", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
        }
        items = [{"role": "user", "content": ASK_TOOL}]
        for streamed in (False, True):
            items = items[:1]
            if streamed:
                with self.api.responses.stream(model=model, input=items, **more) as stream:
                    for _ in stream:
                        pass
                    first = stream.get_final_response()
            else:
                first = self.create(model, items, **more)
            call = [item for item in first.output if item.type == "function_call"][0]
            # Chat providers do not return their reasoning, and Gemini signs the tool call instead.
            if model.endswith(("-messages", "-responses")):
                assert any(item.type == "reasoning" and item.encrypted_content for item in first.output)
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
            second = self.create(model, items, **more)
            answered(second.output_text)

    def image(self, model):
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        content = [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": url}]
        answer = self.create(model, [{"role": "user", "content": content}])
        assert "I see 1 image." in answer.output_text, answer

    def error(self, model):
        expect(openai.RateLimitError, lambda: self.create(model, "[[status 429]]"))
        for fault in ("error", "cut"):
            stream = self.create(model, f"Hi [[{fault} 3]]", stream=True)
            kinds = []
            try:
                kinds = [event.type for event in stream]
            except openai.APIError:
                kinds.append("error")
            assert kinds[-1] in ("error", "response.failed") and "response.completed" not in kinds, kinds

    def late(self, model):
        ask = lambda: list(self.create(model, "[[status 429]]", stream=True))
        assert not isinstance(expect(openai.APIError, ask), openai.APIStatusError)


class Messages:
    def __init__(self):
        self.api = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
        self.tools = [{"name": "get_weather", "input_schema": SCHEMA}]

    def create(self, model, messages, **more):
        return self.api.messages.create(**{"model": model, "messages": messages, "max_tokens": 4096, **more})

    def user(self, text):
        return [{"role": "user", "content": text}]

    def text(self, model):
        answer = self.create(model, self.user("Hello"))
        said(answer.content[0].text)
        assert answer.stop_reason == "end_turn" and answer.model == model
        assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage

    def stream(self, model):
        with self.api.messages.stream(model=model, messages=self.user("Hello"), max_tokens=4096) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        said("".join(pieces))
        said(final.content[0].text)
        assert len(pieces) > 3 and final.usage.output_tokens > 0

    def tool(self, model):
        for streamed in (False, True):
            messages = self.user(ASK_TOOL)
            more = {"model": model, "messages": messages, "max_tokens": 4096, "tools": self.tools}
            if streamed:
                with self.api.messages.stream(**more) as stream:
                    answer = stream.get_final_message()
            else:
                answer = self.api.messages.create(**more)
            assert answer.stop_reason == "tool_use", answer
            self.go_on(model, messages, answer, tools=self.tools)

    def go_on(self, model, messages, answer, **more):
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert [call.name for call in calls] == ["get_weather"] and "city" in calls[0].input, answer
        messages.append({"role": "assistant", "content": answer.content})
        result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "sunny"}
        messages.append({"role": "user", "content": [result]})
        second = self.create(model, messages, **more)
        answered([block.text for block in second.content if block.type == "text"][0])
        return second

    def structured(self, model):
        answer = self.api.messages.parse(
            model=model, messages=self.user("Who?"), max_tokens=4096, output_format=Person
        )
        assert isinstance(answer.parsed_output, Person), answer

    def thinking(self, model):
        more = {"tools": self.tools, "thinking": {"type": "enabled", "budget_tokens": 2048}}
        for streamed in (False, True):
            messages = self.user(ASK_TOOL)
            if streamed:
                with self.api.messages.stream(
                    model=model, messages=messages, max_tokens=4096, **more
                ) as stream:
                    answer = stream.get_final_message()
            else:
                answer = self.create(model, messages, **more)
            second = self.go_on(model, messages, answer, **more)
            messages.append({"role": "assistant", "content": second.content})
            messages += self.user("Hello")
            third = self.create(model, messages, **more)
            said([block.text for block in third.content if block.type == "text"][0])

    def image(self, model):
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "Look"}]
        answer = self.create(model, [{"role": "user", "content": content}])
        assert "I see 1 image." in answer.content[0].text, answer

    def error(self, model):
        expect(anthropic.RateLimitError, lambda: self.create(model, self.user("[[status 429]]")))
        for fault in ("error", "cut"):
            ask = lambda: list(self.create(model, self.user(f"Hi [[{fault} 3]]"), stream=True))
            expect(anthropic.APIError, ask)

    def late(self, model):
        ask = lambda: list(self.create(model, self.user("[[status 429]]"), stream=True))
        assert expect(anthropic.APIError, ask).body["error"]["type"] == "rate_limit_error"


class Generate:
    def __init__(self):
        options = types.HttpOptions(base_url=BASE)
        self.api = genai.Client(api_key=KEY, http_options=options)
        declaration = types.FunctionDeclaration(name="get_weather", parameters_json_schema=SCHEMA)
        self.tools = [types.Tool(function_declarations=[declaration])]

    def create(self, model, contents, **config):
        config = types.GenerateContentConfig(**config) if config else None
        return self.api.models.generate_content(model=model, contents=contents, config=config)

    def streamed(self, model, contents, **config):
        config = types.GenerateContentConfig(**config) if config else None
        return list(self.api.models.generate_content_stream(model=model, contents=contents, config=config))

    def text(self, model):
        answer = self.create(model, "Hello")
        said(answer.text)
        assert answer.candidates[0].finish_reason == types.FinishReason.STOP
        assert answer.model_version == model
        usage = answer.usage_metadata
        assert usage.prompt_token_count > 0 and usage.candidates_token_count > 0, usage

    def stream(self, model):
        frames = self.streamed(model, "Hello")
        said("".join(frame.text or "" for frame in frames))
        assert len(frames) > 3 and frames[-1].candidates[0].finish_reason == types.FinishReason.STOP
        assert frames[-1].usage_metadata.candidates_token_count > 0

    def parts(self, frames):
        return [part for frame in frames for part in frame.candidates[0].content.parts or []]

    def tool(self, model, **config):
        config["tools"] = self.tools
        config["automatic_function_calling"] = types.AutomaticFunctionCallingConfig(disable=True)
        for streamed in (False, True):
            contents = [types.Content(role="user", parts=[types.Part(text=ASK_TOOL)])]
            if streamed:
                parts = self.parts(self.streamed(model, contents, **config))
            else:
                parts = self.parts([self.create(model, contents, **config)])
            calls = [part.function_call for part in parts if part.function_call]
            assert [call.name for call in calls] == ["get_weather"] and "city" in calls[0].args, parts
            contents.append(types.Content(role="model", parts=parts))
            result = types.FunctionResponse(id=calls[0].id, name="get_weather", response={"output": "sunny"})
            contents.append(types.Content(role="user", parts=[types.Part(function_response=result)]))
            second = self.create(model, contents, **config)
            answered(second.text)

    def structured(self, model):
        config = {"response_mime_type": "application/json", "response_schema": Person}
        answer = self.create(model, "Who?", **config)
        assert isinstance(answer.parsed, Person), answer
        config = {"response_mime_type": "application/json", "response_json_schema": Person.model_json_schema()}
        person(self.create(model, "Who?", **config).text)

    def thinking(self, model):
        thinking = types.ThinkingConfig(include_thoughts=True, thinking_budget=2048)
        self.tool(model, thinking_config=thinking)

    def image(self, model):
        parts = [types.Part.from_bytes(data=PNG, mime_type="image/png"), types.Part(text="Look")]
        assert "I see 1 image." in self.create(model, [types.Content(role="user", parts=parts)]).text

    def error(self, model):
        errors = genai.errors.APIError
        assert expect(errors, lambda: self.create(model, "[[status 429]]")).code == 429
        expect(errors, lambda: self.streamed(model, "Hi [[error 3]]"))
        expect(errors, lambda: self.streamed(model, "Hi [[cut 3]]"))

    def late(self, model):
        assert expect(genai.errors.APIError, lambda: self.streamed(model, "[[status 429]]")).code == 429


def expect(kind, ask):
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}: {answer}")


def attempt(client, model, wish):
    try:
        getattr(client, wish)(model)
        return None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error}"[:700].replace("\n", " ")
        return f"{type(client).__name__} at {model}, {wish}: {told} ({place.name}:{place.lineno})"


def attempts(client):
    return [attempt(client, model, wish) for model in MODELS for wish in WISHES]


# One thread for each client.
with ThreadPoolExecutor() as pool:
    results = sum(pool.map(attempts, (Chat(), Responses(), Messages(), Generate())), [])
failures = [result for result in results if result]
print("\n".join(failures))
print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
sys.exit(1 if failures else 0)
