// A button that is only a picture: its name is shown while the pointer or the focus is on it.
import { html } from "../lib/html.js";
import { Icon } from "./icon.js";
import { Tip } from "./tip.js";

/** `isOn` makes it a switch. */
export function IconButton({ icon, label, isOn, describedBy, onClick }) {
  const pressed = isOn === undefined ? undefined : String(isOn);
  return html`<${Tip} text=${label} isName>
    ${(props) => html`<button
      type="button"
      class="icon-button"
      ...${props}
      aria-label=${label}
      aria-pressed=${pressed}
      aria-describedby=${describedBy}
      onClick=${onClick}
    >
      <${Icon} name=${icon} />
    </button>`}
  <//>`;
}
