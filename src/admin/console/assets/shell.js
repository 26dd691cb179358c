// Frame around the pages: navigation, who is signed in, theme, keyboard, and the way in.
import { html, useEffect, useState } from "./lib/html.js";
import * as api from "./lib/api.js";
import { Icon } from "./lib/icons.js";
import { live, setPaused } from "./lib/live.js";
import { Dialog, Failed, Field, Notice, Sayings, session, useLive } from "./lib/ui.js";
import { Overview, faultsOf } from "./pages/overview.js";
import { Requests } from "./pages/requests.js";
import { Targets } from "./pages/targets.js";
import { Errors } from "./pages/errors.js";
import { Usage } from "./pages/usage.js";
import { Cache } from "./pages/cache.js";
import { Accounts } from "./pages/accounts.js";
import { Keys } from "./pages/keys.js";
import { Limits } from "./pages/limits.js";
import { Models } from "./pages/models.js";
import { Configuration } from "./pages/config.js";
import { Playground } from "./pages/playground.js";
import { Setup } from "./pages/setup.js";

const PAGES = [
  ["Now", [
    ["overview", "Overview", "o", Overview],
    ["requests", "Requests", "r", Requests],
    ["targets", "Targets", "t", Targets],
    ["errors", "Errors", "e", Errors],
  ]],
  ["Money", [
    ["usage", "Usage and cost", "u", Usage],
    ["cache", "Cache savings", "c", Cache],
    ["accounts", "Accounts", "a", Accounts],
    ["limits", "Limits", "l", Limits],
  ]],
  ["Set-up", [
    ["keys", "Keys", "k", Keys],
    ["models", "Models", "m", Models],
    ["config", "Configuration", "f", Configuration],
    ["playground", "Playground", "p", Playground],
    ["setup", "Client set-up", "s", Setup],
  ]],
];
const FLAT = PAGES.flatMap(([, pages]) => pages);

