// The client's tools: what describing them costs, how often they were called, and one click to leave one out.
import { patch, useAnswer } from "../../lib/api.js";
import { count, tokens, usd } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Failure } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { useTurn } from "../../state/refresh.js";
import words from "../../words/map.js";
import { Saved } from "../settings/saved.js";

const t = phrases(words);
const LIST = "deferred_tools.tools";

export function Described({ tools }) {
  const settings = useAnswer("/api/settings", useTurn(null, ["settings_event"])).value;
  const [chosen, setChosen] = useState([]);
  const [changed, setChanged] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => setChosen(settings?.lists[LIST] ?? []), [settings]);
  if (!tools?.length) return null;
  const toggle = async (pattern) => {
    setError(null);
    const others = chosen.filter((each) => each !== pattern);
    const wanted = others.length < chosen.length ? others : [...chosen, pattern];
    try {
      const answer = await patch("/api/settings", { [LIST]: wanted });
      setChosen(answer.lists[LIST]);
      setChanged(answer);
    } catch (failure) {
      setError(failure);
    }
  };
  const columns = [
    { key: "name", title: t("tool"), cell: nameOf },
    { key: "tokens", title: t("tool_tokens"), align: "right", cell: (row) => tokens(row.tokens) },
    { key: "usd", title: t("tool_usd"), align: "right", cell: (row) => usd(row.session_usd) },
    { key: "calls", title: t("tool_calls"), align: "right", cell: (row) => (row.calls ? count(row.calls) : t("never_called")) },
    { key: "defer", title: t("tool_sent"), cell: (row) => html`<${Choice} row=${row} isChosen=${chosen.includes(row.pattern)} onToggle=${toggle} />` },
    { key: "off", title: t("switch_off"), wide: true, cell: (row) => row.switch_off && html`<code>${row.switch_off}</code>` },
  ];
  return html`<${Card} title=${t("described")} name="described-tools" note=${t("described_note")}>
    <${Table} caption=${t("described")} columns=${columns} rows=${tools} keyOf=${(row) => row.pattern} maxHeight="24rem" />
    ${error && html`<${Failure} error=${error} />`}
    ${changed && html`<${Saved} done=${{ saved: changed.saved, problem: changed.problem, code: changed.problem_code }} file=${changed.file} />`}
  <//>`;
}

function Choice({ row, isChosen, onToggle }) {
  const label = t(isChosen ? "describe_again" : "defer", { name: row.name });
  return html`<button type="button" class="small" aria-label=${label} onClick=${() => onToggle(row.pattern)}>
      ${t(isChosen ? "describe_again_short" : "defer_short")}
    </button>
    ${row.left_out > 0 && html` <span class="badge ok">${t("left_out", { n: row.left_out })}</span>`}
    ${isChosen && row.left_out === 0 && html` <span class="badge">${t("left_out_later")}</span>`}`;
}

function nameOf({ name, is_server: isServer, tools }) {
  return isServer ? t("mcp_server", { name, n: tools }) : name;
}
