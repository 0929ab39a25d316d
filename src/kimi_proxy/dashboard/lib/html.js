// What views are written in: preact's components, htm's templates.
import { h, render } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
export { render };
export {
  useCallback,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/preact-hooks.mjs";
