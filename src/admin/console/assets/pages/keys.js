// Who may do what? Keys with their permissions, limits and use.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, day, money, moment, percent } from "../lib/format.js";
import { Share } from "../lib/plot.js";
import { Facts, Table } from "../lib/table.js";
import { Act, Badge, Card, Confirm, Empty, Failed, Field, Page, say, useLoad } from "../lib/ui.js";
import { KeyForm, NewKey } from "./key_form.js";
import { LimitUse } from "./limit_use.js";

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
    limits?.spend_per_day && `${money(limits.spend_per_day)} a day`,
    limits?.spend_per_month && `${money(limits.spend_per_month)} a month`,
  ].filter(Boolean).join(", ");

function Detail({ item, today, month, act, edit }) {
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
      ["Spent today", money(today?.cost || "0")],
      ["Spent this month", money(month?.cost || "0")],
      ["Requests this month", month ? `${count(month.requests)}, ${count(month.failed)} failed` : "none"],
    ]} />
    <${LimitUse} path=${pathOf(item)} title="Limits in use" />
    ${item.account && html`<${LimitUse} path=${`/accounts/${api.segment(item.account)}`} title=${`Limits in use of its account ${item.account}`} />`}
    <p class="row">
      <${Act} role="admin" kind="small" onClick=${() => edit(item)}>Change<//>
      <${Act} role="admin" kind="small" onClick=${() => act("rotate", item)}>Rotate<//>
      <${Act} role="admin" kind="small" onClick=${() => act(item.enabled ? "disable" : "enable", item)}>${item.enabled ? "Disable" : "Enable"}<//>
      <${Act} role="admin" kind="small danger" onClick=${() => act("delete", item)}>Delete<//>
      <a class="button small" href=${`#/requests?q=${encodeURIComponent(item.name)}`}>Requests</a>
      <a class="button small" href=${`#/usage?key=${encodeURIComponent(item.name)}`}>Usage</a>
    </p>
  </div>`;
}

const QUESTIONS = {
  rotate: { title: "Rotate", verb: "Rotate", text: "gets a new text. The old one is refused at once: clients that use it get a 401." },
  disable: { title: "Disable", verb: "Disable", text: "is refused at once with a 401. Requests under way end as usual. You can enable it again." },
  delete: { title: "Delete", verb: "Delete", text: "is removed from the file of keys and refused with a 401. Its usage stays in the reports. The configuration's history can bring it back." },
};

export function Keys({ parameters }) {
  const [filter, setFilter] = useState(parameters.q || "");
  const [form, setForm] = useState(null);
  const [asked, setAsked] = useState(null);
  const [made, setMade] = useState(null);
  const [open, setOpen] = useState(parameters.open || null);
  const [failed, setFailed] = useState(null);
  const [keys, error, again] = useLoad(() => api.all("/keys"), []);
  const [accounts] = useLoad(() => api.all("/accounts").catch(() => []), []);
  const [use] = useLoad(async () => {
    const read = async (from) => new Map((await api.get(`/usage${api.query({ group: "key", from, limit: 10_000 })}`)).rows.map((row) => [row.key, row]));
    const [today, month] = await Promise.all([read(day()), read("")]);
    return { today, month };
  }, [], 10_000);
  const of = (part, key) => use?.[part].get(key.name);
  const run = async () => {
    const { what, key } = asked;
    if (what === "rotate") {
      const answer = await api.post(`${pathOf(key)}/rotate`);
      setMade({ name: key.name, text: answer.key });
    } else if (what === "delete") {
      await api.remove(pathOf(key));
      say(`${key.name} is deleted.`);
    } else {
      await api.patch(pathOf(key), { enabled: false });
      say(`${key.name} is disabled.`);
    }
    await again();
  };
  const act = async (what, key) => {
    if (what !== "enable") return setAsked({ what, key });
    try {
      await api.patch(pathOf(key), { enabled: true });
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
  const rows = (keys || []).filter((key) => `${key.name} ${key.account || ""} ${key.state} ${(key.models || []).join(" ")}`.toLowerCase().includes(filter.toLowerCase()));
  const create = html`<${Act} role="admin" kind="primary" onClick=${() => setForm({})}>New key<//>`;
  return html`<${Page} title="Keys" lead="Who may use the gateway, for which models, and how much of their limits is used." actions=${create}>
    <div class="filters"><${Field} label="Filter" grow value=${filter} onValue=${setFilter} placeholder="name, account, state, model" data-filter /></div>
    <${Failed} error=${failed || error} />
    <${Card} flush title=${`${rows.length} keys`} note=${keys?.isCut ? "the first ones by name; the API has all" : ""}>
      <${Table} caption="Keys" id=${(key) => key.name} rows=${rows} open=${open} onOpen=${setOpen}
        detail=${(key) => html`<${Detail} item=${key} today=${of("today", key)} month=${of("month", key)} act=${act} edit=${(item) => setForm({ before: item })} />`}
        empty=${keys && html`<${Empty} title=${filter ? "No key matches" : "No keys yet"} action=${filter ? null : create}>A key lets a client in. Make one here, or with <code>model-gateway keys create alice</code>.<//>`}
        columns=${[
          { name: "name", label: "Key", cell: (key) => html`<b>${key.name}</b>`, sort: (key) => key.name },
          { name: "state", label: "State", cell: (key) => html`<${Badge} tone=${STATES[key.state][0]}>${STATES[key.state][1]}<//>`, sort: (key) => key.state },
          { name: "account", label: "Account", cell: (key) => key.account || html`<span class="muted">none</span>`, sort: (key) => key.account || "" },
          { name: "models", label: "Models", wide: true, cell: (key) => (key.models ? key.models.join(", ") : html`<span class="muted">all</span>`) },
          { name: "limits", label: "Limits", wide: true, cell: (key) => limitWords(key.limits) || html`<span class="muted">none</span>` },
          { name: "today", label: "Spent today", number: true, cell: (key) => html`<${Use} spent=${of("today", key)?.cost} limit=${key.limits.spend_per_day} period="today" />`, sort: (key) => Number(of("today", key)?.cost || 0) },
          { name: "requests", label: "This month", number: true, cell: (key) => (of("month", key) ? `${count(of("month", key).requests)} requests` : "–"), sort: (key) => of("month", key)?.requests || 0 },
          { name: "expires", label: "Expires", cell: (key) => (key.expires ? moment(key.expires).slice(0, 10) : html`<span class="muted">never</span>`), sort: (key) => key.expires || "9" },
        ]} />
    <//>
    ${form && html`<${KeyForm} before=${form.before} accounts=${accounts || []} onDone=${done} onClose=${() => setForm(null)} />`}
    ${asked && html`<${Confirm} title=${`${QUESTIONS[asked.what].title} ${asked.key.name}?`} verb=${QUESTIONS[asked.what].verb} run=${run} onClose=${() => setAsked(null)}><p><b>${asked.key.name}</b> ${QUESTIONS[asked.what].text}</p><//>`}
    ${made && html`<${NewKey} name=${made.name} text=${made.text} onClose=${() => setMade(null)} />`}
  <//>`;
}
