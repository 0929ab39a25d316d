// The way to the views.
import { html } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { Icon } from "../parts/icon.js";
import { Tip } from "../parts/tip.js";
import { link } from "../lib/route.js";
import { useSignal } from "../lib/signal.js";
import { me } from "../state/me.js";
import { VIEWS } from "../views.js";
import words from "../words/shell.js";

const t = phrases(words);

export function Navigation({ current }) {
  const isTeam = useSignal(me).is_team;
  return html`<nav class="navigation" aria-label=${t("navigation")}>
    <a class="brand" href=${link("live")}>
      <img src="/dashboard/icon.svg" alt="" width="28" height="28" /><span>kimi-proxy</span>
    </a>
    <ul>
      ${VIEWS.filter(({ isForTeams }) => !isForTeams || isTeam).map(
        ({ name, icon }) => html`<li key=${name}>
          <${Tip} text=${t(`nav_${name}`)} isName>
            ${(props) => html`<a href=${link(name)} ...${props} aria-current=${name === current ? "page" : undefined}>
              <${Icon} name=${icon} /><span>${t(`nav_${name}`)}</span>
            </a>`}
          <//>
        </li>`,
      )}
    </ul>
  </nav>`;
}
