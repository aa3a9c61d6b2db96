// Preact, its hooks and htm in one module. Besides the charts, only this imports from vendor/.

import htm from "../../vendor/htm.js";
import { h } from "../../vendor/preact.js";

export { Fragment, createContext, h, render } from "../../vendor/preact.js";
export {
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "../../vendor/hooks.js";

export const html = htm.bind(h);
