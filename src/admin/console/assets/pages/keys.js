// Who may do what? Keys with their permissions, limits and use.
import { html, useEffect, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, day, money, moment, percent, priced } from "../lib/format.js";
import { Share } from "../lib/plot.js";
import { Facts, Table } from "../lib/table.js";
import { Act, Badge, Card, Confirm, Empty, Failed, Field, Page, say, useLoad, usePages, useSettled } from "../lib/ui.js";
import { KEY_MEMBERS, KeyForm, NewKey } from "./key_form.js";
import { LimitUse } from "./limit_use.js";
import { removeExpired } from "./playground_key.js";
import { useParameters } from "./usage.js";

const STATES = { usable: ["good", "usable"], disabled: ["off", "disabled"], expired: ["warn", "expired"] };
const pathOf = (key) => `/keys/${api.segment(key.name)}`;

// Use of a spend limit: a bar, and words.
export function Use({ spent, limit, period }) {
  if (limit == null) return html`<span>${money(spent || "0")}</span>`;
  const part = Number(spent || 0) / Number(limit);
  const words = `${money(spent || "0")} of ${money(limit)}`;
  return html`<span class="use"><span>${words} <span class="muted">${percent(part, 1)}</span></span><${Share} part=${part} tone=${part >= 1 ? "bad" : part > 0.8 ? "warn" : ""} label=${`${words} ${period}`} /></span>`;
}

export const limitWords = (limits) =>
  [
    limits?.requests_per_minute && `${count(limits.requests_per_minute)} requests/min`,
    limits?.tokens_per_minute && `${count(limits.tokens_per_minute)} tokens/min`,
    limits?.concurrent && `${count(limits.concurrent)} at a time`,
    limits?.spend_per_day && `${priced(limits.spend_per_day)} a day`,
    limits?.spend_per_month && `${priced(limits.spend_per_month)} a month`,
  ].filter(Boolean).join(", ");

// Use of one key, however many there are.
async function useOf(name) {
  const read = async (from) => (await api.get(`/usage${api.query({ group: "key", key: name, from })}`)).total;
  // One after the other, as all that a page asks of the ledger at regular times.
  return { today: await read(day()), month: await read("") };
}

// Times for which the old text of a rotated key stays valid.
const GRACES = [
  { value: "", label: "is refused at once" },
  { value: "1h", label: "stays valid for an hour" },
  { value: "24h", label: "stays valid for 24 hours" },
  { value: "7d", label: "stays valid for 7 days" },
];

