// A horizontally scrolling box that shows at its edges on which side there is more.

import { html, useEffect, useRef, useState } from "../core/dom.js";

/** `label` is for screen readers; by keyboard, Tab focuses it and the arrow keys scroll it. */
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

/** The CSS classes of a box with overflow; fractions of a pixel are ignored. Pure. */
export function moreOf({ scrollLeft, clientWidth, scrollWidth }) {
  const left = scrollLeft > 1;
  const right = scrollLeft + clientWidth < scrollWidth - 1;
  return [left && "more-left", right && "more-right"].filter(Boolean).join(" ");
}
