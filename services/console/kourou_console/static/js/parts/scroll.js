// A box that scrolls sideways, and shows at its edges on which side there is more.

import { html, useEffect, useRef, useState } from "../core/dom.js";

/** `label` names it for screen readers; by keyboard it is reached by Tab and moved by the arrows. */
export function Scroll({ label, children }) {
  const box = useRef(null);
  const [more, setMore] = useState("");
  useEffect(() => {
    const look = () => setMore(moreOf(box.current));
    const sizes = new ResizeObserver(look);
    sizes.observe(box.current);
    for (const child of box.current.children) sizes.observe(child);
    box.current.addEventListener("scroll", look, { passive: true });
    return () => sizes.disconnect();
  }, []);
  return html`<div class=${`scroll-edges ${more}`}>
    <div ref=${box} class="scroll" role="group" aria-label=${label} tabindex="0">${children}</div>
  </div>`;
}

/** The classes of a box of which something is cut off; a fraction of a pixel is nothing. Pure. */
export function moreOf({ scrollLeft, clientWidth, scrollWidth }) {
  const left = scrollLeft > 1;
  const right = scrollLeft + clientWidth < scrollWidth - 1;
  return [left && "more-left", right && "more-right"].filter(Boolean).join(" ");
}