function Detail({ item, act, edit }) {
  const [use] = useLoad(() => useOf(item.name), [item.name], 10_000);
  const month = use?.month;
  return html`<div class="opened">
    <${Facts} facts=${[
      ["Hash begins with", html`<code>${item.sha256}</code>`],
      ["Account", item.account || "none"],
      ["Models", item.models ? item.models.join(", ") : "all"],
      ["APIs", item.endpoints ? item.endpoints.join(", ") : "all"],
      ["Networks", item.networks ? item.networks.join(", ") : "all"],
      ["Expires", item.expires ? moment(item.expires) : "never"],
      ["Limits", limitWords(item.limits) || "none"],
      ["Prompt cache", item.prompt_cache],
      ["Client certificates", item.certificates && item.certificates.join(", ")],
      ["AWS access key", item.access_key && html`<code>${item.access_key}</code>`],
      ["Earlier texts", item.previous?.length > 0 && item.previous.map((text) => html`<div><code>${text.sha256}</code> until ${moment(text.until)}</div>`)],
      ["Spent today", use && priced(use.today.cost)],
      ["Spent this month", month && priced(month.cost)],
      ["Requests this month", month && (month.requests ? `${count(month.requests)}, ${count(month.failed)} failed` : "none")],
    ]} />
    <${LimitUse} path=${pathOf(item)} title="Limits in use" />
    ${item.account && html`<${LimitUse} path=${`/accounts/${api.segment(item.account)}`} title=${`Limits in use of its account ${item.account}`} />`}
    <p class="row">
      <${Act} role="admin" kind="small" onClick=${() => edit(item)}>Change<//>
      <${Act} role="admin" kind="small" onClick=${() => act("rotate", item)}>Rotate<//>
      ${item.previous?.length > 0 && html`<${Act} role="admin" kind="small" onClick=${() => act("end", item)}>End earlier texts<//>`}
      <${Act} role="admin" kind="small" onClick=${() => act(item.enabled ? "disable" : "enable", item)}>${item.enabled ? "Disable" : "Enable"}<//>
      <${Act} role="admin" kind="small danger" onClick=${() => act("delete", item)}>Delete<//>
      <a class="button small" href=${`#/requests?q=${encodeURIComponent(item.name)}`}>Requests</a>
      <a class="button small" href=${`#/usage?key=${encodeURIComponent(item.name)}`}>Usage</a>
    </p>
  </div>`;
}

const QUESTIONS = {
  rotate: { title: "Rotate", verb: "Rotate", text: "gets a new text, which is shown once. Choose how long clients may go on with the old one." },
  end: { title: "End the earlier texts of", verb: "End earlier texts", text: "has texts of before a rotation that are still valid. They are refused at once: clients that use them get a 401." },
  disable: { title: "Disable", verb: "Disable", text: "is refused at once with a 401. Requests under way end as usual. You can enable it again." },
  delete: { title: "Delete", verb: "Delete", text: "is removed from the file of keys and refused with a 401. Its usage stays in the reports. The configuration's history can bring it back." },
};

export function Keys({ parameters }) {
  const [at, set] = useParameters("keys", parameters, { q: "", open: "" });
  const [open, setOpen] = [at.open || null, (name) => set("open", name || "")];
  const filter = at.q;
  const [form, setForm] = useState(null);
  const [asked, setAsked] = useState(null);
  const [made, setMade] = useState(null);
  const [grace, setGrace] = useState("24h");
  const [failed, setFailed] = useState(null);
  const [keys, error, again, more] = usePages("/keys", { q: useSettled(filter.trim()) });
  const [accounts] = useLoad(() => api.all("/accounts", 1000).catch(() => []), []);
  useEffect(() => {
    removeExpired().then((removed) => removed > 0 && again());
  }, []);
  // Sums of the keys that spend most; of further ones, their details have them.
  const [use] = useLoad(async () => {
    const read = async (from) => {
      const report = await api.get(`/usage${api.query({ group: "key", from, limit: 1000 })}`);
      return { rows: new Map(report.rows.map((row) => [row.key, row])), isCut: !!report.others };
    };
    return { today: await read(day()), month: await read("") };
  }, [], 10_000);
  const of = (part, key) => use?.[part].rows.get(key.name) || (use?.[part].isCut ? null : { cost: "0", requests: 0 });
  const path = asked && pathOf(asked.key);
  const changed = (method, body, at) => api.change(method, path, { shown: asked.key, members: KEY_MEMBERS, body, at });
  const run = async () => {
    const { what, key } = asked;
    if (what === "rotate") {
      const answer = await changed("POST", grace ? { grace } : {}, `${path}/rotate`);
      setMade({ name: key.name, text: answer.key });
    } else if (what === "delete") {
      await changed("DELETE");
      say(`${key.name} is deleted.`);
    } else if (what === "end") {
      await changed("PATCH", { previous: null });
      say(`Earlier texts of ${key.name} are refused.`);
    } else {
      await changed("PATCH", { enabled: false });
      say(`${key.name} is disabled.`);
    }
    await again();
  };
  // What another operator has changed is shown, and the question asked again.
  const runOrReload = async () => {
    try {
      await run();
    } catch (failure) {
      if (failure.code === "stale") await again();
      throw failure;
    }
  };
  const act = async (what, key) => {
    if (what !== "enable") return setAsked({ what, key });
    try {
      await api.change("PATCH", pathOf(key), { shown: key, members: KEY_MEMBERS, body: { enabled: true } });
      say(`${key.name} is enabled.`);
      setFailed(null);
    } catch (failure) {
      setFailed(failure);
    }
    return again();
  };
  const done = async (answer, name) => {
    setForm(null);
    if (answer.key) setMade({ name, text: answer.key });
    else say(`${name} is changed.`);
    await again();
    setOpen(name);
  };
  const create = html`<${Act} role="admin" kind="primary" onClick=${() => setForm({})} data-new>New key<//>`;
  return html`<${Page} title="Keys" lead="Who may use the gateway, for which models, and how much of their limits is used." actions=${create}>
    <div class="filters"><${Field} label="Filter" grow value=${filter} onValue=${(q) => set("q", q)} placeholder="name, account, state, model" data-filter /></div>
    <${Failed} error=${failed || error} />
    <${Card} flush title=${keys ? `${count(keys.total)} ${keys.total === 1 ? "key" : "keys"}` : "Keys"} note=${keys?.isCut ? `the first ${count(keys.length)} by name are loaded; the filter searches all` : ""}>
      <${Table} caption="Keys" id=${(key) => key.name} rows=${keys} open=${open} onOpen=${setOpen} limit=${Infinity} onMore=${keys?.isCut ? more : null}
        detail=${(key) => html`<${Detail} item=${key} act=${act} edit=${(item) => setForm({ before: item })} />`}
        empty=${html`<${Empty} title=${filter ? "No key matches" : "No keys yet"} action=${filter ? null : create}>A key lets a client in. Make one here, or with <code>model-gateway keys create alice</code>.<//>`}
        columns=${[
          { name: "name", label: "Key", cell: (key) => html`<b>${key.name}</b>`, sort: (key) => key.name },
          { name: "state", label: "State", cell: (key) => html`<${Badge} tone=${STATES[key.state][0]}>${STATES[key.state][1]}<//>`, sort: (key) => key.state },
          { name: "account", label: "Account", cell: (key) => key.account || html`<span class="muted">none</span>`, sort: (key) => key.account || "" },
          { name: "models", label: "Models", wide: true, cell: (key) => (key.models ? key.models.join(", ") : html`<span class="muted">all</span>`) },
          { name: "limits", label: "Limits", wide: true, cell: (key) => limitWords(key.limits) || html`<span class="muted">none</span>` },
          { name: "today", label: "Spent today", number: true, money: true, cell: (key) => (use && !of("today", key) ? html`<span class="muted">in its details</span>` : html`<${Use} spent=${of("today", key)?.cost} limit=${key.limits.spend_per_day} period="today" />`), sort: (key) => Number(of("today", key)?.cost || 0) },
          { name: "month", label: "Spent this month", number: true, money: true, cell: (key) => (use && !of("month", key) ? html`<span class="muted">in its details</span>` : html`<${Use} spent=${of("month", key)?.cost} limit=${key.limits.spend_per_month} period="this month" />`), sort: (key) => Number(of("month", key)?.cost || 0) },
          { name: "expires", label: "Expires", cell: (key) => (key.expires ? moment(key.expires).slice(0, 10) : html`<span class="muted">never</span>`), sort: (key) => key.expires || "9" },
        ]} />
    <//>
    ${form && html`<${KeyForm} before=${form.before} accounts=${accounts || []} onDone=${done} onClose=${() => setForm(null)} />`}
    ${asked && html`<${Confirm} title=${`${QUESTIONS[asked.what].title} ${asked.key.name}?`} verb=${QUESTIONS[asked.what].verb} run=${runOrReload} onClose=${() => setAsked(null)}><p><b>${asked.key.name}</b> ${QUESTIONS[asked.what].text}</p>${asked.what === "rotate" && html`<${Field} label="The old text" kind="select" options=${GRACES} value=${grace} onValue=${setGrace} />`}<//>`}
    ${made && html`<${NewKey} name=${made.name} text=${made.text} onClose=${() => setMade(null)} />`}
  <//>`;
}
