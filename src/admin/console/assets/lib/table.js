// Tables: sorted by their heads, with rows that open below; on a phone each row becomes a card.
import { Fragment, html, useLayoutEffect, useRef, useState } from "./html.js";
import { count, inCurrency } from "./format.js";

// Lines in the place of rows that are loaded for the first time.
function Skeleton({ caption }) {
  return html`<div class="skeleton" role="status"><span class="hidden">Loading: ${caption}</span>${[0, 1, 2, 3].map((line) => html`<div key=${line}></div>`)}</div>`;
}

// Parts of a row with a use of their own: a click there does not open the row.
const OWN = "a, button, input, select, textarea, label, summary";

// Label of a column; one of amounts has their currency.
const labelOf = (column) => (column.money ? inCurrency(column.label) : column.label);

// `columns`: [{ name, label, cell(row), sort(row), number, money, wide }]; `rows` are null until they are loaded; `detail(row)` is shown below an
// open row. Of a list whose rest the gateway has, `onMore` loads more; rows are sorted among those that are loaded, which is said. On a
// phone a `compact` row has its cells one after the other, with labels of numbers only.
export function Table({ caption, columns, rows, id, detail, empty, order, open: given, onOpen, limit = 200, onMore, compact }) {
  const [sort, setSort] = useState(order || null);
  const [own, setOwn] = useState(null);
  const [isWide, setIsWide] = useState(false);
  const ref = useRef(null);
  // What scrolls must be reached by keyboard.
  useLayoutEffect(() => setIsWide(!!ref.current && ref.current.scrollWidth > ref.current.clientWidth + 1));
  const [most, setMost] = useState(limit);
  const open = given !== undefined ? given : own;
  const setOpen = onOpen || setOwn;
  if (!rows) return html`<${Skeleton} caption=${caption} />`;
  if (!rows.length && empty) return empty;
  let shown = rows;
  const by = sort && columns.find((column) => column.name === sort.name);
  if (by) {
    const value = (row) => by.sort(row) ?? -Infinity;
    shown = [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (sort.down ? -1 : 1));
  }
  const turn = (column) => setSort(sort?.name === column.name ? { name: column.name, down: !sort.down } : { name: column.name, down: !!column.number });
  return html`<div class="scroll" ref=${ref} ...${isWide ? { tabindex: 0, role: "region", "aria-label": caption } : {}}>
    <table class=${compact ? "list compact" : "list"}>
      <caption class="hidden">${caption}</caption>
      <thead><tr>
        ${columns.map((column) => {
          const sorted = sort?.name === column.name ? (sort.down ? "descending" : "ascending") : undefined;
          return html`<th scope="col" class=${column.number ? "number" : ""} aria-sort=${sorted}>
            ${column.sort ? html`<button type="button" onClick=${() => turn(column)}>${labelOf(column)}<span aria-hidden="true">${sorted === "descending" ? " ↓" : sorted ? " ↑" : ""}</span></button>` : labelOf(column) || html`<span class="hidden">${column.name}</span>`}
          </th>`;
        })}
      </tr></thead>
      <tbody>
        ${shown.slice(0, most).map((row) => {
          const key = id(row);
          const isOpen = open === key;
          const toggle = () => setOpen(isOpen ? null : key);
          // A text that is selected in the row stays selected.
          const pick = (event) => !event.target.closest(OWN) && !String(getSelection()) && toggle();
          return html`<${Fragment} key=${key}>
            <tr class=${detail ? (isOpen ? "opens open" : "opens") : ""} onClick=${detail ? pick : undefined}>
              ${columns.map((column, i) => {
                const cell = column.cell(row);
                const kind = [column.number && "number", column.wide && "wide", column.kind].filter(Boolean).join(" ");
                return i === 0
                  ? html`<th scope="row" class=${kind}>${detail ? html`<button type="button" class="row" data-row aria-expanded=${isOpen} onClick=${toggle}><span>${cell}</span></button>` : html`<div>${cell}</div>`}</th>`
                  : html`<td class=${kind} data-label=${labelOf(column) || undefined}><div>${cell}</div></td>`;
              })}
            </tr>
            ${isOpen && detail && html`<tr class="detail"><td colspan=${columns.length}>${detail(row)}</td></tr>`}
          <//>`;
        })}
      </tbody>
    </table>
    ${onMore && sort && html`<p class="none" role="status">Sorted among the ${count(rows.length)} rows that are loaded; the gateway has more.</p>`}
    ${onMore && html`<button type="button" class="button more" onClick=${() => { setMost(Infinity); onMore(); }}>Load more</button>`}
    ${shown.length > most && !onMore && html`<button type="button" class="button more" onClick=${() => setMost(most + limit)}>Show ${Math.min(limit, shown.length - most)} more of ${shown.length}</button>`}
  </div>`;
}

// Names with values, in two columns.
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter(([, value]) => value != null && value !== "" && value !== false).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}
