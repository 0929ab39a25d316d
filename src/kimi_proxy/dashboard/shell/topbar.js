// Above every view: its title, which session is looked at, whether news come, and the viewer's choices.
import { post, token } from "../lib/api.js";
import { html } from "../lib/html.js";
import { choose as chooseLanguage, language, LANGUAGES, phrases } from "../lib/i18n.js";
import { me } from "../state/me.js";
import { useKnown } from "../state/traffic.js";
import { Tip } from "../parts/tip.js";
import { useSignal } from "../lib/signal.js";
import { choose as chooseTheme, theme, THEMES } from "../lib/theme.js";
import words from "../words/shell.js";
import { SessionPicker } from "./session_picker.js";

const t = phrases(words);
const NAMES = { en: "English", fr: "Français" };

export function Topbar({ title, picksSession }) {
  return html`<header class="topbar">
    <h1>${title}</h1>
    <${State} />
    ${picksSession && html`<${SessionPicker} />`}
    <div class="choices">
      <${Choice}
        label=${t("language")}
        value=${useSignal(language)}
        values=${LANGUAGES}
        text=${(tag) => NAMES[tag]}
        onChoose=${chooseLanguage}
      />
      <${Choice}
        label=${t("theme")}
        value=${useSignal(theme)}
        values=${THEMES}
        text=${(name) => t(`theme_${name}`)}
        onChoose=${chooseTheme}
      />
      <${Logout} />
    </div>
  </header>`;
}

/** For a person who has logged in; a person with a token logs out by closing the tab. */
function Logout() {
  const { is_team, person } = useSignal(me);
  if (!is_team || !person || token()) return null;
  const leave = () => post("/api/logout").then(() => location.assign("/"));
  return html`<button type="button" class="quiet" onClick=${leave}>${t("logout", { person })}</button>`;
}

function State() {
  const { state } = useKnown();
  return html`<span class="state ${state}" role="status"><span class="dot"></span>${t(`state_${state}`)}</span>`;
}

function Choice({ label, value, values, text, onChoose }) {
  return html`<${Tip} text=${label} isName>
    ${(props) => html`<select
      class="choice"
      ...${props}
      aria-label=${label}
      value=${value}
      onChange=${(event) => onChoose(event.currentTarget.value)}
    >
      ${values.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${text(each)}</option>`)}
    </select>`}
  <//>`;
}
