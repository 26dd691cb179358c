// Small parts of pages: buttons, badges, dialogs, fields, notices.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { pages } from "./api.js";
import { inCurrency } from "./format.js";
import { subscribe } from "./live.js";

// Who the caller is, and what its role permits.
export const session = { caller: "", role: "", version: "", oidc: null };
const ROLES = ["read", "operate", "admin"];
export const may = (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

// Draws again when live state has changed.
export function useLive() {
  const [, draw] = useState(0);
  useEffect(() => subscribe(() => draw((n) => n + 1)), []);
}

// Loads something: [value, error, load again]. The value stays while it is loaded again.
export function useLoad(load, inputs = [], every = 0) {
  const [state, setState] = useState([null, null]);
  const latest = useRef(0);
  const run = () => {
    const mine = ++latest.current;
    return load().then(
      (value) => mine === latest.current && setState([value, null]),
      (error) => mine === latest.current && setState(([value]) => [value, error]),
    );
  };
  useEffect(() => {
    run();
    if (!every) return undefined;
    const timer = setInterval(() => !document.hidden && run(), every);
    return () => clearInterval(timer);
  }, inputs);
  return [...state, run];
}

// Items of a list that are loaded at first, and with each further step.
const STEP = 200;

// Loads a list as far as it is looked at: [items, error, load again, load more].
export function usePages(path, parameters, every = 0) {
  const wanted = useRef(STEP);
  const inputs = JSON.stringify(parameters);
  useEffect(() => {
    wanted.current = STEP;
  }, [inputs]);
  const [items, error, again] = useLoad(() => pages(path, parameters, wanted.current), [path, inputs], every);
  const more = () => {
    wanted.current = (items?.length || 0) + STEP;
    return again();
  };
  return [items, error, again, more];
}

// Returns a text when it has not changed for a moment, so that a search is not sent for each letter.
export function useSettled(text) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 200);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

// A button that needs a role. Without it, it is disabled and says why.
export function Act({ role = "read", kind = "", onClick, children, disabled, ...rest }) {
  const permitted = may(role);
  return html`<button
    type="button"
    class=${`button ${kind}`}
    disabled=${disabled || !permitted}
    title=${permitted ? undefined : `Needs a token with the role ${role}`}
    onClick=${onClick}
    ...${rest}
  >${children}</button>`;
}

const SHAPES = { good: "●", warn: "▲", bad: "■", off: "○", info: "◆" };

// A state: shape, word and colour, so that none of them is needed alone.
export function Badge({ tone = "off", children }) {
  return html`<span class=${`badge ${tone}`}><span aria-hidden="true">${SHAPES[tone]}</span> ${children}</span>`;
}

export function Notice({ tone = "info", title, children, action, isAlert = tone === "bad" }) {
  return html`<div class=${`notice ${tone}`} role=${isAlert ? "alert" : undefined}>
    <span class="shape" aria-hidden="true">${SHAPES[tone]}</span>
    <div class="grow">${title && html`<strong>${title}</strong>`} <span>${children}</span></div>
    ${action}
  </div>`;
}

// Reloads what a form shows. The button goes with the notice: the first field has the focus then.
const reloadIn = async (form, reload) => {
  await reload();
  form?.querySelector("input, select")?.focus();
};

// What a refused request says, with the faults of a configuration. `onReload` shows what another operator has changed.
export function Failed({ error, title, onReload }) {
  if (!error) return null;
  const isStale = error.code === "stale";
  return html`<${Notice} isAlert tone=${isStale ? "warn" : "bad"} title=${title || (isStale ? "Changed meanwhile." : undefined)}
    action=${isStale && onReload && html`<button type="button" class="button small" onClick=${(event) => reloadIn(event.currentTarget.closest("form"), onReload)}>Reload</button>`}>
    ${error.message}
    ${error.faults?.length > 0 && html`<${Faults} faults=${error.faults} />`}
  <//>`;
}

export function Faults({ faults }) {
  return html`<ul class="faults">
    ${faults.map(
      (fault) => html`<li>
        <code>${fault.file.split("/").pop()}${fault.line ? `:${fault.line}:${fault.column}` : ""}</code>
        ${fault.key && html` <code>${fault.key}</code>`}
        <span> ${fault.message}</span>
        ${fault.hint && html`<em> ${fault.hint}</em>`}
      </li>`,
    )}
  </ul>`;
}

export function Empty({ title, children, action }) {
  return html`<div class="empty">
    <svg viewBox="0 0 32 32" aria-hidden="true"><path d="M6 9h5a5 5 0 0 1 5 5v4a5 5 0 0 0 5 5h5M6 23h5a5 5 0 0 0 5-5v-4a5 5 0 0 1 5-5h5" /></svg>
    <p class="title">${title}</p>
    <p>${children}</p>
    ${action}
  </div>`;
}

