// Form of a key: its permissions and limits. Empty fields set no limit.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { Code, Dialog, Failed, Field } from "../lib/ui.js";

const LIMITS = [
  ["spend_per_day", "Spend per day (UTC)", "2.50"],
  ["spend_per_month", "Spend per month (UTC)", "50"],
  ["requests_per_minute", "Requests per minute", "60"],
  ["tokens_per_minute", "Tokens per minute", "100000"],
  ["concurrent", "Concurrent requests", "8"],
];
const AMOUNTS = ["spend_per_day", "spend_per_month"];

const list = (text) => text.split(/[\s,]+/).filter(Boolean);
const written = (value) => (value == null ? "" : String(value));

// Returns limits as the API takes them; a field that was emptied is null, which removes the limit.
export function limitsOf(texts, before) {
  const limits = {};
  for (const [name] of LIMITS) {
    const text = texts[name].trim();
    if (text) limits[name] = AMOUNTS.includes(name) ? text : Number(text);
    else if (before?.[name] != null) limits[name] = null;
  }
  return limits;
}

export function LimitFields({ texts, set, error }) {
  return html`<div class="fields">
    ${LIMITS.map(([name, label, example]) => html`<${Field} label=${label} value=${texts[name]} onValue=${(text) => set(name, text)} placeholder=${`none, or ${example}`} inputmode="decimal" error=${error?.field?.endsWith(name) ? error.message : ""} />`)}
  </div>`;
}

export const limitTexts = (limits) => Object.fromEntries(LIMITS.map(([name]) => [name, written(limits?.[name])]));

// `before`: the key that is changed; without it, a new one is made.
export function KeyForm({ before, accounts, onDone, onClose }) {
  const [texts, setTexts] = useState({
    name: before?.name || "",
    account: before?.account || "",
    models: (before?.models || []).join(", "),
    networks: (before?.networks || []).join(", "),
    expires: before?.expires ? before.expires.slice(0, 10) : "",
    ...limitTexts(before?.limits),
  });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (name, text) => setTexts((all) => ({ ...all, [name]: text }));
  const own = (name) => (error?.field === name ? error.message : "");
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const body = {};
    for (const name of ["models", "networks"]) {
      if (texts[name].trim()) body[name] = list(texts[name]);
      else if (before?.[name]) body[name] = null;
    }
    if (texts.account) body.account = texts.account;
    else if (before?.account) body.account = null;
    if (texts.expires && texts.expires !== before?.expires?.slice(0, 10)) body.expires = `${texts.expires}T00:00:00Z`;
    else if (!texts.expires && before?.expires) body.expires = null;
    const limits = limitsOf(texts, before?.limits);
    if (Object.keys(limits).length) body.limits = limits;
    try {
      const answer = before ? await api.patch(`/keys/${api.segment(before.name)}`, body) : await api.post("/keys", { name: texts.name.trim(), ...body });
      onDone(answer, texts.name.trim());
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${before ? `Change ${before.name}` : "New key"} onClose=${onClose} wide>
    <form onSubmit=${submit}>
      <div class="body">
        <div class="fields">
          ${!before && html`<${Field} label="Name" value=${texts.name} onValue=${(text) => set("name", text)} hint="Who or what uses it: alice, ci, docs-bot" error=${own("name")} required autofocus />`}
          <${Field} label="Account that pays" kind="select" value=${texts.account} onValue=${(text) => set("account", text)} options=${[{ value: "", label: "none: usage is counted, nobody is charged" }, ...accounts.map((account) => account.name)]} error=${own("account")} />
          <${Field} label="Models" value=${texts.models} onValue=${(text) => set("models", text)} placeholder="all, or gpt-*, claude-*" hint="Ids, or patterns with *" error=${own("models")} />
          <${Field} label="Networks" value=${texts.networks} onValue=${(text) => set("networks", text)} placeholder="all, or 10.0.0.0/8" error=${own("networks")} />
          <${Field} label="Expires (UTC)" kind="date" value=${texts.expires} onValue=${(text) => set("expires", text)} error=${own("expires")} />
        </div>
        <h3>Limits</h3>
        <${LimitFields} texts=${texts} set=${set} error=${error} />
        <${Failed} error=${error} />
      </div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" type="submit" disabled=${busy || (!before && !texts.name.trim())}>${before ? "Save" : "Make the key"}</button></footer>
    </form>
  <//>`;
}

// Text of a new key, which is shown once.
export function NewKey({ name, text, onClose }) {
  const [stored, setStored] = useState(false);
  return html`<${Dialog} title=${`Key of ${name}`} onClose=${() => stored && onClose()} wide>
    <div class="body">
      <p>This is the only time that the gateway shows it: it stores a hash. Copy it now.</p>
      <div class="secret"><${Code} text=${text} label=${`Key of ${name}`} /></div>
      <label class="check"><input type="checkbox" checked=${stored} onChange=${(event) => setStored(event.currentTarget.checked)} /> I have stored it</label>
    </div>
    <footer><button type="button" class="button primary" disabled=${!stored} onClick=${onClose}>Done</button></footer>
  <//>`;
}
