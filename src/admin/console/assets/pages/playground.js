// Does it work through the gateway? A prompt in the four formats, as a client sends it; side by side; and explained.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, duration, priced } from "../lib/format.js";
import { live } from "../lib/live.js";
import { Facts } from "../lib/table.js";
import { Act, Badge, Card, Check, Choice, Code, Failed, Field, Notice, Page, may, say, useLive, useLoad } from "../lib/ui.js";
import { makeKey, removeKey } from "./playground_key.js";
import { FORMATS, curl, requestOf, run } from "./playground_run.js";
import { baseUrl } from "./setup.js";
import { toneOf, wordOf } from "./targets.js";

// What one operator has typed stays while the page is left and opened again, and is forgotten with the tab.
const kept = { key: "", made: "", prompt: "Say hello in one sentence." };

const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

// What the gateway has recorded of a request, from the live events.
function Recorded({ id }) {
  const row = live.requests.find((one) => one.request_id === id);
  if (!row) return null;
  return html`<${Facts} facts=${[
    ["Went to", `${row.provider} / ${row.upstream_model}`],
    ["Tokens", `${count(row.input_tokens)} in, ${count(row.output_tokens)} out`],
    ["Cost", priced(row.cost)],
    ["Attempts", row.attempts > 1 ? `${row.attempts}: ${row.tried || ""}` : null],
  ]} />`;
}