export function Page({ title, lead, actions, children }) {
  useEffect(() => {
    document.title = `${title} · model-gateway`;
  }, [title]);
  return html`<header class="page">
      <div><h1 id="title" tabindex="-1">${title}</h1>${lead && html`<p>${lead}</p>`}</div>
      <div class="actions">${actions}</div>
    </header>
    ${children}`;
}

export function Card({ title, note, actions, children, wide, flush }) {
  return html`<section class=${`card${wide ? " wide" : ""}${flush ? " flush" : ""}`}>
    ${title && html`<header><h2>${title}</h2>${note && html`<p>${note}</p>`}${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${children}
  </section>`;
}

// `money`: the value is an amount.
export function Stat({ label, value, unit, note, tone, money, children }) {
  return html`<div class=${`stat ${tone || ""}`}>
    <dt>${money ? inCurrency(label) : label}</dt>
    <dd><strong>${value}</strong>${unit && html` <span>${unit}</span>`}</dd>
    ${note && html`<dd class="note">${note}</dd>`}
    ${children && html`<dd class="chart">${children}</dd>`}
  </div>`;
}

let ids = 0;
export function useId() {
  const [id] = useState(() => `f${++ids}`);
  return id;
}

// A labelled field. `kind` is a type of input, `select` or `textarea`.
export function Field({ label, hint, error, kind = "text", options, value, onValue, grow, ...rest }) {
  const id = useId();
  const described = [hint && `${id}-h`, error && `${id}-e`].filter(Boolean).join(" ") || undefined;
  const common = { id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined, ...rest };
  const on = (event) => onValue(event.currentTarget.value);
  let input;
  if (kind === "select") {
    input = html`<select ...${common} value=${value} onChange=${on}>
      ${options.map((o) => html`<option value=${o.value ?? o} selected=${(o.value ?? o) === value}>${o.label ?? o}</option>`)}
    </select>`;
  } else if (kind === "textarea") {
    input = html`<textarea ...${common} value=${value} onInput=${on} spellcheck=${false} />`;
  } else {
    input = html`<input type=${kind} ...${common} value=${value} onInput=${on} autocomplete="off" spellcheck=${false} />`;
  }
  return html`<div class=${`field${grow ? " grow" : ""}`}>
    <label for=${id}>${label}</label>${input}
    ${hint && html`<small id=${`${id}-h`}>${hint}</small>`}
    ${error && html`<small class="error" id=${`${id}-e`}>${error}</small>`}
  </div>`;
}

export function Check({ label, checked, onValue, ...rest }) {
  return html`<label class="check"><input type="checkbox" checked=${checked} onChange=${(e) => onValue(e.currentTarget.checked)} ...${rest} /> ${label}</label>`;
}

// A choice of a few, as radio buttons.
export function Choice({ label, options, value, onValue, hideLabel }) {
  const name = useId();
  return html`<fieldset class="choice">
    <legend class=${hideLabel ? "hidden" : ""}>${label}</legend>
    ${options.map(
      (o) => html`<label><input type="radio" name=${name} value=${o.value} checked=${o.value === value} onChange=${() => onValue(o.value)} /><span>${o.label}</span></label>`,
    )}
  </fieldset>`;
}

export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-labelledby=${id} onCancel=${(e) => { e.preventDefault(); onClose(); }}>
    <header><h2 id=${id}>${title}</h2><button type="button" class="button quiet icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${children}
  </dialog>`;
}

// A question before an action that others notice. `run` returns a promise.
// A question that still loads what it says is `waiting`.
export function Confirm({ title, children, verb, tone = "danger", run, onClose, waiting }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    setError(null);
    try {
      await run();
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <div class="body">${children}<${Failed} error=${error} /></div>
    <footer>
      <button type="button" class="button" onClick=${onClose} autofocus>Cancel</button>
      <button type="button" class=${`button ${tone}`} disabled=${busy || waiting} onClick=${go}>${verb}</button>
    </footer>
  <//>`;
}

export function Copy({ text, label = "Copy", ...rest }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure context there is no clipboard: the text is selected instead.
      return;
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="button small" onClick=${copy} ...${rest}>${done ? "Copied" : label}</button>`;
}

export function Code({ text, label, autofocus }) {
  return html`<div class="code"><${Copy} text=${text} autofocus=${autofocus} /><pre tabindex="0" aria-label=${label}>${text}</pre></div>`;
}

const said = new Set();
// Says that something was done, at the foot of the page.
export function say(text) {
  for (const listener of said) listener(text);
}

export function Sayings() {
  const [texts, setTexts] = useState([]);
  useEffect(() => {
    const add = (text) => {
      const entry = { text, id: ++ids };
      setTexts((all) => [...all, entry]);
      setTimeout(() => setTexts((all) => all.filter((other) => other !== entry)), 5000);
    };
    said.add(add);
    return () => said.delete(add);
  }, []);
  return html`<div class="sayings" role="status">${texts.map((entry) => html`<p key=${entry.id}>${entry.text}</p>`)}</div>`;
}
