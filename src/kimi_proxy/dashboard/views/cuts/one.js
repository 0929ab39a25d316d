// One cut: the original beside what was sent of it, why each line stayed or went, and the way back.
import { get, save, useAnswer } from "../../lib/api.js";
import { titleOf } from "../../state/focus.js";
import { count, percent } from "../../lib/format.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { Card } from "../../parts/card.js";
import { Copy } from "../../parts/copy.js";
import { Icon } from "../../parts/icon.js";
import { Lines } from "../../parts/lines.js";
import { Answered, Failure } from "../../parts/notice.js";
import { link } from "../../lib/route.js";
import words from "../../words/cuts.js";

const t = phrases(words);
const PAGE = 5000;

export function OneCut({ id, line }) {
  const from = Math.max(1, Math.floor((line - 1) / PAGE) * PAGE + 1);
  const answer = useAnswer(`/api/cuts/${encodeURIComponent(id)}?from=${from}&lines=${PAGE}`);
  return html`
    <p><a href=${link("cuts")}>← ${t("back")}</a></p>
    <${Answered} answer=${answer} nothing=${t("gone")}>${(cut) => html`<${Shown} cut=${cut} at=${line} />`}<//>
  `;
}

function Shown({ cut, at }) {
  return html`
    <${Card} title=${cut.goal || cut.server || t(`kind_${cut.kind}`)} aside=${html`<span class="badge">${t(`via_${cut.via}`)}</span>`}>
      <${Facts} cut=${cut} />
      <${WaysBack} cut=${cut} />
    <//>
    <${Card} title=${t("beside")}>${cut.by === "lines" ? html`<${ByLines} cut=${cut} at=${at} />` : html`<${Texts} cut=${cut} at=${at} />`}<//>
  `;
}

function Facts({ cut }) {
  const saved = cut.tokens_before === null ? null : cut.tokens_before - cut.tokens_after;
  const session = known.sessions.get(cut.session_id);
  const facts = [
    [t("id"), html`<code>${cut.id}</code>`],
    saved !== null && [t("tokens"), `${t("from_to", { before: count(cut.tokens_before), after: count(cut.tokens_after) })} (−${percent((100 * saved) / cut.tokens_before)})`],
    cut.lines_cut !== null && [t("lines"), t("of", { part: count(cut.lines_cut), all: count(cut.original_lines) })],
    cut.source_type && [t("read_as"), t(`as_${cut.source_type}`)],
    cut.why && [t("reason"), t(`why_${cut.why}`)],
    session && [t("session"), titleOf(session)],
  ];
  return html`<dl class="facts">
    ${facts.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

function WaysBack({ cut }) {
  const [error, setError] = useState(null);
  const original = async () => (await get(`/api/mask/${cut.id}`)).text;
  const keep = () => original().then((text) => save(new Blob([text], { type: "text/plain" }), `${cut.id}.txt`), setError);
  return html`<div class="row-actions">
    <${Copy} text=${original} label=${t("copy_original")} />
    <button type="button" class="quiet" onClick=${keep}><${Icon} name="download" />${t("recover_file")}</button>
    <${Copy} text=${`kimi-proxy recover ${cut.id}`} label=${t("copy_command")} />
    ${error && html`<${Failure} error=${error} />`}
  </div>`;
}

function ByLines({ cut, at }) {
  const [more, setMore] = useState([]);
  const [error, setError] = useState(null);
  const lines = more.length ? [...cut.lines, ...more] : cut.lines;
  const last = lines.at(-1)?.line ?? 0;
  const load = () =>
    get(`/api/cuts/${cut.id}?from=${last + 1}&lines=${PAGE}`).then((page) => setMore([...more, ...page.lines]), setError);
  const first = cut.cuts[0]?.start ?? 0;
  const isThere = (at || first) <= last || last >= cut.original_lines || error;
  useEffect(() => {
    if (!isThere) load();
  }, [last]);
  const marker = ({ start, end, reason }) =>
    `⟦PRUNÉ: prune_id=${cut.id} lignes ${start}-${end} (${end - start + 1}) raison=${reason}⟧`;
  return html`
    ${isThere && html`<${Lines} label=${t("beside")} lines=${lines} cuts=${cut.cuts} marker=${marker} at=${at} />`}
    ${error && html`<${Failure} error=${error} />`}
    ${last < cut.original_lines && html`<p class="cuts-more"><button type="button" onClick=${load}>${t("more_lines", { n: cut.original_lines - last })}</button></p>`}
  `;
}

function Texts({ cut, at }) {
  const found = useRef(null);
  useEffect(() => found.current?.scrollIntoView({ block: "center" }), []);
  return html`
    ${cut.truncated && html`<p class="soft">${t("truncated")}</p>`}
    <div class="texts">
      <section aria-label=${t("original")}>
        <h3>${t("original")}</h3>
        <pre tabindex="0">${marked(at ? cut.original : readable(cut.original), at && at - cut.from + 1, found)}</pre>
      </section>
      <section aria-label=${t("sent")}>
        <h3>${t("sent")}</h3>
        ${cut.sent === null ? html`<p class="soft">${t(cut.kind === "history" ? "sent_summary" : "sent_unknown")}</p>` : html`<pre tabindex="0">${withMarker(cut.sent, at ? null : found)}</pre>`}
      </section>
    </div>
  `;
}

const MARKER = /\[KIMI_PROXY_OBSERVATION_MASKED [^\]]*\]|⟦PRUNÉ[^⟧]*⟧/;

/** What was sent, with the first marker in it to be scrolled to. */
function withMarker(text, found) {
  const marker = found && MARKER.exec(text);
  if (!marker) return text;
  const end = marker.index + marker[0].length;
  return html`${text.slice(0, marker.index)}<mark ref=${found}>${marker[0]}</mark>${text.slice(end)}`;
}

/** A text with the line that is looked for; without one, the text. */
function marked(text, line, found) {
  const lines = line ? text.split("\n") : [];
  if (line > lines.length || !line) return text;
  const before = lines.slice(0, line - 1).map((each) => each + "\n").join("");
  return html`${before}<mark ref=${found}>${lines[line - 1]}</mark>${text.slice(before.length + lines[line - 1].length)}`;
}

/** JSON with its lines broken where it has none. */
function readable(text) {
  if (text.includes("\n") || !/^[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
