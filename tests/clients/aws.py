"""The AWS SDK for Python (boto3), Anthropic's SDK and LangChain's clients for Bedrock against the gateway.

Usage: aws.py BASE_URL CREDENTIAL MODEL...
CREDENTIAL is `signed` (the access key is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or `bearer` (the key is in
AWS_BEARER_TOKEN_BEDROCK). Prints a line for each failure. Exits with 1 if there was a failure.
"""

import base64
import json
import os
import ssl
import sys
import traceback

import anthropic
import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from langchain_aws import ChatBedrock, ChatBedrockConverse
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

BASE, CREDENTIAL, MODELS = sys.argv[1], sys.argv[2], sys.argv[3:]
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CLIENT = boto3.client(
    "bedrock-runtime",
    endpoint_url=BASE,
    region_name="eu-west-1",
    config=Config(retries={"max_attempts": 0}, read_timeout=60),
)
TOOLS = {
    "tools": [
        {
            "toolSpec": {
                "name": "get_weather",
                "description": "Returns the weather.",
                "inputSchema": {
                    "json": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
                },
            }
        }
    ]
}


def user(*content):
    return {"role": "user", "content": list(content)}


def texts(message):
    return "".join(block.get("text", "") for block in message["content"])


def whole(model):
    answer = CLIENT.converse(
        modelId=model,
        messages=[user({"text": "Grüße"})],
        system=[{"text": "Be brief."}],
        inferenceConfig={"maxTokens": 2000, "stopSequences": ["never"]},
    )
    said = texts(answer["output"]["message"])
    assert 'You said: "Grüße".' in said and "Be brief." in said, said
    assert answer["stopReason"] == "end_turn", answer
    usage = answer["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"] > 0, usage
    assert answer["metrics"]["latencyMs"] >= 0 and answer["ResponseMetadata"]["RequestId"], answer


def read(stream):
    """Returns the text, the arguments of tool calls by name, and the last events."""
    said, calls, name, stop, metadata = "", {}, None, None, None
    for event in stream:
        if "contentBlockStart" in event:
            name = event["contentBlockStart"]["start"]["toolUse"]["name"]
        elif "contentBlockDelta" in event:
            delta = event["contentBlockDelta"]["delta"]
            said += delta.get("text", "")
            if "toolUse" in delta:
                calls[name] = calls.get(name, "") + delta["toolUse"]["input"]
        elif "messageStop" in event:
            stop = event["messageStop"]["stopReason"]
        elif "metadata" in event:
            metadata = event["metadata"]
    return said, calls, stop, metadata


def streamed(model):
    answer = CLIENT.converse_stream(modelId=model, messages=[user({"text": "Hello [[words 40]]"})])
    said, _, stop, metadata = read(answer["stream"])
    assert len(said.split()) == 40 and stop == "end_turn", (said, stop)
    assert metadata["usage"]["outputTokens"] > 0, metadata


def tools(model):
    question = user({"text": "get_weather please"})
    answer = CLIENT.converse(modelId=model, messages=[question], toolConfig=TOOLS)
    assert answer["stopReason"] == "tool_use", answer
    message = answer["output"]["message"]
    call = next(block["toolUse"] for block in message["content"] if "toolUse" in block)
    assert call["name"] == "get_weather" and isinstance(call["input"]["city"], str), call
    result = {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"json": {"degrees": 12}}]}}
    answer = CLIENT.converse(modelId=model, messages=[question, message, user(result)], toolConfig=TOOLS)
    assert "get_weather answered" in texts(answer["output"]["message"]), answer
    stream = CLIENT.converse_stream(modelId=model, messages=[question], toolConfig=TOOLS)["stream"]
    _, calls, stop, _ = read(stream)
    assert stop == "tool_use" and '"city"' in calls["get_weather"], (stop, calls)


def media(model):
    picture = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
    document = {"document": {"format": "pdf", "name": "A report", "source": {"bytes": b"%PDF-1.4\n"}}}
    answer = CLIENT.converse(modelId=model, messages=[user({"text": "Look"}, picture, document)])
    said = texts(answer["output"]["message"])
    assert "I see 1 image. I see 1 document." in said, said


def errors(model):
    for status, kind in [(400, "ValidationException"), (429, "ThrottlingException")]:
        try:
            CLIENT.converse(modelId=model, messages=[user({"text": f"[[status {status}]] Hello"})])
        except ClientError as error:
            assert error.response["Error"]["Code"] == kind, error.response
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == status, error.response
        else:
            raise AssertionError(f"{status} is no error")
    stream = CLIENT.converse_stream(modelId=model, messages=[user({"text": "[[error 2]] Hello you"})])["stream"]
    try:
        read(stream)
    except EventStreamError as error:
        assert error.response["Error"]["Message"], error.response
    else:
        raise AssertionError("an error in a stream is no exception")


def claude(text, **more):
    """Returns the body of InvokeModel for Claude."""
    message = {"role": "user", "content": text}
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 2000, "messages": [message], **more}
    return json.dumps(body)


def invoked(model):
    answer = CLIENT.invoke_model(modelId=model, body=claude("Grüße", system="Be brief."))
    body = json.loads(answer["body"].read())
    said = "".join(block.get("text", "") for block in body["content"])
    assert 'You said: "Grüße".' in said and "Be brief." in said, body
    assert answer["contentType"] == "application/json" and body["stop_reason"] == "end_turn", answer
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert int(headers["x-amzn-bedrock-output-token-count"]) == body["usage"]["output_tokens"], headers


