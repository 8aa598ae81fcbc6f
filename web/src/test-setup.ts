import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

// What a test waits for comes at once, but on a machine that has much else to do.
configure({ asyncUtilTimeout: 10_000 });

afterEach(cleanup);

// What the component kit asks of a browser, and jsdom has not.
window.matchMedia ??= ((query: string) => ({
  matches: false,
  media: query,
  onchange: null,
  addListener() {},
  removeListener() {},
  addEventListener() {},
  removeEventListener() {},
  dispatchEvent: () => false,
})) as typeof window.matchMedia;
class Observer {
  observe() {}
  unobserve() {}
  disconnect() {}
}
window.ResizeObserver ??= Observer as unknown as typeof ResizeObserver;

// The editor measures its text from timers and frames of its own, where an error is nobody's test.
Range.prototype.getClientRects ??= () => [] as unknown as DOMRectList;
Range.prototype.getBoundingClientRect ??= () => new DOMRect();

// jsdom has no layout to scroll in.
Element.prototype.scrollIntoView ??= () => {};