function Answer({ state }) {
  const [view, setView] = useState("text");
  if (!state) return html`<p class="none">The answer comes here. Ctrl Enter runs.</p>`;
  const good = state.status >= 200 && state.status < 300;
  return html`<div class="answer">
    <p class="row">
      ${state.status > 0 && html`<${Badge} tone=${good ? "good" : state.status >= 500 ? "bad" : "warn"}>${state.status}<//>`}
      ${state.first != null && html`<span class="muted">first bytes after ${duration(state.first)}</span>`}
      ${state.end != null && html`<span class="muted">end after ${duration(state.end)}</span>`}
      ${state.complete === false && html`<${Badge} tone="bad">broken off<//>`}
      ${!state.done && html`<span class="muted">running …</span>`}
    </p>
    <${Failed} error=${state.error} />
    <${Choice} label="View" hideLabel value=${view} onValue=${setView} options=${[{ value: "text", label: "Text" }, { value: "frames", label: state.frames.length ? `${state.frames.length} frames` : "Raw" }, { value: "headers", label: "Headers" }]} />
    ${view === "text" && html`<div class="said" tabindex="0" role="region" aria-label="Text of the answer">${good ? state.text || (state.done ? html`<span class="muted">no text</span>` : "") : pretty(state.raw)}</div>`}
    ${view === "frames" && (state.frames.length ? html`<ol class="frames" tabindex="0">${state.frames.map((frame) => html`<li><time>${duration(frame.ms)}</time><code>${frame.text}</code></li>`)}</ol>` : html`<${Code} text=${pretty(state.raw)} label="Raw answer" />`)}
    ${view === "headers" && html`<${Code} text=${Object.entries(state.headers).map(([name, value]) => `${name}: ${value}`).join("\n")} label="Headers of the answer" />`}
    ${state.done && html`<${Recorded} id=${state.headers["x-request-id"]} />`}
  </div>`;
}

function Explained({ found, format, sent }) {
  return html`<div class="explained">
    <p>${found.input_tokens != null && html`About <b>${count(found.input_tokens)}</b> input tokens${found.input_cost != null && html`, which cost <b>${priced(found.input_cost)}</b>`}. `}${found.targets.length} ${found.targets.length === 1 ? "target" : "targets"} of <b>${found.model}</b>:</p>
    ${found.targets.map((target, index) => html`<section class="target">
      <h4>${target.model} <span class="muted">at ${target.provider}</span> ${target.target && html`<${Badge} tone=${toneOf(target.target.state)}>${wordOf(target.target.state)}<//>`}</h4>
      ${target.error
        ? html`<${Notice} tone="bad" title="It cannot serve this.">${target.error}<//>`
        : target.verbatim
          ? html`<${Notice} tone="good" title="Unchanged.">The body is forwarded as it is, in the format ${target.format}, with the model's name at the provider.<//>`
          : html`<${Notice} tone=${target.losses.some((loss) => loss.policy === "warn") ? "warn" : "info"} title=${target.asks_first ? "Unchanged at first." : `Translated into ${target.format}.`}>${target.asks_first ? "The first target gets the body as it is. If the provider refuses its settings, it gets what is below. " : ""}${target.losses.length === 0 ? "Nothing is lost." : ""}<//>`}
      ${target.losses.length > 0 && html`<ul class="losses">${target.losses.map((loss) => html`<li><code>${loss.element}</code> ${loss.clamped ? "moved into the range of the target" : loss.policy === "refuse" ? "cannot be carried: the request is refused" : loss.policy === "warn" ? "dropped, and the client is warned" : "dropped silently: it changes nothing in the answer"}</li>`)}</ul>`}
      ${target.body && found.targets.findIndex((other) => other.body === target.body) < index
        ? html`<p class="muted">It gets the same body as the one above.</p>`
        : target.body && html`<div class="grid pair">
        <div><h5>The client sends, in the format ${format}</h5><${Code} text=${pretty(sent)} label="Body of the client" /></div>
        <div><h5>The provider gets, in the format ${target.format}</h5><${Code} text=${pretty(target.body)} label=${`Body for ${target.provider}`} /></div>
      </div>`}
    </section>`)}
  </div>`;
}

// One side: a format and a model, its request, its answer and its explanation.
function Side({ side, set, models, prompt, stream, most, go, withKey, name }) {
  const made = requestOf(side.format, side.model, prompt, stream, most);
  const body = side.edited ?? JSON.stringify(made.body);
  const controller = useRef(null);
  useEffect(() => () => controller.current?.abort(), []);
  const explain = async () => {
    try {
      set({ found: await api.post("/explain", { format: side.format, model: side.model, stream, body }), explained: body, failed: null });
    } catch (failure) {
      set({ found: null, failed: failure });
    }
  };
  useEffect(() => {
    if (!go.count) return;
    if (go.what === "explain") explain();
    else if (withKey) {
      controller.current?.abort();
      controller.current = new AbortController();
      run({ format: side.format, path: made.path, body, key: withKey, stream, signal: controller.current.signal }, (state) => set({ state }));
    }
  }, [go.count]);
  return html`<${Card} title=${name}>
    <div class="filters">
      <${Choice} label="Format" options=${FORMATS} value=${side.format} onValue=${(format) => set({ format, edited: null, found: null })} />
      <${Field} label="Model" kind="select" grow value=${side.model} onValue=${(model) => set({ model, edited: null, found: null })} options=${models.length ? models : [side.model]} />
    </div>
    <details class="body"><summary>Request <code>POST ${made.path}</code></summary>
      <${Field} label="Body" kind="textarea" rows="9" value=${side.edited ?? JSON.stringify(made.body, null, 2)} onValue=${(edited) => set({ edited })} hint=${side.edited != null ? "Edited: the prompt above is not used." : "Edit it to send something else."} />
      ${side.edited != null && html`<button type="button" class="button small" onClick=${() => set({ edited: null })}>Take the prompt again</button>`}
      <${Code} text=${curl(baseUrl(), made.path, body)} label="The same as a command" />
    </details>
    <${Failed} error=${side.failed} />
    ${side.found && html`<${Explained} found=${side.found} format=${side.format} sent=${side.explained} />`}
    <${Answer} state=${side.state} />
  <//>`;
}

export function Playground({ parameters }) {
  useLive();
  const [all] = useLoad(() => api.all("/models"), []);
  const models = (all || []).filter((m) => m.targets.some((t) => t.apis.chat)).map((m) => m.id);
  const [prompt, setPrompt] = useState(kept.prompt);
  const [key, setKey] = useState(kept.key);
  const [stream, setStream] = useState(true);
  const [most, setMost] = useState("1024");
  const [both, setBoth] = useState(false);
  const [go, setGo] = useState({ count: 0, what: "" });
  const [error, setError] = useState(null);
  const [sides, setSides] = useState([{ format: "chat", model: parameters.model || "" }, { format: "messages", model: "" }]);
  const set = (index) => (change) => setSides((before) => before.map((side, i) => (i === index ? { ...side, ...change } : side)));
  const shown = sides.map((side, i) => ({ ...side, model: side.model || models[Math.min(i, models.length - 1)] || "" }));
  const start = (what) => setGo((before) => ({ count: before.count + 1, what }));
  const keep = (text) => {
    kept.key = text;
    setKey(text);
  };
  const make = async () => {
    try {
      const { name, text } = await makeKey();
      kept.made = name;
      keep(text);
      say(`The key ${name} holds for ten minutes and may spend 1.00.`);
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  const forget = async () => {
    await removeKey(kept.made).catch(() => null);
    say(`The key ${kept.made} is deleted.`);
    kept.made = "";
    keep("");
  };
  const press = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && key && may("operate")) start("run");
  };
  const number = Math.max(1, Math.min(100_000, Number(most) || 1024));
  return html`<${Page} title="Playground" lead="A request with a key, on the path of any client: every rule, limit and charge applies. What you type stays in this tab.">
    <div onKeyDown=${press}>
      <${Card}>
        <${Field} label="Prompt" kind="textarea" rows="3" value=${prompt} onValue=${(text) => { kept.prompt = text; setPrompt(text); }} />
        <div class="filters">
          <${Field} label="Key" kind="password" grow value=${key} onValue=${keep} placeholder="mgw_…" hint=${kept.made && key ? `${kept.made}, for ten minutes` : "The text of a key of the gateway"} />
          ${kept.made && key ? html`<button type="button" class="button" onClick=${forget}>Delete this key</button>` : html`<${Act} role="admin" onClick=${make}>Make a key for ten minutes<//>`}
          <${Field} label="Most output" value=${most} onValue=${setMost} inputmode="numeric" />
        </div>
        <div class="row">
          <${Act} role="operate" kind="primary" disabled=${!key} onClick=${() => start("run")}>Run<//>
          <button type="button" class="button" onClick=${() => start("explain")}>Explain</button>
          <${Check} label="Stream" checked=${stream} onValue=${setStream} />
          <${Check} label="Side by side" checked=${both} onValue=${setBoth} />
        </div>
        <${Failed} error=${error} />
      <//>
      <div class=${both ? "grid two even" : ""}>
        ${shown.slice(0, both ? 2 : 1).map((side, i) => html`<${Side} key=${i} name=${both ? (i ? "Right" : "Left") : "Request and answer"} side=${side} set=${set(i)} models=${models} prompt=${prompt} stream=${stream} most=${number} go=${go} withKey=${key} />`)}
      </div>
    </div>
  <//>`;
}
