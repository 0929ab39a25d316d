// Words that appear beside a control while it is pointed at, focused or touched. Escape takes them away.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";

const EDGE = 8; // pixels that stay free at the rim of the window
let given = 0;

/**
 * `children(props, open)` draws the control with `props`. The words describe it to those who hear the page, unless they are
 * its name (`isName`), which a screen reader says anyway.
 */
export function Tip({ text, isName = false, children }) {
  const id = useMemo(() => `tip-${++given}`, []);
  const [isOpen, setOpen] = useState(false);
  const frame = useRef(null);
  const tip = useRef(null);
  const open = () => setOpen(true);
  const close = () => setOpen(false);
  useLayoutEffect(() => (isOpen ? shown(frame.current, tip.current, close) : undefined), [isOpen, text]);
  const props = {
    "aria-describedby": isName ? undefined : id,
    // A control that was clicked says so itself; one that got the focus by a key should say what it is.
    onFocus: (event) => event.currentTarget.matches(":focus-visible") && open(),
    onBlur: close,
  };
  return html`<span ref=${frame} class="tipped" onPointerEnter=${pointed(open)} onPointerLeave=${pointed(close)}>
    ${children(props, open)}
    ${(isOpen || !isName) && html`<span id=${id} ref=${tip} class="tip" role="tooltip" aria-hidden=${isName ? "true" : undefined} popover="manual" hidden=${!isOpen}>${text}</span>`}
  </span>`;
}

/** A finger does not point: what it touches it means, and a control may have its words shown then. */
const pointed = (act) => (event) => event.pointerType !== "touch" && act();

/** Puts the words beside their control until they are taken away. */
function shown(frame, tip, close) {
  const keyed = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // a dialog around it stays
    event.stopPropagation();
    close();
  };
  const touched = (event) => !frame.contains(event.target) && close();
  const follow = () => place(frame.firstElementChild.getBoundingClientRect(), tip);
  tip.showPopover?.();
  follow();
  document.addEventListener("keydown", keyed, true);
  document.addEventListener("pointerdown", touched, true);
  document.addEventListener("scroll", follow, true);
  return () => {
    document.removeEventListener("keydown", keyed, true);
    document.removeEventListener("pointerdown", touched, true);
    document.removeEventListener("scroll", follow, true);
    if (tip.isConnected) tip.hidePopover?.();
  };
}

/** Under the control, or above it where there is no room; without a gap, so that a pointer can go there. */
function place(control, tip) {
  const { width, height } = tip.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  const under = control.bottom + height + EDGE <= clientHeight;
  tip.style.left = `${Math.max(EDGE, Math.min(control.left, clientWidth - width - EDGE))}px`;
  tip.style.top = `${under ? control.bottom : Math.max(EDGE, control.top - height)}px`;
}
