// Start of the console: who the caller is, the page that the address names, and the keyboard.
import { html, render, useEffect, useState } from "./lib/html.js";
import * as api from "./lib/api.js";
import { setCurrency } from "./lib/format.js";
import * as live from "./lib/live.js";
import { session } from "./lib/ui.js";
import { Login, Shell, SignInAgain } from "./shell.js";

// Returns the page and its parameters: #/keys?name=ci.
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

// Returns where single sign-on begins, relative to the page; null if it is not configured.
const signOn = (found) => (found?.oidc_start ? `..${found.oidc_start}` : null);

// Whether something may have been typed that a page drawn anew would not have.
const hasInput = () => !!document.querySelector("dialog[open]") || [...document.querySelectorAll("main textarea")].some((area) => area.value);

function App() {
  const [state, setState] = useState({ known: null, error: null, frame: 0 });
  // Every visit draws its page anew, also one of the same address.
  const [at, setAt] = useState({ ...place(), visit: 0 });
  const [hasEnded, setEnded] = useState(false);
  // Shows who stands behind the page, which is drawn anew for another caller. What is typed into a form stays if this is a `check`, or the
  // end of one (`again`).
  const identify = async (why = "") => {
    try {
      const found = await api.readSession();
      session.oidc = signOn(found);
      const isOther = found.caller !== session.caller || found.role !== session.role;
      if (why === "check" && session.via === "session" && isOther && hasInput()) {
        setEnded(true);
        return;
      }
      setEnded(false);
      api.acceptSession();
      session.via = found.via;
      if (found.via === "none") {
        live.stop();
        setState((before) => ({ ...before, known: false, error: null }));
        return;
      }
      const index = await api.get("");
      setCurrency(index.currency);
      Object.assign(session, { caller: index.caller, role: index.role, version: index.version });
      setState((before) => ({ known: true, error: null, frame: isOther && why !== "again" ? before.frame + 1 : before.frame }));
      live.start();
    } catch (error) {
      // A gateway that is gone for a moment does not take the page along.
      setState((before) => (before.known && error.status === 0 ? before : { ...before, known: false, error }));
    }
  };
  useEffect(() => {
    api.setOnChange(() => identify("check"));
    identify();
    const go = () => setAt((before) => ({ ...place(), visit: before.visit + 1 }));
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  // From here on a page can be used, or one can sign in.
  useEffect(() => {
    if (state.known !== null && !performance.getEntriesByName("interactive").length) performance.mark("interactive");
  }, [state.known]);
  useEffect(() => {
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }, [at.page]);
  const leave = async () => {
    live.stop();
    await api.signOut().catch(() => null);
    await identify();
  };
  if (state.known === null) return html`<p class="loading">Loading the console …</p>`;
  if (!state.known) return html`<${Login} error=${state.error} onDone=${() => identify()} />`;
  return html`<${Shell} key=${state.frame} at=${at} onSignIn=${() => identify()} onLeave=${leave} />
    ${hasEnded && html`<${SignInAgain} onDone=${() => identify("again")} onCheck=${() => identify("check")} onLater=${() => setEnded(false)} onLeave=${() => identify()} />`}`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
