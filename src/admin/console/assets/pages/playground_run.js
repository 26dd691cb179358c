// A request of the playground: its body in each of the four formats, its run, and the text of its answer.
import * as api from "../lib/api.js";

export const FORMATS = [
  { value: "chat", label: "Chat" },
  { value: "messages", label: "Messages" },
  { value: "responses", label: "Responses" },
  { value: "generate", label: "Generate" },
];

// Returns the path and the body of a prompt in a client's format.
export function requestOf(format, model, prompt, stream, most) {
  switch (format) {
    case "messages":
      return { path: "/v1/messages", body: { model, max_tokens: most, messages: [{ role: "user", content: prompt }], ...(stream && { stream }) } };
    case "responses":
      return { path: "/v1/responses", body: { model, input: prompt, max_output_tokens: most, store: false, ...(stream && { stream }) } };
    case "generate":
      return {
        path: `/v1beta/models/${encodeURIComponent(model)}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
        body: { contents: [{ role: "user", parts: [{ text: prompt }] }], generationConfig: { maxOutputTokens: most } },
      };
    default:
      return { path: "/v1/chat/completions", body: { model, messages: [{ role: "user", content: prompt }], max_completion_tokens: most, ...(stream && { stream }) } };
  }
}

// Returns the text in a document or an event of a stream.
function textOf(format, value) {
  if (format === "messages") return value.delta?.text ?? value.content?.map((block) => block.text || "").join("") ?? "";
  if (format === "generate") return value.candidates?.[0]?.content?.parts?.map((part) => part.text || "").join("") ?? "";
  if (format === "responses") {
    if (value.type === "response.output_text.delta") return value.delta;
    if (value.object !== "response") return "";
    return (value.output || []).flatMap((item) => item.content || []).map((part) => part.text || "").join("");
  }
  const choice = value.choices?.[0];
  return choice?.delta?.content ?? choice?.message?.content ?? "";
}

// Runs a request. `each` is called with the state of the answer whenever it has grown.
export async function run({ format, path, body, key, stream, signal }, each) {
  const state = { status: 0, headers: {}, text: "", raw: "", frames: [], first: null, end: null, complete: null, error: null };
  let rest = "";
  try {
    await api.stream("POST", "/playground", { path, key, body }, signal, (name, data) => {
      if (name === "head") Object.assign(state, { status: data.status, headers: data.headers });
      if (name === "end") Object.assign(state, { end: data.ms, complete: data.complete });
      if (name === "body") {
        state.raw += data.text;
        state.first ??= data.ms;
        if (stream && state.status === 200) {
          rest += data.text.replaceAll("\r", "");
          const events = rest.split("\n\n");
          rest = events.pop();
          for (const event of events) {
            state.frames.push({ ms: data.ms, text: event });
            const json = /^data: (\{.*)$/m.exec(event)?.[1];
            if (json) state.text += textOf(format, JSON.parse(json)) || "";
          }
        }
      }
      each({ ...state });
    });
    if (!(stream && state.status === 200) && state.raw) {
      try {
        state.text = textOf(format, JSON.parse(state.raw));
      } catch {
        state.text = state.raw;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") state.error = error;
  }
  each({ ...state, done: true });
}

// Returns the same request as a command.
export function curl(base, path, body) {
  return `curl${body.includes('"stream":true') || path.includes("stream") ? " -N" : ""} ${base}${path} \\\n  -H "authorization: Bearer $MODEL_GATEWAY_KEY" -H 'content-type: application/json' \\\n  -d '${body.replaceAll("'", "'\\''")}'`;
}