def invoked_stream(model):
    answer = CLIENT.invoke_model_with_response_stream(modelId=model, body=claude("Hello [[words 40]]"))
    events = [json.loads(event["chunk"]["bytes"]) for event in answer["body"]]
    said = "".join(event.get("delta", {}).get("text", "") for event in events)
    assert len(said.split()) == 40 and events[0]["type"] == "message_start", events
    metrics = events[-1]["amazon-bedrock-invocationMetrics"]
    assert events[-1]["type"] == "message_stop" and metrics["outputTokenCount"] > 0, events[-1]
    body = claude("[[error 2]] Hello you")
    answer = CLIENT.invoke_model_with_response_stream(modelId=model, body=body)
    try:
        list(answer["body"])
    except EventStreamError as error:
        assert error.response["Error"]["Message"], error.response
    else:
        raise AssertionError("an error in a stream is no exception")
    try:
        CLIENT.invoke_model(modelId=model, body=claude("[[status 429]] Hello"))
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ThrottlingException", error.response
    else:
        raise AssertionError("429 is no error")


def anthropic_sdk(model):
    bundle = os.environ.get("AWS_CA_BUNDLE")
    verify = ssl.create_default_context(cafile=bundle) if bundle else True
    http_client = anthropic.DefaultHttpxClient(verify=verify)
    client = anthropic.AnthropicBedrock(
        base_url=BASE, aws_region="eu-west-1", max_retries=0, http_client=http_client
    )
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"name": "get_weather", "description": "Returns the weather.", "input_schema": schema}]
    question = {"role": "user", "content": "get_weather please"}
    asked = {"model": model, "max_tokens": 2000, "tools": tools}
    answer = client.messages.create(messages=[question], **asked)
    call = next(block for block in answer.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees"}
    turns = [question, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    with client.messages.stream(messages=turns, **asked) as stream:
        said = "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens > 0
    assert "get_weather answered" in said, said
    try:
        client.messages.create(messages=[{"role": "user", "content": "[[status 429]] Hello"}], **asked)
    except anthropic.RateLimitError:
        pass
    else:
        raise AssertionError("429 is no error")


def refused(model):
    wrong = boto3.client(
        "bedrock-runtime",
        endpoint_url=BASE,
        region_name="eu-west-1",
        aws_access_key_id=boto3.Session().get_credentials().access_key,
        aws_secret_access_key="a secret that is none",
    )
    try:
        wrong.converse(modelId=model, messages=[user({"text": "Hello"})])
    except ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidSignatureException", error.response
    else:
        raise AssertionError("a wrong signature was accepted")


@tool
def get_weather(city: str) -> str:
    """Returns the weather."""
    return f"12 degrees in {city}"


def chat(model):
    # With a base model the client asks no control plane about an ARN.
    return ChatBedrockConverse(
        model=model,
        base_model="anthropic.claude-sonnet-4-5-20250929-v1:0",
        provider="anthropic",
        client=CLIENT,
        max_tokens=2000,
        disable_streaming=False,
    )


def langchain(model):
    llm = chat(model)
    answer = llm.invoke("Hello")
    assert 'You said: "Hello".' in answer.text and answer.usage_metadata["output_tokens"] > 0, answer
    pieces = list(llm.stream("Hello [[words 30]]"))
    assert len("".join(piece.text for piece in pieces).split()) == 30 and len(pieces) > 3, pieces
    picture = {"type": "image", "base64": base64.b64encode(PICTURE).decode(), "mime_type": "image/png"}
    answer = llm.invoke([HumanMessage(content=[{"type": "text", "text": "Look"}, picture])])
    assert "I see 1 image." in answer.text, answer


def langchain_tools(model):
    llm = chat(model).bind_tools([get_weather])
    question = HumanMessage(content="get_weather please")
    answer = llm.invoke([question])
    [call] = answer.tool_calls
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str), call
    result = ToolMessage(content=get_weather.invoke(call["args"]), tool_call_id=call["id"])
    assert "12 degrees" in llm.invoke([question, answer, result]).text
    whole = None
    for piece in llm.stream([question]):
        whole = piece if whole is None else whole + piece
    assert whole.tool_calls[0]["name"] == "get_weather", whole


def langchain_invoke(model):
    llm = ChatBedrock(
        model=model,
        base_model="anthropic.claude-sonnet-4-5-20250929-v1:0",
        provider="anthropic",
        client=CLIENT,
        max_tokens=2000,
        beta_use_converse_api=False,
    )
    answer = llm.invoke("Hello")
    assert 'You said: "Hello".' in answer.text and answer.usage_metadata["output_tokens"] > 0, answer
    pieces = list(llm.stream("Hello [[words 30]]"))
    assert len("".join(piece.text for piece in pieces).split()) == 30 and len(pieces) > 3, pieces
    whole = None
    for piece in pieces:
        whole = piece if whole is None else whole + piece
    assert whole.usage_metadata["output_tokens"] > 0, whole
    answer = llm.bind_tools([get_weather]).invoke("get_weather please")
    [call] = answer.tool_calls
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str), call


def main():
    checks = [whole, streamed, tools, media, errors, langchain, langchain_tools]
    checks += [invoked, invoked_stream, anthropic_sdk, langchain_invoke]
    if CREDENTIAL == "signed":
        checks.append(refused)
    passed = failed = 0
    for model in MODELS:
        for check in checks:
            try:
                check(model)
                passed += 1
            except Exception:  # pylint: disable=broad-exception-caught
                failed += 1
                print(f"{check.__name__} with {model}:\n{traceback.format_exc()}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
