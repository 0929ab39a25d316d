// The dashboard: the frame around the views.
//
// To add a view: write views/<name>.js that exports `View` (a component without arguments), write words/<name>.js
// with {en, fr}, add a line to views.js and `nav_<name>` to words/shell.js, and list style/<name>.css in api/dashboard.py
// if it needs one. README.md says what views share.
import { locked } from "./lib/api.js";
import { html, render, useEffect } from "./lib/html.js";
import { language, phrases } from "./lib/i18n.js";
import { beginMe } from "./state/me.js";
import { begin } from "./state/traffic.js";
import { route } from "./lib/route.js";
import { useSignal } from "./lib/signal.js";
import { Door } from "./shell/door.js";
import { Navigation } from "./shell/navigation.js";
import { Stage } from "./shell/stage.js";
import { Topbar } from "./shell/topbar.js";
import { VIEWS } from "./views.js";
import words from "./words/shell.js";

const t = phrases(words);

function App() {
  const tag = useSignal(language);
  const [name] = useSignal(route);
  const view = VIEWS.find((each) => each.name === name) ?? VIEWS[0];
  const title = t(`nav_${view.name}`);
  useEffect(() => {
    document.documentElement.lang = tag;
    document.title = `${title} · kimi-proxy`;
  }, [tag, title]);
  return html`
    <a class="skip" href="#content" onClick=${skip}>${t("skip")}</a>
    <${Navigation} current=${view.name} />
    <div class="page">
      <${Topbar} title=${title} picksSession=${view.isOfSession} />
      <main id="content" tabindex="-1"><${Stage} key=${view.name + tag} view=${view} /></main>
    </div>
    ${useSignal(locked) && html`<${Door} />`}
  `;
}

/** The address is the view's: a link to a place in the page would leave the view. */
function skip(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

begin();
beginMe();
const app = document.getElementById("app");
app.replaceChildren(); // what stood there until now
render(html`<${App} />`, app);
