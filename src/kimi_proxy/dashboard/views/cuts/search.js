// Finds a line that was cut, by what it said.
import { get } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Icon } from "../../parts/icon.js";
import { Empty, Failure } from "../../parts/notice.js";
import { link } from "../../lib/route.js";
import words from "../../words/cuts.js";

const t = phrases(words);
let last = { wanted: "", found: null }; // the others are there again when a person comes back from a hit

export function Search() {
  const [wanted, setWanted] = useState(last.wanted);
  const [found, setFound] = useState(last.found);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const answer = { ...(await get(`/api/cuts/search?q=${encodeURIComponent(wanted)}`)), wanted };
      last = { wanted, found: answer };
      setFound(answer);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Card} title=${t("search")}>
    <form class="cuts-search" role="search" onSubmit=${submit}>
      <input type="search" aria-label=${t("search_label")} placeholder=${t("search_hint")} value=${wanted} required maxlength="500" onInput=${(event) => setWanted(event.currentTarget.value)} />
      <button type="submit" class="main" disabled=${isBusy}><${Icon} name="search" />${t("find")}</button>
    </form>
    ${error && html`<${Failure} error=${error} />`}
    ${found && html`<${Found} found=${found} />`}
  <//>`;
}

function Found({ found }) {
  const { hits, searched, stopped } = found;
  return html`<div role="status">
    <p class="soft">${t("hits", { n: hits.length, searched: count(searched) })} ${stopped && t(`stopped_${stopped}`)}</p>
    ${hits.length === 0
      ? html`<${Empty}>${t("no_hits")}<//>`
      : html`<ul class="cuts-hits">
          ${hits.map(
            (hit) => html`<li key=${`${hit.id}:${hit.line}`}>
              <a href=${link("cuts", hit.id, String(hit.line))}><span class="mono">${hit.id.slice(0, 8)}…</span> ${t("line", { line: count(hit.line) })}</a>
              <code>${marked(hit.text, found.wanted)}</code>
            </li>`,
          )}
        </ul>`}
  </div>`;
}

function marked(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted.toLowerCase());
  if (at < 0) return text;
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + wanted.length)}</mark>${text.slice(at + wanted.length)}`;
}
