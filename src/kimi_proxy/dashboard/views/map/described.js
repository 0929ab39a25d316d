// What the descriptions of the client's tools weigh in every request, and what switches each off.
import { count, tokens } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Table } from "../../parts/table.js";
import words from "../../words/map.js";

const t = phrases(words);
const COLUMNS = [
  { key: "name", title: () => t("tool"), cell: nameOf },
  { key: "tokens", title: () => t("tool_tokens"), align: "right", cell: (row) => tokens(row.tokens) },
  { key: "calls", title: () => t("tool_calls"), align: "right", cell: (row) => (row.calls ? count(row.calls) : t("never_called")) },
  { key: "off", title: () => t("switch_off"), wide: true, cell: (row) => row.switch_off && html`<code>${row.switch_off}</code>` },
];

export function Described({ tools }) {
  if (!tools?.length) return null;
  const columns = COLUMNS.map((each) => ({ ...each, title: each.title() }));
  return html`<${Card} title=${t("described")} name="described-tools" note=${t("described_note")}>
    <${Table} caption=${t("described")} columns=${columns} rows=${tools} keyOf=${(row) => `${row.is_server} ${row.name}`} maxHeight="24rem" />
  <//>`;
}

function nameOf({ name, is_server: isServer, tools }) {
  return isServer ? t("mcp_server", { name, n: tools }) : name;
}