const stored = (name) => {
  try {
    return localStorage.getItem(`model-gateway.${name}`);
  } catch {
    return null;
  }
};
const store = (name, value) => {
  try {
    localStorage.setItem(`model-gateway.${name}`, value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
};

const THEMES = ["auto", "light", "dark"];
let theme = THEMES.includes(stored("theme")) ? stored("theme") : "auto";
document.documentElement.dataset.theme = theme;
let letters = stored("letters") !== "off";

function Theme() {
  const [, draw] = useState(0);
  const turn = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    document.documentElement.dataset.theme = theme;
    store("theme", theme);
    draw((n) => n + 1);
  };
  return html`<button type="button" class="button quiet small" onClick=${turn}><span aria-hidden="true">${theme === "dark" ? "☾" : theme === "light" ? "☼" : "◐"}</span> Theme: ${theme}</button>`;
}

const go = (page) => {
  location.hash = `#/${page}`;
};

// Keys: g and a letter opens a page, / the filter, j and k the rows, n makes a new entry, p pauses, ? explains.
function useKeyboard(help) {
  useEffect(() => {
    let began = 0;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (typing) {
        if (event.key === "Escape") typing.blur();
        return;
      }
      if (!letters) return;
      const asked = began && Date.now() - began < 1500 && FLAT.find(([, , letter]) => letter === event.key);
      began = 0;
      if (asked) go(asked[0]);
      else if (event.key === "g") began = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "p") setPaused(!live.paused);
      else if (event.key === "n") {
        const create = document.querySelector("[data-new]:not(:disabled)");
        if (!create) return;
        // The letter itself is not for the form that opens.
        event.preventDefault();
        create.click();
      }
      else if (event.key === "/") {
        const filter = document.querySelector("[data-filter]");
        if (!filter) return;
        event.preventDefault();
        filter.focus();
      } else if (event.key === "j" || event.key === "k") {
        const rows = [...document.querySelectorAll("[data-row]")];
        const index = rows.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
        rows[Math.max(0, Math.min(rows.length - 1, index))]?.focus();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function Help({ onClose }) {
  const [on, setOn] = useState(letters);
  const turn = () => {
    letters = !letters;
    store("letters", letters ? "on" : "off");
    setOn(letters);
  };
  const keys = [...FLAT.map(([, name, letter]) => [`g ${letter}`, name]), ["/", "Filter"], ["j  k", "Next row, row before"], ["Enter", "Open a row"], ["n", "New key or account"], ["p", "Pause or go on"], ["Esc", "Close, leave a field"], ["Ctrl Enter", "Run in the playground"], ["?", "This list"]];
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <div class="body"><dl class="keys">${keys.map(([key, text]) => html`<div><dt>${key.split(/ +/).map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
    <label class="check"><input type="checkbox" checked=${on} onChange=${turn} /> Single letters are shortcuts</label></div>
  <//>`;
}

// `isOver`: over a page that stays, so that an issuer of identities is visited in a tab of its own.
function SignIn({ onDone, error: first, isOver }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(first || null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await api.signIn(token.trim());
      onDone();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<form class="signin" onSubmit=${submit}>
    ${session.oidc && html`<a class="button primary block" href=${session.oidc} ...${isOver ? { target: "_blank", rel: "noopener" } : {}}>Sign in with SSO${isOver ? ", in another tab" : ""}</a><p class="or">or with a token</p>`}
    <${Field} label="Token" kind="password" value=${token} onValue=${setToken} hint="It is exchanged for a session, which ends 30 minutes after its last request, after 12 hours, or when you sign out." placeholder="mga_…" required autofocus />
    <${Failed} error=${error} />
    <button class="button primary block" type="submit" disabled=${!token.trim()}>Sign in</button>
    <details><summary>No token yet?</summary>
      <p>On the gateway's machine, make one and let the gateway read it:</p>
      <pre tabindex="0">model-gateway admin create NAME --role admin --conf gateway.toml
kill -HUP $(pidof model-gateway)</pre>
      <p>Roles: <b>read</b> looks, <b>operate</b> also drains, reloads and credits, <b>admin</b> also changes keys, accounts and models.</p>
    </details>
  </form>`;
}

// Asks for a new sign-in over a page in which something is typed, which stays. It goes by itself if another tab has signed in.
export function SignInAgain({ onDone, onCheck, onLater, onLeave }) {
  useEffect(() => {
    addEventListener("focus", onCheck);
    return () => removeEventListener("focus", onCheck);
  }, []);
  return html`<${Dialog} title="Your session has ended" onClose=${onLater}>
    <div class="body">
      <p>The gateway was restarted, or the session was too old. Nothing is lost: what you have typed is still there. Sign in again, then save it.</p>
      <${SignIn} onDone=${onDone} isOver />
    </div>
    <footer><button type="button" class="button" onClick=${onLeave}>Drop it and go on without</button></footer>
  <//>`;
}

export function Login({ error, onDone }) {
  return html`<main class="login">
    <div class="mark"><${Mark} /> <b>model-gateway</b></div>
    <h1>Sign in</h1>
    ${error && error.status !== 401 && html`<${Notice} tone="bad" title="The console cannot start.">${error.message}<//>`}
    <${SignIn} onDone=${onDone} />
    <${Theme} />
  </main>`;
}

function Mark() {
  return html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M7 9h4a5 5 0 0 1 5 5v4a5 5 0 0 0 5 5h4M7 23h4a5 5 0 0 0 5-5v-4a5 5 0 0 1 5-5h4" /></svg>`;
}

function Nav({ page }) {
  useLive();
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [page]);
  const name = FLAT.find(([path]) => path === page)?.[1] || "Menu";
  const faults = faultsOf();
  return html`<nav aria-label="Pages" class=${open ? "open" : ""}>
    <button type="button" class="button quiet toggle" aria-expanded=${open} onClick=${() => setOpen(!open)}>☰ ${name}</button>
    <div class="pages">${PAGES.map(([group, pages]) => html`<div class="group"><h2>${group}</h2><ul>
      ${pages.map(([path, label]) => html`<li><a href=${`#/${path}`} aria-current=${path === page ? "page" : undefined}><${Icon} name=${path} /><span class="grow">${label}</span>${path === "overview" && faults.length > 0 && html` <span class=${`bubble ${faults[0][0]}`}>${faults.length}<span class="hidden"> faults</span></span>`}</a></li>`)}
    </ul></div>`)}</div>
  </nav>`;
}

function Pulse() {
  useLive();
  const tone = !live.connected ? "bad" : live.paused ? "warn" : "good";
  return html`<button type="button" class=${`button quiet small pulse ${tone}`} aria-pressed=${live.paused} onClick=${() => setPaused(!live.paused)} title=${live.fault || "Pauses lists that move"}>
    <span class="dot" aria-hidden="true"></span>${!live.connected ? "Not connected" : live.paused ? "Paused" : "Live"}
  </button>`;
}

export function Shell({ at, onSignIn, onLeave }) {
  const [dialog, setDialog] = useState("");
  useKeyboard(() => setDialog("help"));
  const Content = FLAT.find(([path]) => path === at.page)?.[3] || Overview;
  const isLocal = session.caller === "local";
  return html`<a class="skip" href="#title" onClick=${(e) => { e.preventDefault(); document.getElementById("title")?.focus(); }}>To the content</a>
    <div class="shell">
      <header class="side">
        <a class="mark" href="#/overview"><${Mark} /> <b>model-gateway</b></a>
        <${Nav} page=${at.page} />
        <div class="foot">
          <${Pulse} />
          <p class="who"><b>${isLocal ? "This machine" : session.caller.replace(/^[a-z]+:/, "")}</b> may ${session.role === "admin" ? "do all" : session.role}
            ${isLocal ? html`<button type="button" class="link" onClick=${() => setDialog("sign-in")}>Sign in</button>` : html`<button type="button" class="link" onClick=${onLeave}>Sign out</button>`}</p>
          <div class="row"><${Theme} /><button type="button" class="button quiet small" onClick=${() => setDialog("help")}>Help <kbd>?</kbd></button></div>
          <p class="version">Version ${session.version}</p>
        </div>
      </header>
      <main>
        ${session.role === "read" && isLocal && html`<${Notice} tone="info" title="You can look at everything and change nothing."
          action=${html`<button type="button" class="button small" onClick=${() => setDialog("sign-in")}>Sign in</button>`}>
          Requests from this machine need no token for that. Changes do: <code>model-gateway admin create NAME --role admin</code><//>`}
        <${Content} key=${at.visit} parameters=${at.parameters} />
      </main>
    </div>
    ${dialog === "help" && html`<${Help} onClose=${() => setDialog("")} />`}
    ${dialog === "sign-in" && html`<${Dialog} title="Sign in" onClose=${() => setDialog("")}><div class="body"><${SignIn} onDone=${() => { setDialog(""); onSignIn(); }} /></div><//>`}
    <${Sayings} />`;
}
