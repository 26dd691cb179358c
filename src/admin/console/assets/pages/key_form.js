// Form of a key: its permissions and limits. Empty fields set no limit.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { inCurrency } from "../lib/format.js";
import { Code, Dialog, Failed, Field, useId } from "../lib/ui.js";

const LIMITS = [
  ["spend_per_day", "Spend per day (UTC)", "2.50"],
  ["spend_per_month", "Spend per month (UTC)", "50"],
  ["requests_per_minute", "Requests per minute", "60"],
  ["tokens_per_minute", "Tokens per minute", "100000"],
  ["concurrent", "Concurrent requests", "8"],
];
const AMOUNTS = ["spend_per_day", "spend_per_month"];
// Accounts that a list of choices has; beyond, the name is typed.
const CHOICES = 200;
// Members of a key that an operator sees here and must not overwrite without having seen them.
export const KEY_MEMBERS = ["sha256", "enabled", "expires", "account", "models", "endpoints", "networks", "losses", "prompt_cache", "images", "limits", "previous", "certificates", "access_key"];

const list = (text) => text.split(/[\s,]+/).filter(Boolean);
const written = (value) => (value == null ? "" : String(value));

// Returns the limits that differ from those before; a field that was emptied is null, which removes the limit.
export function limitsOf(texts, before) {
  const limits = {};
  for (const [name] of LIMITS) {
    const text = texts[name].trim();
    if (text === written(before?.[name])) continue;
    limits[name] = !text ? null : AMOUNTS.includes(name) ? text : Number(text);
  }
  return limits;
}

export function LimitFields({ texts, set, error }) {
  return html`<div class="fields">
    ${LIMITS.map(([name, label, example]) => html`<${Field} label=${AMOUNTS.includes(name) ? inCurrency(label) : label} value=${texts[name]} onValue=${(text) => set(name, text)} placeholder=${`none, or ${example}`} inputmode="decimal" error=${error?.field?.endsWith(name) ? error.message : ""} />`)}
  </div>`;
}

export const limitTexts = (limits) => Object.fromEntries(LIMITS.map(([name]) => [name, written(limits?.[name])]));

const textsOf = (key) => ({
  name: key?.name || "",
  account: key?.account || "",
  models: (key?.models || []).join(", "),
  networks: (key?.networks || []).join(", "),
  expires: key?.expires ? key.expires.slice(0, 10) : "",
  ...limitTexts(key?.limits),
});

// Returns the members that the form has changed.
function changesOf(texts, before) {
  const body = {};
  const was = textsOf(before);
  for (const name of ["models", "networks"]) {
    if (texts[name].trim() !== was[name]) body[name] = texts[name].trim() ? list(texts[name]) : null;
  }
  if (texts.account.trim() !== was.account) body.account = texts.account.trim() || null;
  if (texts.expires !== was.expires) body.expires = texts.expires ? `${texts.expires}T00:00:00Z` : null;
  const limits = limitsOf(texts, before?.limits);
  if (Object.keys(limits).length) body.limits = limits;
  return body;
}

function AccountField({ accounts, ...rest }) {
  const names = accounts.map((account) => account.name);
  const id = useId();
  if (!accounts.isCut && names.length <= CHOICES) {
    const options = [{ value: "", label: "none: usage is only counted" }, ...names];
    if (rest.value && !names.includes(rest.value)) options.push(rest.value);
    return html`<${Field} kind="select" options=${options} ...${rest} />`;
  }
  return html`<${Field} list=${id} placeholder="none: usage is counted" hint="The name of an account" ...${rest} />
    <datalist id=${id}>${names.slice(0, CHOICES).map((name) => html`<option value=${name} />`)}</datalist>`;
}

// `before`: the key that is changed, as the page shows it; without it, a new one is made.
export function KeyForm({ before, accounts, onDone, onClose }) {
  const [shown, setShown] = useState(before);
  const [texts, setTexts] = useState(textsOf(before));
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (name, text) => setTexts((all) => ({ ...all, [name]: text }));
  const own = (name) => (error?.field === name ? error.message : "");
  const body = changesOf(texts, shown);
  const path = before && `/keys/${api.segment(before.name)}`;
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const answer = before ? await api.change("PATCH", path, { shown, members: KEY_MEMBERS, body }) : await api.post("/keys", { name: texts.name.trim(), ...body });
      onDone(answer, texts.name.trim());
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const reload = async () => {
    try {
      const now = await api.get(path);
      setShown(now);
      setTexts(textsOf(now));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  const isReady = before ? Object.keys(body).length > 0 : texts.name.trim();
  return html`<${Dialog} title=${before ? `Change ${before.name}` : "New key"} onClose=${onClose} wide>
    <form onSubmit=${submit}>
      <div class="body">
        <div class="fields">
          ${!before && html`<${Field} label="Name" value=${texts.name} onValue=${(text) => set("name", text)} hint="Who or what uses it: alice, ci, docs-bot" error=${own("name")} required autofocus />`}
          <${AccountField} label="Account that pays" accounts=${accounts} value=${texts.account} onValue=${(text) => set("account", text)} error=${own("account")} autofocus=${!!before} />
          <${Field} label="Models" value=${texts.models} onValue=${(text) => set("models", text)} placeholder="all, or gpt-*, claude-*" hint="Ids, or patterns with *" error=${own("models")} />
          <${Field} label="Networks" value=${texts.networks} onValue=${(text) => set("networks", text)} placeholder="all, or 10.0.0.0/8" error=${own("networks")} />
          <${Field} label="Expires (UTC)" kind="date" value=${texts.expires} onValue=${(text) => set("expires", text)} error=${own("expires")} />
        </div>
        <h3>Limits</h3>
        <${LimitFields} texts=${texts} set=${set} error=${error} />
        <${Failed} error=${error} onReload=${reload} />
      </div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" type="submit" disabled=${busy || !isReady}>${before ? "Save" : "Make the key"}</button></footer>
    </form>
  <//>`;
}

// Text of a new key, which is shown once.
export function NewKey({ name, text, onClose }) {
  const [stored, setStored] = useState(false);
  return html`<${Dialog} title=${`Key of ${name}`} onClose=${() => stored && onClose()} wide>
    <div class="body">
      <p>This is the only time that the gateway shows it: it stores a hash. Copy it now.</p>
      <div class="secret"><${Code} text=${text} label=${`Key of ${name}`} autofocus /></div>
      <label class="check"><input type="checkbox" checked=${stored} onChange=${(event) => setStored(event.currentTarget.checked)} /> I have stored it</label>
    </div>
    <footer><button type="button" class="button primary" disabled=${!stored} onClick=${onClose}>Done</button></footer>
  <//>`;
}
