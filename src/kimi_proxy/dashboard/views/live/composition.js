// What fills the window.
import { composition, PARTS } from "../../codes/composition.js";
import { tokens } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { Bar, Legend } from "../../parts/bar.js";
import { Card } from "../../parts/card.js";
import { Empty } from "../../parts/notice.js";
import { link } from "../../lib/route.js";
import words from "../../words/live.js";

const t = phrases(words);

export function Composition({ newest, id }) {
  const made = composition(newest, known.compositions.get(id));
  const parts = made && PARTS.map((name) => ({ name, label: t(name), value: made[name], text: tokens(made[name]) }));
  const aside = html`<a href=${link("map")}>${t("to_map")}</a>`;
  return html`<${Card} title=${t("composition")} name="live-composition" aside=${made && aside}>
    ${
      parts
        ? html`<${Bar} label=${t("composition")} parts=${parts} /><${Legend} parts=${parts} />`
        : html`<${Empty}>${t(newest ? "composition_unknown" : "waiting")}<//>`
    }
  <//>`;
}
