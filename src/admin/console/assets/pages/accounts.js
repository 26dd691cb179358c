// Who has how much? Accounts with their balance, credits and limits.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, currencyWords, day, inCurrency, money, moment, priced } from "../lib/format.js";
import { Facts, Table } from "../lib/table.js";
import { Act, Badge, Card, Confirm, Dialog, Empty, Failed, Field, Page, may, say, useLoad, usePages, useSettled } from "../lib/ui.js";
import { LimitFields, limitTexts, limitsOf } from "./key_form.js";
import { Use, limitWords } from "./keys.js";
import { LimitUse } from "./limit_use.js";
import { useParameters } from "./usage.js";

const pathOf = (account) => `/accounts/${api.segment(account.name)}`;
const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function CreditForm({ account, onDone, onClose }) {
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const [reference, setReference] = useState("");
  const [error, setError] = useState(null);
  // The same for every attempt of this form, so that a repeated one credits nothing twice.
  const [attempt] = useState(random);
  const number = Number(amount);
  const valid = amount.trim() !== "" && Number.isFinite(number) && number !== 0;
  const submit = async (event) => {
    event.preventDefault();
    const body = { amount: amount.trim(), note: note.trim() };
    if (reference.trim()) body.reference = reference.trim();
    try {
      onDone(await api.post(`${pathOf(account)}/credits`, body, { "idempotency-key": attempt }));
    } catch (failure) {
      setError(failure);
    }
  };
  const own = (name) => (error?.field === name ? error.message : "");
  return html`<${Dialog} title=${`Credit ${account.name}`} onClose=${onClose}>
    <form onSubmit=${submit}>
      <div class="body">
        <p>The balance is <b>${priced(account.balance)}</b>${valid && html`, and will be <b>${priced((Number(account.balance) + number).toFixed(9))}</b>`}.</p>
        <div class="fields">
          <${Field} label="Amount" value=${amount} onValue=${setAmount} inputmode="decimal" placeholder="25.00" hint=${`In ${currencyWords()}; a negative one is a deduction, which needs the role admin`} error=${own("amount")} required autofocus />
          <${Field} label="Note" value=${note} onValue=${setNote} placeholder="Invoice of November" error=${own("note")} />
          <${Field} label="Reference" value=${reference} onValue=${setReference} hint="An invoice number, for example: a second credit with it changes nothing" error=${own("reference")} />
        </div>
        <${Failed} error=${error?.field ? null : error} />
      </div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" type="submit" disabled=${!valid || (number < 0 && !may("admin"))}>${number < 0 ? "Deduct" : "Credit"} ${valid ? money(String(Math.abs(number))) : ""}</button></footer>
    </form>
  <//>`;
}

function NewAccount({ onDone, onClose }) {
  const [name, setName] = useState("");
  const [credit, setCredit] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const body = { name: name.trim() };
      if (credit.trim()) body.credit = credit.trim();
      await api.post("/accounts", body);
      onDone(name.trim());
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title="New account" onClose=${onClose}>
    <form onSubmit=${submit}>
      <div class="body"><div class="fields">
        <${Field} label="Name" value=${name} onValue=${setName} hint="A team, a customer, a project" required autofocus />
        <${Field} label=${inCurrency("First credit")} value=${credit} onValue=${setCredit} inputmode="decimal" placeholder="none, or 100.00" />
      </div><${Failed} error=${error} /></div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" type="submit" disabled=${!name.trim()}>Make the account</button></footer>
    </form>
  <//>`;
}

