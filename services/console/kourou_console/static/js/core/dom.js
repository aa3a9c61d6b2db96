// Preact, its hooks and htm under one name. Nothing else imports from vendor/, but the charts.

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
