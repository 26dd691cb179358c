// Start of the console: who the caller is, the page that the address names, and the keyboard.
import { html, render, useEffect, useState } from "./lib/html.js";
import * as api from "./lib/api.js";
import * as live from "./lib/live.js";
import { session } from "./lib/ui.js";
import { Login, Shell } from "./shell.js";

// Returns the page and its parameters: #/keys?name=ci.
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

// Returns where single sign-on begins, relative to the page; null if it is not configured.
const signOn = (found) => (found?.oidc_start ? `..${found.oidc_start}` : null);

function App() {
  const [state, setState] = useState({ known: null, error: null });
  const [at, setAt] = useState(place());
  const identify = async () => {
    try {
      const found = await api.readSession();
      session.oidc = signOn(found);
      if (found.via === "none") {
        live.stop();
        setState({ known: false, error: null });
        return;
      }
      const index = await api.get("");
      Object.assign(session, { caller: index.caller, role: index.role, version: index.version });
      setState({ known: true, error: null });
      live.start();
    } catch (error) {
      setState({ known: false, error });
    }
  };
  useEffect(() => {
    api.setOnChange(identify);
    identify();
    const go = () => setAt(place());
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
  if (!state.known) return html`<${Login} error=${state.error} onDone=${identify} />`;
  return html`<${Shell} key=${`${session.caller} ${session.role}`} at=${at} onSignIn=${identify} onLeave=${leave} />`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