function LimitForm({ account, onDone, onClose }) {
  const [shown, setShown] = useState(account);
  const [texts, setTexts] = useState(limitTexts(account.limits));
  const [error, setError] = useState(null);
  const limits = limitsOf(texts, shown.limits);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      await api.change("PATCH", pathOf(account), { shown, members: ["limits"], body: { limits } });
      onDone();
    } catch (failure) {
      setError(failure);
    }
  };
  const reload = async () => {
    try {
      const now = await api.get(pathOf(account));
      setShown(now);
      setTexts(limitTexts(now.limits));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title=${`Limits of ${account.name}`} onClose=${onClose} wide>
    <form onSubmit=${submit}>
      <div class="body"><p>They hold for all keys of the account together.</p><${LimitFields} texts=${texts} set=${(name, text) => setTexts((all) => ({ ...all, [name]: text }))} error=${error} /><${Failed} error=${error} onReload=${reload} /></div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" type="submit" disabled=${!Object.keys(limits).length}>Save</button></footer>
    </form>
  <//>`;
}

function Detail({ account, ask, version }) {
  const [today] = useLoad(async () => (await api.get(`/usage${api.query({ group: "account", account: account.name, from: day() })}`)).total, [account.name, version], 10_000);
  const [credits, error] = useLoad(() => api.get(`${pathOf(account)}/credits?limit=50`), [account.name, version]);
  return html`<div class="opened">
    <${Facts} facts=${[
      ["Credited in all", priced(account.credited)],
      ["Charged in all", priced(account.charged)],
      ["Spent today", today && priced(today.cost)],
      ["Limits of all its keys", limitWords(account.limits) || "none"],
      ["Created", moment(account.created)],
    ]} />
    <${LimitUse} path=${pathOf(account)} title="Limits in use, of all its keys together" />
    <p class="row">
      <${Act} role="operate" kind="small primary" onClick=${() => ask("credit")}>Credit<//>
      <${Act} role="admin" kind="small" onClick=${() => ask("limits")}>${limitWords(account.limits) ? "Change limits" : "Set limits"}<//>
      <${Act} role="admin" kind="small" onClick=${() => ask("switch")}>${account.enabled ? "Disable" : "Enable"}<//>
      <a class="button small" href=${`#/usage?account=${encodeURIComponent(account.name)}`}>Usage</a>
    </p>
    <h3>Credits</h3>
    <${Failed} error=${error} />
    ${credits && html`<${Table} caption=${`Credits of ${account.name}`} id=${(credit) => credit.time + credit.amount + credit.reference} rows=${credits.items}
      empty=${html`<p class="none">No credit yet.</p>`}
      columns=${[
        { name: "time", label: "Time", cell: (credit) => moment(credit.time) },
        { name: "amount", label: "Amount", number: true, money: true, cell: (credit) => money(credit.amount) },
        { name: "note", label: "Note", wide: true, cell: (credit) => credit.note || "–" },
        { name: "reference", label: "Reference", cell: (credit) => credit.reference || "–" },
      ]} />`}
  </div>`;
}

export function Accounts({ parameters }) {
  const [at, set] = useParameters("accounts", parameters, { q: "", open: "" });
  const [open, setOpen] = [at.open || null, (name) => set("open", name || "")];
  const filter = at.q;
  const [asked, setAsked] = useState(null);
  const [version, setVersion] = useState(0);
  const [accounts, error, again, more] = usePages("/accounts", { q: useSettled(filter.trim()) }, 5000);
  // Sums of the accounts that spend most; of further ones, their details have them.
  const [today] = useLoad(async () => {
    const report = await api.get(`/usage${api.query({ group: "account", from: day(), limit: 1000 })}`);
    return { rows: new Map(report.rows.map((row) => [row.account, row])), isCut: !!report.others };
  }, [], 10_000);
  const spent = (account) => today?.rows.get(account.name)?.cost ?? (today?.isCut ? null : "0");
  const done = async (text) => {
    setAsked(null);
    say(text);
    setVersion((v) => v + 1);
    await again();
  };
  const state = (account) => (!account.enabled ? ["off", "disabled"] : Number(account.balance) <= 0 ? ["bad", "empty"] : ["good", "may spend"]);
  const create = html`<${Act} role="admin" kind="primary" onClick=${() => setAsked({ what: "new" })} data-new>New account<//>`;
  return html`<${Page} title="Accounts" lead="Who pays: balances, credits, and limits of all keys of an account together." actions=${create}>
    <div class="filters"><${Field} label="Filter" grow value=${filter} onValue=${(q) => set("q", q)} placeholder="name" data-filter /></div>
    <${Failed} error=${error} />
    <${Card} flush title=${accounts ? `${count(accounts.total)} ${accounts.total === 1 ? "account" : "accounts"}` : "Accounts"} note=${accounts?.isCut ? `the first ${count(accounts.length)} by name are loaded; the filter searches all` : ""}>
      <${Table} caption="Accounts" id=${(account) => account.name} rows=${accounts} open=${open} onOpen=${setOpen} limit=${Infinity} onMore=${accounts?.isCut ? more : null}
        detail=${(account) => html`<${Detail} account=${account} version=${version} ask=${(what) => setAsked({ what, account })} />`}
        empty=${html`<${Empty} title=${filter ? "No account matches" : "No accounts yet"} action=${filter ? null : create}>An account has a balance, which its keys spend. Without one, usage is counted and nobody is charged. Also: <code>model-gateway accounts create team --credit 100</code><//>`}
        columns=${[
          { name: "name", label: "Account", cell: (account) => html`<b>${account.name}</b>`, sort: (account) => account.name },
          { name: "state", label: "State", cell: (account) => html`<${Badge} tone=${state(account)[0]}>${state(account)[1]}<//>`, sort: (account) => state(account)[1] },
          { name: "balance", label: "Balance", number: true, money: true, cell: (account) => html`<b>${money(account.balance)}</b>`, sort: (account) => Number(account.balance) },
          { name: "today", label: "Spent today", number: true, money: true, cell: (account) => (spent(account) == null ? html`<span class="muted">in its details</span>` : html`<${Use} spent=${spent(account)} limit=${account.limits?.spend_per_day} period="today" />`), sort: (account) => Number(spent(account) || 0) },
          { name: "charged", label: "Charged in all", number: true, money: true, cell: (account) => money(account.charged), sort: (account) => Number(account.charged) },
          { name: "limits", label: "Limits", wide: true, cell: (account) => limitWords(account.limits) || html`<span class="muted">none</span>` },
        ]} />
    <//>
    ${asked?.what === "new" && html`<${NewAccount} onClose=${() => setAsked(null)} onDone=${(name) => { setOpen(name); done(`${name} is made.`); }} />`}
    ${asked?.what === "credit" && html`<${CreditForm} account=${asked.account} onClose=${() => setAsked(null)} onDone=${(answer) => done(answer.repeated ? "This reference was credited before: nothing has changed." : `The balance of ${asked.account.name} is ${priced(answer.balance)}.`)} />`}
    ${asked?.what === "limits" && html`<${LimitForm} account=${asked.account} onClose=${() => setAsked(null)} onDone=${() => done(`The limits of ${asked.account.name} are changed.`)} />`}
    ${asked?.what === "switch" && html`<${Confirm} title=${`${asked.account.enabled ? "Disable" : "Enable"} ${asked.account.name}?`} verb=${asked.account.enabled ? "Disable" : "Enable"} tone=${asked.account.enabled ? "danger" : "primary"} onClose=${() => setAsked(null)}
      run=${async () => { await api.change("PATCH", pathOf(asked.account), { shown: asked.account, members: ["enabled"], body: { enabled: !asked.account.enabled } }); await done(`${asked.account.name} is ${asked.account.enabled ? "disabled" : "enabled"}.`); }}>
      <p>${asked.account.enabled ? html`All keys of <b>${asked.account.name}</b> are refused with a 401 from then on. Requests under way end as usual.` : html`The keys of <b>${asked.account.name}</b> may spend its balance of ${priced(asked.account.balance)} again.`}</p>
    <//>`}
  <//>`;
}
