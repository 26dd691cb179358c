// What every file of the console builds its elements with.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment };
export { useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect } from "../vendor/hooks.js";
