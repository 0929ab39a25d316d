// Takes requests away as a file: those of one chosen session, or of all.
import { download } from "../../lib/api.js";
import { errorText } from "../../codes/errors.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Icon } from "../../parts/icon.js";
import { Tip } from "../../parts/tip.js";
import words from "../../words/sessions.js";

const t = phrases(words);

export function Export({ sessions }) {
  const [message, setMessage] = useState("");
  const one = sessions.length === 1 ? sessions[0] : null;
  const fetched = (format) => {
    const path = `/api/export/${format}${one ? `?session=${encodeURIComponent(one.id)}` : ""}`;
    const file = `kimi-proxy-${one ? one.id : "all"}.${format}`;
    setMessage("");
    download(path, file).catch((error) => setMessage(errorText(error)));
  };
  const title = t(one ? "export_one" : "export_all");
  return html`
    ${["csv", "json"].map(
      (
        format,
      ) => html`<${Tip} key=${format} text=${title}>
        ${(props) => html`<button type="button" ...${props} disabled=${sessions.length > 1} onClick=${() => fetched(format)}>
          <${Icon} name="download" />${format.toUpperCase()}
        </button>`}
      <//>`,
    )}
    ${message && html`<span class="wrong" role="alert">${message}</span>`}
  `;
}
