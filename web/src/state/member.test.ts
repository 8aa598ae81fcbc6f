import { expect, test } from "vitest";
import { ails, memberState, memberWhy, trust } from "./member";

const drain = { ending: 0, left: 2, moving: 1, parallel: 1, since: "" };

test("the state that matters most is named", () => {
  expect(memberState({ connected: true })).toBe("Connected");
  expect(memberState({ connected: false })).toBe("Disconnected");
  expect(memberState({ connected: false, lost: true, hold: "x" })).toBe("Lost");
  expect(memberState({ connected: true, hold: "drained", drain })).toBe("Draining");
  expect(memberState({ connected: true, hold: "drained", drain: { ...drain, left: 0, done: true } })).toBe("Drained");
  expect(memberState({ connected: true, hold: "disk" })).toBe("Cordoned");
  expect(memberState({ connected: true, refusing: "disk", credit: { rank: 0.2, quarantine: "lies" } })).toBe(
    "Quarantined",
  );
});

test("trust says by how much a member counts", () => {
  expect(trust(undefined)).toBe("Trusted");
  expect(trust({ rank: 0.62 })).toBe("Counts for 62 %");
  expect(trust({ rank: 0.1, quarantine: "it says too much" })).toBe("Quarantined: it says too much");
});

test("the reason stands beside the state", () => {
  expect(memberWhy({ connected: true })).toBe("");
  expect(memberWhy({ connected: true, hold: "new disk" })).toBe("new disk");
  expect(memberWhy({ connected: true, hold: "drained", drain })).toBe("2 still to leave");
  expect(memberWhy({ connected: true, refusing: "its disk is nearly full" })).toBe("its disk is nearly full");
  expect(memberWhy({ connected: false, lost: true, cutOff: true })).toBe("another worker reaches it");
  expect(memberWhy({ connected: true, hold: "x", credit: { rank: 0.2, quarantine: "lies" } })).toBe("lies");
});

test("what an operator ordered needs no attention, what happened does", () => {
  expect(ails({ connected: true })).toBe(false);
  expect(ails({ connected: true, hold: "new disk" })).toBe(false);
  expect(ails({ connected: true, hold: "drained", drain })).toBe(false);
  expect(ails({ connected: false })).toBe(true);
  expect(ails({ connected: true, refusing: "its disk is nearly full" })).toBe(true);
});
